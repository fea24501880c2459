package replication

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// damageKinds are what can happen to the files of a group on one node, and what the
// report must name.
var damageKinds = []struct {
	name string
	do   func(e diskEdit, group string)
	file string
}{
	{
		"header of a segment", func(e diskEdit, g string) { e.flip(e.segments(g + "/log")[0], 20) },
		"/log/",
	},
	{
		"middle of a segment", func(e diskEdit, g string) { e.flip(e.segments(g + "/log")[0], 64+32+40) },
		"/log/",
	},
	{
		"tail of the last segment",
		func(e diskEdit, g string) {
			s := e.segments(g + "/log")
			e.cut(s[len(s)-1])
		},
		"/log/",
	},
	{
		"last segment deleted",
		func(e diskEdit, g string) {
			s := e.segments(g + "/log")
			e.remove(s[len(s)-1])
		},
		"/log/",
	},
	{"segment list flipped", func(e diskEdit, g string) { e.flip(g+"/log/SEGMENTS", 30) }, "/log/SEGMENTS"},
	{"segment list cut", func(e diskEdit, g string) { e.cut(g + "/log/SEGMENTS") }, "/log/SEGMENTS"},
	{"segment list deleted", func(e diskEdit, g string) { e.remove(g + "/log/SEGMENTS") }, "/log/SEGMENTS"},
	{"log deleted", func(e diskEdit, g string) { e.remove(g + "/log") }, "groups/"},
	{"pointer flipped", func(e diskEdit, g string) { e.flip(g+"/state/POINTER", 13) }, "/state/POINTER"},
	{"pointer cut", func(e diskEdit, g string) { e.cut(g + "/state/POINTER") }, "/state/POINTER"},
	{"pointer deleted", func(e diskEdit, g string) { e.remove(g + "/state/POINTER") }, "/state/POINTER"},
	{
		"table flipped",
		func(e diskEdit, g string) { e.each(g, ".sst", func(path string) { e.flip(path, 30) }) }, ".sst",
	},
	{"table cut", func(e diskEdit, g string) { e.each(g, ".sst", e.cut) }, "/state/db-"},
	{"table deleted", func(e diskEdit, g string) { e.each(g, ".sst", e.remove) }, "/state/db-"},
	{
		"MANIFEST flipped",
		func(e diskEdit, g string) { e.each(g, "MANIFEST-", func(path string) { e.flip(path, 40) }) }, "/state/db-",
	},
	{
		"MANIFEST deleted",
		func(e diskEdit, g string) { e.each(g, "MANIFEST-", e.remove) }, "/state/db-",
	},
	// The log of these groups still has every entry.
	{"state deleted", func(e diskEdit, g string) { e.remove(g + "/state") }, ""},
	{"incarnation flipped", func(e diskEdit, g string) { e.flip(g+"/INCARNATION", 16) }, "/INCARNATION"},
	{"incarnation empty", func(e diskEdit, g string) { e.write(g+"/INCARNATION", nil) }, "/INCARNATION"},
	{"incarnation cut", func(e diskEdit, g string) { e.cut(g + "/INCARNATION") }, "/INCARNATION"},
	{"incarnation deleted", func(e diskEdit, g string) { e.remove(g + "/INCARNATION") }, "/INCARNATION"},
	{"everything deleted", func(e diskEdit, g string) { e.remove(g) }, "groups/"},
}

// crashAll is a disk as a power cut at this moment leaves it.
var crashAll = vfs.CrashCloneCfg{UnsyncedDataPercent: 0}

// cared is a world whose groups are looked after, with some values stored.
func cared(t *testing.T, f func(w *world)) {
	t.Helper()
	bubble(t, 3, func(w *world) { w.cared(f) })
}

func (w *world) cared(f func(w *world)) {
	w.t.Helper()
	end := w.careFor()
	defer end()
	for i := range 200 {
		w.put(value(i))
	}
	w.eventually("all replicas to be even", w.even)
	f(w)
}

// careFor founds a cluster whose groups are looked after until all is stopped by end.
func (w *world) careFor() (end func()) {
	w.t.Helper()
	stop := make(chan struct{})
	var work sync.WaitGroup
	w.found()
	w.register()
	work.Go(func() { w.control(stop) })
	return func() {
		close(stop)
		w.down()
		work.Wait()
	}
}

