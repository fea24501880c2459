package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// isMember answers callMember: isIn, isOut or isRemoved.
func (n *Node) isMember(_ context.Context, _ string, _ uint32, payload []byte) ([]byte, error) {
	if !n.meta.Leading() {
		return nil, fmt.Errorf("%w: of group 0", record.ErrNotLeader)
	}
	id, _, _ := strings.Cut(string(payload), "/")
	row, ok := n.meta.Get(leavePrefix + id)
	var in []uint32
	for _, g := range n.host.Groups() {
		row, _, err := replication.Row[replication.GroupRow](n.host.Meta(), replication.GroupKey(g.ID()))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(row.Members, func(m replication.Member) bool { return m.Server == string(payload) }) {
			in = append(in, g.ID())
		}
	}
	return []byte(standing(ok && bytes.Equal(row.Value, payload), in)), nil
}

// standing is the answer for a replica in some groups. One that was silent when it was removed is out of the metadata
// group before the others. It could come back and lead one of them for ever, for it does not read any more that it
// is to give that away: it is told to end.
func standing(leaves bool, in []uint32) string {
	switch {
	case leaves && !slices.Contains(in, replication.Metadata):
		return isRemoved
	case len(in) > 0:
		return isIn
	default:
		return isOut
	}
}

// leave takes this node out of the cluster for good: leadership handed over, out of
// every group, then goodbye in gossip. The process should stop after it.
func (n *Node) leave(ctx context.Context) (err error) {
	n.parting.Store(true)
	defer func() {
		if err != nil {
			n.parting.Store(false)
		}
	}()
	if err := n.removeNode(ctx, n.cfg.NodeID); err != nil {
		return err
	}
	n.handOverAll(ctx)
	self := n.host.Group(replication.Metadata).Server()
	out := false
	n.every(ctx, membershipTick, func() bool {
		leader := n.host.Group(replication.Metadata).Status().Leader
		if leader == "" || leader == n.cfg.NodeID {
			n.handOverAll(ctx)
			return true
		}
		call, cancel := context.WithTimeout(ctx, changeTimeout)
		defer cancel()
		b, err := n.host.Transport().Call(call, leader, replication.Metadata, callMember, []byte(self))
		out = err == nil && string(b) != isIn
		return !out
	})
	if !out {
		return fmt.Errorf("still a member: %w", ctx.Err())
	}
	if n.gossip == nil {
		return nil
	}
	return n.gossip.Leave(ctx)
}

// removeNode says that a node is to leave the cluster. It returns when that is
// decided; the groups change after it, one step at a time.
func (n *Node) removeNode(ctx context.Context, id string) error {
	for {
		conds, writes, refusal := n.departure(id)
		// Also if it is refused, or said already: this node's rows may be those of a while ago. They are as new as
		// what a conflict rests on when it is returned.
		err := n.meta.Write(ctx, conds, writes)
		if !errors.Is(err, record.ErrConflict) {
			return cmp.Or(err, refusal)
		}
	}
}

// departure is what says that the present incarnation of a node is to leave, as long as the rows are as this node
// has them, or why it can not.
func (n *Node) departure(id string) (conds []record.MetaCond, writes []record.MetaWrite, refusal error) {
	for _, key := range []string{membershipKey, replication.NodeKey(id), leavePrefix + id} {
		row, _ := n.meta.Get(key)
		conds = append(conds, record.MetaCond{Key: key, Version: row.Version})
	}
	desired, _ := n.desired()
	stays := func(v string) bool {
		return v != id && !n.leaving(v)
	}
	if slices.Contains(desired.Voters, id) && !slices.ContainsFunc(desired.Voters, stays) {
		return conds, nil, fmt.Errorf("node %s is the only voter, or the last one that does not leave; it can not leave", id)
	}
	server := n.replica(id, replication.Metadata)
	if server == "" {
		return conds, nil, fmt.Errorf("node %s: %w", id, record.ErrNotFound)
	}
	return conds, []record.MetaWrite{{Key: leavePrefix + id, Value: []byte(server)}}, nil
}

// transfer hands a group to a node, or to the best one.
func (n *Node) transfer(ctx context.Context, group uint32, to string) error {
	g := n.host.Group(group)
	if g == nil {
		return fmt.Errorf("group %d: %w; there are groups 0 to %d", group, record.ErrNotFound, n.cfg.Groups)
	}
	return g.Transfer(ctx, to)
}

// readiness says why this node does not serve; nothing if it does.
func (n *Node) readiness() []string {
	var why []string
	if n.host.ClusterID() == "" {
		why = append(why, "not a member of a cluster yet")
	}
	if text := n.discordant(); text != "" {
		why = append(why, text)
	}
	for _, g := range n.host.Groups() {
		st := g.Status()
		if st.Damage != nil {
			why = append(why, describe(st.Damage))
			continue
		}
		if !st.Replicating {
			why = append(why, fmt.Sprintf("group %d has no leader that replicates", g.ID()))
		}
	}
	for _, id := range n.missingFounders() {
		why = append(why, "founder "+id+" does not hold the first configuration yet")
	}
	if n.server != nil {
		if since, down := n.server.LinkDown(); down {
			why = append(why, fmt.Sprintf("hub link down for %v", time.Since(since).Round(time.Millisecond)))
		}
	}
	return why
}

// open says whether streams may be created: the cluster is founded, and every founder
// holds the first configuration. The list of founders is older than the cluster's id.
func (n *Node) open() bool { return n.host.ClusterID() != "" && len(n.missingFounders()) == 0 }

// missingFounders are the founders that have not registered yet. One that died before it did is waited for until
// another one is desired in its place, or an operator says that it leaves: it will be no voter then.
func (n *Node) missingFounders() []string {
	row, ok := n.meta.Get(foundersKey)
	if !ok {
		return nil
	}
	var ids, missing []string
	if err := json.Unmarshal(row.Value, &ids); err != nil {
		return []string{"(unreadable list)"}
	}
	desired, version := n.desired()
	for _, id := range ids {
		_, registered := n.meta.Get(replication.NodeKey(id))
		given := version != 0 && !desired.Has(id) || n.leaving(id)
		if !registered && !given {
			missing = append(missing, id)
		}
	}
	return missing
}
