package replication

import "github.com/holdfast-mq/holdfast/storage/seglog"

// LogStats returns the counters and sizes of the replica's log, for metrics.
func (g *Group) LogStats() seglog.Stats { return g.logs.log.Stats() }
