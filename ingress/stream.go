package ingress

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/ingress/publish"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Kinds of due rows.
const (
	// dueAge: a stream's oldest message may have reached max_age. A lower bound: it
	// is written again for a later time when it was too early.
	dueAge uint8 = 1
	// dueConsumer: a consumer may have been inactive for its threshold; a lower bound too.
	dueConsumer uint8 = 2
)

// stream is a stream that an engine leads. It is loaded on first touch: until
// then only its directory row and subscriptions are here.
type stream struct {
	e    *engine
	name string // as row has it; never written again, for other goroutines
	row  record.StreamRow
	acct *account
	// version is that of row, 0 if it is to be looked at again; seen is the number of the last look at the
	// directory that found it.
	version, seen uint64
	subs          map[string]func() // open subscriptions by subject
	gone          bool
	busy          bool // a step of creation or deletion is under way
	// deleting are the delete calls to answer when the stream is gone.
	deleting []*api.Call

	loaded bool
	// target is what publishes are judged by, as planned; shown is the description that is applied.
	target publish.Target
	shown  *plan.StreamDescription
	// changedAt is the tick of the last planned change of a description of the stream or a consumer.
	changedAt uint64
	created   time.Time
	consumers map[string]*consumer
	match     matcher
	seenLast  uint64 // messages up to it were shown to the consumers
	ageDue    int64  // time of a due row that this engine wrote, 0 if it knows none
	expiring  bool   // an operation removes what is past max_age
	ids       trimmer
}

func (st *stream) cfg() *jsapi.StreamConfig { return st.target.Config }

// plan returns the plan of the stream; nil only if the group does not hold it.
func (st *stream) plan() *plan.Stream {
	s, err := st.e.p.Open(st.row.ID)
	if err != nil {
		return nil
	}
	return s
}

// load reads description and consumers; false if the stream can not be served.
func (e *engine) load(st *stream) bool {
	if st.loaded {
		return true
	}
	b, err := e.store.Stream(st.row.ID)
	if err != nil {
		if !errors.Is(err, record.ErrNotFound) {
			e.p.Fatal(err)
		}
		return false
	}
	d, err := plan.ParseStreamDescription(b)
	if err != nil {
		e.p.Fatal(err)
		return false
	}
	s := st.plan()
	if s == nil {
		return false
	}
	st.use(d)
	st.shown = d
	st.seenLast = s.Applied().LastSeq
	if err := e.loadConsumers(st); err != nil {
		e.p.Fatal(err)
		return false
	}
	st.loaded = true
	e.watchAge(st)
	st.ids.st = st
	e.watchIDs(st, s)
	return true
}

// rests is the tick that an answer about the planned stream and its consumers rests on.
func (st *stream) rests() uint64 {
	if s := st.plan(); s != nil {
		return max(s.Rests(), st.changedAt)
	}
	return st.changedAt
}

// changed notes that the forming envelope changes a description, and returns its tick.
func (st *stream) changed(p *plan.Planner) uint64 {
	st.changedAt = p.Tick()
	return st.changedAt
}

// use puts a description in force.
func (st *stream) use(d *plan.StreamDescription) {
	st.created = d.Created
	levels, _ := jsapi.StreamAckLevels(d.Config) // judged when the stream was created
	st.target = publish.Target{
		ID: st.row.ID, Config: d.Config, Levels: levels,
		Domain: st.e.srv.cfg.Domain, Floor: st.e.srv.cfg.MinAck,
	}
}

// out answers publishes of this stream.
func (st *stream) out(e *engine) publish.Replier { return replier{e, st.acct} }

type replier struct {
	e    *engine
	acct *account
}

// Reply implements publish.Replier.
func (r replier) Reply(subject string, header, body []byte) {
	r.e.srv.counts.answers.Add(1)
	r.acct.send(subject, "", header, body)
}

// Leading implements publish.Replier.
func (r replier) Leading() error { return r.e.term.Check() }

// subscribe opens the stream's subjects, its acks and its pulls on this node, and
// closes subjects that are not the stream's any more.
func (st *stream) subscribe() error {
	q, srv := st.e.q, st.e.srv
	onPublish := func(m *Msg) {
		size := len(m.Subject) + len(m.Reply) + len(m.Header) + len(m.Data) + eventOverhead
		ev := event{kind: evPublish, stream: st, msg: m, at: time.Now()}
		switch q.offer(ev, size) {
		case full:
			srv.overloaded(st.acct, m.Reply, st.name)
		case closed:
			srv.unplanned(&ev)
		case taken:
		}
	}
	of := func(kind eventKind) func(*Msg) {
		return func(m *Msg) {
			if q.offer(event{kind: kind, stream: st, msg: m, at: time.Now()}, len(m.Data)+eventOverhead) == full {
				srv.dropped.Add(1)
			}
		}
	}
	want := map[string]func(*Msg){"$JS.ACK." + st.row.Name + ".>": of(evAck)}
	for _, prefix := range srv.prefixes {
		want[prefix+".CONSUMER.MSG.NEXT."+st.row.Name+".*"] = of(evNext)
	}
	for _, subject := range st.row.Subjects {
		want[subject] = onPublish
	}
	for subject, h := range want {
		if st.subs[subject] != nil {
			continue
		}
		cancel, err := st.acct.conn.Subscribe(subject, h)
		if err != nil {
			return err
		}
		st.subs[subject] = cancel
	}
	for subject, cancel := range st.subs {
		if want[subject] == nil {
			cancel()
			delete(st.subs, subject)
		}
	}
	return nil
}

