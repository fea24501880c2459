//go:build planted_nolease

package replication

// plantedNoLease is a planted bug: a leader acts without a look at its lease. A
// test of a transfer must catch it.
const plantedNoLease = true
