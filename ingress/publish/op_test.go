package publish

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// stage is a plan of one empty stream whose envelopes the test ends. Nothing is
// ever in its store: everything is in flight.
type stage struct {
	t       *testing.T
	p       *plan.Planner
	s       *plan.Stream
	target  Target
	now     int64
	entries []*record.Proposal
	ended   []plan.Result
	leading error
	replies map[string][]reply
	n       int
}

type reply struct{ Header, Body string }

func newStage(t *testing.T, change func(*jsapi.StreamConfig)) *stage {
	t.Helper()
	cfg := &jsapi.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: -1,
		Duplicates: 2 * time.Minute,
	}
	if change != nil {
		change(cfg)
	}
	levels, bad := jsapi.StreamAckLevels(cfg)
	if bad != nil {
		t.Fatal(bad)
	}
	g := &stage{
		t: t, now: 1_000_000, replies: make(map[string][]reply),
		target: Target{ID: 1, Config: cfg, Levels: levels, Floor: jsapi.LevelNone},
	}
	g.p = plan.New(plan.Config{}, g, g, g, plan.Notify{
		Ended: func(r plan.Result) { g.ended = append(g.ended, r) }, Durable: func(uint64) {}, Barrier: func() {},
	})
	g.s = g.p.Create(1, []byte("{}"), 1)
	return g
}

// plan.Term.
func (g *stage) Number() uint64             { return 1 }
func (g *stage) Base() record.Fence         { return record.Fence{} }
func (g *stage) NextID() record.ProposalID  { return record.NewProposalID(1, 1) }
func (g *stage) Propose(p *record.Proposal) { g.entries = append(g.entries, p) }
func (g *stage) Now() int64                 { return g.now }

// plan.Store.
func (g *stage) Message(record.StreamID, uint64) (record.Message, error) {
	return record.Message{}, record.ErrNotFound
}
func (g *stage) Scan(record.StreamID, uint64, func(uint64, []byte) bool) error        { return nil }
func (g *stage) ScanKeys(record.StreamID, uint64, func(uint64) bool) error            { return nil }
func (g *stage) ScanSubject(record.StreamID, string, uint64, func(uint64) bool) error { return nil }
func (g *stage) SubjectRows(record.StreamID, string, uint64, uint64, func(string, uint64) bool) error {
	return nil
}

func (g *stage) NextBySubject(record.StreamID, string, uint64) (uint64, bool, error) {
	return 0, false, nil
}

func (g *stage) PrevBySubject(record.StreamID, string, uint64, uint64) (uint64, bool, error) {
	return 0, false, nil
}

func (g *stage) StreamState(record.StreamID) (record.StreamState, error) {
	return record.StreamState{}, record.ErrNotFound
}

func (g *stage) SubjectStat(record.StreamID, string) (record.SubjectStat, bool, error) {
	return record.SubjectStat{}, false, nil
}

func (g *stage) Subjects(record.StreamID, string, string, func(string, record.SubjectStat) bool) error {
	return nil
}

func (g *stage) Dedup(record.StreamID, string) (seq uint64, at int64, ok bool, err error) {
	return 0, 0, false, nil
}

func (g *stage) DedupUntil(record.StreamID, int64, int64, func(int64, string) bool) error { return nil }

// plan.Listener.
func (g *stage) Gather(uint64)                        {}
func (g *stage) Applied(uint64)                       {}
func (g *stage) Failed(uint64)                        {}
func (g *stage) Rebuilt()                             {}
func (g *stage) Stored(*plan.Stream)                  {}
func (g *stage) Removed(*plan.Stream, uint64, string) {}

// Reply and Provisional implement Replier.
func (g *stage) Reply(subject string, header, body []byte) {
	g.replies[subject] = append(g.replies[subject], reply{string(header), string(body)})
}

func (g *stage) Provisional(subject string, header, body []byte) bool {
	if g.leading == nil {
		g.Reply(subject, header, body)
	}
	return g.leading == nil
}

// publish plans a message; its reply subject is returned with the operation.
func (g *stage) publish(subject, header, body string) (*Op, string) {
	g.n++
	inbox := fmt.Sprint("inbox", g.n)
	m := &record.Message{Subject: subject, Payload: []byte(body)}
	if header != "" {
		m.Header = []byte(header)
	}
	o := New(&g.target, g, m, inbox)
	if !g.p.Admit(o.Size) {
		g.t.Fatal("not admitted")
	}
	g.p.Submit(o)
	return o, inbox
}

