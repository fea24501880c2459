package deliver

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// model watches a consumer from outside, as clients, stream and replicas do, and
// knows nothing of how it works.
type model struct {
	t    *testing.T
	r    *rand.Rand
	src  *memStream
	cfg  Config
	c    *Consumer
	now  int64
	gone map[string]bool

	rows    rows
	flight  []carried
	tag     uint64
	settled []uint64 // told since the last change was taken

	sent      []sentMsg               // every delivery a client got
	got       map[uint64]bool         // delivered to somebody, by any leader
	maybe     map[uint64]bool         // recorded by a leader that may have died before sending
	acked     map[uint64]bool         // somebody acked or ended it
	confirmed map[uint64]bool         // and was told that it counts
	asked     map[string]uint64       // answer subject → sequence acked
	reqs      map[string]*requestView // by reply subject
	lastCseq  uint64
	started   record.ConsumerState
	names     int
	trace     []string
}

type carried struct {
	tag     uint64
	ch      *command.ConsumerChange
	settled []uint64
}

type sentMsg struct {
	seq, cseq uint64
	count     uint64
}

type requestView struct {
	batch, bytes int
	expires      int64
	over         bool
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	for _, l := range m.trace[max(0, len(m.trace)-40):] {
		m.t.Log(l)
	}
	m.t.Fatalf(format, args...)
}

func (m *model) interest(reply string, _ int64) bool { return !m.gone[reply] }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func newModel(t *testing.T, seed uint64) *model {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	m := &model{
		t: t, r: r, src: newMemStream(), gone: map[string]bool{},
		got: map[uint64]bool{}, maybe: map[uint64]bool{}, acked: map[uint64]bool{},
		confirmed: map[uint64]bool{}, asked: map[string]uint64{}, reqs: map[string]*requestView{},
	}
	m.src.stride = pick(r, uint64(0), 0, 1, 3)
	m.cfg = Config{
		StreamID: 1, ID: 2, Stream: "S", Name: "C",
		Ack:            pick(r, jsapi.AckExplicit, jsapi.AckExplicit, jsapi.AckAll, jsapi.AckNone),
		AckWait:        time.Duration(1+r.IntN(5)) * time.Second,
		MaxDeliver:     pick(r, 0, 0, 0, 1, 2, 3),
		MaxAckPending:  pick(r, 0, 1, 2, 5),
		MaxWaiting:     pick(r, 0, 3),
		Filters:        pick(r, nil, nil, []string{"a"}, []string{"a", "b"}),
		Settles:        r.IntN(2) == 0,
		AckAnyDelivery: r.IntN(4) == 0,
		HeadersOnly:    r.IntN(4) == 0,
	}
	limits := Limits{MaxExhausted: pick(r, 0, 2), MaxHeld: pick(r, 0, 3)}
	m.cfg.Limits = limits.WithDefaults()
	if r.IntN(4) == 0 {
		m.cfg.Backoff = []time.Duration{time.Second, 3 * time.Second, 9 * time.Second}
	}
	for range r.IntN(10) {
		m.store()
	}
	m.started = Begin(m.src, Start{
		Policy:  pick(r, jsapi.DeliverAll, jsapi.DeliverAll, jsapi.DeliverLastPerSubject),
		Filters: m.cfg.Filters,
	})
	m.rows = rows{state: m.started, pending: map[uint64]record.Pending{}}
	m.load()
	return m
}

func (m *model) load() {
	m.c = load(m.cfg, m.src, m.interest, &m.rows, m.now)
	m.lastCseq = m.rows.state.DeliveredConsumer
	m.settled = nil
	for seq, p := range m.rows.pending {
		if m.c.fenced && p.Count > 0 {
			m.maybe[seq] = true
		}
	}
	for _, q := range m.reqs {
		q.over = true
	}
}

func (m *model) store() {
	seq := m.src.store(pick(m.r, "a", "a", "b", "c"), "0123456789"[:m.r.IntN(10)], m.now)
	if m.c != nil {
		m.c.Stored(seq, m.c.Matches(m.src.msgs[seq].Subject))
	}
}

func (m *model) removed(seq uint64, reason string) {
	if msg := m.src.remove(seq); msg != nil {
		m.see(m.c.Removed(nil, seq, msg.Subject, reason, m.now))
	}
}

