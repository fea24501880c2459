package ingress

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// die makes a node a dead leader: it is still named as the leader of all groups, nobody
// hears of it, and nothing of it comes or goes.
func (n *node) die() {
	n.term.set(func() { n.term.lease = false })
	now := time.Now()
	n.w.meta.set(func() {
		n.w.meta.leader = n.name
		n.w.meta.leaders[1] = n.name
		n.w.meta.dead[0], n.w.meta.dead[1] = now, now
	})
}

// succeed makes n the leader of all groups after another one.
func (n *node) succeed(old *node) {
	n.w.meta.set(func() {
		clear(n.w.meta.dead)
		n.w.meta.leader = n.name
	})
	if old.term != nil {
		old.endTerm()
	}
	n.lead()
}

// heldCalls are requests that may be kept, with the groups' leader gone.
var heldCalls = map[string]string{
	"INFO": "", "STREAM.INFO.S": "", "STREAM.LIST": "", "STREAM.NAMES": "", "STREAM.INFO.none": "",
	"CONSUMER.INFO.S.C": "", "CONSUMER.LIST.S": "", "CONSUMER.NAMES.S": "",
	"STREAM.CREATE.S": createS, "STREAM.CREATE.N": `{"name":"N","subjects":["n"],"retention":"limits","storage":"file"}`,
	"CONSUMER.DURABLE.CREATE.S.D": `{"stream_name":"S","config":{"durable_name":"D","ack_policy":"explicit"}}`,
}

// TestDeadLeaderStillNamed: a request that comes while a dead node is still named as
// the leader is answered by the next one, once; what destroys data is not.
func TestDeadLeaderStillNamed(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n1 *node) {
		n1.stream(nil)
		n1.consumer("C", nil)
		n1.fill(2)
		n2, n3 := n1.w.node("n2", Config{}), n1.w.node("n3", Config{})
		n1.die()
		inboxes := map[string]string{}
		ask := func(call, body string) {
			inbox := n1.w.newInbox()
			inboxes[call] = inbox
			for _, n := range []*node{n2, n3} {
				n.hub.conn.inject(Msg{Subject: "$JS.API." + call, Reply: inbox, Data: []byte(body)})
			}
		}
		for call, body := range heldCalls {
			ask(call, body)
		}
		for _, call := range []string{"STREAM.PURGE.S", "STREAM.DELETE.none", "CONSUMER.DELETE.S.none"} {
			ask(call, "")
		}
		pass(2 * time.Second)
		for call, inbox := range inboxes {
			n2.silent(inbox, call+" has no leader yet")
		}
		n2.succeed(n1)
		pass(10 * time.Second)
		for call, inbox := range inboxes {
			if _, held := heldCalls[call]; !held {
				n2.silent(inbox, call+" must not be done later")
				n3.silent(inbox, call+" must not be done later")
				continue
			}
			body := n2.answer(inbox).body
			if strings.Contains(body, `"error"`) != (call == "STREAM.INFO.none") {
				t.Errorf("%s: %s", call, body)
			}
			n3.silent(inbox, "n2 leads")
		}
		if st := n2.state(); st.Msgs != 2 || st.Consumers != 2 {
			t.Fatalf("state %+v", st)
		}
	})
}

// TestSpareIsDroppedWhenTheLeaderLives: at the edge of sureAfter.
func TestSpareIsDroppedWhenTheLeaderLives(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		heard time.Duration // after the request, of a leader that dies then
		want  int           // answers of the next one
	}{
		"not since":      {0, 1},
		"too soon after": {sureAfter - time.Millisecond, 1},
		"long after":     {sureAfter, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n1 *node) {
				n1.stream(nil)
				n2 := n1.w.node("n2", Config{})
				inbox := n2.send("$JS.API.STREAM.INFO.S", "", "")
				if got := n2.srv.Stats().Held; got != 1 {
					t.Fatalf("%d kept", got)
				}
				pass(tc.heard)
				n1.die()
				pass(time.Second)
				if got := n2.srv.Stats().Held; got != tc.want {
					t.Fatalf("%d kept after a second, want %d", got, tc.want)
				}
				n2.succeed(n1)
				pass(time.Second)
				if got := len(n2.hub.link.to(inbox)); got != tc.want {
					t.Fatalf("%d answers, want %d", got, tc.want)
				}
			})
		})
	}
}

