package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/membership"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// unwilling, in times of Settings.Balance, is how soon after it was given a group must be back here to count as
// given back, because its new leader did not want it (no link to its hub, a wrong clock, a damaged directory); and
// for how long that node is given none then.
const unwilling = 3

// balance spreads the leaders of the event groups over the voters. It belongs to the goroutine of control.
type balance struct {
	terms  map[uint32]*replication.Term
	since  map[uint32]time.Time // this node leads the group
	gifts  map[uint32]gift
	refuse map[string]time.Time // by node, until when
}

type gift struct {
	to string
	at time.Time
}

func newBalance() *balance {
	return &balance{
		terms: make(map[uint32]*replication.Term), since: make(map[uint32]time.Time),
		gifts: make(map[uint32]gift), refuse: make(map[string]time.Time),
	}
}

// note keeps since when this node leads a group.
func (b *balance) note(group uint32, t *replication.Term, now time.Time, patience time.Duration) {
	if t == b.terms[group] {
		return
	}
	b.terms[group] = t
	if t == nil {
		return
	}
	b.since[group] = now
	if g, ok := b.gifts[group]; ok && now.Sub(g.at) < unwilling*patience {
		b.refuse[g.to] = now.Add(unwilling * patience)
	}
	delete(b.gifts, group)
}

// spread gives one group to a node that leads at least two fewer.
func (n *Node) spread(ctx context.Context) {
	now := time.Now()
	leaders := make(map[uint32]string)
	for _, g := range n.host.Groups()[1:] {
		n.balance.note(g.ID(), g.Term(), now, n.settings().Balance)
		leaders[g.ID()] = g.Status().Leader
	}
	id, to, ok := membership.Balance(n.cfg.NodeID, leaders, n.mayLead(now))
	if !ok {
		return
	}
	g := n.host.Group(id)
	if g.Term() == nil || now.Sub(n.balance.since[id]) < n.settings().Balance {
		return // so that an election moves nothing, and each group moves once
	}
	ctx, cancel := context.WithTimeout(ctx, resignTimeout)
	defer cancel()
	n.balance.gifts[id] = gift{to, now}
	if err := g.Transfer(ctx, to); err != nil {
		delete(n.balance.gifts, id)
		if !errors.Is(err, record.ErrNotLeader) {
			n.log.Info("group not given away", zap.Uint32("group", id), zap.String("to", to), zap.Error(err))
		}
		return
	}
	n.log.Info("group given to a node that leads fewer", zap.Uint32("group", id), zap.String("to", to))
}

// mayLead are the voters that may be given a group.
func (n *Node) mayLead(now time.Time) []string {
	desired, version := n.desired()
	if version == 0 {
		return nil
	}
	steady := make(map[string]bool)
	for _, m := range n.peers() {
		steady[m.NodeID] = m.Status == discovery.Alive && !m.Tags.Draining
	}
	return slices.DeleteFunc(slices.Clone(desired.Voters), func(id string) bool {
		gone := n.gossip != nil && !steady[id] && id != n.cfg.NodeID
		return n.leaving(id) || gone || now.Before(n.balance.refuse[id])
	})
}
