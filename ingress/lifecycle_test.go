package ingress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

const createS = `{"name":"S","subjects":["s.>"],"retention":"limits","storage":"file","num_replicas":1,` +
	`"max_msgs":-1,"max_bytes":-1,"max_msgs_per_subject":-1,"max_msg_size":-1,"max_consumers":-1}`

func phase(n *node) record.StreamPhase {
	row, _ := n.srv.dir.row("A", "S")
	return row.Phase
}

func TestCreateIsAnsweredWhenItIsLive(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.term.hold()
		inbox := n.send("$JS.API.STREAM.CREATE.S", "", createS)
		n.silent(inbox, "it is not stored")
		if got := phase(n); got != record.StreamCreating {
			t.Fatalf("phase %q, want creating", got)
		}
		if got := n.hub.conn.subjects(); len(got) != 0 {
			t.Fatalf("subscribed %v before it is stored", got)
		}
		other := n.send("$JS.API.STREAM.INFO.S", "", "")
		n.wantError(other, jsapi.CodeStreamNotFound, "")
		flushed := n.hub.conn.flushed()
		n.term.release()
		wait()
		if body := n.answer(inbox).body; !strings.Contains(body, `"did_create":true`) {
			t.Fatalf("answer %s", body)
		}
		if n.hub.conn.flushed() != flushed+1 || !slices.Equal(n.hub.conn.subjects(), []string{"s.>"}) {
			t.Fatalf("%d flushes, subscribed %v", n.hub.conn.flushed()-flushed, n.hub.conn.subjects())
		}
		if got := phase(n); got != record.StreamLive {
			t.Fatalf("phase %q, want live", got)
		}
	})
}

// TestCreateGoesOnUnderTheNextLeader stops the first leader at every step.
func TestCreateGoesOnUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(n *node){
		"reserved": func(n *node) { n.term.hold() },
		"stored, not subscribed": func(n *node) {
			n.hub.conn.failFlush(errors.New("down"))
		},
		"subscribed, not live": func(n *node) {
			n.w.meta.set(func() {
				n.w.meta.fail = func(w []record.MetaWrite) error {
					for i := range w {
						if strings.Contains(string(w[i].Value), `"live"`) {
							return errors.New("no leader")
						}
					}
					return nil
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				stop(n)
				inbox := n.send("$JS.API.STREAM.CREATE.S", "", createS)
				n.silent(inbox, "it can not be finished")
				if got := phase(n); got != record.StreamCreating {
					t.Fatalf("phase %q, want creating", got)
				}
				n.endTerm()
				n.silent(inbox, "the next leader finishes it")
				n.w.meta.set(func() { n.w.meta.fail = nil })
				b := n.w.node("n2", Config{})
				b.lead()
				if body := b.answer(inbox).body; !strings.Contains(body, `"did_create":true`) {
					t.Fatalf("answer %s", body)
				}
				n.silent(inbox, "another node answered")
				b.wantAck(b.publish("s.a", "", "x"), `{"stream":"S","seq":1}`)
			})
		})
	}
}

// TestCreateStepIsTriedAgain: by the same leader, after a while.
func TestCreateStepIsTriedAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.hub.conn.failFlush(errors.New("down"))
		inbox := n.send("$JS.API.STREAM.CREATE.S", "", createS)
		pass(3 * retryStep)
		n.silent(inbox, "the subscriptions are not at the server")
		n.hub.conn.failFlush(nil)
		pass(2 * retryStep)
		n.answer(inbox)
		pass(time.Minute)
		n.answer(inbox)
	})
}

func TestCreateAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.term.hold()
		first := n.send("$JS.API.STREAM.CREATE.S", "", createS)
		same := n.send("$JS.API.STREAM.CREATE.S", "", createS)
		differs := n.send("$JS.API.STREAM.CREATE.S", "", strings.Replace(createS, `"max_msgs":-1`, `"max_msgs":7`, 1))
		pass(time.Second)
		n.silent(same, "the outcome of the first is not known")
		n.silent(differs, "the outcome of the first is not known")
		n.term.release()
		pass(time.Second)
		for _, inbox := range []string{first, same} {
			if body := n.answer(inbox).body; !strings.Contains(body, `"did_create":true`) {
				t.Fatalf("answer %s", body)
			}
		}
		n.wantError(differs, jsapi.CodeStreamNameExist, "")
		n.wantError(n.send("$JS.API.STREAM.CREATE.T", "", strings.ReplaceAll(createS, `"S"`, `"T"`)),
			jsapi.CodeStreamSubjectOverlap, "")
	})
}

// TestCreateAgainOnAnotherNode: the leader of group 0 waits for a name that another
// node brings to life, and answers from its replica: that node was never asked.
func TestCreateAgainOnAnotherNode(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.endTerm()
		b := n.w.node("n2", Config{})
		b.lead()
		b.term.hold()
		both := func(body string) string {
			inbox := n.w.newInbox()
			for _, x := range []*node{n, b} {
				x.hub.conn.inject(Msg{Subject: "$JS.API.STREAM.CREATE.S", Reply: inbox, Data: []byte(body)})
			}
			wait()
			return inbox
		}
		first := both(createS)
		same := both(createS)
		differs := both(strings.Replace(createS, `"max_msgs":-1`, `"max_msgs":7`, 1))
		b.term.release()
		pass(time.Second)
		b.answer(first)
		n.silent(first, "the group's leader answers")
		n.answer(same)
		b.silent(same, "the leader of group 0 answers")
		n.wantError(differs, jsapi.CodeStreamNameExist, "")
		b.silent(differs, "the leader of group 0 answers")
	})
}

func TestUpdateOfSubjects(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		up := n.send("$JS.API.STREAM.UPDATE.S", "", strings.Replace(createS, `"s.>"`, `"s.a","new"`, 1))
		n.silent(up, "it is in flight")
		if got := n.state(); got.Msgs != 0 {
			t.Fatal("unreachable")
		}
		cfg := must[jsapi.StreamInfoResponse](n, "STREAM.INFO.S", nil).Config
		if !slices.Equal(cfg.Subjects, []string{"s.>"}) {
			t.Fatalf("shows %v before it is applied", cfg.Subjects)
		}
		meanwhile := n.publish("s.a", "", "meanwhile") // reaches one subscription
		row, _ := n.srv.dir.row("A", "S")
		if diff := cmp.Diff([]string{"s.>", "s.a", "new"}, row.Subjects); diff != "" || row.Request == nil {
			t.Fatalf("the row must hold old and new subjects meanwhile (-want +got):\n%s", diff)
		}
		n.wantError(n.send("$JS.API.STREAM.CREATE.T", "",
			strings.ReplaceAll(strings.ReplaceAll(createS, `"S"`, `"T"`), "s.>", "new")), jsapi.CodeStreamSubjectOverlap, "")
		n.term.release()
		wait()
		n.answer(up)
		n.wantAck(meanwhile, `{"stream":"S","seq":1}`)
		row, _ = n.srv.dir.row("A", "S")
		if diff := cmp.Diff([]string{"s.a", "new"}, row.Subjects); diff != "" || row.Request != nil {
			t.Fatalf("row (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"new", "s.a"}, n.hub.conn.subjects()); diff != "" {
			t.Fatalf("subscribed (-want +got):\n%s", diff)
		}
		n.wantAck(n.publish("new", "", "x"), `{"stream":"S","seq":2}`)
		n.wantAck(n.publish("s.a", "", "x"), `{"stream":"S","seq":3}`)
		n.wantError(n.send("$JS.API.STREAM.UPDATE.S", "", strings.Replace(createS, `"num_replicas":1`, `"num_replicas":3`, 1)),
			jsapi.CodeStreamReplicasNotSupported, "")
	})
}

