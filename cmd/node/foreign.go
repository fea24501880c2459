package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/transport"
)

const (
	// foreignTick is how often a node looks whether the others are of its cluster, until one is.
	foreignTick = 250 * time.Millisecond
	// foreignCall bounds the wait for one peer.
	foreignCall = time.Second
)

// refuseForeign ends a node whose data directory belongs to another cluster than those
// that its configuration leads it to: if some of them say so and none is of its own. One
// wrong peer does not take a whole cluster down.
func (n *Node) refuseForeign(ctx context.Context) {
	if n.host.ClusterID() == "" {
		return
	}
	n.every(ctx, foreignTick, func() bool {
		ours, foreign := n.foreignPeers(ctx)
		if gossiping := n.gossip != nil; gossiping {
			here, there := n.foreignMembers()
			ours, foreign = ours || here, foreign+there
		}
		if ours || foreign == "" {
			return !ours
		}
		n.onFatal(&ConfigError{
			"--data-dir",
			fmt.Sprintf("%s is of cluster %q, the other nodes are of another one: %s",
				n.cfg.DataDir, n.host.ClusterID(), foreign),
			"give the directory of this node in that cluster, an empty one to join it anew, or other addresses",
		})
		return false
	})
}

// foreignPeers asks the peers of a fixed membership: whether one is of this cluster, and
// what one of another one says.
func (n *Node) foreignPeers(ctx context.Context) (ours bool, foreign string) {
	for id := range n.fixed {
		if id == n.cfg.NodeID {
			continue
		}
		call, cancel := context.WithTimeout(ctx, foreignCall)
		_, err := n.host.Transport().Call(call, id, replication.Metadata, callIdentity, nil)
		cancel()
		switch {
		case err == nil:
			ours = true
		case errors.Is(err, transport.ErrOtherCluster):
			foreign = err.Error()
		}
	}
	return ours, foreign
}

// foreignMembers asks gossip the same.
func (n *Node) foreignMembers() (ours bool, foreign string) {
	for _, m := range n.gossip.Members() {
		own := m.NodeID != n.cfg.NodeID && m.Tags.ClusterID == n.host.ClusterID()
		ours = ours || own && m.Status == discovery.Alive
	}
	for _, c := range n.gossip.Conflicts() {
		if strings.Contains(c.Reason, discovery.ErrOtherCluster.Error()) {
			foreign = c.Reason
		}
	}
	return ours, foreign
}
