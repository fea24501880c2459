package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

const testStream record.StreamID = 1

// Outcomes of a request, beside nil.
var (
	errFailed  = errors.New("not stored")
	errUnknown = errors.New("outcome unknown")
)

// request is what a client of the test planner wants: a value stored, or the
// message seq deleted.
type request struct {
	value  string
	delete uint64
	answer chan answer // cap 1
}

type answer struct {
	seq uint64
	err error
}

// planner is the smallest planner that keeps the contract of a Term: envelopes in
// flight one upon the other, and after any doubt a rebuild.
type planner struct {
	node string
	// dead: the node lost its power; what it says from now on was never heard.
	dead atomic.Bool
	// durables counts Durable calls, violations what must never happen.
	mu struct {
		lock sync.Mutex

		term       *Term
		waiting    []*request
		durables   int
		rebuilds   int
		violations []string
	}
	wake chan struct{}
}

func newPlanner(node string) *planner { return &planner{node: node, wake: make(chan struct{}, 1)} }

func (p *planner) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// submit hands a request to the leader; false if this node does not lead.
func (p *planner) submit(r *request) bool {
	p.mu.lock.Lock()
	ok := p.mu.term != nil
	if ok {
		p.mu.waiting = append(p.mu.waiting, r)
	}
	p.mu.lock.Unlock()
	p.kick()
	return ok
}

func (p *planner) take() []*request {
	p.mu.lock.Lock()
	defer p.mu.lock.Unlock()
	out := p.mu.waiting
	p.mu.waiting = nil
	return out
}

func (p *planner) violation(format string, args ...any) {
	p.mu.lock.Lock()
	defer p.mu.lock.Unlock()
	p.mu.violations = append(p.mu.violations, p.node+": "+fmt.Sprintf(format, args...))
}

const (
	testWindow   = 4
	testEnvelope = 2
)

// envelope is one proposal and what rests on it.
type envelope struct {
	requests []*request
	seqs     []uint64
	done     bool
	err      error
}

// lead is one term of the planner; only its goroutine touches it, but for ended.
type lead struct {
	p       *planner
	t       *Term
	backlog []*request
	flight  []*envelope
	fence   record.Fence
	base    record.Fence
	state   record.StreamState
	doubt   bool
	why     error // of the doubt

	mu struct {
		lock sync.Mutex

		ended []func()
	}
}

// maxRebuilds bounds the epochs that one moment of virtual time may see. In a
// cluster without latency a plan that is refused for ever stops the clock and fills
// the memory: that is a violation instead.
const maxRebuilds = 1000

// Lead implements Handler.
func (p *planner) Lead(ctx context.Context, t *Term) {
	l := &lead{p: p, t: t}
	pace := pace{max: maxRebuilds}
	p.mu.lock.Lock()
	p.mu.term = t
	p.mu.lock.Unlock()
	l.rebuild()
	for ctx.Err() == nil {
		l.collect()
		if l.doubt && len(l.flight) == 0 {
			if t.Barrier(ctx) != nil {
				break
			}
			p.mu.lock.Lock()
			p.mu.rebuilds++
			p.mu.lock.Unlock()
			if !pace.step(time.Now()) {
				p.violation("%d rebuilds at one moment, last for: %v", pace.max, l.why)
				break
			}
			l.rebuild()
		}
		l.backlog = append(l.backlog, p.take()...)
		if !l.doubt && len(l.flight) < testWindow && len(l.backlog) > 0 {
			l.plan()
			continue
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
		}
	}
	p.mu.lock.Lock()
	p.mu.term = nil
	p.mu.lock.Unlock()
	for len(l.flight) > 0 {
		l.collect()
		if len(l.flight) > 0 {
			<-p.wake
		}
	}
	for _, r := range append(l.backlog, p.take()...) {
		r.answer <- answer{err: errFailed}
	}
}

// pace counts steps during which no time passes.
type pace struct {
	max, steps int
	at         time.Time
}

// step is false when there were more than max at one moment.
func (p *pace) step(now time.Time) bool {
	if !now.Equal(p.at) {
		p.at, p.steps = now, 0
	}
	p.steps++
	return p.steps <= p.max
}

// rebuild starts the next epoch on what is applied.
func (l *lead) rebuild() {
	l.doubt = false
	l.base = l.t.Base()
	epoch := l.fence.Epoch
	if l.base.Term == l.t.Number() {
		epoch = max(epoch, l.base.Epoch)
	}
	l.fence = record.Fence{Term: l.t.Number(), Epoch: epoch + 1}
	row, err := l.t.Group().Reader().Stream(testStream)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		l.p.violation("read the stream: %v", err)
	}
	l.state = row.State
	if l.state.FirstSeq == 0 {
		l.state.FirstSeq = 1
	}
}

