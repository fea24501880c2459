package node

import (
	"context"

	"github.com/holdfast-mq/holdfast/replication"
)

// tellAddress tells the others where this node's replicas are, while no leader reaches them: its address may be
// another one than before, and what it registers needs a leader.
func (n *Node) tellAddress(ctx context.Context) {
	n.every(ctx, removedTick, func() bool {
		if n.host.ClusterID() == "" || n.host.Group(replication.Metadata).Status().Replicating {
			return true
		}
		for _, id := range n.known() {
			if id == n.cfg.NodeID {
				continue
			}
			call, cancel := context.WithTimeout(ctx, foreignCall)
			// Who does not answer is told again in a moment.
			_, _ = n.host.Transport().Call(call, id, replication.Metadata, callMoved, []byte(n.raftAddr()))
			cancel()
		}
		return true
	})
}

// onMoved keeps what a registered node told. It is believed only while gossip hears nobody of that name, so that
// a second node with the id of a live one cannot take its place.
func (n *Node) onMoved(_ context.Context, from string, _ uint32, payload []byte) ([]byte, error) {
	if a, err := parseAddress(string(payload)); err != nil || a.port == 0 {
		return nil, &ConfigError{"--raft-advertise", "is no address: " + string(payload), "give host:port"}
	}
	if _, ok := n.meta.Get(replication.NodeKey(from)); ok {
		n.told.Store(from, string(payload))
	}
	return nil, nil
}
