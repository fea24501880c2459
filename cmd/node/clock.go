package node

import (
	"time"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/clock"
)

// clock returns the cluster clock of a group, nil if there is no such group.
func (n *Node) clock(group uint32) *clock.Clock {
	if g := n.host.Group(group); g != nil {
		return g.Clock()
	}
	return nil
}

// agesTrusted says whether messages of a group may be deleted by age now.
func (n *Node) agesTrusted(group uint32) bool {
	c := n.clock(group)
	return c != nil && c.AgeTrusted()
}

// clusterTime is the cluster time of group 0; before there is one, that of the wall clock.
func (n *Node) clusterTime() int64 {
	if c := n.clock(replication.Metadata); c != nil {
		if t, runs := c.Now(); runs {
			return t
		}
	}
	return time.Now().UnixNano()
}
