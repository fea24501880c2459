package jepsen

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/testenv/netcut"
	"github.com/holdfast-mq/holdfast/testenv/process"
)

// scripted is a system whose processes are shells that do what a test tells them next.
type scripted struct {
	holdfast

	script string
}

func (s *scripted) args(*Cluster, *Node) ([]string, error) { return []string{"-c", s.script}, nil }

// Scripts: one ends with a code, or by a signal, when it likes; one goes on until it is told to end.
const (
	exits0    = "exit 0"
	exits1    = "echo it is broken; exit 1"
	exits2    = "exit 2"
	exits4    = "exit 4"
	dies      = "kill -ABRT $$"
	untilTold = "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"
	endsBadly = "trap 'exit 4' TERM; echo up; while :; do sleep 0.02; done"
	goesOn    = "exec sleep 600"
)

// healthy is a disk that can have every fault, and has none.
type healthy struct{ broken error }

func (*healthy) cutPower(context.Context) error { return nil }
func (*healthy) fill(int64) error               { return nil }
func (d *healthy) free() error                  { return d.broken }
func (*healthy) close() error                   { return nil }
func (*healthy) stall(time.Duration) error      { return nil }
func (*healthy) fail(failure) error             { return nil }

// stage is a cluster of shells.
type stage struct {
	*Cluster

	t     *testing.T
	shell *scripted
}

func newStage(t *testing.T, kind Kind) *stage {
	t.Helper()
	s := &stage{t: t, shell: &scripted{}}
	s.Cluster = &Cluster{Kind: kind, Net: netcut.New(), dir: t.TempDir(), bin: "/bin/sh", flavor: s.shell}
	for _, slot := range []string{"n1", "n2"} {
		n := &Node{Slot: slot, ID: slot, dir: filepath.Join(s.dir, slot)}
		n.disk = s.watch(n, &healthy{})
		s.Nodes = append(s.Nodes, n)
	}
	t.Cleanup(func() { s.must(s.Close()) })
	return s
}

