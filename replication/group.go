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

	"github.com/holdfast-mq/holdfast/replication/transport"
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
	server  raft.ServerAddress // nodeID/incarnation: id and address in one
	log     *zap.Logger
	ids     *idSource
	clock   *groupClock
	handler Handler
	fatal   func(error)

	logs  *logStore
	store *storage.Store
	snaps *snapshots
	fsm   *fsm

	inst     atomic.Pointer[instance] // nil while there is none
	recreats chan string              // why; cap 1
	created  atomic.Uint64            // instances so far
	snapped  atomic.Int64             // when the last snapshot was taken, ns since 1970
	routines sync.WaitGroup
	cancel   context.CancelFunc

	watchers notifier
}

// openGroup opens the replica in cfg.Dir, or makes one. Local data that fails a
// check gives an error that wraps record.ErrDamaged; nothing votes then.
func openGroup(ctx context.Context, h *Host, id uint32, cfg groupConfig, handler Handler) (*Group, error) {
	inc, err := incarnation(cfg.FS, cfg.Dir, cfg.Incarnation)
	if err != nil {
		return nil, fmt.Errorf("group %d: %w", id, err)
	}
	g := &Group{
		id: id, cfg: cfg, host: h, server: transport.Address(h.cfg.NodeID, inc),
		log: h.cfg.Logger.With(zap.Uint32("group", id)), ids: h.ids, handler: handler, fatal: h.fatal,
		recreats: make(chan string, 1),
	}
	if err := g.openFiles(); err != nil {
		return nil, fmt.Errorf("group %d: %w", id, errors.Join(err, g.closeFiles()))
	}
	ctx, g.cancel = context.WithCancel(ctx)
	if err := g.create(ctx); err != nil {
		g.cancel()
		return nil, fmt.Errorf("group %d: %w", id, errors.Join(err, g.closeFiles()))
	}
	g.routines.Go(func() { g.supervise(ctx) })
	g.routines.Go(func() { g.keepLogShort(ctx) })
	return g, nil
}

func (g *Group) openFiles() error {
	lc, sc := g.cfg.Log, g.cfg.Store
	lc.FS, sc.FS = g.cfg.FS, g.cfg.FS
	lc.Dir, sc.Dir = g.cfg.FS.PathJoin(g.cfg.Dir, logDir), g.cfg.FS.PathJoin(g.cfg.Dir, stateDir)
	if err := lost(g.cfg.FS, lc.Dir, sc.Dir); err != nil {
		return err
	}
	lc.Logger, sc.Logger = g.log, g.log
	sc.Fatal, sc.Damaged = g.fatal, g.fatal
	log, err := seglog.Open(lc)
	if err != nil {
		if errors.Is(err, seglog.ErrDamaged) {
			err = fmt.Errorf("%w: %w", record.ErrDamaged, err)
		}
		return err
	}
	g.logs = newLogStore(log, g.ids.boot, g.log, g.fatal)
	if g.store, err = storage.Open(sc); err != nil {
		return err
	}
	g.snaps = &snapshots{store: g.store, logged: log.LastIndex}
	g.fsm = newFSM(g.store, g.snaps, g.log, g.fatal)
	g.fsm.configured = func(raft.Configuration) { g.changed() }
	g.fsm.wrote = g.changed
	g.logs.reach = func() uint64 { a := g.store.Applied(); return a.Reach() }
	g.logs.durable = g.store.DurableApplied
	g.logs.stored = func(c raft.Configuration) {
		if in := g.inst.Load(); in != nil {
			g.setVoters(in.trans, c)
		}
	}
	g.logs.stranded = func(last uint64) {
		g.recreate(fmt.Sprintf("a snapshot was installed over a log that reached %d", last))
	}
	if g.clock, err = newGroupClock(g.host.cfg.Clock, log, g.store.Applied().Time); err != nil {
		return err
	}
	g.snapped.Store(time.Now().UnixNano())
	return nil
}

func (g *Group) closeFiles() error {
	var err error
	if g.store != nil {
		err = g.store.Close()
	}
	if g.logs != nil {
		err = errors.Join(err, g.logs.log.Close())
	}
	return err
}

// create checks log and state and starts a Raft instance on them.
func (g *Group) create(ctx context.Context) error {
	if err := g.store.Activate(); err != nil { // an install whose end Raft did not live to see
		return err
	}
	g.fsm.reload()
	if err := check(g.logs.log, g.store, g.log); err != nil {
		return err
	}
	in, err := g.start(ctx)
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
	var clockOff time.Duration
	for {
		select {
		case reason := <-g.recreats:
			g.log.Warn("creating the Raft instance anew", zap.String("reason", reason))
			if err := g.replace(ctx); err != nil {
				g.fatal(fmt.Errorf("group %d: create the Raft instance anew: %w", g.id, err))
				return
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
			return
		}
	}
}

func (g *Group) replace(ctx context.Context) error {
	in := g.inst.Swap(nil)
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
	if since, writing := g.logs.log.InFlightSince(); writing && time.Since(since) > stuckWrite {
		g.fatal(fmt.Errorf("group %d: a write of the log hangs for more than %v", g.id, stuckWrite))
	}
	g.setVoters(in.trans, in.raft.GetConfiguration().Configuration())
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
		if in == nil || !g.due(behind) {
			continue
		}
		if err := in.snapshot(); err != nil {
			g.log.Debug("no snapshot taken", zap.Error(err))
			continue
		}
		g.snapped.Store(time.Now().UnixNano())
		behind = g.logs.log.Bytes()
	}
}

// due says that a snapshot is due: the log is too large and has grown since the
// last one, or that one is too old.
func (g *Group) due(behind int64) bool {
	position, snap := g.fsm.position(), g.store.Pointer().Snapshot.Index
	if position.index <= snap {
		return false
	}
	r, size := g.cfg.Retention, g.logs.log.Bytes()
	if size >= r.LogMaxBytes && size-behind >= r.LogMaxBytes/4 {
		return true
	}
	return time.Since(time.Unix(0, g.snapped.Load())) >= r.SnapshotAge
}

// close ends the replica. Nothing of it may be used afterwards.
func (g *Group) close() error {
	g.cancel()
	g.routines.Wait()
	return g.closeFiles()
}

// ID is the group's number; 0 is the metadata group.
func (g *Group) ID() uint32 { return g.id }

// Server is this replica's Raft server id and address: "nodeID/incarnation".
func (g *Group) Server() string { return string(g.server) }

// Reader is the applied state of this replica. Only the group changes it.
func (g *Group) Reader() *storage.Store { return g.store }

// WaitApplied returns when this replica has applied the entry index, or with the
// error of ctx. index is one that Status.Applied of some replica reported.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error { return g.fsm.wait(ctx, index) }

// Term is the term of leadership that this node serves, nil without one.
func (g *Group) Term() *Term {
	if in := g.inst.Load(); in != nil {
		return in.term.Load()
	}
	return nil
}

// Now is the group's cluster clock, in nanoseconds since 1970.
func (g *Group) Now() int64 { return g.clock.time() }

// changed tells whoever watches that Status may read differently.
func (g *Group) changed() {
	g.watchers.notify()
	g.host.changed()
}

func (g *Group) setVoters(trans *transport.GroupTransport, c raft.Configuration) {
	voters := make([]raft.ServerAddress, 0, len(c.Servers))
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, s.Address)
		}
	}
	trans.SetVoters(voters)
	names := make([]string, len(voters))
	for i, v := range voters {
		names[i] = string(v)
	}
	g.clock.SetVoters(string(g.server), names)
}
