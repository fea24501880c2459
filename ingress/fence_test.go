package ingress

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// effects are what only a leader may say about a group: do returns where it goes to,
// wants is in its header or body, checks how often leadership is asked for before it is
// written: when a batch of events begins, and so on, the last time right before the write.
var effects = map[string]struct {
	settings m // of the consumer C
	filled   int
	do       func(n *node) (inbox string)
	wants    string
	checks   int
}{
	"delivery":   {nil, 1, func(n *node) string { return n.pull("C", pullOne) }, "", 3},
	"status 404": {nil, 0, func(n *node) string { return n.pull("C", `{"batch":1,"no_wait":true}`) }, "404", 2},
	"status 408": {nil, 0, func(n *node) string {
		inbox := n.pull("C", `{"batch":1,"expires":1000000000}`)
		pass(2 * time.Second)
		return inbox
	}, "408", 2},
	"status 409": {m{"max_batch": 1}, 0, func(n *node) string { return n.pull("C", `{"batch":2}`) }, "409", 2},
	"idle heartbeat": {nil, 0, func(n *node) string {
		inbox := n.pull("C", `{"batch":1,"expires":10000000000,"idle_heartbeat":1000000000}`)
		pass(1500 * time.Millisecond)
		return inbox
	}, "100", 2},
	"no such consumer": {nil, 0, func(n *node) string { return n.pull("none", pullOne) }, "503", 2},
	"ack for no consumer": {nil, 1, func(n *node) string {
		return n.send("$JS.ACK.S.none.1.1.1.1700000000000000000.0", "", "+ACK")
	}, "503", 2},
	"leader ack":      {nil, 0, func(n *node) string { return n.publish("s.a", withAck("leader"), "x") }, "leader", 3},
	"none ack":        {nil, 0, func(n *node) string { return n.publish("s.a", withAck("none"), "x") }, "none", 2},
	"STREAM.INFO":     {nil, 1, apiCall("STREAM.INFO.S", ""), "config", 3},
	"MSG.GET":         {nil, 1, apiCall("STREAM.MSG.GET.S", `{"seq":1}`), "message", 3},
	"MSG.GET of none": {nil, 0, apiCall("STREAM.MSG.GET.S", `{"seq":1}`), "10037", 3},
	"CONSUMER.INFO":   {nil, 0, apiCall("CONSUMER.INFO.S.C", ""), "config", 3},
	"no CONSUMER":     {nil, 0, apiCall("CONSUMER.INFO.S.none", ""), "10014", 3},
	"CONSUMER.NAMES":  {nil, 0, apiCall("CONSUMER.NAMES.S", ""), "consumers", 3},
	"CONSUMER.LIST":   {nil, 0, apiCall("CONSUMER.LIST.S", ""), "consumers", 3},
	"create again":    {nil, 0, apiCall("STREAM.CREATE.S", createS), "config", 3},
}

func apiCall(call, body string) func(n *node) string {
	return func(n *node) string { return n.send("$JS.API."+call, "", body) }
}

// TestEffectsAreFenced: whenever the lease ends between the arrival of a request and
// the write of what follows from it, nothing is written that only a leader may say.
func TestEffectsAreFenced(t *testing.T) {
	t.Parallel()
	for name, tc := range effects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// run does it with a lease for so many checks, 0 = for ever.
			run := func(checks int) (got []sent) {
				inWorld(t, Config{}, func(t *testing.T, n *node) {
					n.stream(nil)
					n.consumer("C", tc.settings)
					n.fill(tc.filled)
					n.term.hold() // an answer by the quorum is not what is asked for here
					n.term.set(func() { n.term.checks, n.term.checked = checks, 0 })
					n.hub.link.count = n.term.checksSoFar
					inbox := tc.do(n)
					if name == "leader ack" && n.term.pending() > 0 {
						n.term.durable(0)
					}
					got = n.hub.link.to(inbox)
					n.term.set(func() { n.term.manual = false })
					n.term.commitAll()
				})
				return got
			}
			got := run(0)
			if len(got) != 1 || !got[0].fenced || !strings.Contains(got[0].header+got[0].body, tc.wants) {
				t.Fatalf("sent %+v, want one with %q, not kept for later", got, tc.wants)
			}
			last := got[0].checks
			if last < tc.checks {
				t.Errorf("%d checks before the write, want %d", last, tc.checks)
			}
			for checks := 1; checks < last; checks++ {
				if got := run(checks); len(got) != 0 {
					t.Errorf("a lease for %d of %d checks, and sent: %+v", checks, last, got)
				}
			}
			if got := run(last); len(got) != 1 {
				t.Errorf("a lease for all %d checks, and sent: %+v", last, got)
			}
		})
	}
}

