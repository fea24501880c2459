//go:build planted_earlyack

package plan

// plantEarlyAck is the place of a planted bug: what asked for a quorum is answered when
// the leader alone has it. The test of the answers must catch it.
func plantEarlyAck(p *Planner, e *envelope) {
	for _, op := range e.ops {
		p.finish(op)
	}
	e.ops = nil
}
