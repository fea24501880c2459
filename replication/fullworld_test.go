package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/storage/disk"
)

const (
	// fullSamples is how many steps of each kind are tried, without WRITES in the environment.
	fullSamples = 1
	// fullStop bounds a stop, and a start, on a full disk: each replica waits for a table or two that it may not make yet.
	fullStop = 4 * disk.RetryAfter
	// fullServe is how long a cluster may serve nobody while one of its disks is full.
	fullServe = 20 * time.Second
)

// fullWorld is a cluster that comes to full disks under a fixed workload.
type fullWorld struct {
	*world

	disks
	role   string
	fs     map[*node]*fullFS
	behind *node // the follower that needs a snapshot
	acked  acks
	served time.Time // when a publish was acknowledged last
	ended  []string  // why nodes had to end
}

// fullEnds are what ends a full disk.
var fullEnds = []struct {
	name string
	f    func(*fullWorld)
}{
	{"room", func(*fullWorld) {}},
	{"power cut", (*fullWorld).cut},
	{"restart", (*fullWorld).restart},
}

// TestFullDisksAtEachStep lets the disks of one role get full at one step after the other of a workload, and stay so for
// a while: everything that needs room fails from then on. What was acknowledged is kept, replicas do not diverge, one
// full disk stops nobody else, and nodes stop for the reasons that are documented alone. When there is room again, all
// goes on: by itself, after a power cut on the full disk, or after a stop and a start on it, which come to an end.
func TestFullDisksAtEachStep(t *testing.T) {
	samples := fullSamples
	if n, err := strconv.Atoi(os.Getenv("WRITES")); err == nil {
		samples = n
	}
	roles, kinds := []string{"leader", "follower", "all"}, []bool{false, true}
	if underRace {
		roles, kinds = roles[:1], kinds[:1]
	}
	for _, overwrites := range kinds {
		for _, role := range roles {
			t.Run(fmt.Sprintf("%s,overwrites=%v", role, overwrites), func(t *testing.T) {
				t.Parallel()
				fullDisks(t, role, overwrites, samples)
			})
		}
	}
}

func fullDisks(t *testing.T, role string, overwrites bool, samples int) {
	t.Helper()
	var steps map[step]int
	bubble(t, 3, func(w *world) {
		f := newFullWorld(w, role, overwrites)
		f.begin(f.those(), step{}, 0)
		f.work()
		steps = f.count
		f.room()
	})
	t.Logf("%d kinds of steps: %v", len(steps), steps)
	for _, kind := range fullKinds(role, overwrites) {
		if steps[kind] == 0 {
			t.Errorf("the workload never comes to %v", kind)
		}
	}
	hits, runs, why := 0, 0, map[string]int{}
	for kind, n := range steps {
		for i := range min(samples, n) {
			end := fullEnds[runs%len(fullEnds)]
			runs++
			at := 1 + (2*i*n+n-1)/(2*samples)
			bubble(t, 3, func(w *world) {
				f := newFullWorld(w, role, overwrites)
				f.begin(f.those(), kind, at)
				if f.run(end.f) {
					hits++
				}
				for _, e := range f.ended {
					why[e]++
				}
			})
			if t.Failed() {
				t.Fatalf("full at %v, number %d of %d; then: %s", kind, at, n, end.name)
			}
		}
	}
	t.Logf("full at %d of %d tried; nodes ended: %v", hits, runs, why)
	if hits < runs*2/3 {
		t.Errorf("only %d of %d disks got full", hits, runs)
	}
}

// fullKinds are steps that a workload must come to.
func fullKinds(role string, overwrites bool) []step {
	kinds := []step{
		{"segment of the log", "create"},
		{"segment of the log", "preallocate"},
		{"segment of the log", "write"},
		{"list of the log", "write"},
		{"table", "create"},
		{"table", "write"},
		{"manifest", "write"},
		{"pointer of the snapshot", "write"},
	}
	if role != "follower" {
		kinds = append(kinds, step{"copy for a follower", "link"})
	}
	if role != "leader" {
		kinds = append(kinds, step{"other file of the state", "make directory"})
	}
	if overwrites {
		kinds = append(kinds, step{"entries", "overwrite"}, step{"vote", "overwrite"}, step{"seal with marks", "overwrite"},
			step{"table", "sync"}, step{"manifest", "sync"}, step{"pointer of the snapshot", "rename"})
	}
	return kinds
}

