package ingress

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// sweeps are the rows of long work that is not done, by kind.
func (g *fakeGroup) sweeps(t *testing.T) map[uint8][]byte {
	t.Helper()
	out := map[uint8][]byte{}
	if err := g.store.Sweeps(func(r storage.SweepRow) bool {
		out[r.Kind] = r.Cursor
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// mixed stores messages of two subjects in turn.
func (n *node) mixed(total int) {
	for i := range total {
		n.hub.conn.inject(Msg{Subject: []string{"s.a", "s.b"}[i%2]})
	}
	wait()
}

// TestPurgeGoesOnUnderTheNextLeader: after each number of steps, with the next step in
// flight, committed by others or lost. Exactly what was asked for goes, and not what was
// stored after the request; the request is answered by whoever finishes it.
func TestPurgeGoesOnUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	const total = 8 * api.PurgeStep
	for name, tc := range map[string]struct {
		body         string
		purged, left uint64
	}{
		"filter":          {`{"filter":"s.a"}`, total / 2, total / 2},
		"wildcard filter": {`{"filter":"*.a"}`, total / 2, total / 2},
		"up to":           {fmt.Sprintf(`{"seq":%d}`, total-10), total - 11, 11},
		"keep":            {`{"keep":10}`, total - 10, 10},
		"filter and keep": {`{"filter":"s.b","keep":10}`, total/2 - 10, total/2 + 10},
	} {
		for _, steps := range []int{1, 2} {
			for _, lost := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s steps=%d lost=%v", name, steps, lost), func(t *testing.T) {
					t.Parallel()
					inWorld(t, Config{}, func(t *testing.T, n *node) {
						n.stream(nil)
						n.consumer("C", nil)
						n.mixed(total)
						n.term.hold()
						inbox := n.send("$JS.API.STREAM.PURGE.S", "", tc.body)
						for range steps {
							n.term.commit()
						}
						if got := len(n.w.group.sweeps(t)); got != 1 {
							t.Fatalf("%d rows of long work after %d steps", got, steps)
						}
						if lost {
							n.term.lose() // the next step is applied, and the leader does not know
						}
						n.endTerm()
						n.silent(inbox, "the next leader goes on")
						b := n.w.node("n2", Config{})
						b.w.meta.set(func() { b.w.meta.leader = "n2" })
						b.lead()
						// A message of the filter that came after the request stays.
						b.wantAck(b.publish("s.a", "", "late"), fmt.Sprintf(`{"stream":"S","seq":%d}`, total+1))
						pass(2 * time.Second)
						var got jsapi.PurgeResponse
						if err := json.Unmarshal([]byte(b.answer(inbox).body), &got); err != nil || got.Purged != tc.purged {
							t.Fatalf("answered %+v, %v, want %d purged", got, err, tc.purged)
						}
						n.silent(inbox, "the next leader answered")
						if st := b.state(); st.Msgs != tc.left+1 {
							t.Fatalf("%d left, want %d", st.Msgs, tc.left+1)
						}
						if got := b.consumerInfo("C").NumPending; got != tc.left+1 {
							t.Fatalf("%d pending, want %d", got, tc.left+1)
						}
						if got := b.w.group.sweeps(t); len(got) != 0 {
							t.Fatalf("rows of long work are left: %v", got)
						}
						entries := b.w.group.applied()
						b.endTerm()
						b.lead()
						pass(time.Second)
						if got := b.w.group.applied(); got != entries {
							t.Fatalf("%d entries of a leader with nothing to do", got-entries)
						}
					})
				})
			}
		}
	}
}

// TestPurgeThatWasNotBegun: a term that ends before the first step is proposed says so.
func TestPurgeThatWasNotBegun(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{Plan: plan.Config{InFlight: 1}}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.mixed(3 * api.PurgeStep)
		n.term.hold()
		n.publish("s.a", "", "in flight")
		inbox := n.send("$JS.API.STREAM.PURGE.S", "", `{"filter":"s.b"}`)
		n.endTerm()
		n.wantError(inbox, jsapi.CodeClusterNotAvail, "")
		n.lead()
		pass(time.Second)
		if st := n.state(); st.Msgs != 3*api.PurgeStep {
			t.Fatalf("%d messages", st.Msgs)
		}
	})
}

