package transport

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/transport/memnet"
)

// knock is the pause after which a failed dial is tried again.
const knock = DefaultHeartbeatTimeout / 10

// silence and patience are those of the default configuration.
const (
	silence  = 3 * time.Second
	patience = DefaultTwinPatience
)

// twins are the processes of one node id on two hosts, and a peer of them. The peer reaches the first one by that
// id unless at says otherwise.
func twins(t *testing.T) (first, second, peer *puppet, at func(host string)) {
	t.Helper()
	fab := memnet.New()
	var to string
	at = func(host string) { to = host + ":1" } // before whatever dials
	at("one")
	on := func(host string) func(*Config) {
		return func(c *Config) { c.Network, c.Listen = fab.Host(host), host+":1" }
	}
	first, second = newPuppet(t, fab, "n", on("one")), newPuppet(t, fab, "n", on("two"))
	peer = newPuppet(t, fab, "b", func(c *Config) { c.Resolve = func(string) (string, bool) { return to, true } })
	return first, second, peer, at
}

// tries beats until it succeeds, at most for limit, and returns how long that took.
func (p *puppet) tries(to *puppet, limit time.Duration) time.Duration {
	p.t.Helper()
	start := time.Now()
	for {
		_, err := p.beat(to, 1)
		if err == nil {
			return time.Since(start)
		}
		if time.Since(start) > limit {
			p.t.Fatalf("not within %v: %v", limit, err)
		}
		wait1(knock)
	}
}

func isTwin(t *testing.T, err error, where string) {
	t.Helper()
	if !errors.Is(err, ErrTwin) || !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "n is heard at "+where) {
		t.Fatalf("%v; want ErrTwin, of n, and %q", err, where)
	}
}

// While a process is heard, another one of its id is refused, and knows after a while; the one that is heard never
// hears of it.
func TestSecondProcessIsRefused(t *testing.T) {
	for name, dialled := range map[string]bool{"by whom the first dialled": false, "by who dialled the first": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second, peer, _ := twins(t)
				where := "one:4" // a port of the first one's host
				from, to := first, peer
				if dialled {
					where, from, to = "one:1", peer, first
				}
				if _, err := from.beat(to, 1); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				for time.Since(start) < patience {
					if w, ok := second.tr.Twin(); ok {
						t.Fatalf("%+v after %v", w, time.Since(start))
					}
					_, err := second.beat(peer, 1)
					isTwin(t, err, where)
					if !errors.Is(err, ErrRefused) {
						t.Fatalf("%v, want ErrRefused", err)
					}
					wait1(time.Second)
				}
				second.tr.Meet("b")
				synctest.Wait()
				w, ok := second.tr.Twin()
				if !ok || w.Peer != "b" || !strings.HasPrefix(w.Other, where) {
					t.Errorf("%+v, %v; want b and %s", w, ok, where)
				}
				if w, ok := first.tr.Twin(); ok {
					t.Errorf("the first: %+v", w)
				}
				if c := peer.tr.Counters(); c.TwinsRefused.Load() != 11 || c.TwinsReplaced.Load() != 0 || c.Replaced.Load() != 0 {
					t.Errorf("counted %d refused, %d replaced", c.TwinsRefused.Load(), c.TwinsReplaced.Load())
				}
				if _, err := from.beat(to, 1); err != nil || from.tr.Counters().Dials.Load() != 1 {
					t.Errorf("the first connection: %v", err)
				}
				if len(second.took()) != 0 {
					t.Errorf("the second one's Raft got %v", second.took())
				}
			})
		})
	}
}

// Whoever dials the first one's address and reaches the second notices it.
func TestDialledSecondProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, peer, at := twins(t)
		if _, err := first.beat(peer, 1); err != nil {
			t.Fatal(err)
		}
		at("two")
		_, err := peer.beat(first, 1)
		isTwin(t, err, "one:4")
		_, err = peer.beat(first, 1)
		isTwin(t, err, "one:4")
		if n := len(second.took()); n != 0 {
			t.Errorf("the second one's Raft got %d requests", n)
		}
		at("one")
		wait1(knock)
		if _, err := peer.beat(first, 1); err != nil {
			t.Error(err)
		}
	})
}