func value(i int) string { return fmt.Sprintf("value %d %s", i, padding[:300]) }

// complete checks that every replica holds the values 0 to n-1 as messages 1 to n.
func (w *world) complete(n int) {
	w.t.Helper()
	w.eventually("all replicas to be even", w.even)
	for _, node := range w.nodes {
		for i := range n {
			m, err := node.group().Reader().Message(testStream, uint64(i+1))
			if err != nil || string(m.Payload) != value(i) {
				w.t.Fatalf("%s: message %d is %.20q, %v", node.name, i+1, m.Payload, err)
			}
		}
	}
	w.equalStates()
}

// TestDamageIsReplaced damages each kind of file of one group on one node: the group is
// out of service there, does not vote, is replaced when a majority is healthy, and
// nothing is lost.
func TestDamageIsReplaced(t *testing.T) {
	for i, kind := range damageKinds {
		for group := range uint32(2) {
			t.Run(fmt.Sprintf("%s of group %d", kind.name, group), func(t *testing.T) {
				t.Parallel()
				cared(t, func(w *world) {
					victim := w.nodes[i%len(w.nodes)]
					w.damageOne(victim, group, kind.do, kind.file)
				})
			})
		}
	}
}

func (w *world) damageOne(victim *node, group uint32, do func(diskEdit, string), file string) {
	t := w.t
	t.Helper()
	// Tables are what a snapshot has written.
	if err := victim.host().Group(group).inst.Load().snapshot(); err != nil {
		t.Fatal(err)
	}
	before := victim.host().Group(group).Server()
	var other *node
	for _, n := range w.nodes {
		if n != victim {
			other = n
		}
	}
	w.powerCut(nil, 0, victim)
	dir := fmt.Sprintf("data/groups/%d", group)
	do(diskEdit{w, victim.mu.fs}, dir)
	// With a second one down there is no majority, unless the damaged one votes.
	w.powerCut(nil, 0, other)
	victim.up()
	g := victim.host().Group(group)
	if file == "" {
		w.rebuilt(g, other)
		return
	}
	if g.Damage() == nil {
		// What only a read can find: some reader comes.
		_, err := g.Reader().StateHash(t.Context())
		if err == nil {
			t.Fatal("a read of everything finds nothing")
		}
	}
	w.eventually("the damage to be seen", func() bool { return g.Status().Role == RoleDamaged })
	if d := g.Damage(); !strings.Contains(d.File, file) {
		t.Errorf("the report names %q, want %q: %s", d.File, file, d.Reason)
	}
	w.pause(20 * Local().Election)
	for _, n := range w.nodes {
		if h := n.host(); h != nil {
			if tm := h.Group(group).Term(); tm != nil && tm.Check() == nil {
				t.Errorf("%s leads with one healthy voter of three", n.name)
			}
		}
	}
	if d := g.Damage(); d == nil || d.Aside != "" || d.Waits == "" {
		t.Errorf("without a majority: %+v, want to wait and to say why", d)
	}
	if err := g.Reader().ScanMeta("", func(record.MetaRow) bool { return true }); !isDamage(err) {
		t.Errorf("a read of damaged data: %v", err)
	}
	other.up()
	w.eventually("all to be sound", w.sound)
	if after := g.Server(); after == before {
		t.Errorf("the replica is still %s", after)
	}
	if _, err := (diskEdit{w, victim.mu.fs}).fs.Stat(asideOf(w, victim, dir) + "/" + damageFile); err != nil {
		t.Errorf("the marker is not with what was set aside: %v", err)
	}
	w.complete(200)
	w.put(value(200))
	w.complete(201)
	// A restart finds nothing of it.
	w.powerCut(nil, 0, victim)
	victim.up()
	if d := victim.host().Group(group).Damage(); d != nil {
		t.Errorf("after a restart: %+v", d)
	}
	w.eventually("all to be sound", w.sound)
}

// rebuilt expects the state to be made again from a log that was never cut, or the
// replica to be replaced.
func (w *world) rebuilt(g *Group, other *node) {
	w.t.Helper()
	if first := g.rep.Load(); g.Damage() == nil && first.logs.log.FirstIndex() != 1 {
		w.t.Errorf("the log starts at %d, and the state is lost", first.logs.log.FirstIndex())
	}
	other.up()
	w.eventually("all to be sound", w.sound)
	w.complete(200)
}

