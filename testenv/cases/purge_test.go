package cases

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
)

// The purge of one subject concerns nobody else's pending messages, and leaves room for the next message of the
// subject, which is delivered (https://github.com/nats-io/nats-server/issues/2607,
// https://github.com/nats-io/nats.go/issues/1202).
func purgedSubjectIsFree(t *testing.T, e *env) {
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{
		Name: "PURGED", Subjects: []string{"purged.*.*"}, Retention: jetstream.WorkQueuePolicy,
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
	})
	consumer := func(name string) jetstream.Consumer {
		return c.consumer(s, &jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "purged." + name + ".*",
		})
	}
	a, b := consumer("a"), consumer("b")
	for _, subject := range []string{"purged.a.1", "purged.b.1", "purged.a.2", "purged.b.2"} {
		c.publish(subject, "")
	}
	wantSequences(t, c.fetch(a, 1), 1)
	kept := c.fetch(b, 1)
	wantSequences(t, kept, 2)
	again := func() error {
		_, err := c.js.Publish(bounded(t), "purged.a.1", nil)
		return err
	}
	wantCode(t, again(), 10077)
	if err := s.Purge(bounded(t), jetstream.WithPurgeSubject("purged.a.1")); err != nil {
		t.Fatal(err)
	}
	check := func(cons jetstream.Consumer, unacked int, pending uint64) {
		t.Helper()
		if in := c.info(cons); in.NumAckPending != unacked || in.NumPending != pending {
			t.Errorf("%s: %d unacked and %d pending, want %d and %d", in.Name, in.NumAckPending, in.NumPending,
				unacked, pending)
		}
	}
	check(a, 0, 1)
	check(b, 1, 1)
	if err := again(); err != nil {
		t.Fatalf("the purged subject takes nothing: %v", err)
	}
	wantCode(t, again(), 10077)
	for _, m := range c.fetch(a, 2) {
		c.ack(m)
	}
	if err := again(); err != nil { // an ack makes room, too
		t.Fatal(err)
	}
	wantSequences(t, c.fetch(a, 1), 6)
	c.ack(kept[0])
	check(b, 0, 1)
	wantSequences(t, c.fetch(b, 1), 4)
}

// groupState is what an element of /raft says of a group.
type groupState struct {
	Group  uint32 `json:"group"`
	Term   uint64 `json:"term"`
	Leader string `json:"leader"`
}

// A message that is not there cannot be deleted. Whoever tries is told; no replica stops or loses its leader by it
// (https://github.com/nats-io/nats-server/issues/7308).
func deleteOfNothing(t *testing.T, e *env) {
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{Name: "DELETE", Subjects: []string{"delete"}, Replicas: 3})
	for range 3 {
		c.publish("delete", "")
	}
	states := func() (out []groupState) {
		for _, n := range e.Nodes {
			var groups []groupState
			e.admin(t, n.ID(), http.MethodGet, "/raft", &groups)
			out = append(out, groups...)
		}
		return out
	}
	if err := s.DeleteMsg(bounded(t), 2); err != nil {
		t.Fatal(err)
	}
	e.replicasAgree(t)
	before := states()
	for _, seq := range []uint64{2, 4, 1 << 62, 2} {
		for _, f := range []func(uint64) error{
			func(seq uint64) error { return s.DeleteMsg(bounded(t), seq) },
			func(seq uint64) error { return s.SecureDeleteMsg(bounded(t), seq) },
		} {
			if err := f(seq); !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) || !strings.Contains(err.Error(), "10057") {
				t.Fatalf("message %d: %v, want error 10057", seq, err)
			}
		}
	}
	c.publish("delete", "")
	c.wantHeld(s, 1, 3, 4)
	e.replicasAgree(t)
	if diff := cmp.Diff(before, states()); diff != "" {
		t.Errorf("leaders and terms (-before +after):\n%s", diff)
	}
}

// A purge below N and the publish that becomes N meet: N is not below N. What was stored from the sequence of a
// purge on is there afterwards (https://github.com/nats-io/nats-server/issues/8400).
func purgeLeavesWhatIsNotBelow(t *testing.T, e *env) {
	const rounds, burst = 20, 20
	c, purger := e.client(t, 0), e.client(t, 1)
	s := c.stream(&jetstream.StreamConfig{Name: "BELOW", Subjects: []string{"below"}, Replicas: 3})
	theirs, err := purger.js.Stream(bounded(t), "BELOW")
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for range rounds {
		purged := make(chan error, 1)
		go func() { purged <- theirs.Purge(bounded(t), jetstream.WithPurgeSequence(last+1)) }()
		seq := c.publish("below", "")
		if err := <-purged; err != nil { // in doubt, as a leader may be that loses its term: it can be repeated
			eventually(t, func() error { return theirs.Purge(bounded(t), jetstream.WithPurgeSequence(last+1)) })
		}
		if seq != last+1 {
			t.Fatalf("stored as %d, want %d", seq, last+1)
		}
		last = seq
		if st := c.state(s); st.Msgs != 1 || st.FirstSeq != seq {
			t.Fatalf("purged below %d while it was published: %+v", seq, st)
		}
		if _, err := s.GetMsg(bounded(t), seq); err != nil {
			t.Fatalf("message %d: %v", seq, err)
		}
	}
	// The same with many on their way.
	var futures []jetstream.PubAckFuture
	for i := range rounds * burst {
		f, err := c.js.PublishAsync("below", fmt.Append(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, f)
		if i%burst == burst/2 {
			last = uint64(rounds + i + 1) // this one, which may not be stored yet
			eventually(t, func() error { return theirs.Purge(bounded(t), jetstream.WithPurgeSequence(last)) })
		}
	}
	var seqs []uint64
	for _, f := range futures {
		select {
		case ack := <-f.Ok():
			seqs = append(seqs, ack.Sequence)
		case err := <-f.Err():
			t.Fatal(err)
		case <-bounded(t).Done():
			t.Fatal("no answer to a publish")
		}
	}
	if !slices.IsSorted(seqs) {
		t.Errorf("sequences in the order of the publishes: %v", seqs)
	}
	for _, seq := range seqs {
		if seq < last {
			continue
		}
		if _, err := read(t, func(ctx context.Context) (*jetstream.RawStreamMsg, error) { return s.GetMsg(ctx, seq) }); err != nil {
			t.Errorf("message %d after a purge below %d: %v", seq, last, err)
		}
	}
	if st := c.state(s); st.FirstSeq > last || st.Msgs != st.LastSeq-st.FirstSeq+1 {
		t.Errorf("purged below %d: %+v", last, st)
	}
	e.replicasAgree(t)
}
