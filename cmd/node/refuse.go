package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage/record"
)

const (
	// refuseTick is how often a node looks whether it is one too many.
	refuseTick = 250 * time.Millisecond
	// removedTick is how often a node without a leader asks whether it was removed.
	removedTick = time.Second
	// meetTick is how often a node dials those to which it has no connection: two processes with one node id are
	// told apart by the nodes that hear one of them.
	meetTick = time.Second
)

// Answers to callMember.
const (
	isIn      = "in"
	isOut     = "out"
	isRemoved = "removed" // out of the metadata group, and an operator, or the node itself, wanted that; see standing
)

// refuseTwin ends this node if another live one has its id. The one that the others hear goes on: that is the one
// that was there first, unless it was silent when the second one came.
func (n *Node) refuseTwin(ctx context.Context) {
	n.every(ctx, refuseTick, func() bool {
		problem := n.twin()
		if problem != "" {
			n.onFatal(&ConfigError{
				"--node-id", problem, "give this node an id of its own, or stop the other one",
			})
		}
		return problem == ""
	})
}

// twin says who has this node's id and where; empty if nobody does.
func (n *Node) twin() string {
	if n.gossip != nil {
		if c, ok := n.gossip.Twin(); ok {
			return fmt.Sprintf("%s is in use by another live node, whose gossip address is %s", n.cfg.NodeID, c.Other)
		}
	}
	t, ok := n.host.Transport().Twin()
	if !ok || n.heardByLeader() {
		return ""
	}
	return fmt.Sprintf("%s is in use by another live node, which %s hears at %s", n.cfg.NodeID, t.Peer, t.Other)
}

// heardByLeader says that the leader of the metadata group is in contact with this process: of two processes that
// are each refused by some of the others, as after a partition, that one goes on. A sole voter leads whoever
// hears it, so its being the leader proves nothing.
func (n *Node) heardByLeader() bool {
	leader := n.host.Group(replication.Metadata).Status().Leader
	return leader != "" && (leader != n.cfg.NodeID || n.voters(replication.Metadata) > 1)
}

// meet keeps a connection to every other node, also where no group needs one.
func (n *Node) meet(ctx context.Context) {
	n.every(ctx, meetTick, func() bool {
		ids := n.known()
		n.meta.Scan(replication.NodePrefix, func(r record.MetaRow) bool {
			ids = append(ids, strings.TrimPrefix(r.Key, replication.NodePrefix))
			return true
		})
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			if id != n.cfg.NodeID && !n.leaving(id) {
				n.host.Transport().Meet(id)
			}
		}
		return true
	})
}

// refuseRemoved ends a node that was taken out of its cluster, also one that was not there then and comes back
// with its old data: its replica of the metadata group is in it no more, the others go or are gone, and what they
// hold is old.
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
