//go:build !race

package testenv

// slowQueues is how many queues are on slow disks.
const slowQueues = 2000