// TestReadsOfGroupZeroAreFenced: its leader changes while the answer is made.
func TestReadsOfGroupZeroAreFenced(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.none", "CONSUMER.INFO.none.C"} {
		for _, limit := range []int{1, 2} {
			t.Run(fmt.Sprint(call, " ", limit), func(t *testing.T) {
				t.Parallel()
				inWorld(t, Config{}, func(t *testing.T, n *node) {
					n.stream(nil)
					n2 := n.w.node("n2", Config{})
					n.w.meta.set(func() { n.w.meta.asked, n.w.meta.limit = 0, limit })
					inbox := n.w.newInbox()
					n.hub.conn.inject(Msg{Subject: "$JS.API." + call, Reply: inbox})
					n2.hub.conn.inject(Msg{Subject: "$JS.API." + call, Reply: inbox})
					wait()
					if limit == 2 {
						if got := n.answer(inbox); !got.fenced {
							t.Errorf("kept while the link is down: %+v", got)
						}
						return
					}
					n.silent(inbox, "it led at the arrival only")
					n.w.meta.set(func() { n.w.meta.leader, n.w.meta.limit = "n2", 0 })
					pass(5 * time.Second)
					n.silent(inbox, "n2 leads")
					n2.answer(inbox)
				})
			})
		}
	}
}

// TestFencedWhileTheLinkIsDown: an ack that is true only now is not kept for later; the
// quorum's is.
func TestFencedWhileTheLinkIsDown(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"leader", "none"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(nil)
				n.term.hold()
				n.hub.link.setDown(true)
				inbox := n.publish("s.a", withAck(level), "x")
				n.term.durable(0)
				n.silent(inbox, "the link is down")
				n.term.release()
				got := n.answer(inbox)
				if got.fenced {
					t.Fatalf("%+v is fenced, and it stays true", got)
				}
				want := map[string]string{"leader": `{"stream":"S","seq":1}`, "none": `{"stream":"S","seq":0}`}[level]
				if got.body != want {
					t.Fatalf("answered %q, want %q", got.body, want)
				}
			})
		})
	}
}

// TestCommittedAnswersAreKept: what is applied stays true, whoever leads.
func TestCommittedAnswersAreKept(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", nil)
		n.fill(1)
		pull := n.pull("C", pullOne)
		reply := n.deliveries(pull)[0].reply
		n.term.hold()
		inboxes := []string{
			n.publish("s.a", "", "x"),
			n.send(reply, "", "+ACK"),
			n.send("$JS.API.STREAM.PURGE.S", "", ""),
			n.send("$JS.API.CONSUMER.DELETE.S.C", "", ""),
			n.send("$JS.API.CONSUMER.DURABLE.CREATE.S.D", "", heldCalls["CONSUMER.DURABLE.CREATE.S.D"]),
		}
		for _, inbox := range inboxes {
			n.silent(inbox, "nothing is applied")
		}
		n.term.set(func() { n.term.lease = false })
		n.term.release()
		for i, inbox := range inboxes {
			if got := n.answer(inbox); got.fenced || strings.Contains(got.body, `"error"`) {
				t.Errorf("answer %d: %+v", i, got)
			}
		}
	})
}

// TestCallsInGroupZeroCountInTheBudget: deletes and updates that wait for group 0.
func TestCallsInGroupZeroCountInTheBudget(t *testing.T) {
	t.Parallel()
	updateS := `{"name":"S","subjects":["other"],"retention":"limits","storage":"file"}`
	for verb, body := range map[string]string{"DELETE": "", "UPDATE": updateS} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(nil)
				e := n.srv.engine(1)
				cost := len(body) + eventOverhead
				held := func() (held int) {
					goOn := n.stall()
					held = e.p.Held()
					goOn()
					return held
				}
				budget := e.p.Config().Budget
				gate := make(chan struct{})
				n.w.meta.block(gate)
				goOn := n.stall()
				e.p.Admit(budget - cost)
				goOn()
				first := n.send("$JS.API.STREAM."+verb+".S", "", body)
				n.silent(first, "group 0 has not written")
				if got := held(); got != budget {
					t.Fatalf("%d of the budget is held, want all of it: %d", got, budget)
				}
				n.wantError(n.send("$JS.API.STREAM."+verb+".S", "", body), jsapi.CodeStreamTooManyRequests, "")
				close(gate)
				pass(time.Second)
				if got := n.answer(first).body; strings.Contains(got, `"error"`) {
					t.Fatalf("answer %s", got)
				}
				if got := held(); got != budget-cost {
					t.Fatalf("%d held at the end, want %d", got, budget-cost)
				}
			})
		})
	}
}