// TestUpdateGoesOnUnderTheNextLeader: the row and the stream agree in the end.
func TestUpdateGoesOnUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("stored=%v", stored), func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(nil)
				n.term.hold()
				up := n.send("$JS.API.STREAM.UPDATE.S", "", strings.Replace(createS, `"s.>"`, `"new"`, 1))
				if stored {
					n.w.meta.set(func() {
						n.w.meta.fail = func([]record.MetaWrite) error { return errors.New("no leader") }
					})
					n.term.release()
				}
				n.endTerm()
				n.silent(up, "the next leader finishes it")
				n.w.meta.set(func() { n.w.meta.fail = nil })
				b := n.w.node("n2", Config{})
				b.lead()
				b.answer(up)
				row, _ := b.srv.dir.row("A", "S")
				cfg := must[jsapi.StreamInfoResponse](b, "STREAM.INFO.S", nil).Config
				if !slices.Equal(row.Subjects, []string{"new"}) || !slices.Equal(cfg.Subjects, row.Subjects) || row.Request != nil {
					t.Fatalf("row %v, configuration %v, want new in both", row.Subjects, cfg.Subjects)
				}
				b.wantAck(b.publish("new", "", "x"), `{"stream":"S","seq":1}`)
			})
		})
	}
}

func TestUpdateSurvivesARebuild(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		up := n.send("$JS.API.STREAM.UPDATE.S", "", strings.Replace(createS, `"max_msgs":-1`, `"max_msgs":3`, 1))
		n.term.refuse(record.ErrRefused)
		n.silent(up, "it was refused")
		n.term.release()
		wait()
		n.answer(up)
		n.fill(5)
		for range 2 {
			if st := n.state(); st.Msgs != 3 {
				t.Fatalf("%d messages, want max_msgs 3", st.Msgs)
			}
			n.endTerm()
			n.lead()
		}
	})
}

// TestLoweredLimitsInSteps: one step with the update, the rest behind it, and by
// the next leader if need be.
func TestLoweredLimitsInSteps(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"max_msgs": `"max_msgs":10`, "max_bytes": `"max_bytes":350`, "per subject": `"max_msgs_per_subject":10`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(nil)
				for range 3*limitStep + 10 {
					n.hub.conn.inject(Msg{Subject: "s.a", Data: []byte("x")})
				}
				wait()
				field, _, _ := strings.Cut(change, ":")
				n.term.hold()
				up := n.send("$JS.API.STREAM.UPDATE.S", "", strings.Replace(createS, field+":-1", change, 1))
				n.term.commit()
				wait()
				n.answer(up)
				if st := n.state(); st.Msgs != 2*limitStep+10 {
					t.Fatalf("%d messages after the first step, want %d", st.Msgs, 2*limitStep+10)
				}
				n.endTerm()
				n.lead()
				pass(time.Second)
				if st := n.state(); st.Msgs < 9 || st.Msgs > 10 {
					t.Fatalf("%d messages under the next leader, want 10", st.Msgs)
				}
				left := 0
				if err := n.w.group.store.Sweeps(func(storage.SweepRow) bool {
					left++
					return true
				}); err != nil || left != 0 {
					t.Fatalf("%d sweeps left, %v", left, err)
				}
			})
		})
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", nil)
		n.fill(3)
		n.pull("C", pullMany(3))
		pull := n.pull("C", pullOne)
		n.term.hold()
		gone := n.send("$JS.API.STREAM.DELETE.S", "", "")
		n.silent(gone, "it is in flight")
		if got := n.hub.conn.subjects(); len(got) != 0 {
			t.Fatalf("still subscribed %v", got)
		}
		if got := n.answer(pull); !strings.HasPrefix(got.header, "NATS/1.0 409 Consumer Deleted") {
			t.Fatalf("the waiting pull got %q", got.header)
		}
		n.term.refuse(record.ErrRefused)
		n.silent(gone, "it was refused")
		n.term.release()
		wait()
		if body := n.answer(gone).body; !strings.Contains(body, `"success":true`) {
			t.Fatalf("answer %s", body)
		}
		if _, v := n.srv.dir.row("A", "S"); v != 0 {
			t.Fatal("the row is left")
		}
		n.stream(nil)
		if st := n.state(); st.Msgs != 0 || st.Consumers != 0 {
			t.Fatalf("a new stream of the name has %+v", st)
		}
	})
}

func TestDeleteGoesOnUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("removed=%v", stored), func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(nil)
				n.fill(3)
				n.term.hold()
				gone := n.send("$JS.API.STREAM.DELETE.S", "", "")
				if got := phase(n); got != record.StreamDeleting {
					t.Fatalf("phase %q, want deleting", got)
				}
				if stored {
					n.w.meta.set(func() {
						n.w.meta.fail = func([]record.MetaWrite) error { return errors.New("no leader") }
					})
					n.term.release()
				}
				n.endTerm()
				n.silent(gone, "the next leader finishes it")
				n.w.meta.set(func() { n.w.meta.fail = nil })
				b := n.w.node("n2", Config{})
				b.lead()
				if body := b.answer(gone).body; !strings.Contains(body, `"success":true`) {
					t.Fatalf("answer %s", body)
				}
				if _, err := n.w.group.store.Stream(1); !errors.Is(err, record.ErrNotFound) {
					t.Fatalf("the group still holds the stream: %v", err)
				}
				if _, v := b.srv.dir.row("A", "S"); v != 0 {
					t.Fatal("the row is left")
				}
			})
		})
	}
}

// TestPublishToAStreamBeingDeleted gets an answer.
func TestPublishToAStreamBeingDeleted(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		e := n.srv.engine(1)
		st := e.byName[nameKey{"A", "S"}]
		must[jsapi.SuccessResponse](n, "STREAM.DELETE.S", nil)
		inbox := n.w.newInbox()
		e.q.offer(event{kind: evPublish, stream: st, msg: &Msg{Subject: "s.a", Reply: inbox}, at: time.Now()}, 1)
		wait()
		n.wantError(inbox, jsapi.CodeStreamNotFound, "")
	})
}

// TestWhoAnswers: exactly one of two nodes, by the phase of the row and by who leads.
func TestWhoAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, call  string
		meta, group string // who leads
		phase       record.StreamPhase
		want        string // who answers
		code        jsapi.ErrCode
	}{
		{"absent", "STREAM.INFO.S", "n1", "n2", "", "n1", jsapi.CodeStreamNotFound},
		{"absent", "STREAM.INFO.S", "n2", "n1", "", "n2", jsapi.CodeStreamNotFound},
		{"creating", "STREAM.INFO.S", "n1", "n2", record.StreamCreating, "n1", jsapi.CodeStreamNotFound},
		{"deleting", "STREAM.PURGE.S", "n1", "n2", record.StreamDeleting, "n1", jsapi.CodeStreamNotFound},
		{"live", "STREAM.INFO.S", "n1", "n2", record.StreamLive, "n2", 0},
		{"live", "STREAM.INFO.S", "n2", "n1", record.StreamLive, "n1", 0},
		{"live", "CONSUMER.INFO.S.none", "n1", "n2", record.StreamLive, "n2", jsapi.CodeConsumerNotFound},
		{"of no stream", "STREAM.NAMES", "n1", "n2", record.StreamLive, "n1", 0},
		{"of no stream", "STREAM.LIST", "n2", "n1", record.StreamLive, "n2", 0},
		{"of no stream", "INFO", "n2", "n1", record.StreamLive, "n2", 0},
	} {
		t.Run(fmt.Sprintf("%s %s meta=%s group=%s", tc.name, tc.call, tc.meta, tc.group), func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				if tc.phase != "" {
					n.stream(nil)
				}
				n.endTerm()
				nodes := map[string]*node{"n1": n, "n2": n.w.node("n2", Config{})}
				n.w.meta.set(func() { n.w.meta.leader = tc.meta })
				leader := nodes[tc.group]
				leader.lead()
				if tc.phase != "" && tc.phase != record.StreamLive {
					leader.term.hold() // so that the phase stays
					row, _ := n.srv.dir.row("A", "S")
					err := n.srv.dir.change(t.Context(), row, func(r *record.StreamRow) (*record.StreamRow, error) {
						r.Phase = tc.phase
						r.Request = &record.Request{Body: []byte("{}")}
						return r, nil
					})
					if err != nil {
						t.Fatal(err)
					}
					leader.hub.conn.failFlush(errors.New("down"))
				}
				inbox := n.w.newInbox()
				for _, x := range nodes {
					x.hub.conn.inject(Msg{Subject: "$JS.API." + tc.call, Reply: inbox})
				}
				pass(5 * time.Second)
				for name, x := range nodes {
					switch {
					case name != tc.want:
						x.silent(inbox, tc.want+" has to")
					case tc.code != 0:
						x.wantError(inbox, tc.code, "")
					default:
						if body := x.answer(inbox).body; strings.Contains(body, `"error"`) {
							t.Fatalf("answer %s", body)
						}
					}
				}
			})
		})
	}
}

