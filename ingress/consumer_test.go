package ingress

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

const pullOne = `{"batch":1,"expires":60000000000}`

func pullMany(n int) string { return fmt.Sprintf(`{"batch":%d,"expires":60000000000}`, n) }

// fill stores n messages on s.a.
func (n *node) fill(count int) {
	n.w.t.Helper()
	for i := range count {
		n.hub.conn.inject(Msg{Subject: "s.a", Data: []byte(fmt.Sprint(i + 1))})
	}
	wait()
}

func wantSeqs(t *testing.T, n *node, inbox string, want ...uint64) []sent {
	t.Helper()
	got := n.deliveries(inbox)
	if diff := cmp.Diff(want, n.seqs(got)); diff != "" {
		t.Fatalf("delivered to %s (-want +got):\n%s", inbox, diff)
	}
	return got
}

func TestDeliveryOnlyAfterApply(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", nil)
		pull := n.pull("C", pullOne)
		n.term.hold()
		n.publish("s.a", "NATS/1.0\r\nk:  v \r\n\r\n", "x")
		wantSeqs(t, n, pull)
		n.term.durable(0)
		wantSeqs(t, n, pull)
		n.term.release()
		got := wantSeqs(t, n, pull, 1)[0]
		if got.subject != "s.a" || got.header != "NATS/1.0\r\nk:  v \r\n\r\n" || got.body != "x" {
			t.Fatalf("delivered %+v, want it verbatim", got)
		}
	})
}

// TestWorkQueueAckIsOneEntry: the message and the consumer's row change together.
func TestWorkQueueAckIsOneEntry(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"retention": "workqueue"})
		n.consumer("C", nil)
		n.fill(2)
		pull := n.pull("C", pullMany(2))
		got := wantSeqs(t, n, pull, 1, 2)
		before := n.w.group.applied()
		n.ack(got[1].reply, "+ACK")
		entries := n.w.group.commandsOf(before)
		if len(entries) != 1 || !slices.Contains(entries[0], command.DeleteBatch) ||
			!slices.Contains(entries[0], command.ConsumerBatch) {
			t.Fatalf("the ack made the entries %v, want one with DeleteBatch and ConsumerBatch", entries)
		}
		if st := n.state(); st.Msgs != 1 || st.FirstSeq != 1 {
			t.Fatalf("state %+v, want message 1 alone", st)
		}
		if in := n.consumerInfo("C"); in.NumAckPending != 1 {
			t.Fatalf("%d pending, want 1", in.NumAckPending)
		}
	})
}

// TestDoubleAckIsHeld: until its envelope is applied, over refused ones, and so is
// the answer to a repeat of it.
func TestDoubleAckIsHeld(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"retention": "workqueue"})
		n.consumer("C", nil)
		n.fill(1)
		got := wantSeqs(t, n, n.pull("C", pullOne), 1)[0]
		n.term.hold()
		first := n.send(got.reply, "", "+ACK")
		again := n.send(got.reply, "", "+ACK")
		n.silent(first, "the ack is in flight")
		n.silent(again, "the ack that it repeats is in flight")
		for range 3 {
			n.term.refuse(record.ErrRefused)
			n.silent(first, "the envelope was refused")
			n.silent(again, "the envelope was refused")
		}
		n.term.release()
		n.wantAck(first, "")
		n.wantAck(again, "")
		if st := n.state(); st.Msgs != 0 {
			t.Fatalf("%d messages left after the ack", st.Msgs)
		}
		n.wantAck(n.send(got.reply, "", "+ACK"), "") // a repeat of an applied one: at once
	})
}

func TestPlainAckSurvivesARebuild(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", nil)
		n.fill(3)
		got := wantSeqs(t, n, n.pull("C", pullMany(3)), 1, 2, 3)
		n.term.hold()
		n.ack(got[0].reply, "")
		n.ack(got[1].reply, "")
		for n.term.pending() > 0 {
			n.term.refuse(record.ErrRefused)
			if n.w.group.applied() > 100 {
				break
			}
			if n.term.barriersAsked() >= 3 {
				n.term.release()
			}
		}
		if in := n.consumerInfo("C"); in.NumAckPending != 1 || in.AckFloor.Stream != 2 {
			t.Fatalf("pending %d, floor %d, want 1 and 2", in.NumAckPending, in.AckFloor.Stream)
		}
		n.endTerm()
		n.lead()
		if in := n.consumerInfo("C"); in.NumAckPending != 1 || in.AckFloor.Stream != 2 {
			t.Fatalf("next leader: pending %d, floor %d, want 1 and 2", in.NumAckPending, in.AckFloor.Stream)
		}
	})
}