// see checks and books what the consumer wants done.
func (m *model) see(out []Action) {
	m.t.Helper()
	fresh := false
	for n := 0; m.c.Ready(); n++ {
		if n > 1000 {
			m.fail("always ready")
		}
		out = m.c.Wake(out, m.now)
	}
	for i := range out {
		a := &out[i]
		m.trace = append(m.trace, "    "+format(m.c, a))
		switch a.Kind {
		case ActDeliver:
			if m.c.fenced && m.r.IntN(8) == 0 {
				m.c.Unsent(a, m.now)
				continue
			}
			m.delivered(a)
			fresh = fresh || a.Delivered == 1
		case ActStatus:
			m.status(a)
		case ActReply:
			if seq, ok := m.asked[a.To]; ok {
				m.confirm(seq)
			}
		case ActSettle:
			// Under ack all it may be history that nobody gets to see.
			maybe := (m.maybe[a.Seq] || a.Seq <= m.started.SkipTo) && m.cfg.Ack == jsapi.AckAll
			if !m.acked[a.Seq] && m.cfg.Ack != jsapi.AckNone && !maybe {
				m.fail("settles %d, which nobody acked", a.Seq)
			}
			if !slices.Contains(m.settled, a.Seq) {
				m.settled = append(m.settled, a.Seq)
			}
		case ActMaxDeliver:
			if m.cfg.MaxDeliver == 0 || a.Delivered != uint64(m.cfg.MaxDeliver) {
				m.fail("gives up %d after %d deliveries", a.Seq, a.Delivered)
			}
		default:
		}
	}
	if c := m.c; fresh && !c.fenced && c.t != nil && c.t.n > c.window() {
		m.fail("window of %d is overrun", c.window())
	}
	m.check()
}

func (m *model) confirm(seq uint64) {
	if m.cfg.Ack != jsapi.AckAll {
		m.confirmed[seq] = true
		return
	}
	for s := range m.got {
		if s <= seq {
			m.confirmed[s] = true
		}
	}
}

func (m *model) delivered(a *Action) {
	m.t.Helper()
	q := m.reqs[a.To]
	reply := m.c.AckReply(a)
	size := len(a.Message.Subject) + len(jsapi.AppendAckReply(nil, &reply)) + len(a.Message.Header)
	if m.cfg.HeadersOnly {
		size += len(AppendHeadersOnly(nil, a.Message)) - len(a.Message.Header)
	} else {
		size += len(a.Message.Payload)
	}
	switch {
	case q == nil || q.over:
		m.fail("delivery to %q, which is over", a.To)
	case m.now >= q.expires && !m.c.fenced:
		m.fail("delivery to %q, which expired", a.To)
	case m.gone[a.To]:
		m.fail("delivery to %q, who is gone", a.To)
	case !m.c.Matches(a.Message.Subject):
		m.fail("delivery of %d, which does not match", a.Seq)
	case m.src.msgs[a.Seq] == nil:
		m.fail("delivery of %d, which is not there", a.Seq)
	case m.confirmed[a.Seq]:
		m.fail("delivery of %d, whose ack was confirmed", a.Seq)
	case m.cfg.MaxDeliver > 0 && m.cfg.Ack != jsapi.AckNone && a.Delivered > uint64(m.cfg.MaxDeliver):
		m.fail("delivery %d of %d", a.Delivered, a.Seq)
	case !m.c.fenced && a.ConsumerSeq != m.lastCseq+1:
		m.fail("consumer sequence %d after %d", a.ConsumerSeq, m.lastCseq)
	case m.c.fenced && m.rows.pending[a.Seq].LastSeq != a.ConsumerSeq:
		m.fail("delivery of %d before it is recorded", a.Seq)
	case q.bytes > 0 && size > q.bytes:
		m.fail("delivery of %d bytes, %d are left", size, q.bytes)
	}
	m.lastCseq = a.ConsumerSeq
	m.got[a.Seq] = true
	m.sent = append(m.sent, sentMsg{a.Seq, a.ConsumerSeq, a.Delivered})
	q.batch--
	if q.bytes > 0 {
		if q.bytes -= size; q.bytes == 0 {
			q.batch = 0
		}
	}
	q.over = q.batch <= 0 && q.bytes == 0
}

func (m *model) status(a *Action) {
	text := jsapi.HeaderStatus(a.Header)
	q := m.reqs[a.To]
	if q == nil || text[:3] == "100" {
		return
	}
	if q.over {
		m.fail("%q, which is over, gets %s", a.To, text)
	}
	if text == jsapi.StatusRequestTimeout && m.now < q.expires {
		m.fail("%q expires too early", a.To)
	}
	if text == jsapi.StatusBatchCompleted && q.batch > 0 && !m.c.fenced {
		m.fail("%q completed with %d messages left", a.To, q.batch)
	}
	q.over = true
}