// TestCallsWithoutALeader: held as long as HoldFor says, answered by whoever leads
// then; what destroys data is never held.
func TestCallsWithoutALeader(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", nil)
		n.fill(1)
		n.endTerm()
		held := map[string]string{}
		for _, verb := range []string{"STREAM.INFO.S", "CONSUMER.NAMES.S", "CONSUMER.LIST.S", "CONSUMER.INFO.S.C"} {
			held[verb] = n.send("$JS.API."+verb, "", "")
		}
		held["create"] = n.send("$JS.API.STREAM.CREATE.S", "", createS)
		never := map[string]string{}
		for verb, body := range map[string]string{
			"STREAM.PURGE.S": "", "STREAM.DELETE.S": "", "STREAM.MSG.DELETE.S": `{"seq":1}`, "CONSUMER.DELETE.S.C": "",
			"STREAM.UPDATE.S": createS,
		} {
			never[verb] = n.send("$JS.API."+verb, "", body)
		}
		if got := n.srv.Stats().Held; got != len(held) {
			t.Fatalf("%d held, want %d", got, len(held))
		}
		pass(DefaultHoldFor - time.Second)
		n.lead()
		pass(time.Second)
		for verb, inbox := range held {
			if body := n.answer(inbox).body; strings.Contains(body, `"error"`) {
				t.Errorf("%s: %s", verb, body)
			}
		}
		for verb, inbox := range never {
			n.silent(inbox, verb+" done later would destroy newer data")
		}
		if st := n.state(); st.Msgs != 1 || st.Consumers != 1 {
			t.Fatalf("state %+v", st)
		}
		n.endTerm()
		late := n.send("$JS.API.STREAM.INFO.S", "", "")
		pass(DefaultHoldFor + time.Second)
		n.lead()
		pass(time.Second)
		n.silent(late, "its time is over")
	})
}

func TestHoldMax(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{HoldMax: 2}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.endTerm()
		var inboxes []string
		for range 3 {
			inboxes = append(inboxes, n.send("$JS.API.STREAM.INFO.S", "", ""))
		}
		if got := n.srv.Stats().Held; got != 2 {
			t.Fatalf("%d held, want the edge 2", got)
		}
		n.lead()
		pass(time.Second)
		n.answer(inboxes[0])
		n.answer(inboxes[1])
		n.silent(inboxes[2], "it is past the edge")
	})
}

