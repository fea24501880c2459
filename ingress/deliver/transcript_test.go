package deliver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// script runs one transcript. Every command that feeds an event prints the
// actions; unless it says "asleep" the consumer is woken as long as it is ready.
//
//	stream [first=N] [stride=N]         a new, empty stream
//	store subj=S [n=N] [size=N]         stores and applies messages
//	new [policy=P] …                    a new consumer (see config)
//	pull to=R [batch=N] [expires=D] [bytes=N] [hb=D] [nowait] or to=R with a body as input
//	ack seq=N cseq=N [d=N] [to=R]       an ack with the input as payload
//	after d=D                           time goes on; Tick if something is due
//	later d=D                           time goes on, and nobody calls Tick
//	take                                hands changes over; prints the rows
//	applied tag=N / failed tag=N        what became of them
//	vanish seq=N                        a message leaves the stream, and the consumer is not told yet
//	remove seq=N [reason] / below first=N [reason] / purge subj=F
//	gone to=R / back to=R               interest
//	update …, info, needs seq=N, rows, due, unanswered, crash, delete, lead, stop
type script struct {
	t      *testing.T
	src    *memStream
	c      *Consumer
	cfg    Config
	now    int64
	gone   map[string]bool
	rows   rows
	flight map[int]*command.ConsumerChange
	tag    int
}

func TestTranscripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		t.Parallel()
		s := &script{
			t: t, src: newMemStream(), gone: map[string]bool{}, flight: map[int]*command.ConsumerChange{},
		}
		datadriven.RunTest(t, path, s.run)
	})
}

func (s *script) interest(reply string, since int64) bool {
	return !s.gone[reply] || s.now-since < int64(2*time.Second)
}

func duration(t *testing.T, d *datadriven.TestData, key string) time.Duration {
	t.Helper()
	if !d.HasArg(key) {
		return 0
	}
	var v string
	d.ScanArgs(t, key, &v)
	n, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return n
}

func scan[T any](t *testing.T, d *datadriven.TestData, key string, def T) T {
	t.Helper()
	if d.HasArg(key) {
		d.ScanArgs(t, key, &def)
	}
	return def
}

func (s *script) config(d *datadriven.TestData, cfg Config) Config {
	t := s.t
	policies := map[string]jsapi.AckPolicy{
		"none": jsapi.AckNone, "all": jsapi.AckAll, "explicit": jsapi.AckExplicit,
	}
	if d.HasArg("ack") {
		cfg.Ack = policies[scan(t, d, "ack", "")]
	}
	if d.HasArg("wait") {
		cfg.AckWait = duration(t, d, "wait")
	}
	if d.HasArg("backoff") {
		cfg.Backoff = nil
		for v := range strings.SplitSeq(scan(t, d, "backoff", ""), "/") {
			b, err := time.ParseDuration(v)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Backoff = append(cfg.Backoff, b)
		}
	}
	if d.HasArg("filters") {
		cfg.Filters = strings.Split(scan(t, d, "filters", ""), "/")
	}
	if d.HasArg("inactive") {
		cfg.InactiveThreshold = duration(t, d, "inactive")
	}
	if d.HasArg("pause") {
		cfg.PauseUntil = s.now + int64(duration(t, d, "pause"))
	}
	cfg.MaxExpires = max(cfg.MaxExpires, duration(t, d, "maxexpires"))
	cfg.MaxDeliver = scan(t, d, "maxdeliver", cfg.MaxDeliver)
	cfg.MaxAckPending = scan(t, d, "maxpending", cfg.MaxAckPending)
	cfg.MaxWaiting = scan(t, d, "maxwaiting", cfg.MaxWaiting)
	cfg.MaxBatch = scan(t, d, "maxbatch", cfg.MaxBatch)
	cfg.MaxBytes = scan(t, d, "maxbytes", cfg.MaxBytes)
	cfg.SampleFreq = scan(t, d, "sample", cfg.SampleFreq)
	cfg.HeadersOnly = d.HasArg("headersonly")
	cfg.Push = d.HasArg("push")
	cfg.Settles = cfg.Settles || d.HasArg("settles")
	cfg.Volatile = d.HasArg("volatile")
	cfg.AckAnyDelivery = d.HasArg("anydelivery")
	cfg.Limits = Limits{
		MaxUnacked: scan(t, d, "unacked", 0),
		MaxAhead:   scan(t, d, "ahead", 0), MaxExhausted: scan(t, d, "exhausted", 0),
		MaxHeld: scan(t, d, "held", 0),
	}.WithDefaults()
	return cfg
}

