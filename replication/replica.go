package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/clock"
	"github.com/holdfast-mq/holdfast/replication/marks"
	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// replica is one incarnation of a group on this node: its files, and what works on
// them. A group replaces it as a whole when it was damaged; in between it has one
// without files, in which logs, snaps, fsm and marks are nil.
type replica struct {
	server raft.ServerAddress // nodeID/incarnation: id and address in one
	logs   *logStore
	store  *storage.Store // never nil
	snaps  *snapshots
	fsm    *fsm
	clock  *groupClock // never nil
	marks  *markBook
}

// absent stands in for a replica whose files are damaged.
func (g *Group) absent(d *Damage) *replica {
	r := &replica{server: raft.ServerAddress(d.Server), store: storage.Unavailable(d.err())}
	c, err := clock.New(g.host.cfg.Clock)
	if err != nil {
		c = &clock.Clock{} // the configuration was good when the host was opened
	}
	r.clock = &groupClock{Clock: c, cfg: g.host.cfg.Clock}
	return r
}

// openReplica opens the files in the group's directory, or makes them for a new
// replica whose incarnation is given, or a random one if that is empty.
func (g *Group) openReplica(given string) (*replica, error) {
	inc, err := incarnation(g.cfg.FS, g.cfg.Dir, given)
	if err != nil {
		return nil, err
	}
	r := &replica{server: transport.Address(g.host.cfg.NodeID, inc)}
	if err := g.openFiles(r); err != nil {
		return r, errors.Join(err, r.close())
	}
	return r, nil
}

func (g *Group) openFiles(r *replica) error {
	lc, sc := g.cfg.Log, g.cfg.Store
	lc.FS, sc.FS = g.cfg.FS, g.cfg.FS
	lc.Dir, sc.Dir = g.cfg.FS.PathJoin(g.cfg.Dir, logDir), g.cfg.FS.PathJoin(g.cfg.Dir, stateDir)
	if err := lost(g.cfg.FS, lc.Dir, sc.Dir); err != nil {
		return err
	}
	lc.Logger, sc.Logger = g.log, g.log
	sc.Fatal, sc.Damaged = g.fatal, g.damaged
	log, err := seglog.Open(lc)
	if err != nil {
		return err
	}
	r.logs = newLogStore(log, g.ids.boot, g.log, g.fatal)
	r.logs.damaged = g.damaged
	if r.store, err = storage.Open(sc); err != nil {
		return err
	}
	r.snaps = &snapshots{
		store: r.store, logged: log.LastIndex, offers: newOffers(r.store, r.logs, g.cfg.Retention, g.log),
	}
	r.snaps.offers.damaged, r.snaps.offers.fatal = g.damaged, g.fatal
	r.logs.floor = r.snaps.offers.floor
	r.fsm = newFSM(r.store, r.snaps, g.log, g.fatal)
	r.fsm.damaged = g.damaged
	r.fsm.configured = func(raft.Configuration) { g.changed() }
	r.fsm.wrote = g.changed
	r.logs.reach = func() uint64 { a := r.store.Applied(); return a.Reach() }
	r.logs.durable = r.store.DurableApplied
	r.logs.installed = func() (index, term uint64) {
		snap := r.store.Pointer().Snapshot
		return snap.Index, snap.Term
	}
	r.logs.stored = func(c raft.Configuration) {
		if in := g.inst.Load(); in != nil {
			in.setVoters(c)
		}
	}
	r.logs.astray = g.recreate
	kept, vector, err := splitSealed(log.SealPayload())
	if err != nil {
		return record.Damaged(lc.Dir, "what its seals keep: %w", err)
	}
	s := &sealed{log: log, clock: kept, marks: vector}
	if r.clock, err = newGroupClock(g.host.cfg.Clock, s, r.store.Applied().Time); err != nil {
		return err
	}
	if r.marks, err = newMarkBook(string(r.server), s, vector); err != nil {
		return record.Damaged(lc.Dir, "what its seals keep: %w", err)
	}
	g.snappedNow()
	return nil
}

func (r *replica) close() error {
	var err error
	if r.snaps != nil {
		err = r.snaps.offers.close()
	}
	if r.store != nil {
		err = errors.Join(err, r.store.Close())
	}
	if r.logs != nil {
		err = errors.Join(err, r.logs.log.Close())
	}
	return err
}

// prepare checks that log and state belong together and that no mark of this replica
// says that they held more.
func (g *Group) prepare(r *replica) error {
	if err := r.store.Activate(); err != nil { // an install whose end Raft did not live to see
		return err
	}
	r.fsm.reload()
	err := check(r.logs.log, r.store, g.log)
	if err == nil {
		err = r.below()
	}
	if isDamage(err) && record.DamagedFile(err) == "" && !errors.Is(err, seglog.ErrDamaged) {
		return &record.FileError{File: g.cfg.FS.PathJoin(g.cfg.Dir, logDir), Cause: err}
	}
	return err
}

// below is damage if the replica's own mark says that it once held more than it does.
func (r *replica) below() error {
	m, at := r.marks.of(string(r.server)), r.logs.log.Position()
	if plantedBelowMark || at.Term >= m.Term && at.Last >= m.Index {
		return nil
	}
	p := r.position()
	if !p.Below(m) {
		return nil
	}
	return damaged("this replica holds entries up to %d of term %d in term %d, and once acknowledged %d in term %d",
		p.LastIndex, p.LastTerm, p.Term, m.Index, m.Term)
}

// position is what the log, or the snapshot behind it, holds.
func (r *replica) position() marks.Position {
	if r.logs == nil {
		return marks.Position{}
	}
	// In this order: a log that is dropped for a snapshot is dropped after that is published.
	at := r.logs.log.Position()
	p := marks.Position{Term: at.Term, LastIndex: at.Last, LastTerm: at.LastTerm, TruncTerm: at.TruncTerm}
	if s := r.store.Pointer().Snapshot; s.Index > p.LastIndex {
		p.LastIndex, p.LastTerm = s.Index, s.Term
	}
	return p
}

// applied is how far the state has come; zero without one.
func (r *replica) applied() position {
	if r.fsm == nil {
		return position{}
	}
	return r.fsm.position()
}

// wait returns when the entry index is applied.
func (r *replica) wait(ctx context.Context, index uint64) error {
	if r.fsm == nil {
		return fmt.Errorf("%w: no replica", record.ErrDamaged)
	}
	return r.fsm.wait(ctx, index)
}
