package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// groupConfig is what a Host gives a group.
type groupConfig struct {
	Timeouts    Timeouts
	Retention   Retention
	FS          storage.FS
	Dir         string // of the group
	Incarnation string // for a new replica; empty = a random one
	Log         seglog.Config
	Store       storage.Config
}

// Group is this node's replica of one Raft group. Safe for concurrent use.
type Group struct {
	id      uint32
	cfg     groupConfig
	host    *Host
	log     *zap.Logger
	ids     *idSource
	handler Handler
	fatal   func(error)

	rep      atomic.Pointer[replica]   // never nil
	inst     atomic.Pointer[instance]  // nil while there is none
	hurt     atomic.Pointer[Damage]    // nil while the replica is sound
	harmed   chan struct{}             // hurt was set; cap 1
	recreats chan string               // why; cap 1
	created  atomic.Uint64             // instances so far
	snapped  atomic.Pointer[time.Time] // when the last snapshot was taken
	emptied  time.Time                 // when an empty replica took a damaged one's place; mend's
	place    place                     // keepPlaces'
	routines sync.WaitGroup
	cancel   context.CancelFunc

	watchers notifier
}

// openGroup opens the replica in cfg.Dir, or makes one. If local data fails a check, or
// a marker says that it did, the group is damaged (see Group.Damage): it is there, and
// nothing of it votes or answers.
func openGroup(ctx context.Context, h *Host, id uint32, cfg groupConfig, handler Handler) (*Group, error) {
	g := &Group{
		id: id, cfg: cfg, host: h,
		log: h.cfg.Logger.With(zap.Uint32("group", id)), ids: h.ids, handler: handler, fatal: h.fatal,
		harmed: make(chan struct{}, 1), recreats: make(chan string, 1),
	}
	ctx, g.cancel = context.WithCancel(ctx)
	if err := g.open(ctx); err != nil {
		g.cancel()
		return nil, fmt.Errorf("group %d: %w", id, err)
	}
	g.routines.Go(func() { g.supervise(ctx) })
	g.routines.Go(func() { g.keepLogShort(ctx) })
	return g, nil
}

// open opens the replica and starts a Raft instance on it, unless it is damaged.
func (g *Group) open(ctx context.Context) error {
	d, err := markedDamage(g.cfg.FS, g.id, g.cfg.Dir)
	if err != nil {
		return err
	}
	if d == nil {
		if d, err = g.openSound(ctx); err != nil || d == nil {
			return err
		}
		if err := d.mark(g.cfg.FS, g.cfg.Dir); err != nil {
			return fmt.Errorf("mark it as damaged (%s): %w", d.Reason, err)
		}
	}
	g.log.Error("local data is damaged: the group is out of service on this node",
		zap.String("file", d.File), zap.String("reason", d.Reason))
	g.rep.Store(g.absent(d))
	g.hurt.Store(d)
	g.quarantine(d)
	return nil
}

// openSound is open for a replica without a marker; it returns the damage it finds.
func (g *Group) openSound(ctx context.Context) (*Damage, error) {
	err := g.there()
	server := ""
	if err == nil {
		var r *replica
		if r, err = g.openReplica(g.cfg.Incarnation); r != nil {
			server = string(r.server)
		}
		if err == nil {
			g.rep.Store(r)
			if err = g.create(ctx); err != nil {
				err = errors.Join(err, r.close())
			}
		}
	}
	switch {
	case err == nil:
		return nil, nil //nolint:nilnil // no damage and no error
	case isDamage(err):
		return newDamage(g.id, g.cfg.Dir, server, err), nil
	default:
		return nil, err
	}
}

// there says that the replica is missing as a whole, if it should be there.
func (g *Group) there() error {
	if !g.host.has(g.id) {
		return nil
	}
	if gone, err := vanished(g.cfg.FS, g.cfg.Dir); err != nil || !gone {
		return err
	}
	return record.Damaged(g.cfg.Dir, "holds no replica, and this node had one")
}

// create checks log and state and starts a Raft instance on them.
func (g *Group) create(ctx context.Context) error {
	r := g.rep.Load()
	if err := g.prepare(r); err != nil {
		return err
	}
	in, err := g.start(ctx, r)
	if err != nil {
		return err
	}
	g.created.Add(1)
	g.inst.Store(in)
	g.changed()
	return nil
}

// recreate replaces the Raft instance by a new one on the same log and state. It
// returns at once and may be called from anywhere.
func (g *Group) recreate(reason string) {
	select {
	case g.recreats <- reason:
	default: // one is asked for already
	}
}

// supervise creates instances anew until ctx ends, and then ends the last one.
func (g *Group) supervise(ctx context.Context) {
	tick := time.NewTicker(g.cfg.Timeouts.Election / 2)
	defer tick.Stop()
	second := time.NewTicker(clockTick)
	defer second.Stop()
	mend := time.NewTicker(mendEvery * g.cfg.Timeouts.Heartbeat)
	defer mend.Stop()
	var clockOff time.Duration
	for {
		var err error
		select {
		case <-g.harmed:
			err = g.retreat()
		case <-mend.C:
			err = g.mend(ctx)
		case reason := <-g.recreats:
			g.log.Warn("creating the Raft instance anew", zap.String("reason", reason))
			if err = g.replace(ctx); err != nil {
				err = fmt.Errorf("group %d: create the Raft instance anew: %w", g.id, err)
			}
		case <-tick.C:
			g.look()
		case <-second.C:
			g.tendClock(&clockOff)
		case <-ctx.Done():
			if in := g.inst.Swap(nil); in != nil {
				if err := in.stop(); err != nil {
					g.log.Warn("stop of the Raft instance", zap.Error(err))
				}
			}
			g.markLate()
			return
		}
		switch {
		case err == nil:
		case isDamage(err):
			g.damaged(err)
		default:
			g.fatal(err)
			return
		}
	}
}

