package node

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-mq/holdfast/replication"
)

const (
	// refuseTick is how often a node looks whether it is one too many.
	refuseTick = 250 * time.Millisecond
	// removedTick is how often a node without a leader asks whether it was removed.
	removedTick = time.Second
)

// Answers to callMember.
const (
	isIn      = "in"
	isOut     = "out"
	isRemoved = "removed" // out, and an operator, or the node itself, wanted that
)

// refuseTwin ends this node if another live one has its id. The one that was there first goes on.
func (n *Node) refuseTwin(ctx context.Context) {
	if n.gossip == nil {
		return
	}
	n.every(ctx, refuseTick, func() bool {
		c, twin := n.gossip.Twin()
		if twin {
			n.onFatal(&ConfigError{
				"--node-id",
				fmt.Sprintf("%s is in use by another live node, whose gossip address is %s", n.cfg.NodeID, c.Other),
				"give this node an id of its own, or stop the other one",
			})
		}
		return !twin
	})
}

// refuseRemoved ends a node that was taken out of its cluster, also one that was not there then and comes back
// with its old data: its replicas are in no group any more, nobody votes for them, and what they hold is old.
func (n *Node) refuseRemoved(ctx context.Context) {
	n.every(ctx, removedTick, func() bool {
		g := n.host.Group(replication.Metadata)
		st := g.Status()
		if n.host.ClusterID() == "" || st.Replicating && holds(st, g.Server()) || n.parting.Load() {
			return true
		}
		if !n.removed(ctx, g.Server()) || n.parting.Load() {
			return true
		}
		n.onFatal(&ConfigError{
			"--data-dir",
			fmt.Sprintf("%s is of node %s, which was removed from its cluster", n.cfg.DataDir, n.cfg.NodeID),
			"give an empty directory, and the node joins anew; the old one is not touched",
		})
		return false
	})
}

// removed asks the other nodes, of which the leader of group 0 answers.
func (n *Node) removed(ctx context.Context, server string) bool {
	for _, id := range n.known() {
		if id == n.cfg.NodeID {
			continue
		}
		call, cancel := context.WithTimeout(ctx, foreignCall)
		b, err := n.host.Transport().Call(call, id, replication.Metadata, callMember, []byte(server))
		cancel()
		if err == nil {
			return string(b) == isRemoved
		}
	}
	return false
}