// A snapshot comes from and goes to the process that is heard.
func TestSnapshotOfSecondProcess(t *testing.T) {
	install := func(from, to *puppet) error {
		return from.g.InstallSnapshot(raft.ServerID(to.addr), to.addr,
			&raft.InstallSnapshotRequest{RPCHeader: from.header(), Term: 1, Size: 3},
			&raft.InstallSnapshotResponse{}, bytes.NewReader(make([]byte, 3)))
	}
	synctest.Test(t, func(t *testing.T) {
		first, second, peer, at := twins(t)
		if _, err := first.beat(peer, 1); err != nil {
			t.Fatal(err)
		}
		isTwin(t, install(second, peer), "one:4")
		at("two")
		isTwin(t, install(peer, first), "one:4")
		if n := len(second.took()); n != 0 {
			t.Errorf("the second one's Raft got %d requests", n)
		}
		at("one")
		for _, err := range []error{install(first, peer), install(peer, first)} {
			var remote *RemoteError // from Raft, which the test plays: it got there
			if !errors.As(err, &remote) {
				t.Errorf("the first: %v", err)
			}
		}
	})
}

// A process that was killed leaves no open connection: the next one is let in at once.
func TestRestartIsNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, peer, at := twins(t)
		for range 3 {
			if _, err := first.beat(peer, 1); err != nil {
				t.Fatal(err)
			}
			if _, err := peer.beat(first, 1); err != nil {
				t.Fatal(err)
			}
			first.fab.Drop("one", "b")
			synctest.Wait()
			at("two")
			if _, err := second.beat(peer, 1); err != nil {
				t.Fatal(err)
			}
			if _, err := peer.beat(second, 1); err != nil {
				t.Fatal(err)
			}
			first.fab.Drop("two", "b")
			synctest.Wait()
			at("one")
		}
		if c := peer.tr.Counters(); c.TwinsRefused.Load() != 0 || c.TwinsReplaced.Load() != 0 {
			t.Errorf("counted %d refused, %d replaced", c.TwinsRefused.Load(), c.TwinsReplaced.Load())
		}
	})
}

// A process whose connections stay open and silent (a loss of power, a stopped process) gives way to one that comes
// for some while, and is the one to be refused when it is back.
func TestSilentProcessGivesWay(t *testing.T) {
	for name, tc := range map[string]struct {
		quiet    time.Duration // before the other one comes
		min, max time.Duration // until it is let in
	}{
		"just heard":  {0, silence - DefaultIdleTimeout*3/20, silence + 2*knock},
		"long silent": {2 * silence, silence / 2, silence/2 + 2*knock},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second, peer, at := twins(t)
				for _, err := range []error{errOf(first.beat(peer, 1)), errOf(peer.beat(first, 1))} {
					if err != nil {
						t.Fatal(err)
					}
				}
				old := peer.tr.link("n").current()
				wait1(time.Minute) // pings keep it
				first.fab.Isolate("one", "b")
				wait1(tc.quiet)
				took := second.tries(peer, time.Minute)
				if took < tc.min || took > tc.max {
					t.Errorf("let in after %v, want %v to %v", took, tc.min, tc.max)
				}
				if w, ok := second.tr.Twin(); ok {
					t.Errorf("the second: %+v", w)
				}
				if old.alive() || peer.tr.Counters().TwinsReplaced.Load() != 1 {
					t.Error("the connection to the first one is open")
				}
				at("two")
				if _, err := peer.beat(second, 1); err != nil {
					t.Error(err)
				}
				// The first one is back: it is refused for as long as the second is heard.
				first.fab.Rejoin("one", "b")
				wait1(time.Second)
				start := time.Now()
				for time.Since(start) <= patience {
					isTwin(t, errOf(first.beat(peer, 1)), "two:")
					wait1(knock)
				}
				if w, ok := first.tr.Twin(); !ok || w.Peer != "b" {
					t.Errorf("the first: %+v, %v", w, ok)
				}
				if w, ok := second.tr.Twin(); ok {
					t.Errorf("the second: %+v", w)
				}
				// The second one ends.
				first.fab.Drop("two", "b")
				synctest.Wait()
				if _, err := first.beat(peer, 1); err != nil {
					t.Error(err)
				}
				if w, ok := first.tr.Twin(); ok {
					t.Errorf("the first, let in: %+v", w)
				}
			})
		})
	}
}

func errOf[T any](_ T, err error) error { return err }

