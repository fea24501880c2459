//go:build race

package seglog

// thin is how much smaller the exhaustive tests are in this build: the race detector makes them slow, and what
// it looks for is in the concurrent tests.
const thin = 8
