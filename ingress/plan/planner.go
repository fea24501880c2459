package plan

import (
	"container/list"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Config bounds a Planner. Zero fields take the defaults.
type Config struct {
	// InFlight is how many envelopes may be on their way. Default 4.
	InFlight int
	// MaxBytes and MaxMessages cap one envelope. Defaults 1 MiB and 4,096; one
	// message above MaxBytes makes an envelope of its own.
	MaxBytes, MaxMessages int
	// Budget is the sum of Size of all operations that are not done. Default 64 MiB.
	Budget int
	// Timeout is how long an operation may wait for its answer. Default 5 s, in nanoseconds.
	Timeout int64
	// TailBytes bounds the in-memory tail of one stream, TailsBytes those of all
	// streams of the group together. Defaults 8 MiB and 64 MiB.
	TailBytes, TailsBytes int
	// AheadBytes bounds what is read ahead below the tails, of all streams of the
	// group together. Default 16 MiB.
	AheadBytes int
}

// Defaults of Config.
const (
	DefaultInFlight    = 4
	DefaultMaxBytes    = 1 << 20
	DefaultMaxMessages = 4096
	DefaultBudget      = 64 << 20
	DefaultTimeout     = 5e9
	DefaultTailBytes   = 8 << 20
	DefaultTailsBytes  = 64 << 20
	DefaultAheadBytes  = 16 << 20
)

func (c Config) withDefaults() Config {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.InFlight, DefaultInFlight)
	def(&c.MaxBytes, DefaultMaxBytes)
	def(&c.MaxMessages, DefaultMaxMessages)
	def(&c.Budget, DefaultBudget)
	def(&c.TailBytes, DefaultTailBytes)
	def(&c.TailsBytes, DefaultTailsBytes)
	def(&c.AheadBytes, DefaultAheadBytes)
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return c
}

// Result is how the proposal of one envelope ended; the owner feeds it to Ended.
type Result struct {
	Tick uint64
	Err  error
}

// Notify is how a Planner hears of its proposals: the functions are called from
// other goroutines and must not block; the owner carries the values to Ended,
// Durable and BarrierDone on its own goroutine.
type Notify struct {
	Ended   func(Result)
	Durable func(tick uint64)
	// Barrier asks the owner to run Term.Barrier and to feed its result to BarrierDone.
	Barrier func()
}

type phase uint8

const (
	planning  phase = iota
	draining        // waits for the proposals in flight
	barrier         // waits for the barrier
	suspended       // an outcome is unknown, or a read failed: only the end of the term helps
)

type envelope struct {
	tick     uint64
	fence    record.Fence
	base     record.Fence
	id       record.ProposalID
	ops      []Op
	streams  []touched
	messages int
	durable  bool // fsynced by the leader
	told     bool // by Durable
	ended    bool
	err      error
}

type touched struct {
	s     *Stream
	state record.StreamState
}

// Planner plans one term of one group. Not safe for concurrent use.
type Planner struct {
	cfg    Config
	term   Term
	store  Store
	hear   Listener
	notify Notify

	phase    phase
	err      error
	epoch    uint64
	ordinal  uint64
	base     record.Fence
	tick     uint64 // of the envelope that is forming
	applied  uint64 // highest tick applied here
	arrivals uint64
	held     int

	cur      *envelope
	b        *command.Builder
	lastSize int
	inflight []*envelope // oldest first; from ended ones on, nothing after is applied
	failed   []Op
	backlog  []Op
	streams  map[record.StreamID]*Stream

	tails     list.List // of *Stream with messages in their tail, the one used last at the back
	tailBytes int

	ahead      list.List // of *stretch, the one used last at the back
	aheadBytes int
}

// New returns a Planner for a term that has just begun (its Barrier is behind it).
func New(cfg Config, term Term, store Store, hear Listener, notify Notify) *Planner {
	p := &Planner{
		cfg: cfg.withDefaults(), term: term, store: store, hear: hear, notify: notify,
		streams: make(map[record.StreamID]*Stream),
	}
	p.nextEpoch()
	p.form()
	return p
}

// Now is the cluster time of the term, in nanoseconds.
func (p *Planner) Now() int64 { return p.term.Now() }

// Config returns the bounds in force.
func (p *Planner) Config() Config { return p.cfg }

// Err returns why the Planner can not go on, nil while it can. The owner then
// gives leadership away.
func (p *Planner) Err() error { return p.err }

// Tick is the tick of the envelope that is forming: what an operation returns
// that has just written into it.
func (p *Planner) Tick() uint64 { return p.tick }

// AppliedTick is the highest tick applied here.
func (p *Planner) AppliedTick() uint64 { return p.applied }

// Builder is the envelope that is forming.
func (p *Planner) Builder() *command.Builder { return p.b }

// Planning says that operations are judged now; otherwise they wait for a rebuild.
func (p *Planner) Planning() bool { return p.phase == planning }

// Idle says that nothing is forming, in flight or waiting.
func (p *Planner) Idle() bool {
	return p.phase == planning && len(p.inflight) == 0 && len(p.backlog) == 0 && p.b.Empty()
}

