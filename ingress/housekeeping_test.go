package ingress

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// rows counts what the store holds of stream 1.
func (g *fakeGroup) rows(t *testing.T) (messages, ids, subjects, subjectRows, sweeps, due int) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(g.store.ScanKeys(1, 0, func(uint64) bool { messages++; return true }))
	check(g.store.DedupUntil(1, 0, 1<<62, func(storage.DedupRow) bool { ids++; return true }))
	check(g.store.Subjects(1, "", "", func(s string, _ record.SubjectStat) bool {
		subjects++
		return true
	}))
	check(g.store.Sweeps(func(storage.SweepRow) bool { sweeps++; return true }))
	check(g.store.Due(0, func(storage.DueRow) bool { due++; return true }))
	for _, s := range []string{"s.a", "s.b"} {
		check(g.store.ScanSubject(1, s, 0, func(uint64) bool { subjectRows++; return true }))
	}
	return messages, ids, subjects, subjectRows, sweeps, due
}

func TestMessageIDsLeaveWithTheirWindow(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"duplicate_window": time.Minute})
		id := func(id string) string { return n.publish("s.a", header("Nats-Msg-Id", id), "x") }
		id("1")
		pass(30 * time.Second)
		n.wantAck(id("1"), `{"stream":"S","seq":1,"duplicate": true}`)
		id("2")
		pass(30*time.Second + 2*time.Duration(trimEvery))
		if _, ids, _, _, _, _ := n.w.group.rows(t); ids != 1 {
			t.Fatalf("%d ids, want the one within the window", ids)
		}
		n.wantAck(id("1"), `{"stream":"S","seq":3}`) // a new one
		pass(20 * time.Second)
		n.wantAck(id("1"), `{"stream":"S","seq":3,"duplicate": true}`)
		entries := n.w.group.applied()
		pass(2 * time.Minute)
		if _, ids, _, _, _, _ := n.w.group.rows(t); ids != 0 {
			t.Fatalf("%d ids left", ids)
		}
		quiet := n.w.group.applied()
		pass(time.Hour)
		if got := n.w.group.applied(); got != quiet || quiet-entries > 3 {
			t.Fatalf("%d entries to trim, %d more without anything to do", quiet-entries, got-quiet)
		}
	})
}

// TestIDUsedAgainBeforeTheTrim: the row of the expired one is replaced, and the
// trim does not take the new one.
func TestIDUsedAgainBeforeTheTrim(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"duplicate_window": time.Minute})
		id := func() string { return n.publish("s.a", header("Nats-Msg-Id", "1"), "x") }
		n.wantAck(id(), `{"stream":"S","seq":1}`)
		n.endTerm()
		pass(time.Minute)
		n.lead() // it has not trimmed yet
		n.wantAck(id(), `{"stream":"S","seq":2}`)
		pass(50 * time.Second)
		n.wantAck(id(), `{"stream":"S","seq":2,"duplicate": true}`)
	})
}

func TestManyIDsAreTrimmed(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"duplicate_window": time.Second})
		for i := range 2*trimStep + 10 {
			n.hub.conn.inject(Msg{Subject: "s.a", Header: []byte(header("Nats-Msg-Id", fmt.Sprint(i)))})
		}
		wait()
		pass(time.Second + 2*time.Duration(trimEvery))
		if _, ids, _, _, _, _ := n.w.group.rows(t); ids != 0 {
			t.Fatalf("%d ids left", ids)
		}
	})
}

