package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/record"
)

const (
	// mendEvery, in heartbeat timeouts, is how often a node asks whether the others can
	// do without its damaged replica, and how fresh a voter's last answer must be for it
	// to count as healthy.
	mendEvery = 2
	// followAfter is for how long a new replica must have been a member without a vote,
	// the damaged one gone, to count as one that is to have none.
	followAfter = time.Minute
)

// noHealthyMajority is why a damaged replica is not replaced.
const noHealthyMajority = "no leader with a healthy majority of the voters answers; nothing is replaced by itself: " +
	"bring the other nodes back, or stop this node and use holdfast salvage"

// noRoomToMend is why a damaged replica is not replaced yet.
const noRoomToMend = "the disk is full: there is no room to note the damage, or for a new replica; " +
	"it goes on by itself when there is"

// mend brings a damaged replica's successor into being, one step at a call: with
// the word of a leader that a majority is healthy without it, the files are set aside
// and another incarnation, empty and with another name, starts in their place.
func (g *Group) mend(ctx context.Context) error {
	d := g.hurt.Load()
	switch {
	case d == nil:
		return nil
	case d.Aside == "" && g.rep.Load().logs != nil:
		if d.Waits == noRoomToMend {
			return g.retreat() // again: there was no room for the marker
		}
		return nil // still to retreat
	case d.Aside == "":
		return g.setAside(ctx, d)
	case g.inst.Load() == nil:
		return g.takePlace(ctx, d)
	}
	g.healed(d)
	return nil
}

// setAside puts the files of a damaged replica aside, if the others can do without it, and another one in its place.
func (g *Group) setAside(ctx context.Context, d *Damage) error {
	if _, err := g.host.ask(ctx, g.id, kindReseed, nil); err != nil {
		g.log.Info("the damaged replica stays as it is", zap.Error(err))
		g.waits(d, noHealthyMajority)
		return nil
	}
	aside, err := setAside(g.cfg.FS, g.cfg.Dir, time.Now())
	if err != nil {
		return g.whenRoom(d, fmt.Errorf("group %d: %w", g.id, err))
	}
	g.log.Warn("damaged files set aside, an empty replica takes their place", zap.String("aside", aside))
	now := *d
	now.Aside = aside
	g.hurt.Store(&now)
	return g.takePlace(ctx, &now)
}

// takePlace opens an empty replica in the place of one that was set aside.
func (g *Group) takePlace(ctx context.Context, d *Damage) error {
	if g.rep.Load().logs == nil {
		r, err := g.openReplica("")
		if err != nil {
			return g.whenRoom(d, fmt.Errorf("group %d: %w", g.id, err))
		}
		g.rep.Store(r)
	}
	g.emptied = time.Now()
	g.waits(d, "the new replica is empty and waits to become a member")
	g.host.trans.Unquarantine(g.id)
	return g.create(ctx)
}

// whenRoom has a step that a full disk had no room for made again, at the next turn of mend. The other groups of the
// node go on meanwhile. Any other error it returns.
func (g *Group) whenRoom(d *Damage, err error) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	if d.Waits != noRoomToMend {
		g.log.Error("a damaged replica is not replaced: the disk has no room for that", zap.Error(err))
	}
	g.waits(d, noRoomToMend)
	return nil
}

// waits notes why nothing happens.
func (g *Group) waits(d *Damage, why string) {
	if d.Waits != why {
		now := *d
		now.Waits = why
		g.hurt.CompareAndSwap(d, &now)
		g.changed()
	}
}

