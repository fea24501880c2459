//go:build planted_earlycut

package replication

// plantEarlyCut is the place of a planted bug: the log is cut behind what is applied,
// although the state may have less than that on its disk. The simulation must catch it.
func plantEarlyCut(in *instance) {
	if keep, reach := in.g.cfg.Retention.MinTrailing, in.rep.applied().index; reach > keep {
		_ = in.rep.logs.log.TruncatePrefix(reach - keep) // a log that fails shows elsewhere
	}
}
