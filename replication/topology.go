package replication

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
)

const (
	// topologyCheck is how often what the group rows say is compared with what is,
	// beside every change that is noticed.
	topologyCheck = 2 * time.Second
	// topologyWrite bounds one write of a group row; it is repeated at the next check.
	topologyWrite = 5 * time.Second
)

// MintCluster gives the cluster its id unless it has one, and returns when this
// node has stored it. It needs a leader of the metadata group, on any node.
func (h *Host) MintCluster(ctx context.Context) error {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	value, err := json.Marshal(ClusterRow{ID: hex.EncodeToString(b[:]), Feature: 1, Groups: h.cfg.Groups})
	if err != nil {
		return err
	}
	err = h.meta.Write(ctx,
		[]record.MetaCond{{Key: ClusterKey}}, []record.MetaWrite{{Key: ClusterKey, Value: value}})
	if err != nil && !errors.Is(err, record.ErrConflict) {
		return fmt.Errorf("mint a cluster id: %w", err)
	}
	changes, stop := h.meta.Watch()
	defer stop()
	for {
		if err := h.learnCluster(); err != nil || h.ClusterID() != "" {
			return err
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// learnCluster stores the cluster's id when its row has come here.
func (h *Host) learnCluster() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ClusterID() != "" {
		return nil
	}
	row, at, err := Row[ClusterRow](h.meta, ClusterKey)
	if isDamage(err) {
		return nil // it comes with a sound replica
	}
	if err != nil || at.Version == 0 {
		return err
	}
	if err := h.identity.join(row.ID); err != nil {
		return err
	}
	h.cluster.Store(&row.ID)
	h.log.Info("member of a cluster", zap.String("cluster", row.ID))
	return nil
}

// Register writes this node's row, with its replicas filled in, unless it stands
// there already. Without a leader it tries until ctx ends. It fails with record.ErrNotFound
// while one of its replicas is not in its group: Announce makes that one known. To be
// called again and again: another process of this node's id may have written its own.
func (h *Host) Register(ctx context.Context, row NodeRow) error {
	for {
		at, err := h.meta.Get(NodeKey(h.cfg.NodeID))
		if err != nil {
			return err
		}
		// Anew at each try: a replica may have been replaced, and announced, while the last one waited for a leader.
		value, conds, err := h.nodeRow(row, at)
		if err != nil || bytes.Equal(at.Value, value) {
			return err
		}
		err = h.meta.Write(ctx, append(conds, record.MetaCond{Key: at.Key, Version: at.Version}),
			[]record.MetaWrite{{Key: at.Key, Value: value}})
		if !errors.Is(err, record.ErrConflict) {
			return err
		}
	}
}

// nodeRow is the row's value with the replicas that the node has at this moment, and the conditions that it rests
// on. A replica in whose place the row at names another one must be in the group by the word of its leader: its own
// configuration may be older than its removal.
func (h *Host) nodeRow(row NodeRow, at record.MetaRow) (value []byte, conds []record.MetaCond, err error) {
	var old NodeRow // empty if there is none, or one that cannot be read, which is replaced
	if at.Version != 0 {
		old, _ = decodeRow[NodeRow](at)
	}
	row.ID, row.Servers = h.cfg.NodeID, make(map[uint32]string, len(h.groups))
	row.Incarnation = h.identity.Incarnation
	for _, g := range h.groups {
		in := g.inst.Load()
		if in == nil || !in.member() {
			return nil, nil, fmt.Errorf("%w: this node's replica of group %d", record.ErrNotFound, g.id)
		}
		mine := string(in.rep.server)
		row.Servers[g.id] = mine
		if theirs := old.Servers[g.id]; theirs == "" || theirs == mine {
			continue
		}
		group, was, err := Row[GroupRow](h.meta, GroupKey(g.id))
		if err != nil {
			return nil, nil, err
		}
		if !slices.ContainsFunc(group.Members, func(m Member) bool { return m.Server == mine }) {
			return nil, nil, fmt.Errorf("%w: replica %s in the row of group %d", record.ErrNotFound, mine, g.id)
		}
		conds = append(conds, record.MetaCond{Key: was.Key, Version: was.Version})
	}
	value, err = json.Marshal(row)
	return value, conds, err
}

// publishGroups writes the rows of the groups that this node leads whenever they
// differ from what is, and stores the cluster's id when it has come.
func (h *Host) publishGroups(ctx context.Context) {
	tick := time.NewTicker(topologyCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.dirty:
		case <-tick.C:
		}
		if err := errors.Join(h.learnCluster(), h.regain()); err != nil {
			h.fatal(err)
			return
		}
		for _, g := range h.groups {
			if err := h.announce(ctx, g); err != nil && ctx.Err() == nil {
				h.log.Info("a new replica is not known to the cluster yet", zap.Uint32("group", g.id), zap.Error(err))
			}
			if err := h.publishGroup(ctx, g); err != nil && ctx.Err() == nil {
				h.log.Debug("group row not written", zap.Uint32("group", g.id), zap.Error(err))
			}
		}
	}
}

func (h *Host) publishGroup(ctx context.Context, g *Group) error {
	t := g.Term()
	if t == nil || t.Check() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, topologyWrite)
	defer cancel()
	old, at, err := Row[GroupRow](h.meta, GroupKey(g.id))
	if err != nil {
		return err
	}
	now := GroupRow{
		Group: g.id, Leader: h.cfg.NodeID, Term: t.Number(), Members: g.Status().Members,
		Desired: old.Desired, Epoch: old.Epoch + 1,
	}
	if at.Version != 0 && old.Term >= now.Term && old.Leader == now.Leader &&
		slices.Equal(old.Members, now.Members) {
		return nil
	}
	if old.Term > now.Term {
		return nil // a later leader has spoken
	}
	value, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return h.meta.Write(ctx, []record.MetaCond{{Key: GroupKey(g.id), Version: at.Version}},
		[]record.MetaWrite{{Key: GroupKey(g.id), Value: value}})
}
