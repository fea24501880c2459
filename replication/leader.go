package replication

import (
	"time"

	"github.com/holdfast-mq/holdfast/replication/transport"
)

// Leader returns the node id of the leader that this replica knows, empty without one,
// and when the last append of a leader ended here: while another node is named, that
// one lived shortly before then. It costs less than Status.
func (g *Group) Leader() (node string, heard time.Time) {
	in := g.inst.Load()
	if in == nil {
		return "", time.Time{}
	}
	// Read first: what comes after it can only be of a later leader.
	heard = in.raft.LastContact()
	if leader, _ := in.raft.LeaderWithID(); leader != "" {
		node, _ = transport.NodeOf(leader)
	}
	return node, heard
}
