package jepsen

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

// found answers a read with a sequence.
func found(request *nats.Msg, seq int) *nats.Msg {
	return &nats.Msg{Subject: request.Reply, Data: fmt.Appendf(nil, `{"message":{"subject":"r","seq":%d}}`, seq)}
}

// TestPatientReadsAreTakenForAMinute, and every answer of them.
func TestPatientReadsAreTakenForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		r := &lookups{h: h, node: "n1", asker: newAsker(patience)}
		first := r.next(h.now())
		if first.Subject != "$JS.API.STREAM.MSG.GET.REG" || string(first.Data) != `{"last_by_subj":"reg.0.0"}` {
			t.Errorf("request %s %s", first.Subject, first.Data)
		}
		<-time.After(patience - time.Second)
		second := r.next(h.now())
		r.heard(found(first, 7))
		r.heard(found(first, 9)) // another node said something else
		r.heard(&nats.Msg{Subject: second.Reply, Data: []byte(`{"error":{"code":404,"err_code":10037}}`)})
		r.heard(&nats.Msg{Subject: second.Reply, Data: []byte(`{"error":{"code":503,"err_code":10008}}`)})
		r.heard(&nats.Msg{Subject: second.Reply, Header: nats.Header{"Status": {"503"}}})
		<-time.After(2 * time.Second)
		r.heard(found(first, 11)) // too late
		r.next(h.now())
		if len(r.open) != 2 {
			t.Errorf("%d questions are open, want 2", len(r.open))
		}
		late := patience - time.Second
		want := []Lookup{
			{"reg.0.0", "n1", 0, late, 7}, {"reg.0.0", "n1", 0, late, 9}, {"reg.11.1", "n1", late, late, 0},
		}
		if diff := cmp.Diff(want, h.Lookups); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// delivered is a message of the work queue that answers a pull. Its subject is its own.
func delivered(request *nats.Msg, id string, seq, count int) *nats.Msg {
	return &nats.Msg{
		Subject: "work.0", Data: []byte(id), Sub: &nats.Subscription{Subject: request.Reply},
		Reply: fmt.Sprintf("$JS.ACK.WORK.workers.%d.%d.1.1700000000000000000.0", count, seq),
	}
}

// TestPatientPullsTakeWhatComesLate: whatever is delivered to a pull counts, also if it is not the newest any more.
func TestPatientPullsTakeWhatComesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		p := &pulls{h: h, node: "n2", asker: newAsker(2 * patience)}
		first := p.next(h.now())
		if want := `{"batch":16,"expires":60000000000}`; string(first.Data) != want {
			t.Errorf("pull %s, want %s", first.Data, want)
		}
		<-time.After(pullEvery)
		second := p.next(h.now())
		<-time.After(patience)
		s, over := p.heard(delivered(first, "0-3", 4, 2))
		if over || s == nil || *s != (Settle{ID: "0-3", Seq: 4}) {
			t.Errorf("of the first pull: %v, over %v", s, over)
		}
		if s, over := p.heard(&nats.Msg{
			Subject: first.Reply, Sub: &nats.Subscription{Subject: first.Reply}, Header: nats.Header{"Status": {"408"}},
		}); s != nil || over {
			t.Errorf("the end of the first pull: %v, over %v", s, over)
		}
		for i := range patientBatch {
			_, over := p.heard(delivered(second, "0-7", 8, i+1))
			if over != (i == patientBatch-1) {
				t.Errorf("over after %d of the second pull: %v", i+1, over)
			}
		}
		third := p.next(h.now())
		if s, over := p.heard(&nats.Msg{
			Subject: third.Reply, Sub: &nats.Subscription{Subject: third.Reply}, Header: nats.Header{"Status": {"409"}},
		}); s != nil || !over {
			t.Errorf("the end of the third pull: %v, over %v", s, over)
		}
		want := Delivery{ID: "0-3", Seq: 4, Count: 2, Node: "n2", Asked: 0, At: pullEvery + patience}
		if len(h.Deliveries) != 1+patientBatch {
			t.Fatalf("%d deliveries, want %d", len(h.Deliveries), 1+patientBatch)
		}
		if diff := cmp.Diff(want, h.Deliveries[0]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := h.Deliveries[1]; got.Asked != pullEvery {
			t.Errorf("the second pull was asked at %v, want %v", got.Asked, pullEvery)
		}
	})
}

