package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/transport"
)

// givenUpPause bounds the pause between two calls of a node that was given up: it goes on for so long if it comes back
// and gives no sign of it.
const givenUpPause = time.Minute

// A sign is what shows that a node is there.
type sign struct {
	alive    time.Time // since when gossip has heard it; zero if it does not
	accepted bool      // it has a connection to this node
}

// A reminder says when a node is to be told something again: with growing pauses, and at once when it comes back.
type reminder struct {
	next  time.Time
	pause time.Duration
	last  sign
}

// due says whether it is time, given what shows that the node is there, and sets the next one.
func (r *reminder) due(now time.Time, s sign) bool {
	if !s.alive.IsZero() && !s.alive.Equal(r.last.alive) || s.accepted && !r.last.accepted {
		r.next, r.pause = now, 0
	}
	r.last = s
	if now.Before(r.next) {
		return false
	}
	r.pause = min(max(removedTick, 2*r.pause), givenUpPause)
	r.next = now.Add(r.pause)
	return true
}

// tellGivenUp tells the nodes without which this one was recovered, when they come back with their old data: with one
// another they would go on as the cluster that they were, beside this one.
func (n *Node) tellGivenUp(ctx context.Context) {
	n.remind(ctx, n.host.GivenUp(), n.signOf, func(ctx context.Context, id, server string) error {
		_, err := n.host.Transport().Call(ctx, id, replication.Metadata, callGivenUp, []byte(server))
		return err
	})
}

// remind calls each of the nodes again and again.
func (n *Node) remind(
	ctx context.Context, servers []string, signOf func(id string) sign,
	call func(_ context.Context, id, server string) error,
) {
	reminders := make(map[string]*reminder)
	n.every(ctx, removedTick, func() bool {
		for _, server := range servers {
			id, _, _ := strings.Cut(server, "/")
			if reminders[server] == nil {
				reminders[server] = &reminder{}
			}
			if !reminders[server].due(time.Now(), signOf(id)) {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, foreignCall)
			err := call(ctx, id, server)
			cancel()
			if err != nil { // it stays away
				n.log.Debug("node that was given up", zap.String("replica", server), zap.Error(err))
			}
		}
		return len(servers) > 0
	})
}

// signOf says what shows that a node is there.
func (n *Node) signOf(id string) sign {
	var s sign
	for _, m := range n.peers() {
		if m.NodeID == id && m.Status == discovery.Alive {
			s.alive = m.Since
		}
	}
	s.accepted = slices.ContainsFunc(n.host.Transport().Peers(), func(p transport.PeerStats) bool {
		return p.NodeID == id && p.Accepted
	})
	return s
}

// onGivenUp ends this node if it is one of those, and not one that begins anew under the same id.
func (n *Node) onGivenUp(_ context.Context, by string, _ uint32, payload []byte) ([]byte, error) {
	for _, g := range n.host.Groups() {
		if g.Server() == string(payload) {
			n.onFatal(&ConfigError{
				"--data-dir",
				fmt.Sprintf("%s is of node %s, which was given up when its cluster was recovered by %s",
					n.cfg.DataDir, n.cfg.NodeID, by),
				"give an empty directory, and the node joins anew; the old one is not touched",
			})
		}
	}
	return nil, nil
}
