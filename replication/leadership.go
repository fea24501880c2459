package replication

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"
)

// notifyBuffer is how many changes of leadership may wait to be seen. Raft's main
// loop blocks when the channel is full, so one goroutine does nothing but read it.
const notifyBuffer = 16

// termRetry is how soon a leader that does not serve tries again.
const termRetry = time.Second

// watchLeadership turns the notifications of Raft into Terms until the instance
// stops. A Term ends at the first notification after its start, whichever it is,
// and the next one starts when its handler has returned. One that ended by itself,
// as it could not begin or the metadata group was damaged here, is followed by
// another while Raft leads on: it tells nobody that it still does.
func (in *instance) watchLeadership(ctx context.Context) {
	var (
		current *Term
		over    chan struct{} // closed when current's goroutine has ended
		wanted  bool
	)
	retry := time.NewTicker(termRetry)
	defer retry.Stop()
	for {
		if wanted && current == nil {
			wanted = false
			current, over = in.startTerm(ctx)
		}
		select {
		case wanted = <-in.notify:
			if current != nil {
				current.end()
			}
		case <-over:
			current, over = nil, nil
		case <-retry.C:
			wanted = wanted || current == nil && in.leads()
		case <-ctx.Done():
			if current != nil {
				current.end()
				<-over
			}
			return
		}
	}
}

// watchLeaders tells whoever watches the group that another leader is known, or none.
func (in *instance) watchLeaders(ctx context.Context) {
	seen := make(chan raft.Observation, notifyBuffer)
	o := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, leader := o.Data.(raft.LeaderObservation)
		return leader
	})
	in.raft.RegisterObserver(o)
	defer in.raft.DeregisterObserver(o)
	for {
		select {
		case <-seen:
			in.g.changed()
		case <-ctx.Done():
			return
		}
	}
}

// end makes the term's Check, Propose and Barrier fail from now on, and its context end.
func (t *Term) end() {
	t.ended.Store(true)
	t.ready.Store(false)
	t.cancel()
}

func (in *instance) startTerm(ctx context.Context) (*Term, chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	t := &Term{inst: in, number: in.raft.CurrentTerm(), cancel: cancel, over: ctx.Done()}
	over := make(chan struct{})
	in.routines.Go(func() {
		defer close(over)
		defer cancel()
		in.runTerm(ctx, t)
		t.end()
	})
	return t, over
}

// runTerm serves only after a Barrier: by then every entry of earlier terms is
// applied here, and the noop of this term is committed, so a majority holds the
// log as it was when the term began.
func (in *instance) runTerm(ctx context.Context, t *Term) {
	log := in.g.log.With(zap.Uint64("term", t.number))
	if in.raft.State() != raft.Leader {
		return
	}
	if !in.mayServe() {
		log.Warn("this node's replica of the metadata group is damaged: the leadership is handed over")
		in.yield()
		return
	}
	if err := t.Barrier(ctx); err != nil {
		if !errors.Is(err, context.Canceled) {
			log.Info("leadership lost before it was usable", zap.Error(err))
		}
		return
	}
	a := in.rep.store.Applied()
	in.rep.clock.Stored(a.Time)
	in.rep.clock.Lead(a.Time == 0)
	t.ready.Store(true)
	in.term.Store(t)
	defer in.term.CompareAndSwap(t, nil)
	if !in.mayServe() { // it may have been damaged meanwhile, and only a term that is stored is ended for it
		return
	}
	log.Info("leading")
	in.g.changed()
	in.g.handler.Lead(ctx, t)
	if ctx.Err() == nil {
		log.Error("the handler of this term returned before its end; the group has no planner")
		<-ctx.Done()
	}
	log.Info("no longer leading")
	in.g.changed()
}

// mayServe says whether this node knows what there is in a group that it leads.
func (in *instance) mayServe() bool { return in.g.id == Metadata || in.g.host.directory() }

// transferWatch finds a leadership transfer that never ends: hashicorp/raft v1.8.0
// can leave its flag set for ever, in later terms too (issue 696), and then
// refuses every entry. Guarded by the instance's mutex.
type transferWatch struct {
	since, last time.Time
}

// seen notes an answer of raft and says for how long it has been refusing for a transfer.
func (w *transferWatch) seen(err error, now time.Time, gap time.Duration) time.Duration {
	if !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		w.since = time.Time{}
		return 0
	}
	// Two refusals far apart belong to two transfers.
	if w.since.IsZero() || now.Sub(w.last) > gap {
		w.since = now
	}
	w.last = now
	return now.Sub(w.since)
}
