package ingress

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/ingress/publish"
	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestPublishWithoutALeaseIsAnsweredLateAndNotPlanned(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.set(func() { n.term.lease = false })
		inbox := n.publish("s.a", "", "x")
		pass(plan.DefaultTimeout - time.Millisecond)
		n.silent(inbox, "a PubAck of the next leader must come first")
		pass(time.Millisecond)
		n.wantError(inbox, jsapi.CodeClusterNotAvail, publish.TextUnknown)
		n.term.set(func() { n.term.lease = true })
		pass(time.Minute)
		n.answer(inbox)
		if st := n.state(); st.Msgs != 0 {
			t.Fatalf("%d messages stored, it must not be planned", st.Msgs)
		}
	})
}

// TestFullQueueWithoutALease: that there is no room here does not say that no other leader stored it.
func TestFullQueueWithoutALease(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{QueueBytes: 1000}, func(t *testing.T, n *node) {
		n.stream(nil)
		defer n.stall()()
		n.term.set(func() { n.term.lease = false })
		var last string
		for dropped := n.srv.dropped.Load(); n.srv.dropped.Load() == dropped; {
			last = n.publish("s.a", "", "x")
		}
		pass(plan.DefaultTimeout - time.Millisecond)
		n.silent(last, "a PubAck of another leader must come first")
		pass(time.Millisecond)
		n.wantError(last, jsapi.CodeClusterNotAvail, publish.TextUnknown)
		n.term.set(func() { n.term.lease = true })
		n.wantError(n.publish("s.a", "", "x"), jsapi.CodeStreamTooManyRequests, "too many requests")
	})
}

func TestPublishInTheQueueAtTheEndOfATerm(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		e := n.srv.engine(1)
		st := e.byName[nameKey{"A", "S"}]
		inbox := n.w.newInbox()
		n.cancel() // the engine's goroutine does not run before this one waits
		e.q.offer(event{
			kind: evPublish, stream: st, msg: &Msg{Subject: "s.a", Reply: inbox}, at: time.Now(),
		}, 1)
		n.endTerm()
		pass(plan.DefaultTimeout - time.Millisecond)
		n.silent(inbox, "the next leader may have stored it")
		pass(time.Millisecond)
		n.wantError(inbox, jsapi.CodeClusterNotAvail, publish.TextUnknown)
	})
}

// TestLimbo: told in order at their time, the oldest early above the bound, all of
// them at the end.
func TestLimbo(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		var mu sync.Mutex
		var told []string
		l := newLimbo(time.Second, 2, func(p *lost) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, p.reply)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			l.run(ctx)
			close(done)
		}()
		add := func(reply string) {
			l.add(lost{reply: reply, at: time.Now()})
			wait()
		}
		want := func(when, replies string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(told, " "); got != replies {
				t.Fatalf("%s: told %q, want %q", when, got, replies)
			}
		}
		add("a")
		pass(400 * time.Millisecond)
		add("b")
		pass(599 * time.Millisecond)
		want("before the time of a", "")
		pass(time.Millisecond)
		want("at the time of a", "a")
		add("c")
		want("at the bound", "a")
		add("d")
		want("above the bound", "a b")
		cancel()
		<-done
		want("at the end", "a b c d")
	})
}

func TestTimeoutThenLateApply(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		late := n.publish("s.a", "", "x")
		pass(plan.DefaultTimeout)
		n.silent(late, "its time is not over at the edge")
		pass(2 * checkEvery)
		n.wantError(late, jsapi.CodeClusterNotAvail, publish.TextUnknown)
		n.term.release()
		wait()
		n.answer(late)
		if st := n.state(); st.Msgs != 1 {
			t.Fatalf("%d messages, the late one must be there", st.Msgs)
		}
		n.wantAck(n.publish("s.a", "", "y"), `{"stream":"S","seq":2}`)
	})
}

func TestOverloadByQueue(t *testing.T) {
	t.Parallel()
	const msg = len("s.a") + len("_INBOX.99") + eventOverhead
	inWorld(t, Config{QueueBytes: 3 * msg}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		n.w.inbox = 10
		var inboxes []string
		goOn := n.stall()
		for range 4 {
			inbox := n.w.newInbox()
			n.hub.conn.inject(Msg{Subject: "s.a", Reply: inbox})
			inboxes = append(inboxes, inbox)
		}
		goOn()
		got := n.answer(inboxes[3])
		if want := `{"error":{"code":429,"err_code":10167,"description":"too many requests"},"stream":"S","seq":0}`; got.body != want {
			t.Fatalf("past the edge: %q, want %q", got.body, want)
		}
		if !strings.HasPrefix(got.header, "NATS/1.0 429") {
			t.Fatalf("past the edge: header %q, want status 429", got.header)
		}
		n.term.release()
		for i, inbox := range inboxes[:3] {
			n.wantAck(inbox, fmt.Sprintf(`{"stream":"S","seq":%d}`, i+1))
		}
		if n.srv.Stats().Refused != 1 {
			t.Fatalf("refused %d, want 1", n.srv.Stats().Refused)
		}
	})
}