func (s *stage) must(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

// runs starts a node with a script.
func (s *stage) runs(n *Node, script string) {
	s.t.Helper()
	s.shell.script = script
	s.must(s.Start(n))
}

// over starts a node with a script, and waits until it has ended.
func (s *stage) over(n *Node, script string) {
	s.t.Helper()
	s.runs(n, script)
	<-n.child.Done()
}

// up waits until the script of a node has set its traps.
func (s *stage) up(n *Node) {
	s.t.Helper()
	s.must(process.Until(s.t.Context(), func() error {
		if !strings.Contains(s.tail(n), "up") {
			return errors.New("not up")
		}
		return nil
	}))
}

func (s *stage) sick(n *Node) sickDisk {
	s.t.Helper()
	d, err := n.sick()
	s.must(err)
	return d
}

// twin is a node beside those of the cluster, with the id of the first one.
func (s *stage) twin() *Node { return &Node{Slot: "twin", ID: "n1", dir: filepath.Join(s.dir, "twin")} }

// TestEndsThatNothingExplains has processes end, and counts those ends that are a violation: however they are
// followed by what a nemesis does.
func TestEndsThatNothingExplains(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		act  func(s *stage, n *Node)
		want int
	}{
		{"it goes on, until it is killed", func(s *stage, n *Node) { s.runs(n, goesOn); s.must(s.Kill(n)) }, 0},
		{"it loses power", func(s *stage, n *Node) { s.runs(n, goesOn); s.must(s.CutPower(t.Context(), n)) }, 0},
		{"it stops when it is told", func(s *stage, n *Node) { s.runs(n, untilTold); s.up(n); s.must(s.Stop(t.Context(), n)) }, 0},
		{"it stops, and not well", func(s *stage, n *Node) { s.runs(n, endsBadly); s.up(n); s.must(s.Stop(t.Context(), n)) }, 1},
		{"it runs to the end of the run", func(s *stage, n *Node) { s.runs(n, goesOn) }, 0},

		{"it fails", func(s *stage, n *Node) { s.over(n, exits1) }, 1},
		{"it ends well, and nobody asked", func(s *stage, n *Node) { s.over(n, exits0) }, 1},
		{"it dies by a signal of its own", func(s *stage, n *Node) { s.over(n, dies) }, 1},
		{"it fails before it is killed", func(s *stage, n *Node) { s.over(n, exits1); s.must(s.Kill(n)) }, 1},
		{"it fails before its power is cut", func(s *stage, n *Node) { s.over(n, dies); s.must(s.CutPower(t.Context(), n)) }, 1},
		{"it fails before it is told to stop", func(s *stage, n *Node) { s.over(n, exits0); s.must(s.Stop(t.Context(), n)) }, 1},
		{"it fails before its files are gone", func(s *stage, n *Node) { s.over(n, exits1); s.must(s.wipe(n)) }, 1},
		{"it fails before everything is repaired", func(s *stage, n *Node) {
			s.over(n, exits1)
			s.shell.script = goesOn
			s.must(s.Repair())
		}, 1},
		{"it fails again and again", func(s *stage, n *Node) {
			for range 3 {
				s.over(n, exits1)
			}
		}, 3},
		{"it fails and is revived", func(s *stage, n *Node) {
			s.over(n, exits1)
			s.shell.script = goesOn
			s.must(s.revive(n))
		}, 1},

		{"it cannot go on, with a good disk", func(s *stage, n *Node) { s.over(n, exits4) }, 1},
		{"its disk is full", func(s *stage, n *Node) { s.must(n.disk.fill(0)); s.over(n, exits4) }, 0},
		{"its disk fails", func(s *stage, n *Node) { s.must(s.sick(n).fail(syncFails)); s.over(n, exits4) }, 0},
		{"its disk is slow", func(s *stage, n *Node) { s.must(s.sick(n).stall(time.Second)); s.over(n, exits4) }, 0},
		{"its disk is not slow any more", func(s *stage, n *Node) { s.must(s.sick(n).stall(0)); s.over(n, exits4) }, 1},
		{"it ends of a fault that is over", func(s *stage, n *Node) {
			s.runs(n, endsBadly)
			s.up(n)
			s.must(s.sick(n).fail(syncHangs), n.disk.free(), s.Stop(t.Context(), n))
		}, 0},
		{"it was started after the fault", func(s *stage, n *Node) {
			s.must(n.disk.fill(0), n.disk.free())
			s.over(n, exits4)
		}, 1},
		{"the disk of another one is full", func(s *stage, n *Node) { s.must(s.Nodes[1].disk.fill(0)); s.over(n, exits4) }, 1},
		{"its disk is full, and it fails", func(s *stage, n *Node) { s.must(n.disk.fill(0)); s.over(n, exits1) }, 1},

		{"it is refused for nothing", func(s *stage, n *Node) { s.over(n, exits2) }, 1},
		{"it was removed", func(s *stage, n *Node) { s.left(n.ID); s.over(n, exits2); s.over(n, exits2) }, 0},
		{"it was removed while it ran", func(s *stage, n *Node) {
			s.runs(n, "until test -e "+s.dir+"/go; do sleep 0.02; done; exit 2")
			s.left(n.ID)
			s.must(os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600))
			<-n.child.Done()
			s.must(s.wipe(n))
		}, 0},
		{"it was removed, and came back without its files", func(s *stage, n *Node) {
			s.left(n.ID)
			s.over(n, exits2)
			s.must(s.wipe(n))
			s.over(n, exits2)
		}, 1},
		{"another one was removed", func(s *stage, n *Node) { s.left("n2"); s.over(n, exits2) }, 1},
		{"the removal of it was not answered", func(s *stage, n *Node) {
			_ = s.shell.remove(t.Context(), s.Cluster, n.ID)
			s.over(n, exits2)
		}, 0},
		{"its twin is refused", func(s *stage, n *Node) { s.runs(n, goesOn); s.over(s.twin(), exits2) }, 0},
		{"its twin is refused once it is gone", func(s *stage, n *Node) {
			s.runs(n, goesOn)
			s.must(s.Kill(n))
			twin := s.twin()
			s.over(twin, exits2)
			s.must(s.Kill(twin))
		}, 1},
		{"it is refused for its twin", func(s *stage, n *Node) {
			s.runs(n, "until test -e "+s.dir+"/go; do sleep 0.02; done; exit 2")
			s.runs(s.twin(), goesOn)
			s.must(os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600), s.Kill(s.begins[1]))
			<-n.child.Done()
		}, 0},

		{"it was announced", func(s *stage, n *Node) {
			s.runs(n, endsBadly)
			s.up(n)
			s.allowEnd(n, 4)
			s.must(s.Stop(t.Context(), n))
		}, 0},
		{"it was announced of the one before", func(s *stage, n *Node) {
			s.runs(n, goesOn)
			s.allowEnd(n, 1)
			s.must(s.Kill(n))
			s.over(n, exits1)
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Holdfast)
			tt.act(s, s.Nodes[0])
			s.must(s.Close())
			if len(s.Ended) != tt.want {
				t.Errorf("%d ends: %q, want %d", len(s.Ended), s.Ended, tt.want)
			}
		})
	}
}

