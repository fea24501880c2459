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
		logs, snaps := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		conf := raftConfig("a/1", Local(), testRetention(), newWorld(t, 0).log)
		block := make(chan struct{})
		r, err := raft.NewRaft(conf, &stuckFSM{block: block}, logs, logs, snaps, trans)
		if err != nil {
			t.Fatal(err)
		}
		only := raft.Configuration{Servers: []raft.Server{{ID: "a/1", Address: "a/1"}}}
		boot := r.BootstrapCluster(only)
		gone := make(chan struct{})
		if !releaseOn(boot, gone) || boot.Error() != nil {
			t.Fatal("bootstrap")
		}
		<-time.After(time.Second) // elected
		// The state machine hangs on the first entry; the others never get an answer.
		futures := map[string]raft.Future{
			"first":    r.ApplyLog(raft.Log{Data: []byte("1")}, 0),
			"second":   r.ApplyLog(raft.Log{Data: []byte("2")}, 0),
			"barrier":  r.Barrier(0),
			"change":   r.AddNonvoter("b/1", "b/1", 0, time.Second),
			"transfer": r.LeadershipTransferToServer("b/1", "b/1"),
		}
		for name, f := range futures {
			if !releaseOn(f, gone) {
				t.Errorf("%s: %T has no ShutdownCh", name, f)
			}
		}
		<-time.After(time.Second)
		down := r.Shutdown()
		close(block)
		if err := down.Error(); err != nil {
			t.Fatal(err)
		}
		close(gone)
		released := 0
		for name, f := range futures {
			if err := f.Error(); errors.Is(err, raft.ErrRaftShutdown) {
				released++
			} else {
				t.Logf("%s: %v", name, err)
			}
		}
		if released == 0 {
			t.Error("nothing was left unanswered; the test shows nothing")
		}
		// A future that is an answer already has no channel, and needs none.
		if f := r.ApplyLog(raft.Log{}, 0); releaseOn(f, gone) && f.Error() == nil {
			t.Error("applied after the shutdown")
		}
	})
}

type stuckFSM struct {
	raft.MockFSM

	block chan struct{}
}

// Apply implements raft.FSM.
func (f *stuckFSM) Apply(*raft.Log) any {
	<-f.block
	return nil
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