// One that comes now and then does not take the place of a silent one: after a pause of the node that hears both,
// what the first one sent is still to be read.
func TestNoPlaceForWhoComesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, peer, _ := twins(t)
		if _, err := first.beat(peer, 1); err != nil {
			t.Fatal(err)
		}
		first.fab.Isolate("one", "b")
		for range 5 {
			isTwin(t, errOf(second.beat(peer, 1)), "one:4")
			wait1(silence/2 + time.Millisecond)
		}
		first.fab.Rejoin("one", "b")
		if _, err := first.beat(peer, 1); err != nil || first.tr.Counters().Dials.Load() != 1 {
			t.Error(err)
		}
	})
}

// A partition that heals finds the processes that were there.
func TestPartitionIsNoTwin(t *testing.T) {
	for _, d := range []time.Duration{silence, DefaultIdleTimeout, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			a, b := twoPuppets(t)
			both := func() {
				t.Helper()
				for _, err := range []error{errOf(a.beat(b, 1)), errOf(b.beat(a, 1))} {
					if err != nil {
						t.Error(err)
					}
				}
			}
			both()
			a.fab.Isolate("a", "b")
			start := time.Now()
			for time.Since(start) < d {
				a.tr.Meet("b")
				b.tr.Meet("a")
				wait1(time.Second)
			}
			a.fab.Rejoin("a", "b")
			wait1(DefaultHandshakeTimeout + time.Second)
			both()
			for _, p := range []*puppet{a, b} {
				c := p.tr.Counters()
				if w, ok := p.tr.Twin(); ok || c.TwinsRefused.Load() != 0 || c.TwinsReplaced.Load() != 0 {
					t.Errorf("%s after %v: %+v, %d refused", p.id, d, w, c.TwinsRefused.Load())
				}
			}
		})
	}
}

// Refusals count together only if they come without a long pause, often enough, and none was let in between.
func TestRefusalsThatDoNotCount(t *testing.T) {
	tr := func(t *testing.T) *Transport { return newPuppet(t, memnet.New(), "n", nil).tr }
	for name, tc := range map[string]struct {
		play func(*Transport)
		want bool
	}{
		"enough": {func(tr *Transport) {
			for range twinRefusals {
				tr.refusedAsTwin("b", "x:1")
				wait1(patience / (twinRefusals - 1))
			}
		}, true},
		"too few": {func(tr *Transport) {
			for range twinRefusals - 1 {
				tr.refusedAsTwin("b", "x:1")
				wait1(patience / (twinRefusals - 2))
			}
		}, false},
		"too short": {func(tr *Transport) {
			for range 10 * twinRefusals {
				tr.refusedAsTwin("b", "x:1")
				wait1((patience - time.Millisecond) / (10*twinRefusals - 1))
			}
		}, false},
		"a pause": {func(tr *Transport) {
			for range 2 {
				for range twinRefusals {
					tr.refusedAsTwin("b", "x:1")
					wait1(time.Second)
				}
				wait1(twinGap - time.Second + time.Millisecond)
				tr.refusedAsTwin("b", "x:1")
			}
		}, false},
		"let in between": {func(tr *Transport) {
			for range 2 {
				for range twinRefusals {
					tr.refusedAsTwin("b", "x:1")
					wait1(patience / (twinRefusals + 1))
				}
				tr.letIn("b")
			}
		}, false},
		"by different peers": {func(tr *Transport) {
			for i := range 2 * twinRefusals {
				tr.refusedAsTwin(string(rune('b'+i)), "x:1")
				wait1(patience / twinRefusals)
			}
		}, false},
		"long ago": {func(tr *Transport) {
			for range twinRefusals {
				tr.refusedAsTwin("b", "x:1")
				wait1(patience / (twinRefusals - 1))
			}
			wait1(twinGap)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := tr(t)
				tc.play(tr)
				if w, ok := tr.Twin(); ok != tc.want {
					t.Errorf("%+v, %v; want %v", w, ok, tc.want)
				}
			})
		})
	}
}

// What is known of processes that are gone is dropped.
func TestProcessesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fab := memnet.New()
		b := newPuppet(t, fab, "b", nil)
		for i := range 5 {
			p := newPuppet(t, fab, string(rune('p'+i)), nil)
			if _, err := p.beat(b, uint64(i+1)); err != nil {
				t.Fatal(err)
			}
			fab.Crash(p.id)
			synctest.Wait()
		}
		b.tr.mu.Lock()
		defer b.tr.mu.Unlock()
		if n := len(b.tr.st.processes); n != 1 {
			t.Errorf("%d processes are remembered, want the last", n)
		}
	})
}
