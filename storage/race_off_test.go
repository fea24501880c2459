//go:build !race

package storage

// raceEnabled thins exhaustive tests out: the race detector makes them ten times slower.
const raceEnabled = false
