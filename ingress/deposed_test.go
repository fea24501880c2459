package ingress

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/ingress/publish"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// pair is a leader that was deposed and does not know it, and the one that leads: both have the subscriptions of
// the group, so what clients send can reach both. Its lease is over; what it proposes stays without an outcome, as
// the majority follows the other one.
type pair struct {
	w        *world
	old, now *node
}

// inPair runs a test with a stream S and its consumer C; prepare does what the old leader did while it led.
func inPair(t *testing.T, prepare func(old *node), f func(t *testing.T, p *pair)) {
	t.Helper()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", nil)
		prepare(n)
		now := n.w.node("n2", Config{})
		n.term.hold()
		n.term.set(func() { n.term.lease = false })
		now.lead()
		p := &pair{w: n.w, old: n, now: now}
		p.w.meta.set(func() { p.w.meta.leader = "n2" })
		f(t, p)
	})
}

// send injects the same message into both hubs; it must reach one subscription in each.
func (p *pair) send(subject, header, body string) (inbox string) {
	p.w.t.Helper()
	inbox = p.w.newInbox()
	for _, n := range []*node{p.old, p.now} {
		if got := n.hub.conn.inject(Msg{Subject: subject, Reply: inbox, Header: []byte(header), Data: []byte(body)}); got != 1 {
			p.w.t.Fatalf("%s reached %d subscriptions of %s, want 1", subject, got, n.name)
		}
	}
	wait()
	return inbox
}

// learn ends the term of the old leader: its proposals were cut off, none is in the log.
func (p *pair) learn() {
	var lost []*record.Proposal
	for proposal := p.old.term.take(); proposal != nil; proposal = p.old.term.take() {
		lost = append(lost, proposal)
	}
	p.old.term.set(func() { p.old.term.ended = true })
	p.old.cancel()
	for _, proposal := range lost {
		proposal.Done(record.ErrUnknownOutcome)
	}
	p.old.endTerm()
	p.w.meta.set(func() { p.w.meta.leaders[1] = p.now.name })
	pass(time.Minute)
}

// pubAcks counts what confirms a publish, from both.
func (p *pair) pubAcks(inbox string) (count int) {
	for _, s := range slices.Concat(p.old.hub.link.to(inbox), p.now.hub.link.to(inbox)) {
		if !strings.Contains(s.body, `"error"`) {
			count++
		}
	}
	return count
}

// A publish that reaches both is stored once and acknowledged by the one that leads. The old one says that it does
// not know, after its time and no earlier.
func TestPublishReachesADeposedLeaderToo(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{
		"quorum": "", "leader": withAck("leader"), "with an id": header("Nats-Msg-Id", "once"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inPair(t, func(*node) {}, func(t *testing.T, p *pair) {
				inbox := p.send("s.a", header, "x")
				if got := p.now.answer(inbox).body; !strings.Contains(got, `{"stream":"S","seq":1}`) {
					t.Fatalf("the leader answers %q", got)
				}
				p.old.silent(inbox, "its lease is over")
				if got := p.old.term.pending(); got != 0 {
					t.Fatalf("the old leader planned it: %d proposals", got)
				}
				pass(plan.DefaultTimeout - time.Millisecond)
				p.old.silent(inbox, "the PubAck of the leader comes first")
				p.learn()
				p.old.wantError(inbox, jsapi.CodeClusterNotAvail, publish.TextUnknown)
				if got := p.pubAcks(inbox); got != 1 {
					t.Fatalf("%d PubAcks, want 1", got)
				}
				if st := p.now.state(); st.Msgs != 1 || st.LastSeq != 1 {
					t.Fatalf("%+v, want one message", st)
				}
			})
		})
	}
}

// A publish that the old leader had in flight is sent again to both: one PubAck, one message.
func TestPublishInFlightAtADeposedLeader(t *testing.T) {
	t.Parallel()
	var first string
	id := header("Nats-Msg-Id", "once")
	inPair(t, func(old *node) {
		old.term.hold()
		first = old.publish("s.a", id, "x")
	}, func(t *testing.T, p *pair) {
		again := p.send("s.a", id, "x")
		p.now.wantAck(again, `{"stream":"S","seq":1}`)
		p.old.silent(again, "its lease is over")
		p.learn()
		p.old.wantError(first, jsapi.CodeClusterNotAvail, publish.TextUnknown)
		p.now.silent(first, "it never got it")
		if a, b := p.pubAcks(first), p.pubAcks(again); a != 0 || b != 1 {
			t.Fatalf("%d PubAcks of the first, %d of the second; want 0 and 1", a, b)
		}
		if st := p.now.state(); st.Msgs != 1 {
			t.Fatalf("%+v, want one message", st)
		}
	})
}

