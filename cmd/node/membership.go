package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/membership"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// decide writes, as leader of group 0, who is to vote and who is to follow.
func (n *Node) decide(ctx context.Context, nodes []membership.Node) error {
	if n.leadingSince.IsZero() {
		n.leadingSince = time.Now()
	}
	before, version := n.desired()
	if len(before.Voters) == 0 {
		return nil
	}
	for i := range nodes { // what was missed before this node led is counted from then
		if !nodes[i].Alive {
			nodes[i].For = min(nodes[i].For, time.Since(n.leadingSince))
		}
	}
	after := membership.Plan(n.settings(), before, n.admissible(nodes, before))
	if version != 0 && after.Equal(before) {
		return n.raise(ctx, before)
	}
	value, err := json.Marshal(after)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	err = n.meta.Write(ctx, []record.MetaCond{{Key: membershipKey, Version: version}},
		[]record.MetaWrite{{Key: membershipKey, Value: value}})
	if err == nil {
		n.log.Info("membership", zap.Strings("voters", after.Voters), zap.Strings("followers", after.Followers))
	}
	if errors.Is(err, record.ErrConflict) {
		return nil // somebody else decided meanwhile
	}
	return err
}

func (n *Node) settings() membership.Settings {
	s := n.cfg.Membership
	s.MaxVoters = n.cfg.MaxVoters
	return s.WithDefaults()
}

// step makes the next change of a group that this node leads.
func (n *Node) step(ctx context.Context, g *replication.Group) {
	t := g.Term()
	if t == nil || t.Check() != nil {
		return
	}
	st := g.Status()
	desired, version := n.desired()
	if version == 0 {
		return // nothing was ever decided
	}
	v := membership.View{
		Leader: n.cfg.NodeID, Desired: desired, Replicas: make(map[string]string), Members: seen(g, st.Members, st.LastLog),
	}
	for _, id := range slices.Concat(desired.Voters, desired.Followers) {
		v.Replicas[id] = n.replica(id, g.ID())
	}
	if g.ID() == replication.Metadata {
		if !n.leadingSince.IsZero() {
			v.Leads = time.Since(n.leadingSince)
		}
		var err error
		if v.Elsewhere, err = n.inEventGroups(); err != nil {
			n.log.Warn("membership waits: the groups' rows are not read", zap.Error(err))
			return
		}
	}
	c := membership.Step(n.settings(), v)
	if c.Kind == membership.None {
		why := withoutDigits(c.Reason)
		if why != n.reasons[g.ID()] && why != "" {
			n.log.Info("membership waits", zap.Uint32("group", g.ID()), zap.String("reason", c.Reason))
		}
		n.reasons[g.ID()] = why
		if !slices.Contains(desired.Voters, n.cfg.NodeID) && len(desired.Voters) > 0 {
			n.handOver(ctx, g, "")
		}
		return
	}
	n.log.Info("membership change", zap.Uint32("group", g.ID()), zap.Stringer("change", c.Kind),
		zap.String("replica", c.Server), zap.String("reason", c.Reason))
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := g.Configure(ctx, change(c.Kind), c.Server, st.Configured); err != nil {
		n.log.Warn("membership change not made", zap.Uint32("group", g.ID()),
			zap.String("replica", c.Server), zap.Error(err))
	}
}

// seen are the members of a group as its leader sees them. One that it never contacted never answered it.
func seen(g *replication.Group, members []replication.Member, last uint64) []membership.Member {
	progress := make(map[string]replication.Progress)
	for _, p := range g.Progress() {
		progress[p.Server] = p
	}
	var out []membership.Member
	for _, m := range members {
		mm := membership.Member{Server: m.Server, Node: m.Node, Voter: m.Voter}
		if m.Server != g.Server() {
			p, contacted := progress[m.Server]
			if !contacted {
				p.Contact = -1
			}
			mm.Behind, mm.Contact, mm.OutOfService = last-min(p.Match, last), p.Contact, p.OutOfService
		}
		out = append(out, mm)
	}
	return out
}

// withoutDigits tells reasons apart: one is logged once, however many entries a replica still lacks. Two that differ
// in a number only, as in the one of a node, count as one.
func withoutDigits(reason string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, reason)
}

// inEventGroups are the nodes in the registered configurations of event groups, each with one of these groups.
func (n *Node) inEventGroups() (map[string]uint32, error) {
	in := make(map[string]uint32)
	for _, g := range n.host.Groups()[1:] {
		row, _, err := replication.Row[replication.GroupRow](n.host.Meta(), replication.GroupKey(g.ID()))
		if err != nil {
			return nil, fmt.Errorf("group %d: %w", g.ID(), err)
		}
		for _, m := range row.Members {
			in[m.Node] = g.ID()
		}
	}
	return in, nil
}

func change(k membership.Kind) replication.Change {
	switch k {
	case membership.Promote:
		return replication.AddVoter
	case membership.Demote:
		return replication.Demote
	case membership.Remove:
		return replication.Remove
	default:
		return replication.AddNonvoter
	}
}