// TestOneAnswerOverATransfer: a request that comes while a leader can not answer any
// more and its successor is not there yet is answered by one of them.
func TestOneAnswerOverATransfer(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n1 *node) {
		n1.stream(nil)
		n2, n3 := n1.w.node("n2", Config{}), n1.w.node("n3", Config{})
		n1.term.set(func() { n1.term.lease = false }) // void: the transfer has begun
		inbox := n1.w.newInbox()
		for _, n := range []*node{n1, n2, n3} {
			n.hub.conn.inject(Msg{Subject: "$JS.API.STREAM.INFO.S", Reply: inbox})
		}
		pass(10 * time.Millisecond)
		n2.succeed(n1)
		pass(10 * time.Second)
		n2.answer(inbox)
		n1.silent(inbox, "it does not lead any more")
		n3.silent(inbox, "it never led")
	})
}

// TestOneAnswerWhenTheTransferFails: the old leader goes on, and it alone answers.
func TestOneAnswerWhenTheTransferFails(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n1 *node) {
		n1.stream(nil)
		n2 := n1.w.node("n2", Config{})
		n1.term.set(func() { n1.term.lease = false })
		inbox := n1.w.newInbox()
		for _, n := range []*node{n1, n2} {
			n.hub.conn.inject(Msg{Subject: "$JS.API.STREAM.INFO.S", Reply: inbox})
		}
		pass(time.Second)
		n1.term.set(func() { n1.term.lease = true })
		pass(5 * time.Second)
		n1.answer(inbox)
		n2.silent(inbox, "n1 leads")
	})
}

// TestOneAnswerOfAPausedLeader: it reads the request when it runs again, and does not
// lead then; the successor has answered.
func TestOneAnswerOfAPausedLeader(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n1 *node) {
		n1.stream(nil)
		n2 := n1.w.node("n2", Config{})
		n1.die() // as the others see it
		inbox := n2.send("$JS.API.STREAM.INFO.S", "", "")
		pass(2 * time.Second)
		n1.term.set(func() { n1.term.ended = true }) // elsewhere another one leads
		n1.hub.conn.inject(Msg{Subject: "$JS.API.STREAM.INFO.S", Reply: inbox})
		n2.succeed(n1)
		pass(10 * time.Second)
		n2.answer(inbox)
		n1.silent(inbox, "n2 leads")
	})
}

// TestLeaderThatLostACallLongAgoSaysSo: nobody else has it any more.
func TestLeaderThatLostACallLongAgoSaysSo(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n1 *node) {
		n1.stream(nil)
		n2 := n1.w.node("n2", Config{})
		n1.term.set(func() { n1.term.lease = false })
		inbox := n1.w.newInbox()
		for _, n := range []*node{n1, n2} {
			n.hub.conn.inject(Msg{Subject: "$JS.API.STREAM.INFO.S", Reply: inbox})
		}
		pass(3 * sureAfter) // n2 hears of n1 all the while
		n2.succeed(n1)
		pass(10 * time.Second)
		n1.wantError(inbox, jsapi.CodeClusterNotAvail, "")
		n2.silent(inbox, "the leader had it")
	})
}