const eventOverhead = 256

func (st *stream) unsubscribe() {
	for _, cancel := range st.subs {
		cancel()
	}
	clear(st.subs)
}

// stored tells the consumers of new applied messages, or of a first sequence that moved.
func (st *stream) stored(e *engine, s *plan.Stream) {
	if !st.loaded {
		return
	}
	last := s.Applied().LastSeq
	if len(st.consumers) == 0 {
		st.seenLast = last
	}
	for seq := st.seenLast + 1; seq <= last; seq++ {
		m := s.Get(seq)
		if m == nil {
			continue
		}
		st.match.each(m.Subject, func(c *consumer) { c.stored(e, seq) })
	}
	st.seenLast = max(st.seenLast, last)
	e.watchAge(st)
	e.watchIDs(st, s)
	if s.TakeDead() {
		e.submit(&sweepOp{st: st})
	}
}

func (st *stream) removed(e *engine, seq uint64, subject string) {
	if !st.loaded || seq > st.seenLast {
		return
	}
	st.match.each(subject, func(c *consumer) { c.removed(e, seq, subject) })
}

// watchAge keeps the timer of max_age on the oldest message, and a due row behind
// it so that the next leader comes back to a stream that nobody touches.
func (e *engine) watchAge(st *stream) {
	age := int64(st.cfg().MaxAge)
	s := st.plan()
	if s == nil || age <= 0 {
		e.timers.set(st, 0)
		return
	}
	state := s.Applied()
	if state.Messages == 0 {
		e.timers.set(st, 0)
		return
	}
	if !st.expiring {
		e.timers.set(st, state.FirstTime+age)
	}
	if st.ageDue == 0 && e.p.Planning() {
		st.ageDue = state.FirstTime + age
		e.submit(&dueOp{st: st, kind: dueAge, bucket: st.ageDue})
	}
}

// due implements timed: the oldest message may have expired.
func (st *stream) due(e *engine, now int64) {
	switch {
	case st.gone, st.expiring, !e.load(st):
	case !e.srv.agesTrusted():
		e.timers.set(st, now+untrustedWait)
	default:
		st.expiring = true
		e.submit(&expireOp{st: st})
	}
}

// untrustedWait is the pause between two looks at messages past max_age while the
// clock is not believed.
const untrustedWait = int64(time.Second)

// dueOp writes a due row.
type dueOp struct {
	plan.OpBase
	st     *stream
	kind   uint8
	bucket int64
	ticket uint64
}

// Base implements plan.Op.
func (o *dueOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *dueOp) Plan(p *plan.Planner) uint64 {
	s := o.st.plan()
	if s == nil || o.st.gone {
		return 0
	}
	s.Due(o.kind, o.bucket, o.ticket)
	return p.Tick()
}

// Done implements plan.Op.
func (o *dueOp) Done(*plan.Planner) {}

// Fail implements plan.Op.
func (o *dueOp) Fail(bool) {}

// expireStep bounds the messages that one step of expiry removes.
const expireStep = 1024

// expireOp removes messages past max_age, a bounded step at a time.
type expireOp struct {
	plan.OpBase
	st   *stream
	more bool
}

// Base implements plan.Op.
func (o *expireOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *expireOp) Plan(p *plan.Planner) uint64 {
	s, age := o.st.plan(), int64(o.st.cfg().MaxAge)
	if s == nil || o.st.gone || age <= 0 || !o.st.e.srv.agesTrusted() {
		return 0
	}
	n, now := 0, p.Now()
	for ; n < expireStep; n++ {
		st := s.State()
		if st.Messages == 0 || st.FirstTime+age > now || !s.Remove(st.FirstSeq) {
			break
		}
	}
	o.more = n == expireStep
	if n == 0 {
		return s.Rests() // what would have gone is on its way out
	}
	return p.Tick()
}

// Done implements plan.Op.
func (o *expireOp) Done(*plan.Planner) {
	if o.more {
		o.st.e.submit(&expireOp{st: o.st})
		return
	}
	o.st.expiring = false
	o.st.e.watchAge(o.st)
}