// Admit counts size against the budget; false means overload: the request is
// refused with "too many requests", never dropped.
func (p *Planner) Admit(size int) bool {
	if p.held+size > p.cfg.Budget {
		return false
	}
	p.held += size
	return true
}

// Release gives back what Admit counted for something that is not an operation.
func (p *Planner) Release(size int) { p.held -= size }

// Held is the sum of the sizes of admitted operations that are not done.
func (p *Planner) Held() int { return p.held }

// Fatal records that a read of the applied state failed: nothing more is
// planned in this term.
func (p *Planner) Fatal(err error) {
	if p.err == nil {
		p.err = err
	}
	p.phase = suspended
}

func (p *Planner) form() {
	p.tick++
	p.cur = &envelope{tick: p.tick}
	p.b = command.NewBuilder(max(p.lastSize, 512))
}

// Submit takes an operation that Admit has counted. It is planned now, or when
// there is room, in arrival order.
func (p *Planner) Submit(op Op) {
	p.arrivals++
	op.Base().n = p.arrivals
	if p.phase != planning || len(p.backlog) > 0 || (p.full() && !p.seal()) {
		p.backlog = append(p.backlog, op)
		return
	}
	p.plan(op)
}

func (p *Planner) full() bool {
	return p.b.Size() >= p.cfg.MaxBytes || p.cur.messages >= p.cfg.MaxMessages
}

// Full says that the envelope that is forming takes no more than what is being
// written into it: whoever gathers changes leaves the rest for the next one.
func (p *Planner) Full() bool { return p.full() }

func (p *Planner) plan(op Op) {
	rests := op.Plan(p)
	switch {
	case p.phase == suspended:
		p.failed = append(p.failed, op)
	case rests <= p.applied:
		p.finish(op)
	case rests == p.tick:
		p.cur.ops = append(p.cur.ops, op)
	default:
		e := p.find(rests)
		e.ops = append(e.ops, op)
	}
}

func (p *Planner) find(tick uint64) *envelope {
	i, ok := slices.BinarySearchFunc(p.inflight, tick, func(e *envelope, t uint64) int {
		return int(int64(e.tick) - int64(t))
	})
	if !ok {
		return p.cur // a change that is not sealed yet
	}
	return p.inflight[i]
}

func (p *Planner) finish(op Op) {
	p.held -= op.Base().Size
	op.Base().Size = 0
	op.Done(p)
}

// Flush proposes what has formed, as far as the window allows, and plans what
// waited for room. The owner calls it when it has no event left to feed.
func (p *Planner) Flush() {
	for p.phase == planning && p.seal() {
		n := 0
		for n < len(p.backlog) && p.phase == planning && !p.full() {
			op := p.backlog[n]
			p.backlog[n] = nil
			n++
			p.plan(op)
		}
		p.backlog = p.backlog[n:]
	}
}

// seal proposes the forming envelope; false if the window is full or there is nothing in it.
func (p *Planner) seal() bool {
	if p.phase != planning || len(p.inflight) >= p.cfg.InFlight {
		return false
	}
	p.hear.Gather(p.tick)
	for i := range p.cur.streams {
		t := &p.cur.streams[i]
		t.s.seal(p)
		t.state = t.s.state
	}
	if p.b.Empty() || p.phase != planning {
		return false
	}
	e := p.cur
	p.ordinal++
	e.fence = record.Fence{Term: p.term.Number(), Epoch: p.epoch, Ordinal: p.ordinal}
	if p.ordinal == 1 {
		e.base = p.base
	}
	e.id = p.term.NextID()
	entry := p.b.Finish(&command.Header{Fence: e.fence, Base: e.base, Proposal: e.id, Time: p.term.Now()})
	p.lastSize = len(entry) + len(entry)/8
	p.inflight = append(p.inflight, e)
	p.form()
	tick, notify := e.tick, p.notify
	p.term.Propose(&record.Proposal{
		ID: e.id, Entry: entry,
		Durable: func() { notify.Durable(tick) },
		Done:    func(err error) { notify.Ended(Result{tick, err}) },
	})
	return true
}

// touch registers that the forming envelope changes s.
func (p *Planner) touch(s *Stream) {
	if s.touchedAt != p.tick {
		s.touchedAt = p.tick
		p.cur.streams = append(p.cur.streams, touched{s: s})
	}
}

// Durable takes the news that the leader has fsynced the envelope of a tick. It
// returns the operations that are on its disk with all they were planned on: those
// of the envelopes up to the first that is not, each once. One behind an envelope
// that was refused is never among them: the fence makes it a no-op, so it counts for
// nothing that it is on the disk.
func (p *Planner) Durable(tick uint64) []Op {
	for _, e := range p.inflight {
		e.durable = e.durable || e.tick == tick
	}
	if p.phase != planning {
		return nil
	}
	var ops []Op
	for _, e := range p.inflight {
		if !e.durable || e.ended && e.err != nil {
			break
		}
		if !e.told {
			e.told = true
			ops = append(ops, e.ops...)
			plantEarlyAck(p, e)
		}
	}
	return ops
}

