package differential

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/deliver"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// apartRunner stands after a step before which the consumer F c was was, and about which JetStream told the reason
// of a removal and gave the answer.
func apartRunner(was *jsapi.ConsumerInfo, op Op, reason, answer string) *runner {
	c := &client{}
	c.mu.boxes = map[string][]message{
		"one.1": {{data: []byte(answer)}},
		jsapi.SubjectMsgTerminated + "F.c": {
			{data: []byte(`{"reason":"` + deliver.ReasonDeleted + `"}`)}, // of the step before
			{data: []byte(`{"reason":"` + reason + `"}`)},
		},
	}
	was.Stream, was.Name = "F", "c"
	pull := Op{Kind: Open, Subject: api("CONSUMER.MSG.NEXT", "F", "c"), Body: `{"batch":1,"no_wait":true}`}
	w, now := explainedWorld(), *was
	now.NumPending = 1
	w.streams["F"].consumers["c"] = &now
	return &runner{
		w: w, p: &Pair{want: c}, res: &Result{Script: Script{pull, op}}, op: op, inbox: "one.1",
		doneW: map[string]int{jsapi.SubjectMsgTerminated + "F.c": 1},
		before: before{
			consumers: map[AckRef]*jsapi.ConsumerInfo{{Stream: "F", Consumer: "c"}: was},
			messages:  map[string]uint64{"F": 2}, last: map[string]uint64{"F": 1, "M": 2},
		},
	}
}

// TestExplainedApart: what depends on the state before the step.
func TestExplainedApart(t *testing.T) {
	t.Parallel()
	const (
		all, full, one = "removed under ack all", "purge of a full window", "purge of one message"
		term           = "advisory ADVISORY.CONSUMER.MSG_TERMINATED.F.c"
		noWait         = "no_wait at a full window"
		sampled        = "sampling that was switched off"
		metric         = "advisory METRIC.CONSUMER.ACK."
		termM          = "advisory ADVISORY.CONSUMER.MSG_TERMINATED.M.c"
		advice         = `{"reason":"` + deliver.ReasonDeleted + `"}`
	)
	info := func(policy jsapi.AckPolicy, unacked, window, waiting int) *jsapi.ConsumerInfo {
		return &jsapi.ConsumerInfo{
			NumAckPending: unacked, NumWaiting: waiting,
			Config: &jsapi.ConsumerConfig{AckPolicy: policy, MaxAckPending: window},
		}
	}
	shown := func(path, want, got string) Diff {
		return Diff{What: stateOf + "F", Path: "consumers[0]." + path, Want: want, Got: got}
	}
	floor, waiting := shown("ack_floor.stream_seq", "6", "4"), shown("num_waiting", "1", "0")
	late := Diff{What: lateInbox + "1", Path: "message 1", Want: absent, Got: "f.a reply $JS.ACK.F.c.1.1.1.0.0 body x"}
	other := Diff{What: late.What, Want: absent, Got: "f.a reply $JS.ACK.F.d.1.1.1.0.0 body x"}
	publish, purge := Op{Subject: "f.a"}, Op{Subject: api("STREAM.PURGE", "F"), Body: `{"keep":2}`}
	everything := Op{Subject: purge.Subject}
	expires := Op{
		Kind: Pull, Subject: api("CONSUMER.MSG.NEXT", "F", "c"), Body: `{"batch":1,"expires":150000000}`,
	}
	ended := Diff{
		What: lateInbox + "1", Path: "message 1", Want: `m header "NATS/1.0 404 No Messages\r\n\r\n"`, Got: absent,
	}
	rollup := Op{Subject: "f.a", Header: block(jsapi.HdrRollup + ": sub")}
	for _, tc := range []struct {
		name   string
		diff   Diff
		op     Op
		was    *jsapi.ConsumerInfo
		reason string
		answer string
	}{
		{all, floor, publish, info(jsapi.AckAll, 2, 0, 0), deliver.ReasonDeleted, ""},
		{all, shown("num_redelivered", "0", "1"), publish, info(jsapi.AckAll, 2, 0, 0), deliver.ReasonDeleted, ""},
		{"", floor, publish, info(jsapi.AckExplicit, 2, 0, 0), deliver.ReasonDeleted, ""},
		{"", floor, publish, info(jsapi.AckAll, 1, 0, 0), deliver.ReasonDeleted, ""},
		{"", floor, publish, info(jsapi.AckAll, 2, 0, 0), "", ""},
		{"", shown("num_pending", "1", "0"), publish, info(jsapi.AckAll, 2, 0, 0), deliver.ReasonDeleted, ""},

		{full, waiting, purge, info(jsapi.AckExplicit, 1, 1, 1), "", ""},
		{full, late, purge, info(jsapi.AckExplicit, 1, 1, 1), "", ""},
		{"", waiting, publish, info(jsapi.AckExplicit, 1, 1, 1), "", ""},
		{"", waiting, purge, info(jsapi.AckExplicit, 0, 1, 1), "", ""},
		{"", waiting, purge, info(jsapi.AckExplicit, 1, 1, 0), "", ""},
		{"", waiting, purge, info(jsapi.AckExplicit, 1, 0, 1), "", ""},
		{"", waiting, Op{Subject: api("STREAM.PURGE", "M")}, info(jsapi.AckExplicit, 1, 1, 1), "", ""},
		{"", shown("ack_floor.stream_seq", "6", "4"), purge, info(jsapi.AckExplicit, 1, 1, 1), "", ""},
		{"", Diff{What: late.What, Want: late.Got, Got: absent}, purge, info(jsapi.AckExplicit, 1, 1, 1), "", ""},
		{"", other, purge, info(jsapi.AckExplicit, 1, 1, 1), "", ""},

		{one, Diff{What: term, Want: advice, Got: absent}, purge, info(jsapi.AckAll, 1, 0, 0), "", `{"purged":1}`},
		{"", Diff{What: term, Want: advice, Got: absent}, purge, info(jsapi.AckAll, 1, 0, 0), "", `{"purged":11}`},
		{"", Diff{What: term, Want: advice, Got: absent}, publish, info(jsapi.AckAll, 1, 0, 0), "", `{"purged":1}`},
		{"", Diff{What: term, Want: absent, Got: advice}, purge, info(jsapi.AckAll, 1, 0, 0), "", `{"purged":1}`},
		{"", Diff{What: term, Want: advice, Got: absent}, everything, info(jsapi.AckAll, 1, 0, 0), "", `{"purged":1}`},
		{noWait, shown("num_waiting", "1", "2"), expires, info(jsapi.AckExplicit, 1, 1, 2), "", ""},
		{noWait, ended, expires, info(jsapi.AckExplicit, 1, 1, 2), "", ""},
		{"", shown("num_waiting", "2", "1"), expires, info(jsapi.AckExplicit, 1, 1, 2), "", ""},
		{"", ended, publish, info(jsapi.AckExplicit, 1, 1, 2), "", ""},
		{"", ended, expires, info(jsapi.AckExplicit, 0, 1, 2), "", ""},

		{sampled, Diff{What: metric + "F.c", Want: advice, Got: absent}, publish, info(jsapi.AckExplicit, 0, 0, 0), "", ""},
		{"", Diff{What: metric + "F.c", Want: absent, Got: advice}, publish, info(jsapi.AckExplicit, 0, 0, 0), "", ""},
		{"", Diff{What: metric + "F.d", Want: advice, Got: absent}, publish, info(jsapi.AckExplicit, 0, 0, 0), "", ""},

		{one, Diff{What: term, Want: advice, Got: absent}, rollup, info(jsapi.AckAll, 1, 0, 0), "", ""},
		{"", Diff{What: termM, Want: advice, Got: absent}, rollup, info(jsapi.AckAll, 1, 0, 0), "", ""},
	} {
		r := apartRunner(tc.was, tc.op, tc.reason, tc.answer)
		if got := r.explain([]Diff{tc.diff})[0].Explained; got != tc.name {
			t.Errorf("%s, %s:\nexplained by %q, want %q", tc.op, &tc.diff, got, tc.name)
		}
	}
}