func (s *script) begin(d *datadriven.TestData) {
	policies := map[string]jsapi.DeliverPolicy{
		"all": jsapi.DeliverAll, "last": jsapi.DeliverLast, "new": jsapi.DeliverNew,
		"seq": jsapi.DeliverByStartSequence, "time": jsapi.DeliverByStartTime,
		"last_per_subject": jsapi.DeliverLastPerSubject,
	}
	s.cfg = s.config(d, Config{StreamID: 7, ID: 9, Stream: "S", Name: "C", Ack: jsapi.AckExplicit})
	if err := s.cfg.Validate(); err != nil {
		s.t.Fatalf("%s: %v", d.Pos, err)
	}
	st := Begin(s.src, Start{
		Policy: policies[scan(s.t, d, "policy", "all")], Seq: scan(s.t, d, "start", uint64(0)),
		Time: int64(duration(s.t, d, "since")), Filters: s.cfg.Filters,
		OnePerSubject: d.HasArg("onepersubject"),
	})
	s.rows = rows{state: st, pending: map[uint64]record.Pending{}}
	s.c = load(s.cfg, s.src, s.interest, &s.rows, s.now)
}

func (s *script) print(d *datadriven.TestData, out []Action) string {
	for n := 0; s.c != nil && s.c.Ready() && !d.HasArg("asleep"); n++ {
		if n > 10_000 {
			s.t.Fatalf("%s: the consumer is always ready", d.Pos)
		}
		out = s.c.Wake(out, s.now)
	}
	var b strings.Builder
	for i := range out {
		b.WriteString(format(s.c, &out[i]) + "\n")
	}
	if b.Len() == 0 {
		return "-\n"
	}
	return b.String()
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.t = t
	var out []Action
	switch d.Cmd {
	case "stream":
		s.src = newMemStream()
		s.src.stride = scan(t, d, "stride", uint64(0))
		s.src.first = scan(t, d, "first", uint64(1))
		s.src.last = s.src.first - 1
		return ""
	case "new":
		s.begin(d)
		return s.info()
	case "store":
		return s.print(d, s.store(d))
	case "pull":
		return s.print(d, s.pull(d))
	case "ack":
		tok := jsapi.AckReply{
			StreamSeq: scan(t, d, "seq", uint64(0)), ConsumerSeq: scan(t, d, "cseq", uint64(0)),
			Delivered: scan(t, d, "d", uint64(1)),
		}
		payload := strings.TrimSuffix(d.Input, "\n")
		return s.print(d, s.c.Ack(out, &tok, []byte(payload), scan(t, d, "to", ""), s.now))
	case "after":
		s.now += int64(duration(t, d, "d"))
		if s.c.NextDue() <= s.now {
			out = s.c.Tick(out, s.now)
		}
		return s.print(d, out)
	case "remove":
		seq := scan(t, d, "seq", uint64(0))
		reason := ""
		if d.HasArg("reason") {
			reason = ReasonDeleted
		}
		if m := s.src.remove(seq); m != nil {
			out = s.c.Removed(out, seq, m.Subject, reason, s.now)
		}
		return s.print(d, out)
	case "gone", "back":
		s.gone[scan(t, d, "to", "")] = d.Cmd == "gone"
		return ""
	case "crash":
		clear(s.flight)
		s.c = load(s.cfg, s.src, s.interest, &s.rows, s.now)
		return s.info()
	}
	return s.runMore(t, d)
}