// TestEndsOfOthersAreTheirs: nothing is promised of nats-server.
func TestEndsOfOthersAreTheirs(t *testing.T) {
	t.Parallel()
	s := newStage(t, Default)
	s.over(s.Nodes[0], exits1)
	if s.must(s.Close()); len(s.Ended) > 0 {
		t.Error(s.Ended)
	}
}

// TestHeldNodesAreNoted: the judge needs the moments.
func TestHeldNodesAreNoted(t *testing.T) {
	t.Parallel()
	s := newStage(t, Holdfast)
	h := newHistory()
	s.onHold = h.hold
	s.runs(s.Nodes[0], goesOn)
	s.must(s.Pause(s.Nodes[0]), s.Resume(s.Nodes[0]), s.Pause(s.Nodes[1]), s.Isolate(s.Nodes[1]))
	if len(h.Held) != 2 {
		t.Errorf("%d moments, want those of the pause and the isolation: nobody pauses what does not run", len(h.Held))
	}
}

// TestEndSaysWhy: the report has what the process wrote last.
func TestEndSaysWhy(t *testing.T) {
	t.Parallel()
	s := newStage(t, Holdfast)
	s.over(s.Nodes[0], exits1)
	s.must(s.Close())
	if len(s.Ended) != 1 || !strings.Contains(s.Ended[0], "n1") || !strings.Contains(s.Ended[0], "exit code 1: it is broken") {
		t.Errorf("%q", s.Ended)
	}
}

// TestFaultOfADiskThatStays: a process that is started into it may end of it, too.
func TestFaultOfADiskThatStays(t *testing.T) {
	t.Parallel()
	s := newStage(t, Holdfast)
	n := s.Nodes[0]
	d := &healthy{broken: errors.New("still full")}
	n.disk = s.watch(n, d)
	s.must(n.disk.fill(0))
	if err := n.disk.free(); err == nil {
		t.Fatal("the fault ended")
	}
	s.over(n, exits4)
	d.broken = nil
	s.must(n.disk.free())
	s.over(n, exits4)
	if s.must(s.Close()); len(s.Ended) != 1 {
		t.Errorf("%d ends: %q, want that of the second process", len(s.Ended), s.Ended)
	}
}

// TestPlainDisksCannotBeSick: what a disk cannot do it cannot do when it is watched.
func TestPlainDisksCannotBeSick(t *testing.T) {
	t.Parallel()
	n := &Node{Slot: "n1"}
	if n.disk = (&Cluster{}).watch(n, &loopDisk{}); n.disk == nil {
		t.Fatal("no disk")
	}
	if _, err := n.sick(); !errors.Is(err, errNoSick) {
		t.Errorf("%v, want %v", err, errNoSick)
	}
}

// TestCrashesAreFoundInLogs: whatever the process ended with, and of whichever node it was.
func TestCrashesAreFoundInLogs(t *testing.T) {
	t.Parallel()
	s := newStage(t, Holdfast)
	s.over(s.Nodes[0], "echo all is well; echo 'panic: index out of range' >&2; echo goroutine 7; exit 2")
	s.over(s.Nodes[0], "echo 'fatal error: concurrent map writes'")
	s.over(s.twin(), "echo '  WARNING: DATA RACE'")
	s.over(s.Nodes[1], "echo no panic, nothing fatal")
	got, err := s.crashes()
	s.must(err)
	want := []string{
		"n1: panic: index out of range\ngoroutine 7\nfatal error: concurrent map writes\n",
		"twin:   WARNING: DATA RACE\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	long := strings.Repeat(strings.Repeat("x", 200)+"\n", 5)
	got, err = crashesIn(strings.NewReader("panic: a\n" + long + "panic: b"))
	s.must(err)
	if len(got) != 2 || got[1] != "panic: b" || len(got[0]) > crashText {
		t.Errorf("of two crashes, far apart: %q", got)
	}
}

// TestEndsAndCrashesAreProblems: a run with one of them is not a good one.
func TestEndsAndCrashesAreProblems(t *testing.T) {
	t.Parallel()
	r := reported(Holdfast, 5, 1, good(), StepReport{Step: "kill for 1s"})
	if p := r.Problems(); len(p) > 0 {
		t.Fatalf("a good run: %v", p)
	}
	r.Ended, r.Crashed = []string{"n1 with exit code 1"}, []string{"n2: panic: oh", "n3: panic: oh"}
	var got []string
	for _, p := range r.Problems() {
		got = append(got, p.What)
	}
	want := []string{"processes that ended by themselves, for no fault", "crashes in the logs"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