func (l *lead) plan() {
	n := min(len(l.backlog), testEnvelope)
	e := &envelope{requests: l.backlog[:n:n]}
	l.backlog = l.backlog[n:]
	b := command.NewBuilder(1024)
	now := l.t.Now()
	for _, r := range e.requests {
		if r.delete != 0 {
			l.planDelete(b, r.delete)
			e.seqs = append(e.seqs, r.delete)
			continue
		}
		l.state.LastSeq++
		l.state.Messages++
		m := record.Message{Time: now, Subject: "test.subject", Payload: []byte(r.value)}
		b.Store(testStream, &command.Item{Seq: l.state.LastSeq, Hash: record.SubjectHash(m.Subject)}, &m)
		e.seqs = append(e.seqs, l.state.LastSeq)
	}
	l.state.LastTime = now
	b.Counters(testStream, &l.state, nil)
	l.fence.Ordinal++
	h := command.Header{Fence: l.fence, Proposal: l.t.NextID(), Time: now}
	if l.fence.Ordinal == 1 {
		h.Base = l.base
	}
	l.flight = append(l.flight, e)
	called := false
	l.t.Propose(&record.Proposal{
		ID: h.Proposal, Entry: b.Finish(&h),
		Durable: func() {
			l.p.mu.lock.Lock()
			l.p.mu.durables++
			l.p.mu.lock.Unlock()
		},
		Done: func(err error) {
			l.mu.lock.Lock()
			if called {
				l.p.violation("Done called twice")
			}
			called = true
			l.mu.ended = append(l.mu.ended, func() { e.done, e.err = true, err })
			l.mu.lock.Unlock()
			l.p.kick()
		},
	})
}

func (l *lead) planDelete(b *command.Builder, seq uint64) {
	l.state.Messages--
	b.Delete(&command.Deletes{
		Keys: []command.Key{{Stream: testStream, Seq: seq}},
		Index: []command.IndexEntry{
			{Kind: command.IndexSubject, Stream: testStream, Name: "test.subject", Seq: seq},
		},
	})
}

// collect takes the outcomes of envelopes, in order.
func (l *lead) collect() {
	l.mu.lock.Lock()
	ended := l.mu.ended
	l.mu.ended = nil
	l.mu.lock.Unlock()
	for _, f := range ended {
		f()
	}
	var again []*request
	rest := l.flight[:0]
	for _, e := range l.flight {
		switch {
		case !e.done:
			rest = append(rest, e)
			continue
		case e.err == nil:
			for i, r := range e.requests {
				r.answer <- answer{seq: e.seqs[i]}
			}
			continue
		case errors.Is(e.err, record.ErrUnknownOutcome):
			for _, r := range e.requests {
				r.answer <- answer{err: errUnknown}
			}
		case errors.Is(e.err, record.ErrRefused), errors.Is(e.err, record.ErrNotLeader),
			errors.Is(e.err, record.ErrStalePlan):
			again = append(again, e.requests...)
		default:
			l.p.violation("Done with %v", e.err)
		}
		l.doubt, l.why = true, e.err
	}
	l.flight = rest
	l.backlog = append(again, l.backlog...)
}

func TestPlannerKeepsItsRequests(t *testing.T) {
	t.Parallel()
	p := newPlanner("a")
	if p.submit(&request{}) {
		t.Error("a planner without a term took a request")
	}
}

// What is refused for ever is told, and does not stop the virtual clock.
func TestPlannerTellsOfEndlessRefusals(t *testing.T) {
	bubble(t, 1, func(w *world) {
		n := w.nodes[0]
		n.hook = func(*record.Proposal) bool { return true }
		w.found()
		p := w.leader().planner()
		r := &request{value: "never", answer: make(chan answer, 1)}
		if !p.submit(r) {
			w.t.Fatal("no term")
		}
		if a := <-r.answer; !errors.Is(a.err, errFailed) {
			w.t.Errorf("answer %v, want %v", a.err, errFailed)
		}
		p.mu.lock.Lock()
		defer p.mu.lock.Unlock()
		if len(p.mu.violations) != 1 || p.mu.rebuilds != maxRebuilds+1 {
			w.t.Errorf("violations %q after %d rebuilds, want one after %d",
				p.mu.violations, p.mu.rebuilds, maxRebuilds+1)
		}
		p.mu.violations = nil
	})
}