// apply ends everything that is planned.
func (g *stage) apply() {
	g.p.Flush()
	for len(g.entries) > 0 {
		p := g.entries[0]
		g.entries = g.entries[1:]
		p.Done(nil)
		for _, r := range g.ended {
			g.p.Ended(r)
		}
		g.ended = nil
		g.p.Flush()
	}
}

func (g *stage) only(inbox string) reply {
	g.t.Helper()
	if got := g.replies[inbox]; len(got) != 1 {
		g.t.Fatalf("%d replies, want 1: %q", len(got), got)
	}
	return g.replies[inbox][0]
}

func hdr(kv ...string) string {
	b := "NATS/1.0\r\n"
	for i := 0; i < len(kv); i += 2 {
		b += kv[i] + ": " + kv[i+1] + "\r\n"
	}
	return b + "\r\n"
}

// TestOrderOfChecks: a message with many faults is refused for the first of them,
// in the order of a single JetStream server.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	// Each row takes away the fault that the row before it was refused for.
	all := [][2]string{
		{"Nats-Batch-Id", "b"},
		{"Nats-Incr", "1"},
		{"Nats-Expected-Stream", "T"},
		{"Nats-TTL", "10"},
		{"Holdfast-Ack", "soon"},
		{"Nats-Expected-Last-Subject-Sequence", "9"},
		{"Nats-Expected-Last-Sequence", "9"},
		{"Nats-Schedule", "@every 1s"},
		{"Nats-Stream-Source", "x"},
		{"Nats-Msg-Id", "known"},
		{"Nats-Expected-Last-Msg-Id", "other"},
		{"Nats-Rollup", "both"},
	}
	for i, want := range []string{
		`"err_code":10174`, `"err_code":10168`, `"err_code":10060`, `"err_code":10166`,
		`unknown ack level`,
		`"err_code":10071,"description":"wrong last sequence: 1"`, `"err_code":10071,"description":"wrong last sequence: 1"`,
		`"err_code":10188`, `"err_code":10227`,
		`"duplicate": true`,
		`"err_code":10070`, `"err_code":10111`,
		`"err_code":10077`, // the limit that all of them would hit
	} {
		g := newStage(t, func(c *jsapi.StreamConfig) {
			c.MaxMsgs, c.Discard = 1, jsapi.DiscardNew
			c.AllowRollup = true
		})
		g.publish("s.a", hdr("Nats-Msg-Id", "known"), "x")
		var kv []string
		for _, f := range all[i:] {
			kv = append(kv, f[0], f[1])
		}
		header := ""
		if len(kv) > 0 {
			header = hdr(kv...)
		}
		_, inbox := g.publish("s.a", header, "x")
		g.apply()
		if got := g.only(inbox).Body; !strings.Contains(got, want) {
			t.Errorf("with %q: %s, want %s", header, got, want)
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change       func(*jsapi.StreamConfig)
		header, body string
		want         string // the whole reply
	}{
		"stored": {nil, "", "x", `{"stream":"S","seq":2}`},
		"sealed": {
			func(c *jsapi.StreamConfig) { c.Sealed = true }, "", "x",
			`{"error":{"code":400,"err_code":10109,"description":"invalid operation on sealed stream"},"stream":"S","seq":0}`,
		},
		"message too large": {
			func(c *jsapi.StreamConfig) { c.MaxMsgSize = 5 }, "", "123456",
			`{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"S","seq":0}`,
		},
		"message as large as may be": {func(c *jsapi.StreamConfig) { c.MaxMsgSize = 5 }, "", "12345", `{"stream":"S","seq":2}`},
		"header counts in the size": {
			func(c *jsapi.StreamConfig) { c.MaxMsgSize = 13 }, hdr("k", ""), "",
			`{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"S","seq":0}`,
		},
		"header as large as may be": {nil, "NATS/1.0\r\nk:" + strings.Repeat("v", jsapi.MaxHeaderLen-16) + "\r\n\r\n", "", `{"stream":"S","seq":2}`},
		"header too large": {
			nil, "NATS/1.0\r\nk:" + strings.Repeat("v", jsapi.MaxHeaderLen-15) + "\r\n\r\n", "",
			`{"error":{"code":400,"err_code":10097,"description":"header size exceeds maximum allowed of 64k"},"stream":"S","seq":0}`,
		},
		"expected stream":        {nil, hdr("Nats-Expected-Stream", "S"), "", `{"stream":"S","seq":2}`},
		"expected last":          {nil, hdr("Nats-Expected-Last-Sequence", "1"), "", `{"stream":"S","seq":2}`},
		"expected of a subject":  {nil, hdr("Nats-Expected-Last-Subject-Sequence", "0", "Nats-Expected-Last-Subject-Sequence-Subject", "s.b"), "", `{"stream":"S","seq":2}`},
		"expected of a wildcard": {nil, hdr("Nats-Expected-Last-Subject-Sequence", "1", "Nats-Expected-Last-Subject-Sequence-Subject", "s.*"), "", `{"stream":"S","seq":2}`},
		"a subject alone": {
			nil, hdr("Nats-Expected-Last-Subject-Sequence-Subject", "s.b"), "",
			`{"error":{"code":400,"err_code":10193,"description":"missing sequence for expected last sequence per subject"},"stream":"S","seq":0}`,
		},
		"no number": {
			nil, hdr("Nats-Expected-Last-Sequence", "one"), "",
			`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 1"},"stream":"S","seq":0}`,
		},
		"roll-up where none may be": {
			nil, hdr("Nats-Rollup", "sub"), "",
			`{"error":{"code":500,"err_code":10111,"description":"rollup not permitted"},"stream":"S","seq":0}`,
		},
		"roll-up of nothing known": {
			func(c *jsapi.StreamConfig) { c.AllowRollup = true }, hdr("Nats-Rollup", "Some"), "",
			`{"error":{"code":500,"err_code":10111,"description":"rollup value invalid: \"some\""},"stream":"S","seq":0}`,
		},
		"TTL that is none": {
			nil, hdr("Nats-TTL", "soon"), "",
			`{"error":{"code":400,"err_code":10165,"description":"invalid per-message TTL"},"stream":"S","seq":0}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newStage(t, tc.change)
			if tc.change == nil || !g.target.Config.Sealed {
				g.publish("s.a", "", "")
			}
			_, inbox := g.publish("s.a", tc.header, tc.body)
			g.apply()
			if diff := cmp.Diff(reply{Body: tc.want}, g.only(inbox)); diff != "" {
				t.Fatalf("reply (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHeadersThatAreNotStored are taken out; the rest stays as it was written.
func TestHeadersThatAreNotStored(t *testing.T) {
	t.Parallel()
	for _, tc := range [][2]string{
		{"NATS/1.0\r\nb:  2\r\na: 1\r\nb: 1\r\n\r\n", "NATS/1.0\r\nb:  2\r\na: 1\r\nb: 1\r\n\r\n"},
		{"NATS/1.0\r\na: 1\r\nNats-Request-Info: {}\r\nb: 2\r\n\r\n", "NATS/1.0\r\na: 1\r\nb: 2\r\n\r\n"},
		{"NATS/1.0 503 No\r\na: 1\r\n\r\n", "NATS/1.0\r\na: 1\r\n\r\n"},
		{"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n", ""},
		{"NATS/1.0 100\r\nNats-Request-Info: {}\r\nNats-Msg-Id: 1\r\n\r\n", "NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"},
		{"", ""},
	} {
		g := newStage(t, nil)
		g.publish("s.a", tc[0], "x")
		m := g.s.Planned(1)
		if m == nil || string(m.Header) != tc[1] {
			t.Errorf("%q is stored as %+v, want %q", tc[0], m, tc[1])
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	const size = 30 + 3 + 10 // of each message
	for name, tc := range map[string]struct {
		change func(*jsapi.StreamConfig)
		sent   []string // subjects
		want   string   // sequences left, or the text of the last one's refusal
	}{
		"old: messages": {func(c *jsapi.StreamConfig) { c.MaxMsgs = 2 }, []string{"s.a", "s.b", "s.c"}, "2 3"},
		"old: at bytes": {func(c *jsapi.StreamConfig) { c.MaxBytes = 2 * size }, []string{"s.a", "s.b"}, "1 2"},
		"old: bytes":    {func(c *jsapi.StreamConfig) { c.MaxBytes = 2*size - 1 }, []string{"s.a", "s.b"}, "2"},
		"old: subject":  {func(c *jsapi.StreamConfig) { c.MaxMsgsPer = 1 }, []string{"s.a", "s.b", "s.a"}, "2 3"},
		"new: messages": {
			func(c *jsapi.StreamConfig) { c.MaxMsgs, c.Discard = 2, jsapi.DiscardNew },
			[]string{"s.a", "s.b", "s.c"},
			"maximum messages exceeded",
		},
		"new: at messages": {func(c *jsapi.StreamConfig) { c.MaxMsgs, c.Discard = 2, jsapi.DiscardNew }, []string{"s.a", "s.b"}, "1 2"},
		"new: at bytes":    {func(c *jsapi.StreamConfig) { c.MaxBytes, c.Discard = 2*size, jsapi.DiscardNew }, []string{"s.a", "s.b"}, "1 2"},
		"new: bytes": {
			func(c *jsapi.StreamConfig) { c.MaxBytes, c.Discard = 2*size-1, jsapi.DiscardNew },
			[]string{"s.a", "s.b"},
			"maximum bytes exceeded",
		},
		"new: replaces one of its subject": {
			func(c *jsapi.StreamConfig) { c.MaxMsgs, c.MaxMsgsPer, c.Discard = 2, 1, jsapi.DiscardNew },
			[]string{"s.a", "s.b", "s.a"},
			"2 3",
		},
		"new: replaces in bytes": {
			func(c *jsapi.StreamConfig) { c.MaxBytes, c.MaxMsgsPer, c.Discard = 2*size, 1, jsapi.DiscardNew },
			[]string{"s.a", "s.b", "s.a"},
			"2 3",
		},
		"new per subject": {
			func(c *jsapi.StreamConfig) { c.MaxMsgsPer, c.Discard, c.DiscardNewPer = 1, jsapi.DiscardNew, true },
			[]string{"s.a", "s.b", "s.a"},
			"maximum messages per subject exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newStage(t, tc.change)
			inbox := ""
			for _, subject := range tc.sent {
				_, inbox = g.publish(subject, "", "0123456789")
			}
			var left []string
			for seq := uint64(1); seq <= g.s.State().LastSeq; seq++ {
				if g.s.Planned(seq) != nil {
					left = append(left, fmt.Sprint(seq))
				}
			}
			g.apply()
			got := strings.Join(left, " ")
			if body := g.only(inbox).Body; strings.Contains(body, "error") {
				got = body
				if !strings.Contains(body, `"err_code":10077`) {
					t.Fatalf("refused with %s", body)
				}
			}
			if got != tc.want && !strings.Contains(got, `"`+tc.want+`"`) {
				t.Fatalf("left %s, want %s", got, tc.want)
			}
		})
	}
}

func TestRollups(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{"sub": "2 4", "ALL": "4", "": "1 2 3 4"} {
		g := newStage(t, func(c *jsapi.StreamConfig) { c.AllowRollup = true })
		g.publish("s.a", "", "")
		g.publish("s.b", "", "")
		g.publish("s.a", "", "")
		h := ""
		if kind != "" {
			h = hdr("Nats-Rollup", kind)
		}
		g.publish("s.a", h, "")
		var left []string
		for seq := uint64(1); seq <= 4; seq++ {
			if g.s.Planned(seq) != nil {
				left = append(left, fmt.Sprint(seq))
			}
		}
		if got := strings.Join(left, " "); got != want {
			t.Errorf("roll-up %q left %s, want %s", kind, got, want)
		}
	}
}

func TestDuplicateWindow(t *testing.T) {
	t.Parallel()
	g := newStage(t, func(c *jsapi.StreamConfig) { c.Duplicates = time.Microsecond })
	id := hdr("Nats-Msg-Id", strings.Repeat("long", 200))
	_, first := g.publish("s.a", id, "")
	at := g.s.State().LastTime
	g.now = at + 999
	_, within := g.publish("s.a", id, "")
	g.now = at + 1000
	_, after := g.publish("s.a", id, "")
	_, other := g.publish("s.a", hdr("Nats-Msg-Id", strings.Repeat("long", 200)+"er"), "")
	g.apply()
	for inbox, want := range map[string]string{
		first: `{"stream":"S","seq":1}`, within: `{"stream":"S","seq":1,"duplicate": true}`,
		after: `{"stream":"S","seq":2}`, other: `{"stream":"S","seq":3}`,
	} {
		if got := g.only(inbox).Body; got != want {
			t.Errorf("%s: %s, want %s", inbox, got, want)
		}
	}
	if key := DedupKey([]byte(strings.Repeat("x", command.MaxMsgID))); len(key) != command.MaxMsgID {
		t.Errorf("an id of the longest length becomes %q", key)
	}
	if key := DedupKey([]byte(strings.Repeat("x", command.MaxMsgID+1))); !strings.HasPrefix(key, "sha256:") {
		t.Errorf("a longer one becomes %q", key)
	}
}

func TestLargestRecord(t *testing.T) {
	t.Parallel()
	g := newStage(t, nil)
	fits := MaxRecord - int(plan.StoredSize("s.a", nil, nil))
	_, ok := g.publish("s.a", "", string(make([]byte, fits)))
	g.apply()
	_, tooLarge := g.publish("s.a", "", string(make([]byte, fits+1)))
	_, subject := g.publish("s."+strings.Repeat("a", record.MaxSubject-1), "", "")
	g.apply()
	if got := g.only(ok).Body; got != `{"stream":"S","seq":1}` {
		t.Errorf("the largest message: %s", got)
	}
	for _, inbox := range []string{tooLarge, subject} {
		if got := g.only(inbox).Body; !strings.Contains(got, `"description":"message too large"`) {
			t.Errorf("too large: %s", got)
		}
	}
}

// TestOneReply plays what can become of an operation, in every order.
func TestOneReply(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"quorum", "leader", "none"} {
		for _, late := range []bool{false, true} {
			g := newStage(t, nil)
			o, inbox := g.publish("s.a", hdr("Holdfast-Ack", level), "")
			if late {
				o.Fail(false)
			}
			o.Durable()
			o.Durable()
			g.apply()
			o.Fail(true)
			got := g.only(inbox)
			want := map[string]reply{
				"quorum": {"", `{"stream":"S","seq":1}`},
				"leader": {hdr("Holdfast-Ack", "leader"), `{"stream":"S","seq":1}`},
				"none":   {hdr("Holdfast-Ack", "none"), `{"stream":"S","seq":0}`},
			}[level]
			if late && level != "none" {
				want = reply{"", `{"error":{"code":503,"err_code":10008,"description":"` + TextUnknown + `"},"stream":"S","seq":0}`}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("level %s, late %v (-want +got):\n%s", level, late, diff)
			}
		}
	}
}

func TestNothingUncommittedWithoutALease(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"leader", "none"} {
		g := newStage(t, nil)
		g.leading = record.ErrNotLeader
		o, inbox := g.publish("s.a", hdr("Holdfast-Ack", level), "")
		o.Durable()
		if got := g.replies[inbox]; len(got) != 0 {
			t.Errorf("level %s: answered %q without a lease", level, got)
		}
		g.apply()
		g.only(inbox)
	}
}

func TestRefuseAndFail(t *testing.T) {
	t.Parallel()
	g := newStage(t, func(c *jsapi.StreamConfig) { c.Name = "S" })
	o := New(&g.target, g, &record.Message{Subject: "s.a"}, "in")
	o.Refuse(jsapi.NewError(jsapi.CodeStreamTooManyRequests))
	got := g.only("in")
	if !strings.HasPrefix(got.Header, "NATS/1.0 429") || !strings.Contains(got.Body, `"err_code":10167`) {
		t.Errorf("overload: %q", got)
	}
	o = New(&g.target, g, &record.Message{Subject: "s.a"}, "certain")
	o.Fail(true)
	if got := g.only("certain").Body; !strings.Contains(got, `"description":"`+TextNotStored+`"`) {
		t.Errorf("certain failure: %s", got)
	}
	g.target.Config.NoAck = true
	o = New(&g.target, g, &record.Message{Subject: "s.a"}, "none")
	o.Fail(true)
	if got := g.replies["none"]; len(got) != 0 {
		t.Errorf("a stream without acks answered %q", got)
	}
}