func TestOverloadByBudget(t *testing.T) {
	t.Parallel()
	cost := publish.New(&publish.Target{Config: &jsapi.StreamConfig{}}, nil,
		&record.Message{Subject: "s.a", Payload: []byte("x")}, "_INBOX.11").Size
	inWorld(t, Config{Plan: plan.Config{Budget: 2 * cost}}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		n.w.inbox = 10
		a, b := n.publish("s.a", "", "x"), n.publish("s.a", "", "x")
		n.silent(b, "the budget itself is not too much")
		c := n.publish("s.a", "", "x")
		n.wantError(c, jsapi.CodeStreamTooManyRequests, "too many requests")
		n.term.release()
		n.wantAck(a, `{"stream":"S","seq":1}`)
		n.wantAck(b, `{"stream":"S","seq":2}`)
		n.wantAck(n.publish("s.a", "", "x"), `{"stream":"S","seq":3}`) // the budget is free again
	})
}

func TestAnswersOfTheAPICountInTheBudget(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{Plan: plan.Config{Budget: 3 * eventOverhead}}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		var inboxes []string
		for range 3 {
			inboxes = append(inboxes, n.send("$JS.API.STREAM.PURGE.S", "", ""))
		}
		n.silent(inboxes[2], "it fits the budget")
		n.wantError(n.send("$JS.API.STREAM.PURGE.S", "", ""), jsapi.CodeStreamTooManyRequests, "")
		n.term.release()
		for _, inbox := range inboxes {
			n.answer(inbox)
		}
	})
}

// TestAPIAnswersOnce: one that timed out is not answered again when it is applied.
func TestAPIAnswersOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.wantAck(n.publish("s.a", "", "x"), `{"stream":"S","seq":1}`)
		for _, verb := range []string{
			"STREAM.MSG.DELETE.S", "STREAM.PURGE.S", "CONSUMER.DURABLE.CREATE.S.C", "CONSUMER.DELETE.S.C",
		} {
			n.term.hold()
			body := map[string]string{
				"STREAM.MSG.DELETE.S":         `{"seq":1}`,
				"CONSUMER.DURABLE.CREATE.S.C": `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`,
			}[verb]
			inbox := n.send("$JS.API."+verb, "", body)
			n.silent(inbox, "it is in flight")
			pass(plan.DefaultTimeout + 2*checkEvery)
			n.wantError(inbox, jsapi.CodeClusterNotAvail, "")
			n.term.release()
			n.answer(inbox)
		}
	})
}

func TestShutdownAnswersEverything(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", nil)
		pull := n.pull("C", `{"batch":1,"expires":60000000000}`)
		n.term.hold()
		inFlight := n.publish("s.a", "", "x")
		n.term.set(func() { n.term.lease = false })
		noLease := n.publish("s.a", "", "y")
		n.srv.Drain()
		n.endTerm()
		n.wantError(inFlight, jsapi.CodeClusterNotAvail, publish.TextUnknown)
		if got := n.answer(pull); !strings.HasPrefix(got.header, "NATS/1.0 409 Server Shutdown") {
			t.Fatalf("the waiting pull got %q", got.header)
		}
		n.srv.Close()
		n.wantError(noLease, jsapi.CodeClusterNotAvail, publish.TextUnknown)
		if got := n.hub.conn.subjects(); len(got) != 0 {
			t.Fatalf("still subscribed %v", got)
		}
	})
}

// TestKnownOutcomesAreToldAtTheEnd: what was applied is said so although the term is over.
func TestKnownOutcomesAreToldAtTheEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		inbox := n.publish("s.a", "", "x")
		p := n.term.take()
		if err := n.w.group.apply(p.Entry, n.term.number); err != nil {
			t.Fatal(err)
		}
		p.Done(nil)
		n.cancel() // whichever the engine sees first
		n.endTerm()
		n.wantAck(inbox, `{"stream":"S","seq":1}`)
	})
}