// check compares the consumer with what follows from the outside.
func (m *model) check() {
	m.t.Helper()
	c := m.c
	want := uint64(0)
	for seq := c.state.Next; seq <= m.src.last; seq++ {
		if msg := m.src.msgs[seq]; msg != nil && c.counts(msg) && !c.isAhead(seq) {
			want++
		}
	}
	if c.numPending != want {
		m.fail("num_pending %d, want %d", c.numPending, want)
	}
	if r := c.rares(); r.forgotten == 0 && c.state.Redelivered != uint64(len(r.exhausted)) {
		m.fail("%d given up, counted %d", len(r.exhausted), c.state.Redelivered)
	}
	if c.t == nil {
		return
	}
	m.checkTable()
	if i := c.t.lowest(); i != 0 {
		s := c.t.at(i)
		if c.state.AckFloorStream >= s.seq || c.state.AckFloorConsumer >= s.cseq {
			m.fail("floor %d/%d at or above the pending %d/%d",
				c.state.AckFloorConsumer, c.state.AckFloorStream, s.cseq, s.seq)
		}
	}
	if c.state.AckFloorStream > max(c.state.DeliveredStream, m.started.AckFloorStream) ||
		c.state.AckFloorConsumer > c.state.DeliveredConsumer {
		m.fail("floor above what was delivered: %+v", c.state)
	}
	m.checkProgress()
}

// checkProgress: nobody waits for what is there.
func (m *model) checkProgress() {
	m.t.Helper()
	c := m.c
	if c.reqs == nil || c.reqs.n == 0 {
		return
	}
	there := c.t.queue.head != 0
	if scans := 10_000; !there && !c.full() {
		msg, _ := c.next(&scans)
		there = msg != nil
	}
	for i := range c.reqs.n {
		if q := c.reqs.at(i); there && m.now < q.expires && !m.gone[q.reply] {
			m.fail("%q waits although there are messages", q.reply)
		}
	}
}

func (m *model) checkTable() {
	m.t.Helper()
	t := m.c.t
	var live, queued, again int
	last := uint64(0)
	for _, r := range t.order[t.head:] {
		if r.slot == 0 {
			continue
		}
		s := t.at(r.slot)
		if s.seq != r.seq || s.seq <= last {
			m.fail("order of pending is broken at %d", r.seq)
		}
		last = s.seq
		live++
		if s.home == homeQueue {
			queued++
		}
		if s.count > 1 {
			again++
		}
	}
	if live != t.n || queued != t.queued || again != t.redelivered {
		m.fail("counts: %d/%d live, %d/%d queued, %d/%d redelivered",
			live, t.n, queued, t.queued, again, t.redelivered)
	}
	for i := 1; i < len(t.heap); i++ {
		if t.at(t.heap[i]).due < t.at(t.heap[(i-1)/2]).due {
			m.fail("heap order is broken at %d", i)
		}
	}
	for i := t.wait.head; i != 0; i = t.at(i).next {
		if n := t.at(i).next; n != 0 && t.at(n).due < t.at(i).due {
			m.fail("list of ack waits is out of order")
		}
	}
}

func (m *model) take() {
	var ch command.ConsumerChange
	m.tag++
	if m.c.TakeChange(&ch, m.tag) {
		m.flight = append(m.flight, carried{m.tag, clone(&ch), m.settled})
		m.settled = nil
	}
}

// apply applies the oldest envelope, with the removals that came with it.
func (m *model) apply() {
	if len(m.flight) == 0 {
		return
	}
	f := m.flight[0]
	m.flight = m.flight[1:]
	m.rows.apply(f.ch)
	for _, seq := range f.settled {
		m.removed(seq, "")
	}
	m.see(m.c.Applied(nil, f.tag, m.now))
}

func (m *model) failed() {
	if len(m.flight) == 0 {
		return
	}
	at := m.r.IntN(len(m.flight))
	tag := m.flight[at].tag
	m.flight = m.flight[:at]
	m.settled = nil // removals planned since go, too; those of in-flight acks are told again
	var again []uint64
	if m.c.log != nil {
		again = slices.Clone(m.c.log.settled)
	}
	m.see(m.c.Failed(nil, tag))
	for _, seq := range again {
		if !slices.Contains(m.settled, seq) {
			m.settled = append(m.settled, seq)
		}
	}
}

