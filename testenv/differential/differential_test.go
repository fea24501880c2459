package differential

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSmoke runs the scripts of two seeds.
func TestSmoke(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := &Suite{Seeds: []uint64{1, 2}, Steps: 150, Dir: t.TempDir(), Out: &out, ShrinkFor: 20 * time.Second}
	failures, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if failures != 0 {
		t.Errorf("%d differences:\n%s", failures, out.String())
	}
}

// TestFindsADifference gives both sides different requests and demands that it is seen.
func TestFindsADifference(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := Start(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	// GEN0 becomes a name on one side only: the other one gets it as it is.
	script := Script{
		{Kind: Call, Subject: api("STREAM.CREATE", "S"), Body: `{"name":"S","subjects":["s.*"]}`},
		{Kind: Call, Subject: "s.a", Body: "x"},
		{Kind: Call, Subject: "s.GEN0", Body: "x"},
		{Kind: Call, Subject: api("STREAM.NAMES")},
	}
	opts := Options{Patience: 200 * time.Millisecond, Trace: func(step int, _ Op) {
		if step == 3 {
			p.want.named("planted")
		}
	}}
	res, err := p.Replay(ctx, script, opts)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Script) != 3 || len(res.Diffs) == 0 || res.Diffs[0].What != "streams" {
		t.Fatalf("%d steps, differences %v; want one of the state after step 3", len(res.Script), res.Diffs)
	}
}

func TestCompareText(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		want, got string
		diffs     []Diff
	}{
		{`{"a":1}`, `{"a":1}`, nil},
		{`{"a":1,"b":2}`, `{"a":1,"b":3}`, []Diff{{Path: "b", Want: "2", Got: "3"}}},
		{`{"a":{"b":[1,2]}}`, `{"a":{"b":[1,3]}}`, []Diff{{Path: "a.b[1].", Want: "2", Got: "3"}}},
		{`{"a":1}`, `{}`, []Diff{{Path: "a", Want: "1", Got: absent}}},
		{`{}`, `{"a":null}`, []Diff{{Path: "a", Want: absent, Got: "null"}}},
		{`{"a":[1]}`, `{"a":[1,2]}`, []Diff{{Path: "a", Want: "[1]", Got: "[1,2]"}}},
		{
			`{"error":{"code":1},"x":1}`, `{"x":1}`,
			[]Diff{{Path: "error", Want: `{"code":1}`, Got: `no error: {"x":1}`}},
		},
		{`x`, `y`, []Diff{{Want: `"x"`, Got: `"y"`}}},
		{
			`{"a":1,"b":2}`, `{"b":2,"a":1}`,
			[]Diff{{Path: " (order of fields or form of values)", Want: `{"a":1,"b":2}`, Got: `{"b":2,"a":1}`}},
		},
		{`{"l":["GEN0","GEN1"]}`, `{"l":["GEN1","GEN0"]}`, nil},
	} {
		if diff := cmp.Diff(tc.diffs, compareText("", tc.want, tc.got)); diff != "" {
			t.Errorf("%s and %s (-want +got):\n%s", tc.want, tc.got, diff)
		}
	}
}

func TestNormalise(t *testing.T) {
	t.Parallel()
	n := &normaliser{names: map[string]string{"aB3dE5gH": "GEN0"}, prefix: "_INBOX.diff1."}
	got := n.message(&message{
		subject: "_INBOX.diff1.one.5",
		reply:   "$JS.ACK.S.aB3dE5gH.1.2.3.1700000000000000000.4",
		header:  []byte("NATS/1.0 503\r\nNats-Subject: $JS.ACK.S.aB3dE5gH.1.2.3.1700000000000000000.4\r\n\r\n"),
		data: []byte(`{"created":"2026-01-02T03:04:05.6Z","first_ts":"0001-01-01T00:00:00Z","name":"aB3dE5gH",` +
			`"pause_remaining":17,"pause_until":"2095-01-01T00:00:00Z","api":{"level":0,"total":7,"errors":3}}`),
	})
	err := []byte(`{"error":{"description":"change to limits violates consumers: d, aB3dE5gH, c","err_code":10069}}`)
	sorted := `{"error":{"description":"change to limits violates consumers: GEN0, c, d","err_code":10069}}`
	if diff := cmp.Diff(sorted, n.body(err)); diff != "" {
		t.Error(diff)
	}
	want := view{
		Subject: "<inbox>", Reply: "$JS.ACK.S.GEN0.1.2.3.0.4",
		Header: "NATS/1.0 503\r\nNats-Subject: $JS.ACK.S.GEN0.1.2.3.<time>.4\r\n\r\n",
		Body: `{"created":"<time>","first_ts":"0001-01-01T00:00:00Z","name":"GEN0","pause_remaining":"<pause_remaining>",` +
			`"pause_until":"2095-01-01T00:00:00Z","api":{"level":0,"counts":"<how often the test looked>"}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestScriptLines(t *testing.T) {
	t.Parallel()
	s := Script{
		{Kind: Call, Subject: "a", Header: "NATS/1.0\r\n\r\n", Body: "\xffx", Streams: []string{"S"}},
		{Kind: Maybe, Ack: &AckRef{"S", "C", 3}, Body: "+ACK", Loose: true},
	}
	b, err := s.MarshalLines()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseScript(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, again); diff != "" {
		t.Error(diff)
	}
}

// TestGeneratorIsDeterministic: one seed and one world make one script.
func TestGeneratorIsDeterministic(t *testing.T) {
	t.Parallel()
	run := func() Script {
		next := generate(7, 100)
		var s Script
		for {
			op, ok := next(newWorld())
			if !ok {
				return s
			}
			s = append(s, op)
		}
	}
	if diff := cmp.Diff(run(), run()); diff != "" {
		t.Error(diff)
	}
}
