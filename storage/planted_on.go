//go:build planted_noflush

package storage

// plantedNoFlush is a planted bug: publish a local snapshot without the flush
// that makes the state durable. The crash tests must catch it.
const plantedNoFlush = true