// Ended takes the outcome of a proposal.
func (p *Planner) Ended(r Result) {
	for _, e := range p.inflight {
		if e.tick == r.Tick {
			e.ended, e.err = true, r.Err
		}
	}
	for len(p.inflight) > 0 && p.inflight[0].ended {
		e := p.inflight[0]
		p.inflight[0] = nil
		p.inflight = p.inflight[1:]
		p.settle(e)
	}
	if p.phase == draining && len(p.inflight) == 0 {
		p.barrier()
	}
}

func (p *Planner) settle(e *envelope) {
	switch {
	case e.err == nil:
		p.apply(e)
		return
	case errors.Is(e.err, record.ErrStalePlan), errors.Is(e.err, record.ErrRefused):
		p.failed = append(p.failed, e.ops...)
		p.hear.Failed(e.tick)
	case errors.Is(e.err, record.ErrNotLeader):
		p.failed = append(p.failed, e.ops...)
		p.Fatal(e.err)
		return
	default:
		for _, op := range e.ops { // may be committed, or not: said so, and never planned again
			p.fail(op, false)
		}
		p.Fatal(e.err)
		return
	}
	if p.phase == planning {
		p.phase = draining
	}
}

func (p *Planner) apply(e *envelope) {
	p.applied = e.tick
	for _, t := range e.streams {
		t.s.apply(p, e.tick, &t.state)
	}
	p.hear.Applied(e.tick)
	for _, op := range e.ops {
		p.finish(op)
	}
	for _, t := range e.streams {
		p.hear.Stored(t.s)
	}
	for _, t := range e.streams {
		t.s.evict(p)
	}
}

func (p *Planner) barrier() {
	p.phase = barrier
	p.notify.Barrier()
}

// BarrierDone goes on after the barrier of a rebuild: all planned state is
// dropped, the next epoch begins on the fence applied now, and the operations of
// failed envelopes and those that waited are planned, in arrival order.
func (p *Planner) BarrierDone(err error) {
	if p.phase != barrier {
		return
	}
	if err != nil {
		p.Fatal(fmt.Errorf("barrier of a rebuild: %w", err))
		return
	}
	p.hear.Failed(p.tick) // what the forming envelope had gathered goes with it
	ops := slices.Concat(p.failed, p.cur.ops)
	slices.SortStableFunc(ops, func(a, b Op) int { return int(int64(a.Base().n) - int64(b.Base().n)) })
	p.failed = nil
	p.backlog = append(ops, p.backlog...)
	for id, s := range p.streams {
		if s.touchedAt > p.applied && !s.rebuild(p) {
			p.Forget(id)
		}
	}
	if p.phase == suspended {
		return
	}
	p.hear.Rebuilt()
	p.phase = planning
	p.nextEpoch()
	p.form()
	p.drainBacklog()
}

// nextEpoch begins an epoch on the fence that is applied now. A term can be
// entered twice (news of its loss came after it was won again), so the base's
// epoch counts too.
func (p *Planner) nextEpoch() {
	p.base, p.ordinal = p.term.Base(), 0
	if p.base.Term == p.term.Number() {
		p.epoch = max(p.epoch, p.base.Epoch)
	}
	p.epoch++
}

func (p *Planner) drainBacklog() {
	todo := p.backlog
	p.backlog = nil
	for i, op := range todo {
		if p.phase != planning || (p.full() && !p.seal()) {
			p.backlog = append(p.backlog, todo[i:]...)
			return
		}
		p.plan(op)
	}
}

// Expire answers the operations that arrived before the given time and still
// wait: their outcome is unknown. They stay planned; a later Done gives no second reply.
func (p *Planner) Expire(before int64) {
	for _, e := range p.inflight {
		p.expire(e.ops, before)
	}
	p.expire(p.cur.ops, before)
	p.expire(p.failed, before)
	p.expire(p.backlog, before)
}

func (p *Planner) expire(ops []Op, before int64) {
	for _, op := range ops {
		if b := op.Base(); b.Arrived < before && !b.late {
			b.late = true
			op.Fail(false)
		}
	}
}

func (p *Planner) fail(op Op, certain bool) {
	p.held -= op.Base().Size
	op.Base().Size = 0
	if !op.Base().late {
		op.Base().late = true
		op.Fail(certain)
	}
}

// Stop ends the plan with the term: what is in flight has an unknown outcome,
// what was refused, stale or never proposed was certainly not stored.
func (p *Planner) Stop() {
	for _, e := range p.inflight {
		certain := e.ended && e.err != nil && !errors.Is(e.err, record.ErrUnknownOutcome)
		for _, op := range e.ops {
			p.fail(op, certain)
		}
	}
	for _, ops := range [][]Op{p.failed, p.cur.ops, p.backlog} {
		for _, op := range ops {
			p.fail(op, true)
		}
	}
	p.inflight, p.failed, p.backlog = nil, nil, nil
	p.Fatal(record.ErrClosed)
}