func (m *model) crash() {
	for range m.r.IntN(len(m.flight) + 1) {
		f := m.flight[0]
		m.flight = m.flight[1:]
		m.rows.apply(f.ch)
		for _, seq := range f.settled {
			m.src.remove(seq)
		}
	}
	m.flight = nil
	m.load()
	m.see(nil)
}

// quiesce applies everything and compares the rows with the consumer.
func (m *model) quiesce() {
	m.t.Helper()
	for m.take(); len(m.flight) > 0; m.take() {
		m.apply()
	}
	c := m.c
	if c.Held() > 0 || c.log != nil && len(c.log.outbox) > 0 {
		m.fail("something still waits although all is applied")
	}
	want := map[uint64]record.Pending{}
	if c.t != nil {
		for _, r := range c.t.order[c.t.head:] {
			if r.slot != 0 {
				row := c.t.at(r.slot).row()
				if c.fenced { // counts from when it was sent, which is after it was recorded
					row.Due = m.rows.pending[r.seq].Due
				}
				want[r.seq] = row
			}
		}
	}
	if c.rare != nil {
		for _, seq := range c.rare.ahead {
			want[seq] = m.rows.pending[seq]
		}
		for _, seq := range c.rare.exhausted {
			want[seq] = m.rows.pending[seq]
		}
		for seq, p := range m.rows.pending { // forgotten in memory
			if p.Kind == record.PendingExhausted && seq <= c.rare.forgotten {
				want[seq] = p
			}
		}
	}
	if diff := cmp.Diff(want, m.rows.pending); diff != "" {
		m.fail("rows differ from memory (-memory +rows):\n%s", diff)
	}
	st := m.rows.state
	st.Next, st.SkipTo = c.state.Next, c.state.SkipTo
	if st != c.state {
		m.fail("cursor row %+v, in memory %+v", m.rows.state, c.state)
	}
}

func (m *model) name(prefix string) string {
	m.names++
	return fmt.Sprintf("%s%d", prefix, m.names)
}

func (m *model) pull() {
	q := jsapi.NextRequest{
		Batch: m.r.IntN(6), MaxBytes: pick(m.r, 0, 0, 40, 200), NoWait: m.r.IntN(4) == 0,
		Expires: pick(m.r, 0, time.Second, 5*time.Second), Heartbeat: 0,
	}
	if q.Expires > 0 && m.r.IntN(3) == 0 {
		q.Heartbeat = q.Expires / 2
	}
	to := m.name("req")
	v := &requestView{batch: max(q.Batch, 1), bytes: q.MaxBytes, expires: Never}
	if q.Expires > 0 {
		v.expires = m.now + int64(q.Expires)
	}
	m.reqs[to] = v
	m.see(m.c.Pull(nil, &q, nil, to, m.now))
}

func (m *model) ack() {
	if len(m.sent) == 0 {
		return
	}
	d := m.sent[m.r.IntN(len(m.sent))]
	if m.r.IntN(2) == 0 { // mostly recent ones
		d = m.sent[max(0, len(m.sent)-1-m.r.IntN(4))]
	}
	payload := pick(m.r, "", "+ACK", "+ACK", "+TERM", "-NAK", "-NAK 2s", "+WPI", "+NXT")
	reply := ""
	if m.r.IntN(2) == 0 {
		reply = m.name("ack")
	}
	switch payload {
	case "", "+ACK", "+TERM":
		m.asked[reply] = d.seq
		fallthrough
	case "+NXT":
		for s := range m.got {
			if s == d.seq || m.cfg.Ack == jsapi.AckAll && s <= d.seq {
				m.acked[s] = true
			}
		}
		if payload == "+NXT" && reply != "" {
			m.reqs[reply] = &requestView{batch: 1, expires: Never}
		}
	}
	delete(m.asked, "")
	m.trace = append(m.trace, fmt.Sprintf("ack %d/%d %q to %s", d.cseq, d.seq, payload, reply))
	tok := jsapi.AckReply{StreamSeq: d.seq, ConsumerSeq: d.cseq, Delivered: d.count}
	m.see(m.c.Ack(nil, &tok, []byte(payload), reply, m.now))
}

