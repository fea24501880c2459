package replication

import "github.com/holdfast-mq/holdfast/storage/seglog"

// LogStats returns the counters and sizes of the replica's log, for metrics; zeros for a damaged one.
func (g *Group) LogStats() seglog.Stats {
	r := g.rep.Load()
	if r.logs == nil {
		return seglog.Stats{}
	}
	return r.logs.log.Stats()
}