// TestApart: a stream that differs for good is deleted on both sides, and what its consumers' requests get then is
// not compared; the script goes on.
func TestApart(t *testing.T) {
	t.Parallel()
	p, err := Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	g, names := &generator{w: newWorld()}, Op{Kind: Call, Subject: api("STREAM.NAMES")}
	stale := g.stale()
	for i := range stale { // JetStream delivered 6 messages before, Holdfast one more
		if stale[i].Ack != nil {
			stale[i].Ack = &AckRef{Stream: timedStream, Consumer: timedConsumer, N: 7}
		}
	}
	script := slices.Concat(meant(), stale, Script{names})
	res, err := p.Replay(t.Context(), script, Options{Patience: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Diffs) != 0 || len(res.Script) != len(script) {
		t.Errorf("%d of %d steps, differences %v", len(res.Script), len(script), res.Diffs)
	}
	for _, e := range explanations {
		rare := e.name == "purge of one message" || e.name == "sampling that was switched off"
		if (e.apart || rare) && res.Explained[e.name] == 0 {
			t.Errorf("%q was not seen", e.name)
		}
	}
	for _, c := range []*client{p.want, p.got} {
		body, err := c.request(t.Context(), names.Subject, "", "")
		if err != nil || !strings.Contains(string(body), `"total":0,`) {
			t.Errorf("%s has streams: %s, %v", c.name, body, err)
		}
	}
}

// TestReplacedReceiver: once another delivery has replaced it, nothing but acks are sent of a delivery.
func TestReplacedReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.last = map[AckRef]int{{Stream: "S", Consumer: "c", N: 7}: 1}
	for _, tc := range []struct {
		n          int
		note, body string
		want       string
	}{
		{1, "", "-NAK", "-NAK"},
		{0, "", "-NAK", ""},
		{0, staleNak, "-NAK", "-NAK"},
		{0, "", "+TERM why", ""},
		{0, "", "+WPI", ""},
		{0, "", "+NXT 2", "+NXT 2"},
	} {
		op := Op{Kind: Maybe, Ack: &AckRef{Stream: "S", Consumer: "c", N: tc.n}, Note: tc.note, Body: tc.body}
		g := &generator{queue: Script{op}, steps: 1}
		if got, _ := g.next(w); got.Body != tc.want {
			t.Errorf("delivery %d, %q, note %q: sent %q, want %q", tc.n, tc.body, tc.note, got.Body, tc.want)
		}
	}
}