// Fail implements plan.Op.
func (o *expireOp) Fail(bool) {}

// syncDirectory takes over what the directory says about the streams of the group.
func (e *engine) syncDirectory() {
	e.syncs++
	e.srv.dir.versions("", func(row record.StreamRow, version uint64) bool {
		if row.Group != e.group || row.ID == 0 {
			return true
		}
		st := e.streams[row.ID]
		if st == nil {
			acct := e.srv.account(row.Account)
			if acct == nil {
				return true // an account that this node's hub does not have
			}
			st = &stream{e: e, name: row.Name, row: row, acct: acct, subs: make(map[string]func()), consumers: make(map[string]*consumer)}
			e.streams[row.ID] = st
			e.byName[nameKey{row.Account, row.Name}] = st
		}
		st.seen = e.syncs
		// A live stream has nothing to do until its row changes; the other phases are tried again.
		if row.Phase != record.StreamLive || version != st.version {
			st.version = version
			e.advance(st, row)
		}
		return true
	})
	for _, st := range e.streams {
		if st.seen != e.syncs {
			e.drop(st)
		}
	}
}

// drop forgets a stream that is gone.
func (e *engine) drop(st *stream) {
	st.gone = true
	st.unsubscribe()
	e.timers.set(st, 0)
	e.timers.set(&st.ids, 0)
	for _, c := range st.consumers {
		c.deleted(e)
	}
	delete(e.streams, st.row.ID)
	if e.byName[nameKey{st.row.Account, st.row.Name}] == st {
		delete(e.byName, nameKey{st.row.Account, st.row.Name})
	}
	e.p.Forget(st.row.ID)
}

// advance brings a stream to what its directory row says.
func (e *engine) advance(st *stream, row record.StreamRow) {
	st.row = row
	switch row.Phase {
	case record.StreamLive:
		if err := st.subscribe(); err != nil {
			e.log.Error("subscribing a stream's subjects", zap.String("stream", row.Name), zap.Error(err))
			st.version = 0 // tried again with the next change
		}
	case record.StreamCreating:
		e.finishCreate(st)
	case record.StreamDeleting:
		e.finishDelete(st)
	}
}

func sameSubjects(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// scheduleDue sets timers for the due rows that the applied state holds, and for
// the sweeps that a leader before this one did not finish.
func (e *engine) scheduleDue() {
	e.timers.set(&dueScan{}, e.term.Now())
	err := e.store.Sweeps(func(id record.StreamID) bool {
		e.later(0, func(e *engine) {
			if st := e.streams[id]; st != nil && e.load(st) {
				e.submit(&sweepOp{st: st})
			}
		})
		return true
	})
	if err != nil {
		e.p.Fatal(err)
	}
}

// dueScan looks at the due rows again and again, at the time of the earliest one
// ahead or after a minute.
type dueScan struct{}

const dueScanEvery = int64(time.Minute)

func (d *dueScan) due(e *engine, now int64) {
	n := 0
	err := e.store.Due(now, func(r DueRow) bool {
		n++
		e.submit(&dropDueOp{e: e, row: r})
		return n < expireStep
	})
	if err != nil {
		e.p.Fatal(err)
		return
	}
	next := dueScanEvery
	if n == expireStep {
		next = int64(checkEvery)
	}
	e.timers.set(d, now+next)
}

// dropDueOp removes a due row whose time has come and does what is due.
type dropDueOp struct {
	plan.OpBase
	e   *engine
	row DueRow
}

// Base implements plan.Op.
func (o *dropDueOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *dropDueOp) Plan(p *plan.Planner) uint64 {
	p.DropDue(o.row.Stream, o.row.Bucket, o.row.Ticket)
	return p.Tick()
}

// Done implements plan.Op.
func (o *dropDueOp) Done(*plan.Planner) {
	st := o.e.streams[o.row.Stream]
	if st == nil || !o.e.load(st) {
		return
	}
	switch o.row.Kind {
	case dueAge:
		if st.ageDue == o.row.Bucket {
			st.ageDue = 0
		}
		o.e.watchAge(st)
	case dueConsumer:
		for _, c := range st.consumers {
			if uint64(c.id) != o.row.Ticket {
				continue
			}
			if c.dueAt == o.row.Bucket {
				c.dueAt = 0
			}
			c.watchInactive(o.e)
		}
	}
}

// Fail implements plan.Op.
func (o *dropDueOp) Fail(bool) {}

// later runs f on the engine's goroutine after a while of cluster time.
func (e *engine) later(d time.Duration, f func(*engine)) {
	e.timers.set(&delayed{f}, e.term.Now()+int64(d))
}

type delayed struct{ f func(*engine) }

func (d *delayed) due(e *engine, _ int64) { d.f(e) }
