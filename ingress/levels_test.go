package ingress

import (
	"strings"
	"testing"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

func wantLevel(t *testing.T, got sent, level, body string) {
	t.Helper()
	if got.body != body || got.header != withAck(level) {
		t.Fatalf("answered %q with header %q, want %q with %s", got.body, got.header, body, level)
	}
}

func TestLeaderAck(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		a := n.publish("s.a", withAck("leader"), "x")
		n.silent(a, "the leader has not fsynced it")
		n.term.durable(0)
		wantLevel(t, n.answer(a), "leader", `{"stream":"S","seq":1}`)

		b := n.publish("s.a", withAck("leader"), "y")
		n.term.set(func() { n.term.lease = false })
		n.term.durable(1)
		n.silent(b, "the lease is not valid")
		n.term.set(func() { n.term.lease = true })
		n.term.release()
		n.wantAck(b, `{"stream":"S","seq":2}`) // what was reached is said
		wantLevel(t, n.answer(a), "leader", `{"stream":"S","seq":1}`)
	})
}

// TestLeaderAckAndRebuild: the message is planned again and stored, with no second
// answer; one behind a refused envelope is not acked at all before it is.
func TestLeaderAckAndRebuild(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		a := n.publish("s.a", withAck("leader"), "a")
		b := n.publish("s.a", withAck("leader"), "b")
		n.term.durable(1)
		n.silent(b, "the envelope before it is not on the disk")
		n.term.durable(0)
		wantLevel(t, n.answer(a), "leader", `{"stream":"S","seq":1}`)
		wantLevel(t, n.answer(b), "leader", `{"stream":"S","seq":2}`)
		n.term.refuse(record.ErrStalePlan)
		n.term.refuse(record.ErrStalePlan)
		n.term.release()
		n.answer(a)
		n.answer(b)
		if st := n.state(); st.Msgs != 2 {
			t.Fatalf("%d messages, a leader-acked one is lost", st.Msgs)
		}

		n.term.hold()
		c := n.publish("s.a", withAck("leader"), "c")
		d := n.publish("s.a", withAck("leader"), "d")
		n.term.refuse(record.ErrRefused)
		n.term.durable(0) // of d
		n.silent(d, "it is a no-op, whatever the disk says")
		n.term.release()
		n.answer(c)
		n.answer(d)
		if st := n.state(); st.Msgs != 4 {
			t.Fatalf("%d messages, want 4", st.Msgs)
		}
	})
}

func TestNoneAck(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		a := n.publish("s.a", withAck("none"), "x")
		wantLevel(t, n.answer(a), "none", `{"stream":"S","seq":0}`)
		n.term.refuse(record.ErrRefused)
		n.term.release()
		n.answer(a)
		if st := n.state(); st.Msgs != 1 {
			t.Fatalf("%d messages, want 1", st.Msgs)
		}
	})
}

func TestLevelsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		floor    jsapi.AckLevel
		settings m
		header   string
		text     string // "" = accepted
	}{
		"unknown":                 {0, nil, withAck("fast"), "quorum, leader, none"},
		"server floor":            {jsapi.LevelLeader, nil, withAck("none"), `"none" is weaker than the "leader"`},
		"at the server floor":     {jsapi.LevelLeader, nil, withAck("leader"), ""},
		"stream floor":            {0, m{"metadata": m{"holdfast.min_ack": "quorum"}}, withAck("leader"), `weaker than the "quorum"`},
		"at the stream floor":     {0, m{"metadata": m{"holdfast.min_ack": "leader"}}, withAck("leader"), ""},
		"default of the stream":   {0, m{"metadata": m{"holdfast.ack": "none"}}, "", ""},
		"expected sequence":       {0, nil, header("Holdfast-Ack", "leader", "Nats-Expected-Last-Sequence", "0"), `weaker than the "quorum"`},
		"roll-up":                 {0, m{"allow_rollup_hdrs": true}, withAck("leader"), `weaker than the "quorum"`},
		"roll-up by quorum":       {0, m{"allow_rollup_hdrs": true}, withAck("quorum"), ""},
		"expected, level missing": {0, m{"metadata": m{"holdfast.ack": "none"}}, header("Nats-Expected-Last-Sequence", "0"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{MinAck: tc.floor}, func(t *testing.T, n *node) {
				n.stream(tc.settings)
				inbox := n.publish("s.a", tc.header, "x")
				if tc.text != "" {
					n.wantError(inbox, jsapi.CodeBadRequest, tc.text)
					if body := n.answer(inbox).body; !strings.HasSuffix(body, `,"stream":"S","seq":0}`) {
						t.Fatalf("%q is not shaped like a PubAck", body)
					}
				} else if body := n.answer(inbox).body; strings.Contains(body, "error") {
					t.Fatalf("answered %q", body)
				}
				want := uint64(1)
				if tc.text != "" {
					want = 0
				}
				if st := n.state(); st.Msgs != want {
					t.Fatalf("%d messages, want %d", st.Msgs, want)
				}
			})
		})
	}
}

