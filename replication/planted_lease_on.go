//go:build planted_nolease

package replication

// plantedNoLease is a planted bug: a leader acts without a look at its lease. The
// simulation must catch it.
const plantedNoLease = true
