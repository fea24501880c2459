package deliver

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

func explicit() Config {
	return Config{StreamID: 1, ID: 2, Stream: "ORDERS", Name: "worker", Ack: jsapi.AckExplicit}
}

func begin(cfg Config, s *memStream) *Consumer {
	st := Begin(s, Start{Filters: cfg.Filters})
	return load(cfg, s, always, &rows{state: st, pending: map[uint64]record.Pending{}}, 0)
}

func pull(c *Consumer, batch int) []Action {
	return c.Pull(nil, &jsapi.NextRequest{Batch: batch}, nil, "inbox", 0)
}

func deliveries(out []Action) int {
	n := 0
	for i := range out {
		if out[i].Kind == ActDeliver {
			n++
		}
	}
	return n
}

func TestWakeDeliversOneTurn(t *testing.T) {
	t.Parallel()
	for _, n := range []int{MaxTurn - 1, MaxTurn, MaxTurn + 1} {
		s := newMemStream()
		for range n {
			s.store("a", "", 0)
		}
		c := begin(explicit(), s)
		pull(c, 2*MaxTurn)
		first := deliveries(c.Wake(nil, 0))
		if want := min(n, MaxTurn); first != want {
			t.Errorf("%d messages: first turn delivers %d, want %d", n, first, want)
		}
		if ready := c.Ready(); ready != (n >= MaxTurn) {
			t.Errorf("%d messages: ready %v after the first turn", n, ready)
		}
		if rest := deliveries(c.Wake(nil, 0)); rest != n-first {
			t.Errorf("%d messages: second turn delivers %d, want %d", n, rest, n-first)
		}
		if c.Ready() {
			t.Errorf("%d messages: still ready", n)
		}
	}
}

func TestWakeLooksForSoLong(t *testing.T) {
	t.Parallel()
	for _, n := range []int{MaxScan - 1, MaxScan} {
		s := newMemStream()
		s.stride = 1
		for range n {
			s.store("other", "", 0)
		}
		s.store("a", "", 0)
		cfg := explicit()
		cfg.Filters = []string{"a"}
		c := begin(cfg, s)
		pull(c, 1)
		got := deliveries(c.Wake(nil, 0))
		if want := MaxScan - n; got != want {
			t.Errorf("%d fruitless reads: %d delivered, want %d", n, got, want)
		}
		if c.Ready() != (got == 0) {
			t.Errorf("%d fruitless reads: ready %v", n, c.Ready())
		}
	}
}

func TestTickEndsSoManyWaits(t *testing.T) {
	t.Parallel()
	s := newMemStream()
	for range MaxDue + 1 {
		s.store("a", "", 0)
	}
	cfg := explicit()
	c := begin(cfg, s)
	pull(c, MaxDue+1)
	for c.Ready() {
		c.Wake(nil, 0)
	}
	now := int64(jsapi.DefaultAckWait)
	if c.NextDue() != now {
		t.Fatalf("due at %d, want %d", c.NextDue(), now)
	}
	for _, want := range []uint64{MaxDue, MaxDue + 1} {
		c.Tick(nil, now)
		if got := c.queued(); got != want {
			t.Errorf("%d queued, want %d", got, want)
		}
	}
	if c.NextDue() != Never {
		t.Errorf("due at %d, want never", c.NextDue())
	}
}

