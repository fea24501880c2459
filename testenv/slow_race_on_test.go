//go:build race

package testenv

// slowQueues is how many queues are on slow disks: few, since the race detector makes each ten times as dear.
const slowQueues = 200