// A pull that reaches both is served by the one that leads, each message once.
func TestPullReachesADeposedLeaderToo(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"served at once": false, "served by what comes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inPair(t, func(old *node) {
				if !waits {
					old.fill(2)
				}
			}, func(t *testing.T, p *pair) {
				inbox := p.send("$JS.API.CONSUMER.MSG.NEXT.S.C", "", `{"batch":2,"expires":60000000000}`)
				if waits {
					p.send("s.a", "", "1")
					p.send("s.a", "", "2")
				}
				if got := p.now.seqs(p.now.deliveries(inbox)); !slices.Equal(got, []uint64{1, 2}) {
					t.Fatalf("the leader delivered %v, want 1 and 2", got)
				}
				p.learn()
				if got := p.old.deliveries(inbox); len(got) != 0 {
					t.Fatalf("the old leader delivered %+v", got)
				}
				if info := p.now.consumerInfo("C"); info.NumAckPending != 2 || info.Delivered.Consumer < 2 {
					t.Fatalf("%+v, want two messages out", info)
				}
			})
		})
	}
}

// An ack of what the old leader delivered is confirmed by the one that leads, once. One that reaches the old leader
// alone is not confirmed, and is worth nothing: the message is delivered again.
func TestAckReachesADeposedLeaderToo(t *testing.T) {
	t.Parallel()
	var replies []string
	inPair(t, func(old *node) {
		old.fill(2)
		for _, d := range old.deliveries(old.pull("C", `{"batch":2,"expires":1000000000}`)) {
			replies = append(replies, d.reply)
		}
	}, func(t *testing.T, p *pair) {
		if len(replies) != 2 {
			t.Fatalf("%d deliveries, want 2", len(replies))
		}
		both := p.send(replies[0], "", "+ACK")
		p.now.answer(both)
		p.old.silent(both, "nothing of it is applied")
		alone := p.old.send(replies[1], "", "+ACK")
		p.old.silent(alone, "nothing of it is applied")
		pass(time.Minute) // the time to ack is over
		p.old.silent(alone, "nothing of it is applied")
		pull := p.send("$JS.API.CONSUMER.MSG.NEXT.S.C", "", `{"batch":2,"expires":1000000000}`)
		got := p.now.deliveries(pull)
		if !slices.Equal(p.now.seqs(got), []uint64{2}) || !strings.HasPrefix(got[0].reply, "$JS.ACK.S.C.2.2.") {
			t.Fatalf("delivered %+v, want the second message for the second time", got)
		}
		p.learn()
		if confirmed := len(p.old.hub.link.to(both)) + len(p.old.hub.link.to(alone)); confirmed != 0 {
			t.Fatalf("the old leader confirmed %d acks", confirmed)
		}
		if old := p.old.deliveries(pull); len(old) != 0 {
			t.Fatalf("the old leader delivered %+v", old)
		}
		if info := p.now.consumerInfo("C"); info.AckFloor.Stream != 1 || info.NumAckPending != 1 {
			t.Fatalf("%+v, want the first message settled and the second out", info)
		}
	})
}

// Questions that reach both are answered by the one that leads.
func TestReadReachesADeposedLeaderToo(t *testing.T) {
	t.Parallel()
	inPair(t, func(old *node) { old.fill(1) }, func(t *testing.T, p *pair) {
		p.now.wantAck(p.now.publish("s.a", "", "newer"), `{"stream":"S","seq":2}`)
		for _, call := range []string{"STREAM.INFO.S", "CONSUMER.INFO.S.C", "CONSUMER.NAMES.S", "STREAM.MSG.GET.S"} {
			body := ""
			if call == "STREAM.MSG.GET.S" {
				body = `{"last_by_subj":"s.a"}`
			}
			inbox := p.send("$JS.API."+call, "", body)
			p.now.answer(inbox)
			pass(time.Minute)
			p.old.silent(inbox, "its lease is over")
		}
	})
}