// healed ends the damage once the new replica is what the old one was.
func (g *Group) healed(d *Damage) {
	in := g.inst.Load()
	if in == nil {
		return
	}
	var self *raft.Server
	old := false
	servers := in.raft.GetConfiguration().Configuration().Servers
	for i := range servers {
		s := &servers[i]
		node, _ := transport.NodeOf(s.Address)
		switch {
		case s.Address == in.rep.server:
			self = s
		case node == g.host.cfg.NodeID:
			old = true
		}
	}
	switch {
	case self == nil:
		return
	case self.Suffrage == raft.Voter && !old, !old && time.Since(g.emptied) > followAfter:
		g.log.Info("the new replica has taken the place of the damaged one", zap.String("aside", d.Aside))
		g.hurt.CompareAndSwap(d, nil)
		g.changed()
	case self.Suffrage == raft.Voter:
		g.waits(d, "the damaged replica is still in the configuration")
	default:
		g.waits(d, "the new replica has no vote yet")
	}
}

// ask puts a question about a group to one node after the other, this one last, until
// one answers it. If none does, the error is why the leader refuses, or else what all of them said.
func (h *Host) ask(ctx context.Context, group uint32, kind uint8, payload []byte) (answer []byte, err error) {
	var failed []error
	for _, node := range append(h.nodes(), h.cfg.NodeID) {
		call, cancel := context.WithTimeout(ctx, 2*h.cfg.Timeouts.Heartbeat)
		answer, err := h.trans.Call(call, node, group, kind, payload)
		cancel()
		if err == nil {
			return answer, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", node, err))
	}
	return nil, telling(failed)
}

// telling is the error that says most of those that nodes were asked for: that of the leader, the only one that
// refuses for another reason than that it is none; all of them if there is none of a leader.
func telling(failed []error) error {
	for _, err := range failed {
		remote, answered := errors.AsType[*transport.RemoteError](err)
		if answered && !strings.Contains(remote.Text, record.ErrNotLeader.Error()) {
			return err
		}
	}
	return errors.Join(failed...)
}

// nodes are the ids of the other nodes, from all who know any.
func (h *Host) nodes() []string {
	var out []string
	if h.cfg.Nodes != nil {
		out = h.cfg.Nodes()
	}
	for _, p := range h.trans.Peers() {
		out = append(out, p.NodeID)
	}
	if g := h.meta.group.Load(); g != nil {
		_ = g.Reader().ScanMeta(NodePrefix, func(row record.MetaRow) bool { // what cannot be read names nobody
			out = append(out, row.Key[len(NodePrefix):])
			return true
		})
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(id string) bool { return id == h.cfg.NodeID })
}

// serveReseed answers whether this leader's group can do without the replica of a node, and, of one that is named,
// whether it does already.
func (h *Host) serveReseed(_ context.Context, from string, group uint32, payload []byte) ([]byte, error) {
	g := h.Group(group)
	if g == nil {
		return nil, fmt.Errorf("%w: group %d", record.ErrNotFound, group)
	}
	t := g.Term()
	if t == nil {
		return nil, errTermOver
	}
	progress := make(map[string]Progress)
	for _, p := range g.Progress() {
		progress[p.Server] = p
	}
	voters, healthy := 0, 0
	for _, m := range g.Status().Members {
		if m.Server == string(payload) {
			return nil, fmt.Errorf("%w: replica %s is in the group", record.ErrRefused, payload)
		}
		if !m.Voter {
			continue
		}
		voters++
		p, known := progress[m.Server]
		fresh := known && !p.OutOfService && p.Contact >= 0 && p.Contact < mendEvery*h.cfg.Timeouts.Heartbeat
		if m.Node != from && (fresh || m.Server == g.Server()) {
			healthy++
		}
	}
	if healthy <= voters/2 {
		return nil, fmt.Errorf("%w: %d of %d voters are healthy without %s", record.ErrRefused, healthy, voters, from)
	}
	return []byte{1}, t.Check()
}

// newReplica tells the leader of group 0 which replica a node has in a group now.
type newReplica struct {
	Group  uint32 `json:"group"`
	Server string `json:"server"`
	// Incarnation is that of the node's data directory, empty while that is lost: the
	// node's other replicas stay what they are then.
	Incarnation string `json:"incarnation"`
}

// Announce makes the replicas of this node known to a cluster that its data directory
// does not belong to yet, in which a node of its id is registered: one that came back
// without its disk. It is repeated until the replicas have come into the groups.
func (h *Host) Announce(ctx context.Context) error {
	for _, g := range h.groups {
		if err := h.announceNew(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// announce makes a replica that is not in its group known, so that the group's
// leader takes it in for the one that its node had before.
func (h *Host) announce(ctx context.Context, g *Group) error {
	if h.ClusterID() == "" && !h.Lost() {
		return nil
	}
	return h.announceNew(ctx, g)
}

func (h *Host) announceNew(ctx context.Context, g *Group) error {
	in := g.inst.Load()
	if in == nil || in.member() {
		return nil
	}
	// One that was in its group and is not any more was removed, or another process has its place: that stays so.
	// One that replaces a damaged one goes on until it is what that was.
	d, known := g.hurt.Load(), len(in.raft.GetConfiguration().Configuration().Servers) > 0
	if known && (d == nil || d.Aside == "") {
		return nil
	}
	b, err := json.Marshal(newReplica{Group: g.id, Server: g.Server(), Incarnation: h.Incarnation()})
	if err != nil {
		return err
	}
	_, err = h.ask(ctx, Metadata, kindReplica, b)
	return err
}

// serveReplica writes a node's new replica into its row.
func (h *Host) serveReplica(ctx context.Context, from string, _ uint32, payload []byte) ([]byte, error) {
	t := h.meta.group.Load().Term()
	if t == nil || t.Check() != nil {
		return nil, errTermOver
	}
	var r newReplica
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", record.ErrFormat, err)
	}
	if node, err := transport.NodeOf(raft.ServerAddress(r.Server)); err != nil || node != from {
		return nil, fmt.Errorf("%w: server %q is not of node %q", record.ErrFormat, r.Server, from)
	}
	for {
		row, at, err := Row[NodeRow](h.meta, NodeKey(from))
		if err != nil {
			return nil, err
		}
		if at.Version == 0 {
			return nil, fmt.Errorf("node %q: %w", from, record.ErrNotFound)
		}
		if r.Incarnation == "" {
			r.Incarnation = row.Incarnation
		}
		if row.Servers[r.Group] == r.Server && row.Incarnation == r.Incarnation {
			return []byte{1}, nil
		}
		if row.Servers == nil || row.Incarnation != r.Incarnation {
			// Replicas of another data directory are gone, those of groups that did not ask yet, too.
			row.Servers = make(map[uint32]string)
		}
		row.Servers[r.Group], row.Incarnation = r.Server, r.Incarnation
		value, err := json.Marshal(row)
		if err != nil {
			return nil, err
		}
		err = h.meta.Write(ctx, []record.MetaCond{{Key: at.Key, Version: at.Version}},
			[]record.MetaWrite{{Key: at.Key, Value: value}})
		if !errors.Is(err, record.ErrConflict) {
			return []byte{1}, err
		}
		if err := t.Check(); err != nil { // the asker may have yet another one by now, and have told the next leader
			return nil, err
		}
	}
}

// directory says whether this node's replica of group 0 can be relied on: without it
// nobody here can lead a group, since what streams there are is written there.
func (h *Host) directory() bool {
	g := h.meta.group.Load()
	if g == nil {
		return true // being opened
	}
	if g.hurt.Load() != nil {
		return false
	}
	in := g.inst.Load()
	return in == nil || h.ClusterID() == "" || in.member()
}

// directoryLost ends the terms of the other groups when group 0 is damaged here.
func (h *Host) directoryLost(group uint32) {
	all := h.opened.Load()
	if group != Metadata || all == nil {
		return
	}
	for _, g := range (*all)[1:] {
		if in := g.inst.Load(); in != nil {
			if t := in.term.Load(); t != nil {
				t.end()
			}
		}
	}
}