// TestFailover: the next leader, on another node, goes on where this one was.
func TestFailover(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"retention": "workqueue"})
		n.consumer("C", m{"max_deliver": 5})
		n.fill(4)
		got := wantSeqs(t, n, n.pull("C", pullMany(3)), 1, 2, 3)
		n.wantAck(n.send(got[0].reply, "", "+ACK"), "") // confirmed
		n.ack(got[1].reply, "-NAK")
		again := wantSeqs(t, n, n.pull("C", pullOne), 2)[0]
		n.term.hold()
		n.ack(got[2].reply, "+ACK") // in flight at the end: lost
		n.endTerm()

		b := n.w.node("n2", Config{})
		b.lead()
		if in := b.consumerInfo("C"); in.NumAckPending != 2 || in.Delivered.Stream != 3 || in.NumPending != 1 {
			t.Fatalf("next leader: %+v", in)
		}
		pull := b.pull("C", pullMany(10))
		wantSeqs(t, b, pull, 4)
		pass(31 * time.Second)
		all := b.deliveries(pull)
		if diff := cmp.Diff([]uint64{4, 2, 3}, b.seqs(all)[:3]); diff != "" {
			t.Fatalf("after the ack wait (-want +got):\n%s", diff)
		}
		r, _ := jsapi.ParseAckReply(all[1].reply)
		if was, _ := jsapi.ParseAckReply(again.reply); r.Delivered != was.Delivered+1 {
			t.Fatalf("message 2 is delivered for the %dth time, the last leader did it %d times", r.Delivered, was.Delivered)
		}
		for _, d := range all {
			b.wantAck(b.send(d.reply, "", "+ACK"), "")
		}
		if st := b.state(); st.Msgs != 0 {
			t.Fatalf("%d messages left", st.Msgs)
		}
		pass(5 * time.Minute)
		if n := len(b.deliveries(pull)); n != len(all) {
			t.Fatalf("%d deliveries after everything was confirmed", n-len(all))
		}
	})
}

// TestAckAboveTheCursor: delivered by a leader that died before it recorded that.
func TestAckAboveTheCursor(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"retention": "workqueue"})
		n.consumer("C", nil)
		n.fill(3)
		n.term.hold()
		got := wantSeqs(t, n, n.pull("C", pullMany(2)), 1, 2)
		n.endTerm() // the record of the deliveries is lost
		n.lead()
		n.wantAck(n.send(got[1].reply, "", "+ACK"), "")
		if st := n.state(); st.Msgs != 2 {
			t.Fatalf("%d messages, want 2: the ack settles", st.Msgs)
		}
		wantSeqs(t, n, n.pull("C", pullMany(5)), 1, 3)
		if in := n.consumerInfo("C"); in.NumPending != 0 || in.NumAckPending != 2 {
			t.Fatalf("%+v", in)
		}
	})
}

// TestConsumerInFlight: a consumer whose creation is not applied delivers nothing
// and is in no answer; one whose removal is not applied still is.
func TestConsumerInFlight(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.fill(1)
		visible := func(want ...string) {
			t.Helper()
			names := must[jsapi.ConsumerNamesResponse](n, "CONSUMER.NAMES.S", nil).Consumers
			if !slices.Equal(names, want) {
				t.Fatalf("names %v, want %v", names, want)
			}
			if got := n.state().Consumers; got != len(want) {
				t.Fatalf("the stream shows %d consumers, want %d", got, len(want))
			}
			for _, name := range want {
				n.consumerInfo(name)
			}
		}
		create := `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`
		n.term.hold()
		made := n.send("$JS.API.CONSUMER.DURABLE.CREATE.S.C", "", create)
		same := n.send("$JS.API.CONSUMER.DURABLE.CREATE.S.C", "", create)
		n.silent(made, "it is in flight")
		n.silent(same, "what it rests on is in flight")
		visible()
		pull := n.pull("C", pullOne)
		n.wantError(n.send("$JS.API.CONSUMER.INFO.S.C", "", ""), jsapi.CodeConsumerNotFound, "")
		wantSeqs(t, n, pull)
		n.term.refuse(record.ErrRefused)
		visible()
		n.term.release()
		n.answer(made)
		n.answer(same)
		visible("C")
		pull = n.pull("C", pullOne)
		wantSeqs(t, n, pull, 1)

		n.term.hold()
		gone := n.send("$JS.API.CONSUMER.DELETE.S.C", "", "")
		twice := n.send("$JS.API.CONSUMER.DELETE.S.C", "", "")
		n.silent(gone, "it is in flight")
		n.silent(twice, "that there is no consumer rests on what is in flight")
		visible("C")
		n.term.refuse(record.ErrRefused)
		visible("C")
		n.term.release()
		n.wantError(twice, jsapi.CodeConsumerNotFound, "")
		if body := n.answer(gone).body; !strings.Contains(body, `"success":true`) {
			t.Fatalf("deleted: %s", body)
		}
		visible()
	})
}