func TestPurgeSweepsItsRows(t *testing.T) {
	t.Parallel()
	for name, purge := range map[string]func(n *node){
		"purge":   func(n *node) { n.send("$JS.API.STREAM.PURGE.S", "", "") },
		"roll-up": func(n *node) { n.publish("s.b", header("Nats-Rollup", "all"), "r") },
	} {
		for _, failover := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s failover=%v", name, failover), func(t *testing.T) {
				t.Parallel()
				inWorld(t, Config{}, func(t *testing.T, n *node) {
					n.stream(m{"allow_rollup_hdrs": true})
					for i := range 2*sweepStep + 100 {
						n.hub.conn.inject(Msg{Subject: []string{"s.a", "s.b"}[i%2]})
					}
					wait()
					if failover {
						n.term.hold()
					}
					purge(n)
					if failover {
						n.term.commit() // the purge
						n.term.commit() // one step of the sweep
						if _, _, _, rows, sweeps, _ := n.w.group.rows(t); rows < sweepStep || sweeps != 1 {
							t.Fatalf("%d rows and %d sweeps after the first step", rows, sweeps)
						}
						n.endTerm()
						n.lead()
						pass(time.Second)
					}
					want := 0
					if name == "roll-up" {
						want = 1
					}
					messages, _, subjects, rows, sweeps, _ := n.w.group.rows(t)
					if messages != want || subjects != want || rows != want || sweeps != 0 {
						t.Fatalf("%d messages, %d subjects, %d subject rows, %d sweeps left, want %d and no sweep",
							messages, subjects, rows, sweeps, want)
					}
					if st := n.state(); int(st.Msgs) != want || st.NumSubjects != want {
						t.Fatalf("state %+v", st)
					}
				})
			})
		}
	}
}

func TestPurgeInSteps(t *testing.T) {
	t.Parallel()
	const total = 2500
	for name, tc := range map[string]struct {
		body         string
		purged, left uint64
	}{
		"filter":          {`{"filter":"s.a"}`, total / 2, total / 2},
		"wildcard filter": {`{"filter":"*.a"}`, total / 2, total / 2},
		"rare filter":     {`{"filter":"*.none"}`, 0, total},
		"up to":           {`{"seq":2001}`, 2000, 500},
		"keep":            {`{"keep":10}`, total - 10, 10},
		"filter and keep": {`{"filter":"s.b","keep":10}`, total/2 - 10, total/2 + 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(nil)
				for i := range total {
					n.hub.conn.inject(Msg{Subject: []string{"s.a", "s.b"}[i%2]})
				}
				wait()
				before := n.w.group.applied()
				got := must[jsapi.PurgeResponse](n, "STREAM.PURGE.S", tc.body)
				if got.Purged != tc.purged {
					t.Fatalf("purged %d, want %d", got.Purged, tc.purged)
				}
				if st := n.state(); st.Msgs != tc.left {
					t.Fatalf("%d left, want %d", st.Msgs, tc.left)
				}
				if steps := n.w.group.applied() - before; steps < int(tc.purged)/1100 {
					t.Fatalf("%d steps, want several", steps)
				}
			})
		})
	}
}

func TestLimitsAreEnforced(t *testing.T) {
	t.Parallel()
	size := 30 + len("s.a") + 10
	for name, tc := range map[string]struct {
		settings m
		first    uint64 // sequence left after 5 messages
	}{
		"max_msgs":       {m{"max_msgs": 3}, 3},
		"max_bytes":      {m{"max_bytes": 2 * size}, 4},
		"max_bytes less": {m{"max_bytes": 2*size - 1}, 5},
		"per subject":    {m{"max_msgs_per_subject": 1}, 5},
		"none":           {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(tc.settings)
				for range 5 {
					n.hub.conn.inject(Msg{Subject: "s.a", Data: make([]byte, 10)})
				}
				wait()
				if st := n.state(); st.FirstSeq != tc.first || st.LastSeq != 5 || st.Msgs != 6-tc.first {
					t.Fatalf("state %+v, want first %d", st, tc.first)
				}
				messages, _, _, rows, _, _ := n.w.group.rows(t)
				if uint64(messages) != 6-tc.first || rows != messages {
					t.Fatalf("%d messages and %d subject rows are stored", messages, rows)
				}
			})
		})
	}
}

func TestMaxAge(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"max_age": time.Minute})
		n.consumer("C", nil)
		n.fill(1)
		pass(30 * time.Second)
		n.fill(1)
		pass(30*time.Second - time.Millisecond)
		if st := n.state(); st.Msgs != 2 {
			t.Fatalf("%d messages before max_age", st.Msgs)
		}
		pass(2 * time.Millisecond)
		if st := n.state(); st.Msgs != 1 || st.FirstSeq != 2 {
			t.Fatalf("%+v at max_age", st)
		}
		pass(30 * time.Second)
		if st := n.state(); st.Msgs != 0 {
			t.Fatalf("%+v after max_age of both", st)
		}
		if in := n.consumerInfo("C"); in.NumPending != 0 {
			t.Fatalf("num_pending %d of nothing", in.NumPending)
		}
	})
}