// TestPurgeOverARebuild: what was planned is planned again, and counted once.
func TestPurgeOverARebuild(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.mixed(4 * api.PurgeStep)
		n.term.hold()
		inbox := n.send("$JS.API.STREAM.PURGE.S", "", `{"filter":"s.a"}`)
		n.term.commit()
		n.term.refuse(record.ErrStalePlan)
		n.term.release()
		pass(time.Second)
		var got jsapi.PurgeResponse
		if err := json.Unmarshal([]byte(n.answer(inbox).body), &got); err != nil || got.Purged != 2*api.PurgeStep {
			t.Fatalf("answered %+v, %v", got, err)
		}
		if st := n.state(); st.Msgs != 2*api.PurgeStep || len(n.w.group.sweeps(t)) != 0 {
			t.Fatalf("%d messages, rows %v", st.Msgs, n.w.group.sweeps(t))
		}
	})
}

// TestTwoPurgesGoOn: each with a row of its own.
func TestTwoPurgesGoOn(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.mixed(8 * api.PurgeStep)
		n.term.hold()
		a := n.send("$JS.API.STREAM.PURGE.S", "", `{"filter":"s.a"}`)
		b := n.send("$JS.API.STREAM.PURGE.S", "", `{"filter":"s.b"}`)
		n.term.commit()
		n.term.commit()
		if got := len(n.w.group.sweeps(t)); got != 2 {
			t.Fatalf("%d rows, want 2", got)
		}
		n.endTerm()
		n.lead()
		// A third one does not take the row of one that goes on.
		c := n.send("$JS.API.STREAM.PURGE.S", "", `{"seq":10}`)
		pass(2 * time.Second)
		for _, inbox := range []string{a, b, c} {
			if body := n.answer(inbox).body; strings.Contains(body, `"error"`) {
				t.Errorf("answer %s", body)
			}
		}
		if st := n.state(); st.Msgs != 0 || len(n.w.group.sweeps(t)) != 0 {
			t.Fatalf("%d messages, rows %v", st.Msgs, n.w.group.sweeps(t))
		}
	})
}

// TestPurgeGoesOnInASealedStream: it was allowed when it began.
func TestPurgeGoesOnInASealedStream(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.mixed(6 * api.PurgeStep)
		n.term.hold()
		inbox := n.send("$JS.API.STREAM.PURGE.S", "", `{"filter":"s.a"}`)
		n.term.commit()
		sealed := n.send("$JS.API.STREAM.UPDATE.S", "",
			`{"name":"S","subjects":["s.>"],"retention":"limits","storage":"file","num_replicas":1,"sealed":true}`)
		n.term.release()
		pass(time.Second)
		if body := n.answer(sealed).body; strings.Contains(body, `"error"`) {
			t.Fatalf("answer %s", body)
		}
		if body := n.answer(inbox).body; strings.Contains(body, `"error"`) || len(n.w.group.sweeps(t)) != 0 {
			t.Fatalf("answer %s, rows %v", body, n.w.group.sweeps(t))
		}
	})
}

// TestLongWorkOfAStreamThatIsSeenLater: the directory of a new leader may lag.
func TestLongWorkOfAStreamThatIsSeenLater(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.mixed(6 * api.PurgeStep)
		n.term.hold()
		n.send("$JS.API.STREAM.PURGE.S", "", `{"filter":"s.a"}`)
		n.term.commit()
		n.endTerm()
		hidden := map[string]record.MetaRow{}
		n.w.meta.set(func() {
			for key, row := range n.w.meta.rows {
				hidden[key] = row
			}
			clear(n.w.meta.rows)
		})
		b := n.w.node("n2", Config{})
		b.lead()
		pass(time.Second)
		if got := len(b.w.group.sweeps(t)); got != 1 {
			t.Fatalf("%d rows of a stream that is not known", got)
		}
		b.w.meta.set(func() {
			for key, row := range hidden {
				b.w.meta.rows[key] = row
			}
			close(b.w.meta.changed)
			b.w.meta.changed = make(chan struct{})
		})
		pass(time.Second)
		if got := b.w.group.sweeps(t); len(got) != 0 {
			t.Fatalf("rows %v are left", got)
		}
		if messages, _, _, _, _, _ := b.w.group.rows(t); messages != 3*api.PurgeStep {
			t.Fatalf("%d messages, want %d", messages, 3*api.PurgeStep)
		}
	})
}

