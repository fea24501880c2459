//go:build race

package replication

// underRace says that the race detector watches, which makes virtual time ten times as dear.
const underRace = true