func (s *script) runMore(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var out []Action
	switch d.Cmd {
	case "later":
		s.now += int64(duration(t, d, "d"))
		return ""
	case "vanish":
		s.src.remove(scan(t, d, "seq", uint64(0)))
		return ""
	case "wake":
		return s.print(d, s.c.Wake(out, s.now))
	case "take":
		return s.take()
	case "applied":
		tag := scan(t, d, "tag", 0)
		if ch := s.flight[tag]; ch != nil {
			s.rows.apply(ch)
			delete(s.flight, tag)
		}
		return s.print(d, s.c.Applied(out, uint64(tag), s.now))
	case "failed":
		tag := scan(t, d, "tag", 0)
		for n := range s.flight {
			if n >= tag {
				delete(s.flight, n)
			}
		}
		return s.print(d, s.c.Failed(out, uint64(tag)))
	case "below", "purge":
		return s.purge(d)
	case "update":
		s.cfg = s.config(d, s.cfg)
		if s.c.Update(s.cfg, s.now) {
			s.recount()
		}
		return s.print(d, out)
	case "info":
		return s.info()
	case "needs":
		seq := scan(t, d, "seq", uint64(0))
		subject := "?"
		if m := s.src.msgs[seq]; m != nil {
			subject = m.Subject
		}
		return [...]string{"no", "yes", "see the row"}[s.c.Needs(seq, subject)] + "\n"
	case "rows":
		return s.printRows(s.rows.sorted(), nil, nil)
	case "unanswered":
		return fmt.Sprintf("%d, %d held\n", s.c.Unanswered(), s.c.Held())
	case "due":
		if due := s.c.NextDue(); due != Never {
			return time.Duration(due-s.now).String() + "\n"
		}
		return "never\n"
	case "delete":
		return s.print(d, s.c.Deleted(out))
	case "lead":
		return s.print(d, s.c.LeadershipChange(out))
	case "stop":
		return s.print(d, s.c.Shutdown(out))
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

func (s *script) store(d *datadriven.TestData) (out []Action) {
	subject := scan(s.t, d, "subj", "a")
	for range scan(s.t, d, "n", 1) {
		payload := scan(s.t, d, "payload", "")
		if n := scan(s.t, d, "size", 0); n > 0 {
			payload = strings.Repeat("x", n)
		}
		seq := s.src.store(subject, payload, s.now)
		if h := scan(s.t, d, "hdr", ""); h != "" {
			s.src.msgs[seq].Header = []byte("NATS/1.0\r\nK: " + h + "\r\n\r\n")
		}
		if s.c != nil {
			s.c.Stored(seq, s.c.Matches(subject))
		}
	}
	return out
}

func (s *script) pull(d *datadriven.TestData) []Action {
	q := jsapi.NextRequest{
		Batch: scan(s.t, d, "batch", 1), MaxBytes: scan(s.t, d, "bytes", 0),
		Expires: duration(s.t, d, "expires"), Heartbeat: duration(s.t, d, "hb"), NoWait: d.HasArg("nowait"),
	}
	var err error
	if d.Input != "" {
		q, err = jsapi.ParseNextRequest([]byte(d.Input))
	}
	return s.c.Pull(nil, &q, err, scan(s.t, d, "to", ""), s.now)
}

func (s *script) take() string {
	var ch command.ConsumerChange
	s.tag++
	if !s.c.TakeChange(&ch, uint64(s.tag)) {
		s.tag--
		return "nothing\n"
	}
	s.flight[s.tag] = clone(&ch)
	st := ch.State
	head := fmt.Sprintf("tag %d: next=%d delivered=%d/%d floor=%d/%d given up=%d\n", s.tag, st.Next,
		st.DeliveredConsumer, st.DeliveredStream, st.AckFloorConsumer, st.AckFloorStream, st.Redelivered)
	return head + s.printRows(ch.Puts, ch.Deletes, ch.Ranges)
}

func (s *script) printRows(puts []record.Pending, dels []uint64, ranges [][2]uint64) string {
	var b strings.Builder
	kinds := [...]string{"ack", "nak", "settled", "exhausted"}
	for _, p := range puts {
		fmt.Fprintf(&b, "put %d %s", p.Seq, kinds[p.Kind])
		if p.Kind != record.PendingSettled {
			fmt.Fprintf(&b, " cseq=%d last=%d count=%d due=%v",
				p.ConsumerSeq, p.LastSeq, p.Count, time.Duration(p.Due))
		}
		b.WriteString("\n")
	}
	for _, seq := range dels {
		fmt.Fprintf(&b, "del %d\n", seq)
	}
	for _, r := range ranges {
		fmt.Fprintf(&b, "del %d to %d\n", r[0], r[1])
	}
	return b.String()
}

func (s *script) recount() {
	st := s.c.Info(s.now).State
	s.c.SetNumPending(CountPending(s.src, &st, s.cfg.Filters))
}

func (s *script) purge(d *datadriven.TestData) string {
	var out []Action
	if d.Cmd == "below" {
		first := scan(s.t, d, "first", uint64(0))
		for seq := s.src.first; seq < first; seq++ {
			s.src.remove(seq)
		}
		s.src.first = max(s.src.first, first)
		s.src.last = max(s.src.last, first-1)
		reason := ""
		if d.HasArg("reason") {
			reason = ReasonLimits
		}
		out, recount := s.c.RemovedBelow(nil, first, reason, s.now)
		if recount {
			s.recount()
		}
		return s.print(d, out)
	}
	filter := Config{Filters: []string{scan(s.t, d, "subj", ">")}}
	var seqs []uint64
	for seq, m := range s.src.msgs {
		if filter.matches(m.Subject) {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		s.src.remove(seq)
	}
	s.c.Purged(s.now)
	s.recount()
	return s.print(d, out)
}

func (s *script) info() string {
	in := s.c.Info(s.now)
	text := fmt.Sprintf("delivered=%d/%d floor=%d/%d ack_pending=%d redelivered=%d waiting=%d pending=%d",
		in.State.DeliveredConsumer, in.State.DeliveredStream,
		in.State.AckFloorConsumer, in.State.AckFloorStream,
		in.NumAckPending, in.NumRedelivered, in.NumWaiting, in.NumPending)
	if in.Paused {
		text += fmt.Sprintf(" paused=%v", in.PauseRemaining)
	}
	return text + "\n"
}
