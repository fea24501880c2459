package ingress

import (
	"errors"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/deliver"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/ingress/publish"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// stream is a stream that an engine leads. It is loaded on first touch: until
// then only its directory row and subscriptions are here.
type stream struct {
	e         *engine
	name      string // as row has it; never written again, for other goroutines
	row       record.StreamRow
	acct      *account
	subs      map[string]func() // open subscriptions by subject
	gone      bool
	busy      bool     // a step of creation, update or deletion is under way
	lastNames []string // of the consumers, when it was deleted
	// deleting are the delete calls to answer when the stream is gone; held is what they
	// count in the group's budget.
	deleting []*call
	held     int

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
	// Of long work that goes in steps: how often a sweep of dead rows, and lowered limits,
	// were begun; the purges that are under way.
	sweeping, limiting uint64
	purges             api.Slots
	// hushed are messages that a purge or rollup removes: no advisory tells of those that
	// were delivered.
	hushed map[uint64]struct{}
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
	b, _, err := e.store.Stream(st.row.ID)
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
		Domain: st.e.srv.cfg.Domain, Floor: st.e.srv.cfg.MinAck, Full: st.e.srv.cfg.Full, Hear: st,
	}
}

// out answers publishes of this stream.
func (st *stream) out(e *engine) replier { return replier{e, st.acct} }

type replier struct {
	e    *engine
	acct *account
}

// Reply implements publish.Replier.
func (r replier) Reply(subject string, header, body []byte) {
	r.e.srv.counts.answers.Add(1)
	r.acct.send(subject, header, body)
}

// Provisional implements publish.Replier.
func (r replier) Provisional(subject string, header, body []byte) bool {
	if r.e.term.Check() != nil || !r.acct.post(&Outgoing{Subject: subject, Header: header, Body: body, Fenced: true}) {
		return false
	}
	r.e.srv.counts.answers.Add(1)
	return true
}

// subscribe opens the stream's subjects, its acks and its pulls on this node, and
// closes subjects that are not the stream's any more.
func (st *stream) subscribe() error {
	q, srv := st.e.q, st.e.srv
	onPublish := func(m *Msg) {
		size := len(m.Subject) + len(m.Reply) + len(m.Header) + len(m.Data) + eventOverhead
		ev := event{kind: evPublish, stream: st, msg: m, at: time.Now()}
		switch q.offer(ev, size) {
		case full:
			srv.overloaded(st.e.term, &ev)
		case closed:
			srv.unplanned(&ev)
		case taken:
		}
	}
	of := func(kind eventKind) func(*Msg) {
		return func(m *Msg) {
			switch q.offer(event{kind: kind, stream: st, msg: m, at: time.Now()}, len(m.Data)+eventOverhead) {
			case full:
				srv.dropped.Add(1)
			case closed:
				if kind == evNext {
					st.turnAway(m)
				}
			case taken:
			}
		}
	}
	want := map[string]func(*Msg){"$JS.ACK." + st.row.Name + ".>": of(evAck)}
	for _, prefix := range srv.prefixes {
		want[prefix+".CONSUMER.MSG.NEXT."+st.row.Name+".*"] = of(evNext)
	}
	if !st.e.muted {
		for _, subject := range st.served() {
			want[subject] = onPublish
		}
	}
	// What goes, goes first: two subscriptions that overlap would store a message twice.
	for subject, cancel := range st.subs {
		if want[subject] == nil {
			cancel()
			delete(st.subs, subject)
		}
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
	return nil
}

// served are the subjects whose messages are the stream's: while an update of them
// is not finished its row holds the old and the new ones.
func (st *stream) served() []string {
	if st.row.Phase == record.StreamLive && st.row.Request != nil && st.loaded {
		return st.shown.Config.Subjects
	}
	return st.row.Subjects
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
		st.sweep(plan.SweepCursor{})
	}
}

func (st *stream) removed(e *engine, seq uint64, subject string) {
	_, hushed := st.hushed[seq]
	delete(st.hushed, seq)
	if !st.loaded || seq > st.seenLast {
		return
	}
	reason := deliver.ReasonDeleted
	if hushed {
		reason = ""
	}
	st.match.each(subject, func(c *consumer) { c.removed(e, seq, subject, reason) })
}