// TestConsumerOpsAreRedoneAfterARebuild: an update, a pause and a removal that were
// planned before it must reach the store after it.
func TestConsumerOpsAreRedoneAfterARebuild(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", nil)
		n.consumer("D", nil)
		refuse := func(f func()) {
			t.Helper()
			n.term.hold()
			f()
			n.term.refuse(record.ErrRefused)
			n.term.release()
		}
		check := func(when string) {
			t.Helper()
			c := n.consumerInfo("C")
			if c.Config.AckWait != 7*time.Second || !c.Paused {
				t.Fatalf("%s: %+v", when, c.Config)
			}
			n.wantError(n.send("$JS.API.CONSUMER.INFO.S.D", "", ""), jsapi.CodeConsumerNotFound, "")
		}
		refuse(func() {
			n.send("$JS.API.CONSUMER.DURABLE.CREATE.S.C", "",
				`{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","ack_wait":7000000000}}`)
			until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
			n.send("$JS.API.CONSUMER.PAUSE.S.C", "", `{"pause_until":"`+until+`"}`)
			n.send("$JS.API.CONSUMER.DELETE.S.D", "", "")
		})
		check("this leader")
		n.endTerm()
		n.lead()
		check("the next leader")
	})
}

// TestCreateOfAPausedConsumerIsAdvised: JetStream tells after every create or update that the consumer is paused.
func TestCreateOfAPausedConsumerIsAdvised(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		check := func(step string, want int) {
			t.Helper()
			if got := len(n.hub.link.to(jsapi.SubjectConsumerPause + "S.C")); got != want {
				t.Errorf("%s: %d advisories, want %d", step, got, want)
			}
		}
		until := time.Now().Add(time.Hour).UTC()
		n.consumer("C", m{"pause_until": until})
		check("created", 1)
		n.consumer("C", m{"pause_until": until})
		check("again", 2)
		n.consumer("C", m{"description": "changed"})
		check("updated", 3)
		n.consumer("D", nil)
		n.consumer("D", m{"description": "changed"})
		check("another, not paused", 3)
	})
}

// TestGeneratedNameIsShownOnceGiven: the configuration of a consumer whose name was generated has none, until an
// update names it.
func TestGeneratedNameIsShownOnceGiven(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		made := must[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.S",
			m{"stream_name": "S", "config": m{"ack_policy": "explicit", "inactive_threshold": time.Hour}})
		name := made.Name
		if name == "" || made.Config.Name != "" {
			t.Fatalf("created as %q, configuration %q", name, made.Config.Name)
		}
		until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		n.send("$JS.API.CONSUMER.PAUSE.S."+name, "", `{"pause_until":"`+until+`"}`)
		if got := n.consumerInfo(name).Config.Name; got != "" {
			t.Errorf("paused: name %q", got)
		}
		updated := must[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.S."+name, m{
			"stream_name": "S", "config": m{"name": name, "ack_policy": "explicit", "inactive_threshold": 2 * time.Hour},
		})
		if updated.Config.Name != name {
			t.Errorf("updated: name %q, want %q", updated.Config.Name, name)
		}
		n.endTerm()
		n.lead()
		if got := n.consumerInfo(name).Config.Name; got != name {
			t.Errorf("the next leader: name %q, want %q", got, name)
		}
	})
}