func newFullWorld(w *world, role string, overwrites bool) *fullWorld {
	f := &fullWorld{world: w, role: role, fs: make(map[*node]*fullFS), acked: make(acks)}
	f.overwrites = overwrites
	for _, n := range w.nodes {
		n.wrap = func(mem vfs.FS) vfs.FS {
			if f.fs[n] == nil {
				f.fs[n] = &fullFS{d: &f.disks}
			}
			f.fs[n].FS = mem
			if err := mem.MkdirAll("data", 0o755); err != nil {
				w.t.Fatal(err)
			}
			g, err := disk.New(disk.Config{FS: f.fs[n], Dir: "data"})
			if err != nil {
				w.t.Fatal(err)
			}
			return g.FS()
		}
	}
	w.found()
	f.publish("before")
	w.eventually("all know their cluster", func() bool {
		return !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.host().ClusterID() == "" })
	})
	leader := w.leader()
	f.behind = w.nodes[(slices.Index(w.nodes, leader)+1)%3]
	return f
}

// those are the disks of the role.
func (f *fullWorld) those() []*fullFS {
	switch f.role {
	case "leader":
		return []*fullFS{f.fs[f.leader()]}
	case "follower":
		return []*fullFS{f.fs[f.behind]}
	default:
		return []*fullFS{f.fs[f.nodes[0]], f.fs[f.nodes[1]], f.fs[f.nodes[2]]}
	}
}

// publish stores a value, if it can be, and takes away the nodes that had to end meanwhile.
func (f *fullWorld) publish(value string) {
	f.t.Helper()
	seq, ok := f.ask(request{value: value})
	if old, twice := f.acked[seq]; ok && twice {
		f.t.Errorf("sequence %d was acknowledged for %.20q, and for %.20q", seq, value, old)
	}
	if ok {
		f.acked[seq], f.served = value, time.Now()
	}
	for _, n := range f.nodes {
		if n.host() != nil && len(n.fatal) > 0 {
			f.fell(n)
		}
	}
}

// fell ends a node that cannot go on, for a reason that docs/durability.md names.
func (f *fullWorld) fell(n *node) {
	f.t.Helper()
	err := <-n.fatal
	text := err.Error()
	why := ""
	for _, known := range []string{"MANIFEST", "store term", "activate", "seglog: failed", "publish snapshot"} {
		if strings.Contains(text, known) {
			why = known
			break
		}
	}
	if why == "" || !strings.Contains(text, syscall.ENOSPC.Error()) {
		f.t.Errorf("%s ended: %v", n.name, err)
	}
	if !f.overwrites && (why == "seglog: failed" || why == "publish snapshot") {
		f.t.Errorf("%s ended, although it can overwrite: %v", n.name, err)
	}
	f.ended = append(f.ended, why)
	f.within("stop of "+n.name, n.fell)
}

// within says how long something may take on a full disk.
func (f *fullWorld) within(what string, do func()) {
	f.t.Helper()
	begin := time.Now()
	do()
	if d := time.Since(begin); d > fullStop {
		f.t.Errorf("%s took %v, at most %v are allowed", what, d, fullStop)
	}
}

// load publishes for a while, deletes some of that, and writes rows of the metadata group.
func (f *fullWorld) load(length time.Duration) {
	f.t.Helper()
	begin := time.Now()
	for i := 0; time.Since(begin) < length; i++ {
		f.publish(fmt.Sprintf("%d %s", time.Since(f.start), padding))
		if i%10 == 9 {
			f.remove()
		}
		if i%20 == 19 {
			f.row()
		}
		f.pause(20 * time.Millisecond)
	}
}

// remove deletes one message.
func (f *fullWorld) remove() {
	for seq := range f.acked {
		if _, ok := f.ask(request{delete: seq}); ok {
			f.served = time.Now()
		}
		delete(f.acked, seq) // perhaps it is gone
		return
	}
}

