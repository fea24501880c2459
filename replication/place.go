package replication

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// placeAfter is for how long a replica must hear no leader before it asks who has its place in the group.
const placeAfter = 5 * time.Second

// A place is what a node remembers of the time in which its replica of a group hears no leader.
type place struct{ since time.Time }

// lost says whether the replica has to ask who has its place. A leader does not talk to a replica that is not in the
// group any more, and elections tell it nothing: the others refuse it, as they have a leader. One that was never in the
// group has no place that it could have lost: it waits until it is let in, however long that takes.
func (p *place) lost(st Status, now time.Time) bool {
	switch {
	case st.Damage != nil && st.Damage.Aside == "" || len(st.Members) == 0, st.Role == RoleLeader || st.Leader != "":
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = now
	}
	return !p.since.IsZero() && now.Sub(p.since) >= placeAfter
}

// keepPlaces looks after the places of this node's replicas.
func (h *Host) keepPlaces(ctx context.Context) {
	tick := time.NewTicker(topologyCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, g := range h.groups {
			if err := h.keepPlace(ctx, g); err != nil && ctx.Err() == nil {
				h.log.Debug("nobody knows who has a replica's place", zap.Uint32("group", g.id), zap.Error(err))
			}
		}
	}
}

// keepPlace finds out that another replica of this node has this one's place: that of a second process with the node's
// id, which has gone since, or that of later files, which an old copy has replaced. This one does not come back
// under its name: what it voted for may be forgotten. It is taken for damaged, so that its files are set aside and
// an empty one follows it.
//
// Group 0 says who has the place, but may say so of a change that was never committed. So the group's own leader
// has the last word: that a majority is healthy, and that this replica is not in the group.
func (h *Host) keepPlace(ctx context.Context, g *Group) error {
	if h.ClusterID() == "" || !g.place.lost(g.Status(), time.Now()) {
		return nil
	}
	mine := g.Server()
	answer, err := h.ask(ctx, Metadata, kindPlace, fmt.Appendf(nil, "%d %s", g.id, mine))
	theirs := string(answer)
	if err != nil || theirs == "" || theirs == mine {
		return err
	}
	if _, err := h.ask(ctx, g.id, kindReseed, []byte(mine)); err != nil || g.Server() != mine {
		return err
	}
	g.damaged(record.Damaged(g.cfg.Dir, "replica %s is not in the group any more: %s, of other files, has its place",
		mine, theirs))
	return nil
}

// servePlace answers which replica of the caller's node is to be in a group: the caller's, if that is in it.
func (h *Host) servePlace(_ context.Context, from string, _ uint32, payload []byte) ([]byte, error) {
	if t := h.meta.group.Load().Term(); t == nil || t.Check() != nil {
		return nil, errTermOver
	}
	var group uint32
	var server string
	if _, err := fmt.Sscanf(string(payload), "%d %s", &group, &server); err != nil {
		return nil, fmt.Errorf("%w: %q is no group and replica: %w", record.ErrFormat, payload, err)
	}
	members, _, err := Row[GroupRow](h.meta, GroupKey(group))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(members.Members, func(m Member) bool { return m.Server == server }) {
		return []byte(server), nil
	}
	row, _, err := Row[NodeRow](h.meta, NodeKey(from))
	if theirs := row.Servers[group]; theirs != "" || err != nil {
		return []byte(theirs), err
	}
	for _, m := range members.Members {
		if m.Node == from {
			return []byte(m.Server), nil
		}
	}
	return nil, nil
}