func TestSizeIsThatOfTheWire(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{Stream: "S", Name: "C"},
		{Stream: "ORDERS", Name: "worker-1", Account: "abcdefgh"},
		{Stream: "ORDERS", Name: "worker-1", Account: "abcdefgh", Domain: "hub"},
		{Stream: "S", Name: "C", HeadersOnly: true},
	} {
		for _, m := range []record.Message{
			{Seq: 1, Subject: "a"},
			{Seq: 9, Subject: "a.b", Time: -1, Payload: make([]byte, 10)},
			{
				Seq: 10, Subject: "a.b", Time: 1795966605389465139,
				Header: []byte("NATS/1.0\r\nK: v\r\n\r\n"), Payload: make([]byte, 99),
			},
		} {
			c := begin(cfg, newMemStream())
			a := Action{Message: &m, Seq: m.Seq, Delivered: 100, ConsumerSeq: 1 << 40, Pending: 99999}
			reply := c.AckReply(&a)
			want := len(m.Subject) + len(jsapi.AppendAckReply(nil, &reply))
			if cfg.HeadersOnly {
				want += len(AppendHeadersOnly(nil, &m))
			} else {
				want += len(m.Header) + len(m.Payload)
			}
			l := letter{msg: &m, count: a.Delivered, cseq: a.ConsumerSeq, pending: a.Pending}
			if got := c.size(&l); got != want {
				t.Errorf("%+v, %q: size %d, want %d", cfg, m.Subject, got, want)
			}
		}
	}
}