// TestCreateInFlightAtTheEndOfATerm: young, the successor answers it; old, the term does.
func TestCreateInFlightAtTheEndOfATerm(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		age       time.Duration
		successor bool
	}{"young": {2*sureAfter - time.Millisecond, true}, "old": {2 * sureAfter, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n1 *node) {
				n1.stream(nil)
				n2 := n1.w.node("n2", Config{})
				n1.term.hold()
				if tc.successor {
					n1.w.meta.set(func() { n1.w.meta.dead[1] = time.Now() })
				}
				inbox := n1.w.newInbox()
				for _, n := range []*node{n1, n2} {
					n.hub.conn.inject(Msg{
						Subject: "$JS.API.CONSUMER.DURABLE.CREATE.S.D", Reply: inbox,
						Data: []byte(heldCalls["CONSUMER.DURABLE.CREATE.S.D"]),
					})
				}
				pass(tc.age)
				n2.succeed(n1)
				pass(10 * time.Second)
				if !tc.successor {
					n1.wantError(inbox, jsapi.CodeClusterNotAvail, "")
					n2.silent(inbox, "n1 has answered")
					return
				}
				n1.silent(inbox, "n2 has it")
				if body := n2.answer(inbox).body; strings.Contains(body, `"error"`) {
					t.Fatalf("answer %s", body)
				}
			})
		})
	}
}

// TestSpareCreateBehindADelete: what a delete removed does not come back.
func TestSpareCreateBehindADelete(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ create, destroy string }{
		"consumer": {"CONSUMER.DURABLE.CREATE.S.D", "CONSUMER.DELETE.S.D"},
		"stream":   {"STREAM.CREATE.N", "STREAM.DELETE.N"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n1 *node) {
				n1.stream(nil)
				n2 := n1.w.node("n2", Config{})
				for _, call := range []string{tc.create, tc.destroy} {
					inbox := n1.w.newInbox()
					for _, n := range []*node{n1, n2} {
						n.hub.conn.inject(Msg{Subject: "$JS.API." + call, Reply: inbox, Data: []byte(heldCalls[call])})
						wait()
					}
					if body := n1.answer(inbox).body; strings.Contains(body, `"error"`) {
						t.Fatalf("%s: %s", call, body)
					}
				}
				n1.die()
				pass(time.Second)
				n2.succeed(n1)
				pass(5 * time.Second)
				n2.wantError(n2.send("$JS.API.CONSUMER.INFO.S.D", "", ""), jsapi.CodeConsumerNotFound, "")
				n2.wantError(n2.send("$JS.API.STREAM.INFO.N", "", ""), jsapi.CodeStreamNotFound, "")
			})
		})
	}
}

// TestSparesMakeRoom: requests without a leader come first, and of the spares the
// oldest goes.
func TestSparesMakeRoom(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n1 *node) {
		n1.stream(nil)
		n2 := n1.w.node("n2", Config{HoldMax: 3})
		n1.die()
		var spares []string
		for range 4 {
			spares = append(spares, n2.send("$JS.API.STREAM.INFO.S", "", ""))
		}
		n1.w.meta.set(func() { delete(n1.w.meta.leaders, 1) })
		alone := n2.send("$JS.API.STREAM.INFO.S", "", "")
		if got := n2.srv.Stats().Held; got != 3 {
			t.Fatalf("%d kept, want the edge 3", got)
		}
		n2.succeed(n1)
		pass(time.Second)
		n2.answer(alone)
		for i, inbox := range spares {
			if got := len(n2.hub.link.to(inbox)); got != map[bool]int{true: 1}[i >= 2] {
				t.Fatalf("spare %d: %d answers", i, got)
			}
		}
	})
}

// TestManySparesOfALivingLeader: they go by themselves, and do not pile up.
func TestManySparesOfALivingLeader(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n1 *node) {
		n1.stream(nil)
		n2 := n1.w.node("n2", Config{})
		for i := range 3 * DefaultHoldMax {
			n2.hub.conn.inject(Msg{Subject: "$JS.API.STREAM.INFO.S", Reply: fmt.Sprint("_INBOX.many.", i)})
		}
		if got := n2.srv.Stats().Held; got != DefaultHoldMax {
			t.Fatalf("%d kept, want %d", got, DefaultHoldMax)
		}
		pass(sureAfter + 2*retryEvery)
		if got := n2.srv.Stats().Held; got != 0 {
			t.Fatalf("%d kept of a leader that lives", got)
		}
	})
}
