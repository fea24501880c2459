package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// asked is a call and what it was answered.
type asked struct {
	Call
	replies []string
	failed  int
}

func ask(verb jsapi.Verb, body string) *asked {
	a := &asked{}
	a.Req, a.Body = jsapi.Request{Verb: verb, Stream: "S", Consumer: "C"}, []byte(body)
	a.Reply = func(b []byte) { a.replies = append(a.replies, string(b)) }
	a.Failed = func() { a.failed++ }
	return a
}

func (a *asked) only(t *testing.T) string {
	t.Helper()
	if len(a.replies) != 1 {
		t.Fatalf("%d replies, want 1: %q", len(a.replies), a.replies)
	}
	return a.replies[0]
}

func errorOf(t *testing.T, body string) jsapi.Error {
	t.Helper()
	var r struct {
		Type  string      `json:"type"`
		Error jsapi.Error `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.Type == "" {
		t.Fatalf("answer %s: %v", body, err)
	}
	return r.Error
}

func TestCallAnswersOnce(t *testing.T) {
	t.Parallel()
	a := ask(jsapi.VerbStreamDelete, "")
	a.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
	a.Answer(jsapi.SuccessResponse{Success: true})
	a.Error(jsapi.NewError(jsapi.CodeBadRequest))
	if got := errorOf(t, a.only(t)); got.ErrCode != jsapi.CodeClusterNotAvail || a.failed != 1 {
		t.Fatalf("answered %v, %d failures, want the first answer alone", got, a.failed)
	}
}

// TestErrorShapes: some verbs show their empty fields in an error, too.
func TestErrorShapes(t *testing.T) {
	t.Parallel()
	for verb, want := range map[jsapi.Verb]string{
		jsapi.VerbStreamDelete:  "error type",
		jsapi.VerbStreamPurge:   "error purged type",
		jsapi.VerbConsumerNames: "consumers error limit offset total type",
		jsapi.VerbStreamNames:   "error limit offset streams total type",
		jsapi.VerbStreamList:    "error limit offset streams total type",
		jsapi.VerbConsumerList:  "consumers error limit offset total type",
	} {
		a := ask(verb, "")
		a.Error(jsapi.NewError(jsapi.CodeStreamNotFound))
		var got map[string]any
		if err := json.Unmarshal([]byte(a.only(t)), &got); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for k := range got {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		if s := strings.Join(keys, " "); s != want {
			t.Errorf("%v: an error has %q, want %q", verb, s, want)
		}
	}
}

func TestPrecheck(t *testing.T) {
	t.Parallel()
	const level = "NATS/1.0\r\nNats-Required-Api-Level: 9\r\n\r\n"
	for _, tc := range []struct {
		verb         jsapi.Verb
		header, body string
		want         jsapi.ErrCode
	}{
		{jsapi.VerbStreamInfo, "", "", 0},
		{jsapi.VerbStreamInfo, "", `{"offset":3}`, 0},
		{jsapi.VerbStreamInfo, "", `{`, jsapi.CodeInvalidJSON},
		{jsapi.VerbStreamInfo, level, `{`, jsapi.CodeRequiredAPILevel},
		{jsapi.VerbStreamDelete, "", `{}`, 0},
		{jsapi.VerbStreamDelete, "", `{"a":1}`, jsapi.CodeNotEmptyRequest},
		{jsapi.VerbConsumerDelete, "", "x", jsapi.CodeNotEmptyRequest},
		{jsapi.VerbConsumerInfo, level, "x", jsapi.CodeNotEmptyRequest}, // in this order
		{jsapi.VerbConsumerInfo, level, "", jsapi.CodeRequiredAPILevel},
		{jsapi.VerbConsumerPause, level, "{", jsapi.CodeInvalidJSON},
		{jsapi.VerbStreamPurge, "", `{"seq":1,"keep":1}`, jsapi.CodeBadRequest},
		{jsapi.VerbStreamPurge, "", `{"seq":1}`, 0},
		{jsapi.VerbStreamMsgGet, "", "", jsapi.CodeBadRequest},
		{jsapi.VerbStreamMsgGet, "", "{}", jsapi.CodeBadRequest},
		{jsapi.VerbStreamMsgGet, "", `{"seq":1}`, 0},
		{jsapi.VerbStreamMsgGet, "", `{"seq":1,"last_by_subj":"a"}`, jsapi.CodeBadRequest},
		{jsapi.VerbStreamMsgDelete, "", "", jsapi.CodeBadRequest},
		{jsapi.VerbStreamMsgDelete, "", `{"seq":1}`, 0},
		{jsapi.VerbStreamSnapshot, "", "", jsapi.CodeBadRequest},
		{jsapi.VerbStreamLeaderStepdown, "", "", jsapi.CodeClusterRequired},
		{jsapi.VerbStreamCreate, level, "{", 0}, // judges itself
	} {
		a := ask(tc.verb, tc.body)
		a.Header = []byte(tc.header)
		bad := Precheck(&a.Call)
		if tc.want == 0 && bad != nil || tc.want != 0 && (bad == nil || bad.ErrCode != tc.want) {
			t.Errorf("%v with %q %q: %v, want %d", tc.verb, tc.header, tc.body, bad, tc.want)
		}
		if len(a.replies) != 0 {
			t.Errorf("%v: a check answers", tc.verb)
		}
	}
}

func TestUnsupportedFeaturesAreNamed(t *testing.T) {
	t.Parallel()
	for _, tc := range [][2]string{
		{`"retention":"interest"`, "interest retention"},
		{`"mirror":{"name":"M"},"subjects":null`, "mirror"},
		{`"sources":[{"name":"M"}]`, "sources"},
		{`"republish":{"src":"s.>","dest":"d.>"}`, "republish"},
		{`"allow_msg_ttl":true`, "allow_msg_ttl"},
		{`"allow_atomic":true`, "allow_atomic"},
	} {
		a := ask(jsapi.VerbStreamCreate, `{"name":"S","subjects":["s.>"],"storage":"file","num_replicas":1,`+tc[0]+`}`)
		_, bad := PrepareCreate(&a.Call, &jsapi.StreamEnv{MaxVoters: 1})
		if bad == nil || !strings.Contains(bad.Description, tc[1]+" is not supported") {
			t.Errorf("%s: %v, want it named", tc[0], bad)
		}
	}
}

func TestState(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   record.StreamState
		want jsapi.StreamState
	}{
		"new": {record.StreamState{FirstSeq: 1}, jsapi.StreamState{}},
		"gaps": {
			record.StreamState{FirstSeq: 3, LastSeq: 9, Messages: 5, Bytes: 7, FirstTime: 1, LastTime: 2, Subjects: 2},
			jsapi.StreamState{
				Msgs: 5, Bytes: 7, FirstSeq: 3, LastSeq: 9, FirstTime: time.Unix(0, 1).UTC(), LastTime: time.Unix(0, 2).UTC(),
				NumSubjects: 2, NumDeleted: 2, Consumers: 4,
			},
		},
		"emptied": {
			record.StreamState{FirstSeq: 10, LastSeq: 9, LastTime: 2},
			jsapi.StreamState{FirstSeq: 10, LastSeq: 9, LastTime: time.Unix(0, 2).UTC(), Consumers: 4},
		},
	} {
		if diff := cmp.Diff(tc.want, State(tc.in, tc.want.Consumers)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// stage is a plan of one stream with nothing in its store: everything is in flight
// until the test applies it.
type stage struct {
	p     *plan.Planner
	s     *plan.Stream
	cfg   *jsapi.StreamConfig
	queue []*record.Proposal
	ended []plan.Result
	again int
	slots Slots
	// hushed are the messages that a purge said it removes, heard the subjects that it said were purged.
	hushed []uint64
	heard  []string
	last   map[string]uint64 // what the store says, by subject
}

func newStage(t *testing.T, messages int) *stage {
	t.Helper()
	g := &stage{cfg: &jsapi.StreamConfig{Name: "S"}}
	g.p = plan.New(plan.Config{MaxMessages: 1 << 20, MaxBytes: 1 << 30}, g, g, g, plan.Notify{
		Ended: func(r plan.Result) { g.ended = append(g.ended, r) }, Durable: func(uint64) {}, Barrier: func() {},
	})
	g.s = g.p.Create(1, []byte("{}"), 1)
	for i := range messages {
		g.s.Store([]string{"s.a", "s.b"}[i%2], []byte("NATS/1.0\r\nk:  v\r\n\r\n"), []byte(fmt.Sprint(i+1)), "")
	}
	return g
}

func (g *stage) Number() uint64             { return 1 }
func (g *stage) Base() record.Fence         { return record.Fence{} }
func (g *stage) NextID() record.ProposalID  { return record.NewProposalID(1, 1) }
func (g *stage) Propose(p *record.Proposal) { g.queue = append(g.queue, p) }
func (g *stage) Now() int64                 { return 1_000_000 }
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

func (g *stage) SubjectStat(_ record.StreamID, subject string) (record.SubjectStat, bool, error) {
	return record.SubjectStat{Count: 1, Last: g.last[subject]}, g.last[subject] != 0, nil
}

func (g *stage) Subjects(record.StreamID, string, string, func(string, record.SubjectStat) bool) error {
	return nil
}

func (g *stage) Dedup(record.StreamID, string) (seq uint64, at int64, ok bool, err error) {
	return 0, 0, false, nil
}

func (g *stage) DedupUntil(record.StreamID, int64, int64, func(int64, string) bool) error { return nil }
func (g *stage) Gather(uint64)                                                            {}
func (g *stage) Applied(uint64)                                                           {}
func (g *stage) Failed(uint64)                                                            {}
func (g *stage) Rebuilt()                                                                 {}
func (g *stage) Stored(*plan.Stream)                                                      {}
func (g *stage) Removed(*plan.Stream, uint64, string)                                     {}

func (g *stage) find() (*plan.Stream, *jsapi.StreamConfig) {
	if g.s == nil {
		return nil, nil
	}
	return g.s, g.cfg
}

func (g *stage) purgeEnv() PurgeEnv {
	return PurgeEnv{Find: g.find, Again: g.submitAgain, Hear: g, Slots: &g.slots}
}

func (g *stage) submitAgain(op plan.Op) {
	g.again++
	g.p.Submit(op)
}

// Hush implements Purged.
func (g *stage) Hush(seq uint64) { g.hushed = append(g.hushed, seq) }

// Purged implements Purged.
func (g *stage) Purged(subject string) { g.heard = append(g.heard, subject) }

func (g *stage) apply() {
	for g.p.Flush(); len(g.queue) > 0; g.p.Flush() {
		p := g.queue[0]
		g.queue = g.queue[1:]
		p.Done(nil)
		for _, r := range g.ended {
			g.p.Ended(r)
		}
		g.ended = nil
	}
}

func TestMsgDelete(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(g *stage)
		body   string
		want   string // text of the error; "" = success
	}{
		"there":    {nil, `{"seq":2}`, ""},
		"no body":  {nil, ``, "bad request"},
		"no JSON":  {nil, `{`, "invalid JSON"},
		"zero":     {nil, `{"seq":0}`, "no message found"},
		"past end": {nil, `{"seq":5}`, "stream store EOF"},
		"removed":  {func(g *stage) { g.s.Remove(2) }, `{"seq":2}`, "no message found"},
		"sealed":   {func(g *stage) { g.cfg.Sealed = true }, `{"seq":2}`, "invalid operation on sealed stream"},
		"denied":   {func(g *stage) { g.cfg.DenyDelete = true }, `{"seq":2}`, "message delete not permitted"},
		"gone":     {func(g *stage) { g.s = nil }, `{"seq":2}`, "stream not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newStage(t, 4)
			if tc.change != nil {
				tc.change(g)
			}
			a := ask(jsapi.VerbStreamMsgDelete, tc.body)
			if op := NewMsgDelete(&a.Call, g.find); op != nil {
				g.p.Submit(op)
				if tc.want == "" && len(a.replies) != 0 {
					t.Fatal("answered before it is applied")
				}
				g.apply()
			}
			body := a.only(t)
			if tc.want == "" {
				if !strings.Contains(body, `"success":true`) || g.s.Planned(2) != nil {
					t.Fatalf("answer %s", body)
				}
			} else if e := errorOf(t, body); !strings.Contains(e.Description, tc.want) {
				t.Fatalf("answer %s, want %q", body, tc.want)
			}
		})
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(g *stage)
		body   string
		purged uint64
		want   string // text of the error
	}{
		"all":                 {nil, "", 4, ""},
		"all by >":            {nil, `{"filter":">"}`, 4, ""},
		"subject":             {nil, `{"filter":"s.a"}`, 2, ""},
		"wildcard":            {nil, `{"filter":"*.b"}`, 2, ""},
		"below":               {nil, `{"seq":3}`, 2, ""},
		"below the first":     {nil, `{"seq":1}`, 0, ""},
		"keep":                {nil, `{"keep":1}`, 3, ""},
		"keep more":           {nil, `{"keep":9}`, 0, ""},
		"subject and below":   {nil, `{"filter":"s.a","seq":3}`, 1, ""},
		"subject and keep":    {nil, `{"filter":"s.a","keep":1}`, 1, ""},
		"both":                {nil, `{"seq":1,"keep":1}`, 0, "bad request"},
		"no JSON":             {nil, `{`, 0, "invalid JSON"},
		"sealed":              {func(g *stage) { g.cfg.Sealed = true }, "", 0, "invalid operation on sealed stream"},
		"denied":              {func(g *stage) { g.cfg.DenyPurge = true }, "", 0, "stream purge not permitted"},
		"of a stream that is": {func(g *stage) { g.s = nil }, "", 0, "stream not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newStage(t, 4)
			if tc.change != nil {
				tc.change(g)
			}
			a := ask(jsapi.VerbStreamPurge, tc.body)
			if op := NewPurge(&a.Call, g.purgeEnv()); op != nil {
				g.p.Submit(op)
				g.apply()
			}
			body := a.only(t)
			if tc.want != "" {
				if e := errorOf(t, body); !strings.Contains(e.Description, tc.want) {
					t.Fatalf("answer %s, want %q", body, tc.want)
				}
				return
			}
			var r jsapi.PurgeResponse
			if err := json.Unmarshal([]byte(body), &r); err != nil || !r.Success || r.Purged != tc.purged {
				t.Fatalf("answer %s, want %d purged", body, tc.purged)
			}
			if got := 4 - g.s.State().Messages; got != tc.purged {
				t.Fatalf("%d messages went, want %d", got, tc.purged)
			}
			if len(g.heard) != 1 {
				t.Fatalf("told %d times of the purge, want once", len(g.heard))
			}
			if n := uint64(len(g.hushed)); n != tc.purged && (n != 0 || g.s.State().Messages != 0) {
				t.Fatalf("told of %d messages, want %d, or none if all went at once", n, tc.purged)
			}
		})
	}
}

// TestPurgeStep: a purge at the edge of a step and past it.
func TestPurgeStep(t *testing.T) {
	t.Parallel()
	for n, steps := range map[int]int{PurgeStep - 1: 1, PurgeStep: 2, PurgeStep + 1: 2, 2*PurgeStep + 1: 3} {
		g := newStage(t, n+1)
		a := ask(jsapi.VerbStreamPurge, `{"keep":1}`)
		g.p.Submit(NewPurge(&a.Call, g.purgeEnv()))
		g.apply()
		if body := a.only(t); !strings.Contains(body, fmt.Sprintf(`"purged":%d`, n)) || g.again != steps-1 {
			t.Errorf("%d messages: %s in %d steps, want %d", n, body, g.again+1, steps)
		}
	}
	// Messages that do not match are looked at in steps, too.
	g := newStage(t, 2*PurgeLook+10)
	a := ask(jsapi.VerbStreamPurge, `{"filter":"*.none"}`)
	g.p.Submit(NewPurge(&a.Call, g.purgeEnv()))
	g.apply()
	if body := a.only(t); !strings.Contains(body, `"purged":0`) || g.again != 2 {
		t.Errorf("%s in %d steps, want 3", body, g.again+1)
	}
}

// TestPurgeSlots: as many purges of one stream have a row as there are slots; a slot
// that is free again is used again.
func TestPurgeSlots(t *testing.T) {
	t.Parallel()
	var s Slots
	for i := range plan.SweepPurges {
		if got := s.take(); got != plan.SweepPurge+uint8(i) {
			t.Fatalf("slot %d, want %d", got, int(plan.SweepPurge)+i)
		}
	}
	if got := s.take(); got != 0 {
		t.Fatalf("slot %d past the edge", got)
	}
	s.free(plan.SweepPurge + 70)
	if got := s.take(); got != plan.SweepPurge+70 {
		t.Fatalf("slot %d, want the free one", got)
	}

	g := newStage(t, 4)
	g.slots = s
	a := ask(jsapi.VerbStreamPurge, `{"filter":"s.a"}`)
	g.p.Submit(NewPurge(&a.Call, g.purgeEnv()))
	if e := errorOf(t, a.only(t)); e.ErrCode != jsapi.CodeStreamTooManyRequests || g.s.State().Messages != 4 {
		t.Fatalf("%v, want too many requests and nothing purged", e)
	}
	g.slots.free(plan.SweepPurge)
	b := ask(jsapi.VerbStreamPurge, `{"filter":"s.a"}`)
	g.p.Submit(NewPurge(&b.Call, g.purgeEnv()))
	g.apply()
	if body := b.only(t); !strings.Contains(body, `"purged":2`) {
		t.Fatalf("answer %s", body)
	}
	if got := g.slots.take(); got != plan.SweepPurge {
		t.Fatalf("slot %d, want the one that the purge gave back", got)
	}
	long := ask(jsapi.VerbStreamPurge, `{"filter":"`+strings.Repeat("x", maxPurgeFilter+1)+`"}`)
	if NewPurge(&long.Call, g.purgeEnv()) != nil || errorOf(t, long.only(t)).Code != 400 {
		t.Fatal("a filter past the edge is accepted")
	}
}

// TestFence: an answer that only a leader may give does not leave once it does not
// lead, and the call is handed on; an error that was not given is not counted.
func TestFence(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{true, false} {
		a := ask(jsapi.VerbStreamInfo, "")
		lost, failed := 0, 0
		a.Fence = func() error {
			if leads {
				return nil
			}
			return record.ErrNotLeader
		}
		a.Lost, a.Failed = func() { lost++ }, func() { failed++ }
		a.Error(jsapi.NewError(jsapi.CodeStreamNotFound))
		a.Answer(jsapi.SuccessResponse{}) // a second answer is none
		if leads {
			a.only(t)
		}
		if want := map[bool][2]int{true: {0, 1}, false: {1, 0}}[leads]; [2]int{lost, failed} != want {
			t.Errorf("leads %v: lost %d, failed %d, want %v", leads, lost, failed, want)
		}
		if !leads && len(a.replies) != 0 {
			t.Errorf("answered %q without leading", a.replies)
		}
	}
	a := ask(jsapi.VerbConsumerCreate, "")
	a.Resubmit = func() bool { return true }
	a.Abandon()
	if len(a.replies) != 0 {
		t.Errorf("answered %q, and somebody else does", a.replies)
	}
	a.Resubmit = func() bool { return false }
	a.Abandon()
	if e := errorOf(t, a.only(t)); e.ErrCode != jsapi.CodeClusterNotAvail {
		t.Errorf("%v", e)
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	g := newStage(t, 4)
	g.apply()
	g.last = map[string]uint64{"s.a": 3, "s.b": 4}
	for body, want := range map[string]string{
		`{"seq":2}`: "2", `{"seq":9}`: "", `{"last_by_subj":"s.a"}`: "3", `{"last_by_subj":"s.none"}`: "",
		`{"next_by_subj":"s.b"}`: "2", `{"seq":3,"next_by_subj":"s.*"}`: "3", `{"seq":3,"next_by_subj":"s.b"}`: "4",
		`{"seq":4,"next_by_subj":"s.a"}`:        "",
		`{"start_time":"1970-01-01T00:00:00Z"}`: "1", `{"start_time":"9999-01-01T00:00:00Z"}`: "",
		`{"seq":2,"no_hdr":true}`: "2",
	} {
		a := ask(jsapi.VerbStreamMsgGet, body)
		Get(&a.Call, g.s)
		if want == "" {
			if e := errorOf(t, a.only(t)); e.ErrCode != jsapi.CodeNoMessageFound {
				t.Errorf("%s: %v, want no message", body, e)
			}
			continue
		}
		var r jsapi.MsgGetResponse
		if err := json.Unmarshal([]byte(a.only(t)), &r); err != nil || r.Message == nil {
			t.Errorf("%s: %s", body, a.only(t))
			continue
		}
		header := "NATS/1.0\r\nk:  v\r\n\r\n"
		if strings.Contains(body, "no_hdr") {
			header = ""
		}
		if string(r.Message.Data) != want || fmt.Sprint(r.Message.Sequence) != want || string(r.Message.Header) != header {
			t.Errorf("%s: %+v, want %s", body, r.Message, want)
		}
	}
	for _, body := range []string{
		``, `{`, `{}`, `{"seq":1,"last_by_subj":"a"}`, `{"seq":1,"start_time":"2020-01-01T00:00:00Z"}`,
		`{"last_by_subj":"a","next_by_subj":"a"}`, `{"seq":1,"batch":2}`, `{"seq":1,"max_bytes":2}`,
	} {
		a := ask(jsapi.VerbStreamMsgGet, body)
		Get(&a.Call, g.s)
		if e := errorOf(t, a.only(t)); e.Code != 400 {
			t.Errorf("%q: %v, want a refusal", body, e)
		}
	}
}
