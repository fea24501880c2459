//go:build !planted_nosync

package seglog

// syncBatches is false only in builds with the planted bug, which prove that the crash tests can fail.
const syncBatches = true