func TestAccountWithoutJetStream(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.srv.accounts["A"].JetStream = false
		n.wantError(n.send("$JS.API.INFO", "", ""), jsapi.CodeNotEnabledForAccount, "")
		n.w.meta.set(func() { n.w.meta.leader = "n2" })
		n.silent(n.send("$JS.API.INFO", "", ""), "the leader of group 0 answers")
	})
}

func TestCreateBeforeTheClusterIsFounded(t *testing.T) {
	t.Parallel()
	var open atomic.Bool
	inWorld(t, Config{Open: open.Load}, func(t *testing.T, n *node) {
		n.wantError(n.send("$JS.API.STREAM.CREATE.S", "", createS), jsapi.CodeClusterNotAvail, "")
		open.Store(true)
		n.stream(nil)
	})
}

func TestListsWaitForTheReplica(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	inWorld(t, Config{ReadIndex: func(_ context.Context, group uint32) error {
		if group != 1 {
			return fmt.Errorf("asked for group %d", group)
		}
		if fail.Load() {
			return errors.New("no leader")
		}
		return nil
	}}, func(t *testing.T, n *node) {
		n.stream(nil)
		if got := must[jsapi.StreamListResponse](n, "STREAM.LIST", nil).Streams; len(got) != 1 {
			t.Fatalf("%d streams", len(got))
		}
		fail.Store(true)
		n.wantError(n.send("$JS.API.STREAM.LIST", "", ""), jsapi.CodeClusterNotAvail, "")
		n.wantError(n.send("$JS.API.INFO", "", ""), jsapi.CodeClusterNotAvail, "")
	})
}

func TestManyMetaCallsAreRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.srv.metaCalls.Store(maxMetaCalls - 1)
		n.wantError(n.send("$JS.API.STREAM.INFO.S", "", ""), jsapi.CodeStreamNotFound, "")
		n.srv.metaCalls.Store(maxMetaCalls)
		n.wantError(n.send("$JS.API.STREAM.INFO.S", "", ""), jsapi.CodeStreamTooManyRequests, "")
		n.srv.metaCalls.Store(0)
	})
}

// TestGiveUp: a term that can not go on answers what waits, takes nothing more, and asks again and again to be given
// away. If nobody takes it, it serves again once nothing is in flight any more.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	var resigned atomic.Int32
	inWorld(t, Config{Resign: func(uint32) { resigned.Add(1) }}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		waits := n.publish("s.a", "", "x")
		n.term.set(func() { n.term.barriers = []error{record.ErrUnknownOutcome, record.ErrUnknownOutcome} })
		n.term.refuse(record.ErrUnknownOutcome)
		pass(0)
		if got := n.answer(waits); !strings.Contains(got.body, "outcome unknown, retry with the same Nats-Msg-Id") {
			t.Fatalf("answered %+v, want that the outcome is unknown", got)
		}
		if got := n.hub.conn.inject(Msg{Subject: "s.a", Reply: n.w.newInbox()}); got != 0 {
			t.Fatalf("a publish reaches %d subscriptions, want none", got)
		}
		pass(3*resignEvery - time.Second)
		if got := resigned.Load(); got != 3 {
			t.Fatalf("asked %d times to be given away, want 3", got)
		}
		n.term.release()
		pass(time.Second)
		n.wantAck(n.publish("s.a", "", "y"), `{"stream":"S","seq":1}`)
		n.answer(waits)
		if got := resigned.Load(); got != 3 {
			t.Fatalf("asked %d times to be given away, and it goes on", got)
		}
	})
}

// TestGivenAway: a term that can not go on is over when another node takes the group.
func TestGivenAway(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{Resign: func(uint32) {}}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		waits := n.publish("s.a", "", "x")
		n.term.refuse(record.ErrUnknownOutcome)
		pass(time.Second)
		n.endTerm()
		n.answer(waits)
		n.lead()
		n.wantAck(n.publish("s.a", "", "y"), `{"stream":"S","seq":1}`)
	})
}