// TestPatientReadsAreJudged: each by what was known before it was asked, however long its answer took.
func TestPatientReadsAreJudged(t *testing.T) {
	t.Parallel()
	const s = second
	write := func(invoke, ret Moment, seq uint64, o Outcome) RegisterOp {
		return RegisterOp{Subject: "r", ID: fmt.Sprint("w-", seq), Invoke: invoke, Return: ret, Outcome: o, Seq: seq}
	}
	one, two := write(1*s, 2*s, 3, Acked), write(4*s, 5*s, 8, Acked)
	lost := RegisterOp{Subject: "r", ID: "w-9", Invoke: 6 * s, Return: 11 * s, Outcome: Unknown}
	inLog := []Reads{{Node: "n1", Stream: streamReg, Entries: []Entry{{3, "w-3"}, {8, "w-8"}, {9, "w-9"}}}}
	for _, tt := range []struct {
		name  string
		ops   []RegisterOp
		reads []Reads
		looks []Lookup
		want  string
	}{
		{"before anything", nil, inLog, []Lookup{{"r", "n1", 0, s, 0}}, ""},
		{"all that was acked", []RegisterOp{one, two}, inLog, []Lookup{{"r", "n1", 6 * s, 60 * s, 8}}, ""},
		{"none of what was acked", []RegisterOp{one, two}, inLog, []Lookup{{"r", "n1", 3 * s, 4 * s, 0}}, "stale"},
		{"stale, and answered at once", []RegisterOp{one, two}, inLog, []Lookup{{"r", "n1", 6 * s, 6 * s, 3}}, "stale"},
		{"stale, and answered late", []RegisterOp{one, two}, inLog, []Lookup{{"r", "n1", 6 * s, 60 * s, 3}}, "stale"},
		{"less than was acked while it waited", []RegisterOp{one, two}, inLog, []Lookup{{"r", "n1", 3 * s, 60 * s, 3}}, ""},
		{"asked before it was acked", []RegisterOp{one}, inLog, []Lookup{{"r", "n1", 2 * s, 3 * s, 0}}, ""},
		{"what is being written", []RegisterOp{one, two}, inLog, []Lookup{{"r", "n1", 3 * s, 4500 * millis, 8}}, ""},
		{"what is not written yet", []RegisterOp{one, two}, inLog, []Lookup{{"r", "n1", 3 * s, 3500 * millis, 8}}, "invented"},
		{"what nobody writes", []RegisterOp{one, two}, inLog, []Lookup{{"r", "n1", 6 * s, 7 * s, 11}}, "invented"},
		{"of another subject", []RegisterOp{one}, inLog, []Lookup{{"q", "n1", 6 * s, 7 * s, 3}}, "invented"},
		{"an unknown write", []RegisterOp{one, lost}, inLog, []Lookup{{"r", "n1", 7 * s, 8 * s, 9}}, ""},
		{"an unknown write that did not happen", []RegisterOp{one, lost}, inLog[:0], []Lookup{{"r", "n1", 7 * s, 8 * s, 9}}, ""},
		{"an unknown write that is gone", []RegisterOp{one, lost}, []Reads{{Stream: streamReg}}, []Lookup{{"r", "n1", 7 * s, 8 * s, 9}}, "invented"},
		{"less than another read", []RegisterOp{one, two}, inLog, []Lookup{
			{"r", "n2", 3 * s, 4200 * millis, 8}, {"r", "n1", 4300 * millis, 4400 * millis, 3},
		}, "stale"},
		{"less than a refusal", []RegisterOp{one, {Subject: "r", ID: "w-x", Invoke: 4 * s, Return: 5 * s, Outcome: Refused, Seq: 8}, write(4*s, 9*s, 8, Acked)}, inLog, []Lookup{{"r", "n1", 6 * s, 7 * s, 3}}, "stale"},
		{"less than the read of one that does not wait", []RegisterOp{one, {Subject: "r", Invoke: 4 * s, Return: 5 * s, Outcome: Acked, Seq: 8}, write(4*s, 9*s, 8, Acked)}, inLog, []Lookup{{"r", "n1", 6 * s, 7 * s, 3}}, "stale"},
	} {
		var v RegisterVerdict
		h := &History{Registers: tt.ops, Reads: tt.reads, Lookups: tt.looks}
		checkLookups(h, &v)
		var got []string
		for what, f := range map[string]Finding{"stale": v.Stale, "invented": v.Invented} {
			if f.Count > 0 {
				got = append(got, what)
			}
		}
		if text := strings.Join(got, ","); text != tt.want {
			t.Errorf("%s: %q, want %q: %v %v", tt.name, text, tt.want, v.Stale, v.Invented)
		}
		if v.Lookups != len(tt.looks) {
			t.Errorf("%s: %d answers counted, want %d", tt.name, v.Lookups, len(tt.looks))
		}
	}
}