// TestRecreateWhileARemovalIsInFlight makes a new consumer, not a success about
// the one that is going.
func TestRecreateWhileARemovalIsInFlight(t *testing.T) {
	t.Parallel()
	for _, refuse := range []bool{false, true} {
		t.Run(fmt.Sprintf("refused=%v", refuse), func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(nil)
				n.consumer("C", nil)
				n.fill(1)
				wantSeqs(t, n, n.pull("C", pullOne), 1)
				n.term.hold()
				gone := n.send("$JS.API.CONSUMER.DELETE.S.C", "", "")
				made := n.send("$JS.API.CONSUMER.DURABLE.CREATE.S.C", "",
					`{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`)
				if refuse {
					n.term.refuse(record.ErrRefused)
				}
				n.term.release()
				n.answer(gone)
				n.answer(made)
				for range 2 {
					if in := n.consumerInfo("C"); in.NumPending != 1 || in.NumAckPending != 0 {
						t.Fatalf("not a new consumer: %+v", in)
					}
					n.endTerm()
					n.lead()
				}
				wantSeqs(t, n, n.pull("C", pullOne), 1)
			})
		})
	}
}

// TestAckBeforeARemovalCounts: acked, then the consumer is deleted in the same
// envelope: the message is gone, and a double ack is answered.
func TestAckBeforeARemovalCounts(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"retention": "workqueue"})
		n.consumer("C", nil)
		n.fill(2)
		got := wantSeqs(t, n, n.pull("C", pullMany(2)), 1, 2)
		goOn := n.stall() // all in one turn of the engine
		n.hub.conn.inject(Msg{Subject: got[0].reply, Data: []byte("+ACK")})
		double := n.w.newInbox()
		n.hub.conn.inject(Msg{Subject: got[1].reply, Reply: double, Data: []byte("+ACK")})
		n.hub.conn.inject(Msg{Subject: "$JS.API.CONSUMER.DELETE.S.C", Reply: n.w.newInbox()})
		goOn()
		n.wantAck(double, "")
		if st := n.state(); st.Msgs != 0 || st.Consumers != 0 {
			t.Fatalf("state %+v, want no message and no consumer", st)
		}
	})
}

// TestPendingCountsAreExact creates a consumer while changes are in flight.
func TestPendingCountsAreExact(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.fill(5)
		n.term.hold()
		n.send("$JS.API.STREAM.MSG.DELETE.S", "", `{"seq":2}`)
		n.publish("s.b", "", "x")
		for name, more := range map[string]string{
			"all": "", "filtered": `,"filter_subject":"s.a"`,
			"from": `,"filter_subject":"s.*","deliver_policy":"by_start_sequence","opt_start_seq":2`,
		} {
			n.send("$JS.API.CONSUMER.DURABLE.CREATE.S."+name, "", fmt.Sprintf(
				`{"stream_name":"S","config":{"durable_name":%q,"ack_policy":"explicit"%s}}`, name, more))
		}
		n.term.release()
		for name, want := range map[string]uint64{"all": 5, "filtered": 4, "from": 4} {
			if got := n.consumerInfo(name).NumPending; got != want {
				t.Errorf("%s: num_pending %d, want %d", name, got, want)
			}
		}
	})
}

func TestPurgeReachesConsumersWhenTheyNeedIt(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", m{"max_ack_pending": 2})
		n.fill(5)
		wantSeqs(t, n, n.pull("C", pullMany(2)), 1, 2) // the window is full
		n.send("$JS.API.STREAM.PURGE.S", "", "")
		if in := n.consumerInfo("C"); in.NumPending != 0 || in.NumAckPending != 0 {
			t.Fatalf("after the purge: %+v", in)
		}
		n.fill(1)
		wantSeqs(t, n, n.pull("C", pullOne), 6)
	})
}

func TestNothingIsDeliveredWithoutALease(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", m{"ack_policy": "none", "ack_wait": 0})
		pull := n.pull("C", pullMany(2))
		n.term.hold()
		n.publish("s.a", "", "x")
		n.term.set(func() { n.term.lease = false })
		n.term.release()
		pass(time.Second)
		wantSeqs(t, n, pull)
		n.term.set(func() { n.term.lease = true })
		pass(2 * blockedWait)
		wantSeqs(t, n, pull, 1) // not booked as delivered meanwhile
	})
}

func TestAckWithoutALease(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", nil)
		n.fill(1)
		got := wantSeqs(t, n, n.pull("C", pullOne), 1)[0]
		n.term.set(func() { n.term.lease = false })
		inbox := n.send(got.reply, "", "+ACK")
		n.wantAck(inbox, "") // it was committed all the same
		n.term.set(func() { n.term.lease = true })
		if in := n.consumerInfo("C"); in.NumAckPending != 0 {
			t.Fatalf("%d pending after a confirmed ack", in.NumAckPending)
		}
	})
}
