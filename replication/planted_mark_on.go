//go:build planted_belowmark

package replication

// plantedBelowMark is a planted bug: a replica that is below its mark goes on as if it
// were sound. A test with an old disk must catch it.
const plantedBelowMark = true