// markLate marks damage that was found while the group was being closed.
func (g *Group) markLate() {
	select {
	case <-g.harmed:
		if err := g.hurt.Load().mark(g.cfg.FS, g.cfg.Dir); err != nil {
			g.log.Error("damage is not marked", zap.Error(err))
		}
	default:
	}
}

func (g *Group) replace(ctx context.Context) error {
	in := g.inst.Swap(nil)
	if in == nil {
		return nil // damaged meanwhile
	}
	if err := in.stop(); err != nil {
		g.log.Warn("stop of the Raft instance", zap.Error(err))
	}
	select { // asked for by the instance that is gone
	case <-g.recreats:
	default:
	}
	return g.create(ctx)
}

// look catches what no event tells: a disk that hangs, the voters after a truncation,
// a lease that a failed transfer left void.
func (g *Group) look() {
	in := g.inst.Load()
	if in == nil {
		return
	}
	if since, writing := in.rep.logs.log.InFlightSince(); writing && time.Since(since) > stuckWrite {
		g.fatal(fmt.Errorf("group %d: a write of the log hangs for more than %v", g.id, stuckWrite))
	}
	in.setVoters(in.raft.GetConfiguration().Configuration())
	if g.id != Metadata && in.leads() && !g.host.directory() {
		in.yield()
	}
	lease := in.trans.Lease()
	if lease.Void && in.leads() && g.host.cfg.Clock.Boottime()-lease.Since > 2*g.cfg.Timeouts.Election {
		g.recreate("a leadership transfer failed and its target has not acknowledged anything since")
	}
}

// keepLogShort takes snapshots by the bytes and by the age of what a restart would
// have to read.
func (g *Group) keepLogShort(ctx context.Context) {
	tick := time.NewTicker(g.cfg.Retention.SnapshotCheck)
	defer tick.Stop()
	var behind int64 // bytes of the log after the last snapshot
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		in := g.inst.Load()
		if in == nil {
			continue
		}
		in.sealMarks()
		plantEarlyCut(in)
		in.rep.snaps.offers.tend(in.trans.Progress(), in.rep.logs.log.LastIndex())
		if !in.due(behind) {
			continue
		}
		if err := in.snapshot(); err != nil {
			g.log.Debug("no snapshot taken", zap.Error(err))
			continue
		}
		g.snappedNow()
		behind = in.rep.logs.log.Bytes()
	}
}

// due says that a snapshot is due: the log is too large and has grown since the
// last one, or that one is too old.
func (in *instance) due(behind int64) bool {
	g := in.g
	position, snap := in.rep.applied(), in.rep.store.Pointer().Snapshot.Index
	if position.index <= snap {
		return false
	}
	r, size := g.cfg.Retention, in.rep.logs.log.Bytes()
	if size >= r.LogMaxBytes && size-behind >= r.LogMaxBytes/4 {
		return true
	}
	last := g.snapped.Load()
	return last == nil || time.Since(*last) >= r.SnapshotAge
}

// snappedNow notes that a snapshot is as new as can be. The time is one that a wall clock
// which is set does not move.
func (g *Group) snappedNow() {
	now := time.Now()
	g.snapped.Store(&now)
}

// close ends the replica. Nothing of it may be used afterwards.
func (g *Group) close() error {
	g.cancel()
	g.routines.Wait()
	return g.rep.Load().close()
}

// ID is the group's number; 0 is the metadata group.
func (g *Group) ID() uint32 { return g.id }

// Server is this replica's Raft server id and address: "nodeID/incarnation". It is
// another one after a damaged replica was replaced, and empty for one that lost its name.
func (g *Group) Server() string { return string(g.rep.Load().server) }

// Reader is the applied state of this replica. Only the group changes it. It is another
// one after a damaged replica was replaced; in between all reads fail with
// record.ErrDamaged.
func (g *Group) Reader() *storage.Store { return g.rep.Load().store }

// WaitApplied returns when this replica has applied the entry index, or with the
// error of ctx. index is one that Status.Applied of some replica reported.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error {
	return g.rep.Load().wait(ctx, index)
}

// Term is the term of leadership that this node serves, nil without one.
func (g *Group) Term() *Term {
	if in := g.inst.Load(); in != nil {
		return in.term.Load()
	}
	return nil
}

// Now is the group's cluster clock, in nanoseconds since 1970.
func (g *Group) Now() int64 { return g.rep.Load().clock.time() }

// changed tells whoever watches that Status may read differently.
func (g *Group) changed() {
	g.watchers.notify()
	g.host.changed()
}

func (in *instance) setVoters(c raft.Configuration) {
	voters := make([]raft.ServerAddress, 0, len(c.Servers))
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, s.Address)
		}
	}
	in.trans.SetVoters(voters)
	names := make([]string, len(voters))
	for i, v := range voters {
		names[i] = string(v)
	}
	in.rep.clock.SetVoters(string(in.rep.server), names)
	in.rep.marks.setVoters(names)
}

// sealMarks has changed marks kept with a seal, unless the log is being written to:
// then they ride on what is written.
func (in *instance) sealMarks() {
	log := in.rep.logs.log
	if !in.rep.marks.tend() {
		return
	}
	if _, writing := log.InFlightSince(); !writing {
		if err := in.rep.logs.written(log.Seal()); err != nil {
			in.g.log.Warn("marks not sealed", zap.Error(err))
		}
	}
}
