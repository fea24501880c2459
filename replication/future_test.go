package replication

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestReleaseOn holds the library to what releaseOn needs of it.
func TestReleaseOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, trans := raft.NewInmemTransport("a/1")
		logs := &gatedStore{InmemStore: raft.NewInmemStore(), gate: make(chan struct{})}
		conf := raftConfig("a/1", Local(), testRetention(), newWorld(t, 0).log)
		r, err := raft.NewRaft(conf, &raft.MockFSM{}, logs, logs, raft.NewInmemSnapshotStore(), trans)
		if err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		answered := func(what string, f raft.Future) {
			t.Helper()
			if !releaseOn(f, gone) {
				t.Errorf("%s: %T has no ShutdownCh", what, f)
			}
			if err := f.Error(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		only := raft.Configuration{Servers: []raft.Server{{ID: "a/1", Address: "a/1"}}}
		answered("bootstrap", r.BootstrapCluster(only))
		<-time.After(time.Second) // elected
		answered("proposal", r.ApplyLog(raft.Log{Data: []byte("1")}, 0))
		answered("barrier", r.Barrier(0))
		answered("change", r.AddNonvoter("b/1", "b/1", 0, time.Second))

		// The main loop hangs in the log; what comes then waits in Raft's queues.
		logs.closed.Store(true)
		stuck := r.ApplyLog(raft.Log{Data: []byte("2")}, 0)
		<-time.After(time.Second)
		queued := map[string]raft.Future{
			"proposal": r.ApplyLog(raft.Log{Data: []byte("3")}, 0),
			"barrier":  r.Barrier(0),
			"transfer": r.LeadershipTransferToServer("b/1", "b/1"),
		}
		for what, f := range queued {
			if !releaseOn(f, gone) {
				t.Errorf("%s: %T has no ShutdownCh", what, f)
			}
		}
		down := r.Shutdown()
		close(logs.gate)
		if err := down.Error(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "dispatched", stuck.Error(), raft.ErrLeadershipLost)
		close(gone)
		for what, f := range queued {
			wantErr(t, what+" in a queue", f.Error(), raft.ErrRaftShutdown)
		}
	})
}

// gatedStore is a log whose writes hang once it is closed, until its gate opens.
type gatedStore struct {
	*raft.InmemStore

	closed atomic.Bool
	gate   chan struct{}
}

// StoreLogs implements raft.LogStore.
func (s *gatedStore) StoreLogs(logs []*raft.Log) error {
	if s.closed.Load() {
		<-s.gate
	}
	return s.InmemStore.StoreLogs(logs)
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ raft, want error }{
		{nil, nil},
		{raft.ErrNotLeader, record.ErrNotLeader},
		{raft.ErrEnqueueTimeout, record.ErrRefused},
		{raft.ErrLeadershipTransferInProgress, record.ErrRefused},
		{raft.ErrLeadershipLost, record.ErrUnknownOutcome},
		{raft.ErrRaftShutdown, record.ErrUnknownOutcome},
		{raft.ErrAbortedByRestore, record.ErrUnknownOutcome},
		{errors.New("disk"), record.ErrUnknownOutcome},
	} {
		got := outcome(tc.raft)
		if !errors.Is(got, tc.want) || !errors.Is(got, tc.raft) {
			t.Errorf("%v is %v, want %v", tc.raft, got, tc.want)
		}
	}
}

// fakeFuture is answered through its channel.
type fakeFuture struct {
	answer   chan error
	response any
}

func (f *fakeFuture) Error() error  { return <-f.answer }
func (f *fakeFuture) Response() any { return f.response }
func (f *fakeFuture) Index() uint64 { return 0 }

func TestCollector(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	c := newCollector(func(error) { seen.Add(1) })
	got := make(chan string, 8)
	done := func(name string) func(error) { return func(err error) { got <- fmt.Sprint(name, " ", err) } }
	first := &fakeFuture{answer: make(chan error, 1)}
	c.add(ticket{future: first, done: done("first")})
	c.add(ticket{failed: record.ErrRefused, done: done("refused")})
	stale := &fakeFuture{answer: make(chan error, 1), response: record.ErrStalePlan}
	stale.answer <- nil
	c.add(ticket{future: stale, done: done("stale")})
	odd := &fakeFuture{answer: make(chan error, 1), response: 7}
	odd.answer <- nil
	c.add(ticket{future: odd, done: done("odd")})
	select {
	case s := <-got:
		t.Errorf("%s before the first was answered", s)
	default:
	}
	first.answer <- nil
	for _, want := range []string{
		"first <nil>", "refused proposal refused", "stale stale plan", "odd outcome unknown: response int",
	} {
		if s := <-got; s != want {
			t.Errorf("got %q, want %q", s, want)
		}
	}
	c.close()
	c.add(ticket{failed: record.ErrNotLeader, done: done("late")})
	if s := <-got; s != "late not the leader" {
		t.Errorf("after close: %q", s)
	}
	if seen.Load() != 3 {
		t.Errorf("observed %d answers of Raft, want 3", seen.Load())
	}
}

func TestTransferWatch(t *testing.T) {
	t.Parallel()
	var w transferWatch
	at := time.Unix(1000, 0)
	busy := raft.ErrLeadershipTransferInProgress
	for i, s := range []struct {
		after int // seconds
		err   error
		want  int
	}{
		{0, nil, 0},
		{1, busy, 0},
		{1, busy, 1},
		{2, busy, 3},
		{1, nil, 0}, // one answer ends it
		{1, busy, 0},
		{2, busy, 2},
		{6, busy, 0}, // another transfer
		{5, busy, 5},
		{1, raft.ErrNotLeader, 0},
	} {
		at = at.Add(time.Duration(s.after) * time.Second)
		if got := w.seen(s.err, at, 5*time.Second); got != time.Duration(s.want)*time.Second {
			t.Errorf("step %d: %v, want %d s", i, got, s.want)
		}
	}
}
