//go:build planted_nosync

package seglog

// syncBatches plants a bug: batches are reported durable without a sync. Crash tests must notice.
const syncBatches = false