// TestRefusalsRestOnAppliedState: a verdict on what is in flight waits for it.
func TestRefusalsRestOnAppliedState(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		settings m
		first    string
		second   string
		code     jsapi.ErrCode // 0: a duplicate
	}{
		"duplicate":      {nil, header("Nats-Msg-Id", "1"), header("Nats-Msg-Id", "1"), 0},
		"last sequence":  {nil, "", header("Nats-Expected-Last-Sequence", "0"), jsapi.CodeStreamWrongLastSequence},
		"of the subject": {nil, "", header("Nats-Expected-Last-Subject-Sequence", "0"), jsapi.CodeStreamWrongLastSequence},
		"last id":        {nil, header("Nats-Msg-Id", "1"), header("Nats-Expected-Last-Msg-Id", "2"), jsapi.CodeStreamWrongLastMsgID},
		"limit":          {m{"discard": "new", "max_msgs": 1}, "", "", jsapi.CodeStreamStoreFailed},
	} {
		for _, lost := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, Config{}, func(t *testing.T, n *node) {
					n.stream(tc.settings)
					n.term.hold()
					a := n.publish("s.a", tc.first, "x")
					b := n.publish("s.a", tc.second, "x")
					n.silent(b, "what it rests on is in flight")
					if lost { // the verdict is lost with the envelope; both are planned again
						n.term.refuse(record.ErrRefused)
						n.silent(b, "what it rests on is planned again")
					}
					n.term.release()
					n.wantAck(a, `{"stream":"S","seq":1}`)
					if tc.code != 0 {
						n.wantError(b, tc.code, "")
					} else {
						n.wantAck(b, `{"stream":"S","seq":1,"duplicate": true}`)
					}
				})
			})
		}
	}
}

// TestVerdictsAreRedone: the first of two is refused for good by a new state, so
// the second is stored: a duplicate of nothing.
func TestVerdictsAreRedone(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		a := n.publish("s.a", header("Nats-Msg-Id", "1"), "x")
		b := n.publish("s.a", header("Nats-Msg-Id", "1"), "x")
		n.endTerm() // the envelope is lost
		n.wantError(a, jsapi.CodeClusterNotAvail, "outcome unknown")
		n.wantError(b, jsapi.CodeClusterNotAvail, "outcome unknown")
		n.lead()
		n.wantAck(n.publish("s.a", header("Nats-Msg-Id", "1"), "x"), `{"stream":"S","seq":1}`)
	})
}

func TestPublishWithoutReply(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		n.hub.conn.inject(Msg{Subject: "s.a", Data: []byte("x")})
		wait()
		pass(plan.DefaultTimeout + 2*checkEvery)
		n.term.release()
		if st := n.state(); st.Msgs != 1 {
			t.Fatalf("%d messages, want 1", st.Msgs)
		}
		if got := n.hub.link.to(""); len(got) != 0 {
			t.Fatalf("sent %v to nobody", got)
		}
	})
}
