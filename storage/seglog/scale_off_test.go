//go:build !race

package seglog

// thin is how much smaller the exhaustive tests are in this build.
const thin = 1