func asideOf(w *world, n *node, dir string) string {
	return (diskEdit{w, n.mu.fs}).find(dir, asidePrefix, "")
}

// TestOldDirectoryPutBack: a node whose whole directory is an older copy, consistent in
// itself, is noticed by the marks of the others.
func TestOldDirectoryPutBack(t *testing.T) {
	for _, clean := range []bool{false, true} {
		t.Run(fmt.Sprintf("clean stop %t", clean), func(t *testing.T) {
			t.Parallel()
			cared(t, func(w *world) {
				victim := w.nodes[1]
				old := victim.mu.fs.CrashClone(crashAll)
				for i := range 20 {
					w.put(value(200 + i))
				}
				w.eventually("all replicas to be even", w.even)
				w.pause(time.Second)
				before := victim.group().Server()
				if clean {
					victim.down()
				} else {
					w.powerCut(nil, 0, victim)
				}
				victim.mu.fs = old
				victim.up()
				w.eventually("the old directory to be noticed", func() bool {
					d := victim.group().Damage()
					return d != nil && strings.Contains(d.Reason, "once acknowledged")
				})
				w.eventually("all to be sound", w.sound)
				if victim.group().Server() == before {
					t.Error("it is still the same replica")
				}
				w.complete(220)
			})
		})
	}
}

// TestOldDirectoryAfterAFullStop: the marks are on the disks of the others.
func TestOldDirectoryAfterAFullStop(t *testing.T) {
	cared(t, func(w *world) {
		victim := w.nodes[2]
		old := victim.mu.fs.CrashClone(crashAll)
		for i := range 20 {
			w.put(value(200 + i))
			w.pause(markEvery)
		}
		w.eventually("all replicas to be even", w.even)
		w.pause(2 * time.Second) // idle logs are sealed
		for _, n := range w.nodes {
			n.down()
		}
		victim.mu.fs = old
		for _, n := range w.nodes {
			n.up()
		}
		w.eventually("the old directory to be noticed", func() bool { return victim.group().Damage() != nil })
		w.eventually("all to be sound", w.sound)
		w.complete(220)
	})
}

// TestDamageFoundWhileRunning: whoever in the process finds damage, and tells the group, takes
// it out of service, durably, and the rest of the node goes on. What finds it, rot_test.go has.
func TestDamageFoundWhileRunning(t *testing.T) {
	cared(t, func(w *world) {
		victim := w.leader()
		for group := range uint32(2) {
			g := victim.host().Group(group)
			g.damaged(record.Damaged("data/somewhere", "made up"))
			w.eventually("the marker", func() bool {
				d, err := markedDamage(victim.mu.fs, group, g.cfg.Dir)
				return err == nil && d != nil && d.File == "data/somewhere" && g.Status().Role == RoleDamaged
			})
			w.put(value(200 + int(group)))
			w.eventually("all to be sound", w.sound)
		}
		w.complete(202)
		select {
		case err := <-victim.fatal:
			t.Errorf("the whole node stopped: %v", err)
		default:
		}
	})
}

// TestMarkerIsHonoured: a crash right after damage was marked does not make it forgotten.
func TestMarkerIsHonoured(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		n := w.nodes[0]
		n.up()
		if err := n.host().BootstrapSingle(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.put("one")
		g := n.group()
		g.damaged(record.Damaged("data/x", "made up"))
		w.eventually("the marker", func() bool { return g.Status().Role == RoleDamaged })
		w.powerCut(rand.New(rand.NewPCG(1, 1)), 0, n)
		n.up()
		d := n.group().Damage()
		if d == nil || d.File != "data/x" || n.group().Status().Role != RoleDamaged {
			t.Fatalf("after a power cut: %+v", d)
		}
		if n.host().Group(Metadata).Damage() != nil {
			t.Error("the other group is damaged, too")
		}
		// On a single node nothing is replaced by itself, and health says what to do.
		w.pause(time.Minute)
		if d := n.group().Damage(); d.Aside != "" || !strings.Contains(d.Waits, "salvage") {
			t.Errorf("after a minute: %+v", d)
		}
	})
}