// TestRebuildKeepsOrder refuses the first of several envelopes: all are planned
// again in the order of arrival, and answered once each.
func TestRebuildKeepsOrder(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		var inboxes []string
		for i := range 6 { // four in flight, the others form
			inboxes = append(inboxes, n.publish("s.a", "", fmt.Sprint(i)))
		}
		if n.term.pending() != 4 {
			t.Fatalf("%d in flight, want 4", n.term.pending())
		}
		n.term.refuse(record.ErrRefused)
		for range 3 {
			n.term.commit() // no-ops, for the fence
		}
		n.term.release()
		for i, inbox := range inboxes {
			n.wantAck(inbox, fmt.Sprintf(`{"stream":"S","seq":%d}`, i+1))
			m := must[jsapi.MsgGetResponse](n, "STREAM.MSG.GET.S", fmt.Sprintf(`{"seq":%d}`, i+1)).Message
			if string(m.Data) != fmt.Sprint(i) {
				t.Fatalf("sequence %d holds %q", i+1, m.Data)
			}
		}
		if n.term.barriersAsked() != 1 {
			t.Fatalf("%d barriers, want 1", n.term.barriersAsked())
		}
	})
}

// TestNeverProposedIsCertain: what still forms when the term ends, or waits for a
// rebuild, was not stored and never will be.
func TestNeverProposedIsCertain(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{Plan: plan.Config{InFlight: 1}}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		inFlight := n.publish("s.a", "", "in flight")
		forming := n.publish("s.a", "", "forming")
		n.endTerm()
		n.wantError(inFlight, jsapi.CodeClusterNotAvail, publish.TextUnknown)
		n.wantError(forming, jsapi.CodeClusterNotAvail, publish.TextNotStored)

		n.lead().hold()
		refused := n.publish("s.a", "", "refused")
		n.term.set(func() { n.term.barriers = []error{record.ErrNotLeader} })
		goOn := n.stall() // the refusal and the next publish in one turn
		n.term.take().Done(record.ErrRefused)
		waiting := n.w.newInbox()
		n.hub.conn.inject(Msg{Subject: "s.a", Reply: waiting})
		goOn()
		n.endTerm()
		n.wantError(refused, jsapi.CodeClusterNotAvail, publish.TextNotStored)
		n.wantError(waiting, jsapi.CodeClusterNotAvail, publish.TextNotStored)
		n.lead()
		if st := n.state(); st.Msgs != 0 {
			t.Fatalf("%d messages are stored", st.Msgs)
		}
	})
}

// TestTrafficWhileTermsEnd: publishes and calls from many goroutines while terms
// begin and end and the server closes. What reached the node is answered once.
func TestTrafficWhileTermsEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", nil)
		var mu sync.Mutex
		reached := map[string]int{}
		var senders sync.WaitGroup
		for g := range 4 {
			senders.Go(func() {
				for i := range 300 {
					inbox := fmt.Sprintf("_INBOX.%d.%d", g, i)
					got := n.hub.conn.inject(Msg{Subject: "s.a", Reply: inbox, Data: []byte("x")})
					mu.Lock()
					reached[inbox] = got
					mu.Unlock()
					n.hub.conn.inject(Msg{Subject: "$JS.API.CONSUMER.INFO.S.C", Reply: inbox + ".api"})
					n.hub.conn.inject(Msg{Subject: "$JS.API.CONSUMER.MSG.NEXT.S.C", Reply: inbox + ".pull", Data: []byte(pullOne)})
					n.hub.conn.inject(Msg{Subject: "$JS.API.STREAM.INFO.none", Reply: inbox + ".none"})
					<-time.After(time.Millisecond)
				}
			})
		}
		for range 10 {
			<-time.After(20 * time.Millisecond)
			n.endTerm()
			<-time.After(time.Millisecond)
			n.lead()
		}
		<-time.After(20 * time.Millisecond)
		n.endTerm()
		n.srv.Close() // while they still send
		senders.Wait()
		pass(time.Minute)
		answered := 0
		for inbox, got := range reached {
			if replies := len(n.hub.link.to(inbox)); got > 1 || replies != got {
				t.Fatalf("%s reached %d subscriptions and got %d answers", inbox, got, replies)
			}
			answered += got
			for _, kind := range []string{".api", ".none"} {
				if replies := len(n.hub.link.to(inbox + kind)); replies > 1 {
					t.Fatalf("%s got %d answers", inbox+kind, replies)
				}
			}
		}
		if answered < 100 {
			t.Fatalf("only %d publishes reached a leader", answered)
		}
	})
}
