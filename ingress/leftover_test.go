package ingress

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// census counts every row of the state by what it is of. "dead" are rows of messages that
// are gone, "other" those that no reader finds: of streams and consumers that are gone, of
// ids without a time.
func (g *fakeGroup) census(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{"other": 0}
	count := func(what string, n int) {
		out[what] += n
		out["other"] -= n
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	alive := func(what string, is bool) {
		if !is {
			what = "dead " + what
		}
		count(what, 1)
	}
	count("applied", 1)
	messages := map[record.StreamID]map[uint64]bool{}
	check(g.store.Streams(func(r storage.StreamRow) bool {
		count("stream", 2)
		known, subjects := map[uint64]bool{}, map[string]bool{}
		messages[r.ID] = known
		check(g.store.Scan(r.ID, 0, func(seq uint64, b []byte) bool {
			subject, err := record.MessageSubject(b)
			check(err)
			known[seq], subjects[string(subject)] = seq >= r.State.FirstSeq, true
			alive("message", known[seq])
			return true
		}))
		check(g.store.SubjectRows(r.ID, "", 0, math.MaxUint64, func(_ string, seq uint64) bool {
			alive("subject row", known[seq])
			return true
		}))
		check(g.store.Subjects(r.ID, "", "", func(subject string, _ record.SubjectStat) bool {
			alive("subject", subjects[subject])
			return true
		}))
		check(g.store.DedupUntil(r.ID, 0, math.MaxInt64, func(storage.DedupRow) bool {
			count("id", 2)
			return true
		}))
		return true
	}))
	check(g.store.AllConsumers(func(r storage.ConsumerRow) bool {
		count("consumer", 2)
		check(g.store.Pendings(r.Stream, r.ID, 0, func(p record.Pending) bool {
			alive("pending", messages[r.Stream][p.Seq])
			return true
		}))
		return true
	}))
	check(g.store.Sweeps(func(storage.SweepRow) bool {
		count("sweep", 1)
		return true
	}))
	check(g.store.Due(0, func(storage.DueRow) bool {
		count("due", 1)
		return true
	}))
	sum, err := g.store.StateHash(t.Context())
	check(err)
	out["other"] += int(sum.Rows)
	return out
}

// call sends an API call and does not wait for its answer.
func (n *node) call(verb, body string) { n.send(jsapi.DefaultPrefix+"."+verb, "", body) }

// use leaves rows of all kinds behind consumers: pending ones, acked ones in any order,
// those that were delivered as often as they may.
func (n *node) use() {
	n.w.t.Helper()
	n.consumer("C", m{"max_ack_pending": 5000, "max_deliver": 2, "ack_wait": time.Second})
	n.consumer("A", m{"ack_policy": "all", "filter_subject": "s.b"})
	for range 3 {
		for i, d := range n.deliveries(n.pull("C", pullMany(400))) {
			if how := []string{"+ACK", "-NAK", "+TERM", ""}[i%4]; how != "" {
				n.ack(d.reply, how)
			}
		}
		if got := n.deliveries(n.pull("A", pullMany(100))); len(got) > 50 {
			n.ack(got[50].reply, "+ACK")
		}
		pass(2 * time.Second)
	}
}

// TestNothingIsLeft of messages, consumers and streams that are gone, whatever made them
// go, whoever leads meanwhile: all rows of the state are looked at.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	const total = 2*sweepStep + 100
	call := func(verb, body string) func(n *node) { return func(n *node) { n.call(verb, body) } }
	none := func(*node) {}
	// consumers and messages are how many are left.
	for name, tc := range map[string]struct {
		settings            m
		act                 func(n *node)
		consumers, messages int
	}{
		"purge":                {act: call("STREAM.PURGE.S", ""), consumers: 2},
		"purge filter":         {act: call("STREAM.PURGE.S", `{"filter":"s.a"}`), consumers: 2, messages: total / 2},
		"purge wildcard":       {act: call("STREAM.PURGE.S", `{"filter":"s.*"}`), consumers: 2},
		"purge keep":           {act: call("STREAM.PURGE.S", `{"keep":3}`), consumers: 2, messages: 3},
		"purge up to":          {act: call("STREAM.PURGE.S", fmt.Sprintf(`{"seq":%d}`, total)), consumers: 2, messages: 1},
		"max_msgs_per_subject": {settings: m{"max_msgs_per_subject": 5}, act: none, consumers: 2, messages: 10},
		"max_msgs":             {settings: m{"max_msgs": 5}, act: none, consumers: 2, messages: 5},
		"max_age":              {settings: m{"max_age": 2 * time.Minute}, act: none, consumers: 2},
		"consumer":             {act: call("CONSUMER.DELETE.S.C", ""), consumers: 1, messages: total},
		"stream":               {act: call("STREAM.DELETE.S", "")},
		"purge, and a subject that is empty before the sweep comes to it": {act: func(n *node) {
			n.call("STREAM.PURGE.S", "")
			n.publish("s.b", "", "x")
			n.call("STREAM.MSG.DELETE.S", fmt.Sprintf(`{"seq":%d}`, total+1))
		}, consumers: 2},
		"purge after purge": {act: func(n *node) {
			n.call("STREAM.PURGE.S", "")
			n.publish("s.a", "", "x")
			n.call("STREAM.PURGE.S", "")
		}, consumers: 2},
		"roll-up": {
			act:       func(n *node) { n.publish("s.a", header("Nats-Rollup", "all"), "r") },
			consumers: 2, messages: 1,
		},
		"roll-up of a subject": {
			act:       func(n *node) { n.publish("s.a", header("Nats-Rollup", "sub"), "r") },
			consumers: 2, messages: total/2 + 1,
		},
		"lowered limits": {act: call("STREAM.UPDATE.S", `{"name":"S","subjects":["s.>"],"retention":"limits",`+
			`"storage":"file","num_replicas":1,"max_msgs_per_subject":2}`), consumers: 2, messages: 4},
		"messages one by one": {act: func(n *node) {
			for seq := range 300 {
				n.call("STREAM.MSG.DELETE.S", fmt.Sprintf(`{"seq":%d}`, seq+1))
			}
		}, consumers: 2, messages: total - 300},
		"consumer of the same name": {act: func(n *node) {
			n.call("CONSUMER.DELETE.S.C", "")
			n.call("CONSUMER.DURABLE.CREATE.S.C", `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`)
		}, consumers: 2, messages: total},
		"stream while it is swept": {act: func(n *node) {
			n.call("STREAM.PURGE.S", "")
			n.call("STREAM.DELETE.S", "")
		}},
	} {
		for _, steps := range []int{0, 1, 3} {
			t.Run(fmt.Sprintf("%s steps=%d", name, steps), func(t *testing.T) {
				t.Parallel()
				inWorld(t, Config{}, func(t *testing.T, n *node) {
					settings := m{"allow_rollup_hdrs": true}
					maps.Copy(settings, tc.settings)
					n.stream(settings)
					for i := range total {
						n.hub.conn.inject(Msg{
							Subject: []string{"s.a", "s.b"}[i%2], Header: []byte(header("Nats-Msg-Id", fmt.Sprint(i))),
						})
					}
					wait()
					n.use()
					if had := n.w.group.census(t); had["pending"] == 0 || had["id"] == 0 {
						t.Fatalf("rows %v", had)
					}
					n.term.hold()
					tc.act(n)
					for range steps {
						n.term.commit()
					}
					if steps > 0 { // the term ends in the middle
						n.endTerm()
						n.lead()
						n.call("STREAM.INFO.S", "")
					} else {
						n.term.release()
					}
					pass(20 * time.Minute)
					got := n.w.group.census(t)
					consumers, messages := tc.consumers, tc.messages
					if steps > 0 { // what was not committed may not be done
						consumers, messages = got["consumer"]/2, got["message"]
					}
					want := map[string]int{
						"applied": 1, "stream": 2 * min(1, consumers), "message": messages, "subject row": messages,
						"subject": got["subject"], "consumer": 2 * consumers, "pending": got["pending"],
					}
					maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
					maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("rows (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// TestConsumerOfAStreamThatIsBeingDeleted: it is planned when the others of the stream
// have ended, right before the stream goes.
func TestConsumerOfAStreamThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.fill(10)
		n.term.hold()
		n.publish("s.a", "", "x")
		n.publish("s.a", "", "y")
		n.term.refuse(record.ErrRefused) // the plan drains: operations wait
		n.call("CONSUMER.DURABLE.CREATE.S.C", `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`)
		n.call("STREAM.DELETE.S", "")
		n.term.release()
		pass(20 * time.Minute)
		if diff := cmp.Diff(map[string]int{"applied": 1, "other": 0}, n.w.group.census(t)); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
	})
}
