//go:build planted_nofence

package replication

// plantedNoFence is a planted bug: envelopes are applied whatever they were planned
// upon. The simulation must catch it.
const plantedNoFence = true