// TestMaxAgeWhileRemovalsAreInFlight: what should have expired is on its way out;
// the engine must go on meanwhile.
func TestMaxAgeWhileRemovalsAreInFlight(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"max_age": time.Minute, "max_msgs": 1})
		n.fill(1)
		n.term.hold()
		pass(time.Minute - time.Second)
		n.fill(1) // its envelope removes the first message
		pass(2 * time.Second)
		inbox := n.publish("s.a", "", "x")
		pass(time.Second)
		n.term.release()
		n.answer(inbox)
	})
}

func TestNothingExpiresWhileTheClockIsNotBelieved(t *testing.T) {
	t.Parallel()
	var trusted atomic.Bool
	inWorld(t, Config{AgesTrusted: func(uint32) bool { return trusted.Load() }}, func(t *testing.T, n *node) {
		n.stream(m{"max_age": time.Second})
		n.fill(1)
		pass(time.Minute)
		if st := n.state(); st.Msgs != 1 {
			t.Fatalf("%d messages, want it kept", st.Msgs)
		}
		before := n.w.group.applied()
		pass(time.Minute)
		if got := n.w.group.applied() - before; got > 70 {
			t.Fatalf("%d entries in a minute of waiting", got)
		}
		trusted.Store(true)
		pass(3 * time.Second)
		if st := n.state(); st.Msgs != 0 {
			t.Fatalf("%d messages, want none", st.Msgs)
		}
	})
}

// TestDueRows: a stream that nobody touches expires under the next leader, and so
// does an ephemeral consumer.
func TestDueRows(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"max_age": time.Hour})
		n.fill(3)
		must[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.S", m{
			"stream_name": "S", "config": m{"ack_policy": "explicit", "inactive_threshold": 10 * time.Minute},
		})
		n.endTerm()
		b := n.w.node("n2", Config{})
		b.lead() // nobody touches the stream
		if b.srv.engine(1).byName[nameKey{"A", "S"}].loaded {
			t.Fatal("the stream is loaded at the start of a term")
		}
		pass(9 * time.Minute)
		consumers := func() (n int) {
			_ = b.w.group.store.Consumers(1, func(storage.ConsumerRow) bool { n++; return true })
			return n
		}
		if consumers() != 1 {
			t.Fatal("the consumer went early")
		}
		pass(12 * time.Minute) // one threshold since its row fell due
		if consumers() != 0 {
			t.Fatal("the inactive consumer is left")
		}
		pass(40 * time.Minute)
		if messages, _, _, _, _, due := b.w.group.rows(t); messages != 0 || due > 1 {
			t.Fatalf("%d messages and %d due rows left after max_age", messages, due)
		}
	})
}

// TestConsumerDueRowIsWrittenAgain: a consumer that is used for long still has one.
func TestConsumerDueRowIsWrittenAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		must[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.S", m{
			"stream_name": "S", "config": m{"name": "E", "ack_policy": "explicit", "inactive_threshold": 2 * time.Minute},
		})
		for range 10 {
			n.pull("E", `{"batch":1,"no_wait":true}`)
			pass(time.Minute)
		}
		if _, _, _, _, _, due := n.w.group.rows(t); due != 1 {
			t.Fatalf("%d due rows of a consumer in use, want 1", due)
		}
		n.endTerm()
		n.lead()
		pass(10 * time.Minute)
		n.wantError(n.send("$JS.API.CONSUMER.INFO.S.E", "", ""), jsapi.CodeConsumerNotFound, "")
	})
}

// TestPullWhileItsEndWaits: a consumer that is used again is not removed.
func TestPullWhileItsEndWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		must[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.S", m{
			"stream_name": "S", "config": m{"name": "E", "ack_policy": "explicit", "inactive_threshold": time.Minute},
		})
		n.term.hold()
		n.publish("s.a", "", "x")
		n.term.set(func() { n.term.barriers = nil })
		n.publish("s.a", "", "y")
		n.term.refuse(record.ErrRefused) // the plan drains: operations wait
		pass(2 * time.Minute)
		pull := n.pull("E", pullMany(2))
		n.term.release()
		wait()
		if got := n.deliveries(pull); len(got) != 2 {
			t.Fatalf("%d deliveries to a pull of %s", len(got), strings.Repeat("E", 1))
		}
		n.consumerInfo("E")
	})
}