func (m *model) step() {
	m.t.Helper()
	op := m.r.IntN(100)
	m.trace = append(m.trace, fmt.Sprintf("op %d at %v", op, time.Duration(m.now)))
	switch {
	case op < 20:
		m.store()
		m.see(nil)
	case op < 38:
		m.pull()
	case op < 66:
		m.ack()
	case op < 74:
		m.now += int64(m.r.IntN(1500)) * 1e6
		if m.c.NextDue() <= m.now {
			m.see(m.c.Tick(nil, m.now))
			if due := m.c.NextDue(); due <= m.now {
				m.fail("due again at once: %v", time.Duration(due))
			}
		}
	case op < 81:
		m.take()
	case op < 88:
		m.apply()
	case op < 90:
		m.failed()
	case op < 93:
		if m.src.last > 0 {
			m.removed(m.src.first+m.r.Uint64N(m.src.last-m.src.first+2), pick(m.r, "", ReasonDeleted))
		}
	case op < 94:
		for to := range m.reqs { // any one
			m.gone[to] = true
			break
		}
	case op < 96:
		m.crash()
	case op < 97:
		m.below()
	case op < 98:
		m.c.Trim()
	default:
		m.quiesce()
	}
}

func (m *model) below() {
	first := m.src.first + m.r.Uint64N(3)
	if first > m.src.last {
		return
	}
	for seq := m.src.first; seq < first; seq++ {
		m.src.remove(seq)
	}
	m.src.first = max(m.src.first, first)
	out, recount := m.c.RemovedBelow(nil, first, "", m.now)
	if recount {
		m.c.SetNumPending(CountPending(m.src, &m.c.state, m.cfg.Filters))
	}
	m.see(out)
}

// drain lets one good worker finish: nothing may be left behind.
func (m *model) drain() {
	m.t.Helper()
	clear(m.gone)
	for range 200 {
		m.quiesce()
		if m.c.numPending == 0 && (m.c.t == nil || m.c.t.n == 0) {
			break
		}
		from := len(m.sent)
		to := m.name("req")
		m.reqs[to] = &requestView{batch: 50, expires: m.now + int64(time.Second)}
		q := jsapi.NextRequest{Batch: 50, Expires: time.Second}
		m.see(m.c.Pull(nil, &q, nil, to, m.now))
		m.quiesce()
		for ; from < len(m.sent); from++ { // acks bring more
			d := m.sent[from]
			for s := range m.got {
				if s == d.seq || m.cfg.Ack == jsapi.AckAll && s <= d.seq {
					m.acked[s] = true
				}
			}
			tok := jsapi.AckReply{StreamSeq: d.seq, ConsumerSeq: d.cseq, Delivered: d.count}
			m.see(m.c.Ack(nil, &tok, nil, "", m.now))
		}
		m.now += int64(2 * time.Second)
		m.see(m.c.Tick(nil, m.now))
	}
	if m.c.numPending != 0 || m.c.t != nil && m.c.t.n != 0 {
		m.fail("left behind: %d to deliver, %+v", m.c.numPending, m.c.Info(m.now))
	}
	atMostOnce := m.cfg.MaxDeliver == 1 && m.cfg.Ack != jsapi.AckNone
	for _, seq := range slices.Sorted(maps.Keys(m.src.msgs)) {
		msg := m.src.msgs[seq]
		if seq <= max(m.started.SkipTo, m.started.AckFloorStream) || !m.c.Matches(msg.Subject) {
			continue
		}
		if !m.got[seq] && !atMostOnce {
			m.fail("%d was never delivered", seq)
		}
		if m.cfg.Settles && m.c.Needs(seq, msg.Subject) == NeedNo {
			m.fail("%d is settled, and nobody was told to remove it", seq)
		}
	}
}

// TestRandom drives consumers of random configurations with random events,
// failed envelopes and crashes of the leader, and checks what clients and
// replicas can see: a confirmed ack is final over any failover, a settled message
// was acked by somebody, no request gets more messages or bytes than it asked for
// or anything after its end, the window and max_deliver hold, num_pending is
// exact, floors are below what is pending, the rows are what memory holds, and in
// the end every message was delivered.
func TestRandom(t *testing.T) {
	t.Parallel()
	seeds := 200
	if testing.Short() {
		seeds = 50
	}
	base := uint64(time.Now().UnixNano()) >> 10
	t.Logf("seeds from %d", base)
	for i := range seeds {
		seed := base + uint64(i)
		if i < seeds/2 {
			seed = uint64(i)
		}
		runRandom(t, seed, 400)
	}
}

func runRandom(t *testing.T, seed uint64, steps int) {
	t.Helper()
	m := newModel(t, seed)
	m.trace = append(m.trace, fmt.Sprintf("seed %d: %+v", seed, m.cfg))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d: %+v", seed, m.cfg)
		}
	}()
	for range steps {
		m.step()
	}
	m.drain()
}