// TestLimitsGoOnUnderTheNextLeader: from where the leader before it had come.
func TestLimitsGoOnUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	const subjects = 3 * limitStep
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		for i := range 2 * subjects {
			n.hub.conn.inject(Msg{Subject: fmt.Sprintf("s.%05d", i%subjects)})
		}
		wait()
		n.term.hold()
		n.send("$JS.API.STREAM.UPDATE.S", "",
			`{"name":"S","subjects":["s.>"],"retention":"limits","storage":"file","num_replicas":1,"max_msgs_per_subject":1}`)
		n.term.commit()
		n.term.commit()
		c, err := plan.ParseSweepCursor(n.w.group.sweeps(t)[plan.SweepLimits])
		if want := (plan.SweepCursor{After: fmt.Sprintf("s.%05d", 2*limitStep-1)}); err != nil || c != want {
			t.Fatalf("cursor %+v, %v, want %+v", c, err, want)
		}
		n.endTerm()
		entries := n.w.group.applied()
		n.lead()
		pass(time.Second)
		if st := n.state(); st.Msgs != subjects || len(n.w.group.sweeps(t)) != 0 {
			t.Fatalf("%d messages, want %d; rows %v", st.Msgs, subjects, n.w.group.sweeps(t))
		}
		if got := n.w.group.applied() - entries; got > 3 {
			t.Fatalf("%d entries for what was left", got)
		}
	})
}

// TestSweepGoesOnUnderTheNextLeader: from its cursor, but from the begin if another
// purge came after it.
func TestSweepGoesOnUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("purged again ", again), func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(nil)
				n.mixed(4 * sweepStep)
				n.term.hold()
				n.send("$JS.API.STREAM.PURGE.S", "", "")
				n.term.commit()
				n.term.commit() // the first step of the sweep
				if again {
					n.publish("s.a", "", "x")
					inbox := n.send("$JS.API.STREAM.PURGE.S", "", "")
					for len(n.hub.link.to(inbox)) == 0 {
						n.term.commit()
					}
				}
				n.term.commit()
				c, err := plan.ParseSweepCursor(n.w.group.sweeps(t)[plan.SweepDead])
				if err != nil || !again && c.Seq == 0 {
					t.Fatalf("cursor %+v, %v", c, err)
				}
				n.endTerm()
				n.lead()
				pass(time.Second)
				if _, _, subjects, rows, sweeps, _ := n.w.group.rows(t); subjects+rows+sweeps != 0 {
					t.Fatalf("%d subjects, %d rows, %d sweeps are left", subjects, rows, sweeps)
				}
			})
		})
	}
}

// TestConsumerDeleteIsOneEntry: nothing of it is left to a next leader.
func TestConsumerDeleteIsOneEntry(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", m{"max_ack_pending": 5000})
		n.fill(3000)
		n.pull("C", pullMany(3000))
		pass(time.Second)
		n.term.hold()
		entries := n.w.group.applied()
		n.send("$JS.API.CONSUMER.DELETE.S.C", "", "")
		n.term.commit()
		if got := n.w.group.applied() - entries; got != 1 {
			t.Fatalf("%d entries", got)
		}
		n.endTerm()
		n.lead()
		pass(time.Second)
		left := 0
		if err := n.w.group.store.Pendings(1, 1, 0, func(record.Pending) bool { left++; return true }); err != nil {
			t.Fatal(err)
		}
		if left != 0 {
			t.Fatalf("%d pending rows of a consumer that is gone", left)
		}
		n.wantError(n.send("$JS.API.CONSUMER.INFO.S.C", "", ""), jsapi.CodeConsumerNotFound, "")
	})
}

func TestUnreadableLongWorkIsLeft(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.mixed(10)
		n.endTerm()
		b := n.w.group.store.NewBatch()
		rows := map[uint8][]byte{plan.SweepPurge: {9}, plan.SweepLimits: {0, 0}, 7: nil}
		for kind, cursor := range rows {
			b.PutSweep(1, kind, cursor)
		}
		a := n.w.group.store.Applied()
		n.w.group.index++
		b.SetApplied(n.w.group.index, a.Term, a.Fence, a.Time)
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
		n.lead()
		pass(time.Second)
		if st := n.state(); st.Msgs != 10 {
			t.Fatalf("%d messages", st.Msgs)
		}
		if diff := cmp.Diff(len(rows), len(n.w.group.sweeps(t))); diff != "" {
			t.Fatal(diff)
		}
	})
}