func (f *fullWorld) row() {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
	defer cancel()
	for _, n := range f.nodes {
		if h := n.host(); h != nil && addOne(ctx, h.Meta()) == nil {
			return
		}
	}
}

// work is the workload: publishes, deletes, rows, snapshots, another leader, and a follower that needs a snapshot.
func (f *fullWorld) work() {
	f.t.Helper()
	f.load(3 * time.Second)
	f.fabric.Isolate(f.behind.name, f.others(f.behind)...)
	for i := range 150 {
		f.publish(large(i))
		if f.filled() != "" && i > 20 {
			break // what is not answered takes its time
		}
		f.pause(20 * time.Millisecond)
	}
	f.fabric.Rejoin(f.behind.name, f.others(f.behind)...)
	f.load(3 * time.Second)
	for _, n := range f.nodes {
		if h := n.host(); h != nil && h.Group(1).Term() != nil {
			ctx, cancel := context.WithTimeout(f.t.Context(), simWait)
			_ = h.Group(1).Transfer(ctx, "") // it may be refused
			cancel()
		}
	}
	f.load(3 * time.Second)
}

// run is the workload and what follows; it says whether the disks got full.
func (f *fullWorld) run(end func(*fullWorld)) bool {
	f.t.Helper()
	f.work()
	what := f.filled()
	if what != "" {
		begin := time.Now()
		f.load(2 * time.Second)
		for f.role != "all" && f.served.Before(begin) && time.Since(begin) < fullServe {
			f.load(time.Second)
		}
		if f.role != "all" && f.served.Before(begin) {
			f.t.Errorf("full at %s: nothing was acknowledged within %v, and two disks have room", what, fullServe)
		}
		end(f)
	}
	f.room()
	f.eventually("a publish is acknowledged", func() bool {
		for _, n := range f.nodes {
			n.up() // those that had to end, and one that had to a moment ago
		}
		before := len(f.acked)
		f.publish("there is room again")
		return len(f.acked) > before && !slices.ContainsFunc(f.nodes, func(n *node) bool { return n.host() == nil })
	})
	for _, n := range f.nodes {
		if d := n.group().Damage(); d != nil {
			f.t.Errorf("%s is damaged: %+v", n.name, d)
		}
	}
	f.holds(f.acked)
	f.powerCut(nil, 0, f.nodes...)
	for _, n := range f.nodes {
		n.up()
	}
	f.same(f.put("after"))
	f.holds(f.acked)
	return what != ""
}

// cut takes the power of all nodes at once while the disks are full.
func (f *fullWorld) cut() {
	f.t.Helper()
	var up []*node
	for _, n := range f.nodes {
		if n.host() != nil {
			up = append(up, n)
			f.fabric.Isolate(n.name, f.others(n)...)
		}
	}
	left := make([]*vfs.MemFS, len(up))
	for i, n := range up {
		left[i] = n.mu.fs.CrashClone(crashAll)
	}
	for i, n := range up {
		f.fabric.Crash(n.name)
		f.within("stop of "+n.name, n.fell)
		f.fabric.Rejoin(n.name, f.others(n)...)
		n.mu.fs = left[i]
	}
}

// restart stops the nodes and starts them while the disks are full: each serves, or says which disk is full.
func (f *fullWorld) restart() {
	f.t.Helper()
	for _, n := range f.nodes {
		if n.host() != nil {
			f.within("stop of "+n.name, n.fell)
		}
	}
	for _, n := range f.nodes {
		f.within("start of "+n.name, func() {
			n.boot++
			n.mu.planner = newPlanner(fmt.Sprintf("%s%d", n.name, n.boot))
			h, err := Open(f.t.Context(), n.config())
			switch {
			case err == nil:
				n.mu.host = h
			case !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the disk of data is full: 0 bytes are free"):
				f.t.Errorf("start of %s: %v", n.name, err)
			default:
				f.ended = append(f.ended, "start")
			}
		})
	}
	f.load(time.Second)
	for _, n := range f.nodes {
		if n.host() != nil {
			f.within("second stop of "+n.name, n.fell)
		}
		for len(n.fatal) > 0 {
			f.t.Log("a start was refused:", <-n.fatal)
		}
	}
}