func TestHeadersOnly(t *testing.T) {
	t.Parallel()
	for hdr, want := range map[string]string{
		"":                         "NATS/1.0\r\nNats-Msg-Size: 3\r\n\r\n",
		"NATS/1.0\r\nK: v\r\n\r\n": "NATS/1.0\r\nK: v\r\nNats-Msg-Size: 3\r\n\r\n",
	} {
		m := record.Message{Header: []byte(hdr), Payload: []byte("abc")}
		if got := string(AppendHeadersOnly(nil, &m)); got != want {
			t.Errorf("%q: %q, want %q", hdr, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"":                     func(*Config) {},
		"both names":           func(c *Config) { c.Name = "" },
		"ack policy 9":         func(c *Config) { c.Ack = 9 },
		"ack wait -1":          func(c *Config) { c.AckWait = -1 },
		"backoff entry 1":      func(c *Config) { c.Backoff = []time.Duration{0, -1} },
		"sample frequency 101": func(c *Config) { c.SampleFreq = 101 },
		"only none can be":     func(c *Config) { c.Volatile = true },
	} {
		cfg := explicit()
		change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestConfigOf(t *testing.T) {
	t.Parallel()
	until := time.Unix(0, 77)
	in := jsapi.ConsumerConfig{
		Name: "C", AckPolicy: jsapi.AckNone, AckWait: 1, BackOff: []time.Duration{2}, MaxDeliver: 3,
		MaxAckPending: 4, MaxWaiting: 5, MaxRequestBatch: 6, MaxRequestExpires: 7,
		MaxRequestMaxBytes: 8, FilterSubject: "f", InactiveThreshold: 9, HeadersOnly: true,
		DeliverSubject: "d", MemoryStorage: true, PauseUntil: &until,
	}
	want := Config{
		Name: "C", AckWait: 1, Backoff: []time.Duration{2}, MaxDeliver: 3, MaxAckPending: 4, MaxWaiting: 5,
		MaxBatch: 6, MaxExpires: 7, MaxBytes: 8, Filters: []string{"f"}, InactiveThreshold: 9,
		HeadersOnly: true, Push: true,
		Volatile: true, PauseUntil: 77,
	}
	if diff := cmp.Diff(want, ConfigOf(&in)); diff != "" {
		t.Error(diff)
	}
}

func TestLimitsDefaults(t *testing.T) {
	t.Parallel()
	want := &Limits{
		MaxUnacked: 7, MaxAhead: DefaultMaxAhead,
		MaxExhausted: DefaultMaxExhausted, MaxHeld: DefaultMaxHeld, HoldTimeout: DefaultHoldTimeout,
	}
	if diff := cmp.Diff(want, Limits{MaxUnacked: 7}.WithDefaults()); diff != "" {
		t.Error(diff)
	}
}

func TestTimesDoNotOverflow(t *testing.T) {
	t.Parallel()
	s := newMemStream()
	s.store("a", "", 0)
	c := begin(explicit(), s)
	now := int64(1 << 60)
	c.Pull(nil, &jsapi.NextRequest{Batch: 2, Expires: time.Duration(Never)}, nil, "inbox", now)
	c.Wake(nil, now)
	tok := jsapi.AckReply{StreamSeq: 1, ConsumerSeq: 1, Delivered: 1}
	c.Ack(nil, &tok, []byte(fmt.Sprintf("-NAK {\"delay\":%d}", Never)), "", now)
	if due := c.NextDue(); due != Never-1 {
		t.Errorf("due %d, want %d", due, Never-1)
	}
}

// TestTable checks the pending table against a map, at random.
func TestTable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		var tb table
		model := map[uint64]int64{} // sequence → due
		seq := uint64(0)
		for range 500 {
			switch {
			case r.IntN(5) < 2 || len(model) == 0:
				seq += 1 + r.Uint64N(3)
				i := tb.add(seq)
				s := tb.at(i)
				s.due = r.Int64N(100)
				s.kind = record.PendingKind(r.IntN(2))
				model[seq] = s.due
				tb.arm(i)
			case r.IntN(2) == 0: // another due time
				for k := range model {
					i := tb.find(k)
					tb.unlink(i)
					tb.at(i).due = r.Int64N(100)
					model[k] = tb.at(i).due
					tb.arm(i)
					break
				}
			default:
				for k := range model {
					tb.remove(tb.find(k))
					delete(model, k)
					break
				}
			}
			first, low := Never, uint64(1<<63)
			for k, due := range model {
				first, low = min(first, due), min(low, k)
				if i := tb.find(k); i == 0 || tb.at(i).seq != k {
					t.Fatalf("seed %d: %d is not found", seed, k)
				}
			}
			if tb.n != len(model) || tb.find(seq+1) != 0 {
				t.Fatalf("seed %d: %d slots, want %d", seed, tb.n, len(model))
			}
			if len(model) > 0 && (tb.at(tb.due()).due != first || tb.at(tb.lowest()).seq != low) {
				t.Fatalf("seed %d: first due %d of %d, want %d of %d", seed,
					tb.at(tb.due()).due, tb.at(tb.lowest()).seq, first, low)
			}
			if len(model) == 0 && (tb.due() != 0 || tb.lowest() != 0) {
				t.Fatalf("seed %d: an empty table has something", seed)
			}
			if len(tb.order) > 2*tb.n+70 || len(tb.slots) > 500 {
				t.Fatalf("seed %d: order of %d for %d pending", seed, len(tb.order), tb.n)
			}
		}
	}
}

// TestLeaderCrash: what was confirmed is never delivered again, what was not is,
// whatever part of what was handed over the next leader has.
func TestLeaderCrash(t *testing.T) {
	t.Parallel()
	for applied := range 4 {
		s := newMemStream()
		for range 6 {
			s.store("a", "", 0)
		}
		cfg := explicit()
		st := rows{state: Begin(s, Start{}), pending: map[uint64]record.Pending{}}
		c := load(cfg, s, always, &st, 0)
		var changes []*command.ConsumerChange
		take := func() {
			var ch command.ConsumerChange
			if !c.TakeChange(&ch, uint64(len(changes)+1)) {
				t.Fatal("nothing to take")
			}
			changes = append(changes, clone(&ch))
		}
		ack := func(seq uint64) {
			tok := jsapi.AckReply{StreamSeq: seq, ConsumerSeq: seq, Delivered: 1}
			if out := c.Ack(nil, &tok, nil, fmt.Sprint("sync", seq), 0); len(out) != 0 {
				t.Fatalf("ack %d is answered before anything is applied: %+v", seq, out)
			}
		}
		pull(c, 3)
		c.Wake(nil, 0)
		take() // 1: 1 to 3 are out
		ack(2)
		take() // 2: 2 is acked
		ack(1)
		pull(c, 1)
		c.Wake(nil, 0)
		take() // 3: 1 is acked, 4 is out
		ack(4)
		ack(3) // not handed over

		var confirmed []string
		for i := range applied {
			st.apply(changes[i])
			for _, a := range c.Applied(nil, uint64(i+1), 0) {
				confirmed = append(confirmed, a.To)
			}
		}
		wantConfirmed := [][]string{nil, nil, {"sync2"}, {"sync2", "sync1"}}[applied]
		if diff := cmp.Diff(wantConfirmed, confirmed); diff != "" {
			t.Errorf("%d applied: confirmed (-want +got):\n%s", applied, diff)
		}

		c = load(cfg, s, always, &st, 0)
		now := int64(time.Minute)
		c.Tick(nil, now)
		c.Pull(nil, &jsapi.NextRequest{Batch: 10}, nil, "inbox", now)
		var got []uint64
		for _, a := range c.Wake(nil, now) {
			got = append(got, a.Seq)
		}
		want := [][]uint64{{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}, {1, 3, 4, 5, 6}, {3, 4, 5, 6}}[applied]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d applied: the next leader delivers (-want +got):\n%s", applied, diff)
		}
	}
}

// TestClosedIsInert: after its end a consumer does nothing, whatever comes.
func TestClosedIsInert(t *testing.T) {
	t.Parallel()
	s := newMemStream()
	s.store("a", "", 0)
	s.store("a", "", 0)
	c := begin(explicit(), s)
	pull(c, 1)
	c.Wake(nil, 0)
	tok := jsapi.AckReply{StreamSeq: 1, ConsumerSeq: 1, Delivered: 1}
	c.Ack(nil, &tok, nil, "sync", 0)
	var ch command.ConsumerChange
	c.TakeChange(&ch, 1)
	c.Deleted(nil)

	var out []Action
	out = c.Applied(out, 1, 0)
	out = c.Failed(out, 1)
	out = c.Ack(out, &tok, nil, "sync", 0)
	out = c.Removed(out, 1, "a", ReasonDeleted, 0)
	out, recount := c.RemovedBelow(out, 2, ReasonLimits, 0)
	c.Purged(0)
	out = append(out, pull(c, 1)...)
	out = c.Tick(out, Never)
	out = c.Wake(out, Never)
	out = c.Shutdown(out)
	if len(out) != 0 || recount || c.Ready() || c.NextDue() != Never || c.TakeChange(&ch, 2) {
		t.Errorf("a closed consumer still acts: %+v", out)
	}
}

// cycler delivers and acks one message at a time with many pending, handing
// changes over as an owner does.
type cycler struct {
	c       *Consumer
	s       *ring
	out     []Action
	change  command.ConsumerChange
	next    uint64
	tag     uint64
	n       int
	payload []byte
}

// ring is an endless stream of one message.
type ring struct {
	m    record.Message
	last uint64
}

func (r *ring) First() uint64 { return 1 }
func (r *ring) Last() uint64  { return r.last }

func (r *ring) Next(from uint64, _ []string) (*record.Message, uint64) {
	r.m.Seq = from
	return &r.m, 0
}

func (r *ring) Message(seq uint64) (*record.Message, bool) {
	r.m.Seq = seq
	return &r.m, true
}

func (r *ring) LastOf(string, uint64) (uint64, bool) { return r.last, true }

func newCycler(pending int) *cycler {
	m := record.Message{Subject: "orders.new", Time: 1795966605389465139, Payload: make([]byte, 128)}
	k := &cycler{s: &ring{m: m}}
	cfg := explicit()
	cfg.MaxAckPending = 2 * pending
	cfg.Settles = true
	k.c = New(cfg, k.s, always, &Loaded{Cursor: Begin(newMemStream(), Start{})})
	k.c.Pull(nil, &jsapi.NextRequest{Batch: 1 << 40}, nil, "_INBOX.aaaaaaaaaaaaaaaaaaaaaa.1", 0)
	for range pending {
		k.deliver()
	}
	k.next = 1
	return k
}

func (k *cycler) deliver() {
	k.s.last++
	k.c.Stored(k.s.last, true)
	k.out = k.c.Wake(k.out[:0], int64(k.s.last))
}

func (k *cycler) ack() {
	tok := jsapi.AckReply{StreamSeq: k.next, ConsumerSeq: k.next, Delivered: 1}
	k.next++
	k.out = k.c.Ack(k.out[:0], &tok, k.payload, "", int64(k.s.last))
}

func (k *cycler) cycle() {
	k.deliver()
	k.ack()
	if k.n++; k.n%256 == 0 {
		k.tag++
		k.c.TakeChange(&k.change, k.tag)
		k.out = k.c.Applied(k.out[:0], k.tag, int64(k.s.last))
	}
}

func TestDeliverAndAckDoNotAllocate(t *testing.T) {
	k := newCycler(1000)
	for range 10_000 {
		k.cycle()
	}
	if n := testing.AllocsPerRun(10_000, k.cycle); n > 0 {
		t.Errorf("%v allocations for a delivery and its ack", n)
	}
	if k.c.t.n != 1000 || k.c.state.DeliveredConsumer != 21_001 {
		t.Fatalf("the cycle does not what it should: %d pending, %+v", k.c.t.n, k.c.state)
	}
}

func TestIdleConsumerIsSmall(t *testing.T) {
	const ceiling = 640
	if n := unsafe.Sizeof(Consumer{}); n > ceiling {
		t.Errorf("a Consumer is %d bytes, want at most %d", n, ceiling)
	}
	s := newMemStream()
	limits := Limits{}.WithDefaults()
	var before, after runtime.MemStats
	const n = 10_000
	all := make([]*Consumer, n)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range all {
		cfg := explicit()
		cfg.Limits = limits
		all[i] = begin(cfg, s)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / n
	t.Logf("%d bytes for each idle consumer", each)
	if each > ceiling+64 {
		t.Errorf("%d bytes for each idle consumer, want at most %d", each, ceiling+64)
	}
	runtime.KeepAlive(all)

	// One that was used is as small again.
	c := all[0]
	s.store("a", "", 0)
	c.Stored(1, true)
	pull(c, 1)
	c.Wake(nil, 0)
	tok := jsapi.AckReply{StreamSeq: 1, ConsumerSeq: 1, Delivered: 1}
	c.Ack(nil, &tok, nil, "", 0)
	var ch command.ConsumerChange
	c.TakeChange(&ch, 1)
	c.Applied(nil, 1, 0)
	c.Trim()
	if c.t != nil || c.reqs != nil || c.log != nil || c.rare != nil {
		t.Error("a consumer at rest keeps memory after Trim")
	}
	if c.NextDue() != Never {
		t.Error("a consumer at rest has something due")
	}
}

func BenchmarkDeliverAck(b *testing.B) {
	for _, pending := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			k := newCycler(pending)
			b.ReportAllocs()
			for b.Loop() {
				k.cycle()
			}
		})
	}
}

func BenchmarkRedeliver(b *testing.B) {
	k := newCycler(1000)
	now := int64(1 << 50)
	b.ReportAllocs()
	for b.Loop() {
		now += int64(jsapi.DefaultAckWait)
		k.out = k.c.Tick(k.out[:0], now)
		for k.c.Ready() {
			k.out = k.c.Wake(k.out[:0], now)
		}
		k.tag++
		k.c.TakeChange(&k.change, k.tag)
		k.out = k.c.Applied(k.out[:0], k.tag, now)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/message")
}

func BenchmarkRoundRobin512(b *testing.B) {
	s := &ring{m: record.Message{Subject: "orders.new", Payload: make([]byte, 128)}}
	cfg := explicit()
	cfg.Ack = jsapi.AckNone
	c := New(cfg, s, always, &Loaded{Cursor: Begin(newMemStream(), Start{})})
	for i := range 512 {
		c.Pull(nil, &jsapi.NextRequest{Batch: 1 << 40}, nil, fmt.Sprint("inbox", i), 0)
	}
	var out []Action
	b.ReportAllocs()
	for b.Loop() {
		s.last++
		c.Stored(s.last, true)
		out = c.Wake(out[:0], 1)
	}
}
