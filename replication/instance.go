package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// instance is one hashicorp Raft instance of a group. A group replaces it as a
// whole when the library is wedged; log, state and directory stay.
type instance struct {
	g       *Group
	rep     *replica
	raft    *raft.Raft
	trans   *transport.GroupTransport
	notify  chan bool
	gone    chan struct{} // closed when Raft's goroutines have ended
	collect *collector
	limit   int64
	// term is the term that is being served, nil without one.
	term     atomic.Pointer[Term]
	inFlight atomic.Int64
	resigned atomic.Bool // the replica is damaged
	routines sync.WaitGroup
	cancel   context.CancelFunc

	// Proposals hold it for reading, so that closing waits for them.
	mu           sync.RWMutex // guards what follows
	closed       bool
	watchMu      sync.Mutex
	transferring transferWatch // guarded by watchMu
}

// start makes a Raft instance on the group's log and state, which must have passed check.
func (g *Group) start(ctx context.Context, r *replica) (*instance, error) {
	trans, err := g.host.open(g, r)
	if err != nil {
		return nil, fmt.Errorf("group %d: %w", g.id, err)
	}
	in := &instance{
		g: g, rep: r, trans: trans, notify: make(chan bool, notifyBuffer), gone: make(chan struct{}),
		limit: g.cfg.Retention.inFlight(),
	}
	r.store.Resume()
	conf := raftConfig(raft.ServerID(r.server), g.cfg.Timeouts, g.cfg.Retention, g.log)
	conf.NotifyCh = in.notify
	in.raft, err = raft.NewRaft(conf, r.fsm, r.logs, haltingStore{r.logs}, r.snaps, trans)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("group %d: start Raft: %w", g.id, err), trans.Close())
	}
	in.setVoters(in.raft.GetConfiguration().Configuration())
	in.collect = newCollector(in.answered)
	ctx, in.cancel = context.WithCancel(ctx)
	in.routines.Go(func() { in.watchLeadership(ctx) })
	in.routines.Go(func() { in.watchLeaders(ctx) })
	in.hurry()
	return in, nil
}

// stop ends the instance and answers every proposal. Raft's own shutdown leaves
// futures unanswered and waits for calls of the transport, hence the order.
func (in *instance) stop() error {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.cancel()                        // the term ends: nothing acts as the leader any more
	in.rep.store.Interrupt()           // Raft's goroutines may wait for room on the disk, for ever
	err := in.trans.Close()            // calls to peers fail at once
	down := in.raft.Shutdown().Error() // waits for Raft's goroutines
	close(in.gone)                     // the rest of the futures is answered
	in.routines.Wait()                 // the handler has returned
	in.collect.close()
	return errors.Join(err, down)
}

// propose dispatches p unless the instance is closed or too much is in flight.
func (in *instance) propose(p *record.Proposal) {
	in.mu.RLock()
	defer in.mu.RUnlock()
	if in.closed {
		in.refuse(p, errTermOver)
		return
	}
	if err := in.enter(); err != nil {
		in.refuse(p, err)
		return
	}
	if refuse := in.g.host.cfg.refuse; refuse != nil && in.g.id != Metadata && refuse(p) {
		in.inFlight.Add(-1)
		in.refuse(p, outcome(raft.ErrEnqueueTimeout))
		return
	}
	p = plantEarlyAck(p)
	if p.Durable != nil {
		in.rep.logs.await(p.ID, p.Durable)
	}
	id := p.ID // the log keeps it
	f := in.raft.ApplyLog(raft.Log{Data: p.Entry, Extensions: id[:]}, 0)
	releaseOn(f, in.gone)
	in.collect.add(ticket{future: f, done: func(err error) {
		in.inFlight.Add(-1)
		in.rep.logs.forget(id)
		p.Done(err)
	}})
}

func (in *instance) refuse(p *record.Proposal, err error) {
	in.collect.add(ticket{failed: err, done: p.Done})
}

// enter counts one more in flight. The limit keeps ApplyLog from blocking, and the
// tail that a follower may hold uncommitted well below the entries behind a snapshot.
func (in *instance) enter() error {
	if n := in.inFlight.Add(1); n > in.limit {
		in.inFlight.Add(-1)
		return fmt.Errorf("%w: %d proposals in flight", record.ErrRefused, in.limit)
	}
	return nil
}

// barrier calls done when every entry dispatched before is applied here, or with an error.
func (in *instance) barrier(done func(error)) {
	in.mu.RLock()
	defer in.mu.RUnlock()
	if in.closed {
		in.collect.add(ticket{failed: errTermOver, done: done})
		return
	}
	if err := in.enter(); err != nil {
		in.collect.add(ticket{failed: err, done: done})
		return
	}
	f := in.raft.Barrier(0)
	releaseOn(f, in.gone)
	in.collect.add(ticket{future: barrierFuture{f}, done: func(err error) {
		in.inFlight.Add(-1)
		done(err)
	}})
}

// barrierFuture makes a future without a response of one that has none.
type barrierFuture struct{ raft.Future }

func (barrierFuture) Index() uint64 { return 0 }
func (barrierFuture) Response() any { return nil }

// answered sees every answer of Raft to a proposal or barrier.
func (in *instance) answered(err error) {
	in.watchMu.Lock()
	stuck := in.transferring.seen(err, time.Now(), in.g.cfg.Timeouts.Election)
	in.watchMu.Unlock()
	if stuck > stuckTransfer*in.g.cfg.Timeouts.Election {
		in.g.recreate("a leadership transfer does not end")
	}
}

// hurry lets the only voter of a group elect itself at once, instead of waiting one
// or two heartbeat timeouts for a leader that cannot be: a follower that is given a
// shorter heartbeat timeout looks whether to campaign at that moment.
func (in *instance) hurry() {
	servers := in.raft.GetConfiguration().Configuration().Servers
	only := func(s raft.Server) bool {
		return (s.ID == raft.ServerID(in.rep.server)) == (s.Suffrage == raft.Voter)
	}
	if len(servers) == 0 || in.leads() || !all(servers, only) {
		return
	}
	r := in.raft.ReloadableConfig()
	r.HeartbeatTimeout--
	if err := in.raft.ReloadConfig(r); err != nil {
		in.g.log.Debug("the only voter waits for its election", zap.Error(err))
	}
}

func all[T any](list []T, f func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !f(v) })
}

// resign ends the term that is served, and keeps others from being served.
func (in *instance) resign() {
	in.resigned.Store(true)
	if t := in.term.Load(); t != nil {
		t.end()
	}
}

// leads says that Raft leads, whether or not the term is served yet.
func (in *instance) leads() bool { return in.raft.State() == raft.Leader }

// snapshot makes the log behind the state's position dispensable.
func (in *instance) snapshot() error {
	log := in.rep.logs.log
	first, last := log.FirstIndex(), log.LastIndex()
	var entries uint64
	if last > 0 {
		entries = last - first + 1
	}
	r := in.raft.ReloadableConfig()
	r.TrailingLogs = in.g.cfg.Retention.trailing(entries, log.Bytes())
	if err := in.raft.ReloadConfig(r); err != nil {
		return err
	}
	err := in.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	in.g.log.Debug("snapshot", zap.Uint64("trailing", r.TrailingLogs), zap.Error(err))
	return err
}
