package replication

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// rotTables flips a bit in the middle of every table of a group, in place. The first block and
// the index are in memory since the start, and would not be read from the disk again.
func (n *node) rotTables(group uint32) (tables map[string]bool) {
	n.w.t.Helper()
	synctest.Wait() // no compaction takes the files away meanwhile
	e, tables := diskEdit{n.w, n.mu.fs}, make(map[string]bool)
	e.each(fmt.Sprintf("data/groups/%d", group), ".sst", func(path string) {
		e.rot(path, int64(len(e.read(path))/2))
		tables[path] = true
	})
	return tables
}

// flushedFollower stores some values, and returns a follower whose tables hold them.
func (w *world) flushedFollower(values int) *node {
	w.t.Helper()
	for i := range values {
		w.put(value(i))
	}
	w.eventually("even", w.even)
	n := w.follower()
	if err := n.group().inst.Load().snapshot(); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// marker returns what the durable marker of a group says, wherever it is by now; nil without one.
func (n *node) marker(group uint32) *Damage {
	dir := fmt.Sprintf("data/groups/%d", group)
	fsys := n.mu.fs.CrashClone(crashAll)
	dirs := []string{dir}
	names, err := fsys.List(dir)
	diskEdit{n.w, fsys}.fail(err)
	for _, name := range names {
		if strings.HasPrefix(name, asidePrefix) {
			dirs = append(dirs, fsys.PathJoin(dir, name))
		}
	}
	for _, dir := range dirs {
		if d, err := markedDamage(fsys, group, dir); err != nil || d != nil {
			diskEdit{n.w, fsys}.fail(err)
			return d
		}
	}
	return nil
}

// TestTablesRot: a table of a live state goes bad. Whoever comes to it, a read or a compaction,
// takes the group out of service, with a durable marker that names the file. The process and
// the other group go on, starts do not run into it again and again, and the replica is replaced.
func TestTablesRot(t *testing.T) {
	for _, c := range []struct {
		name     string
		group    uint32
		compacts bool // nobody reads
		leads    bool
	}{
		{"a read of a follower", 1, false, false},
		{"a read of the leader", 1, false, true},
		{"a read of group 0", 0, false, false},
		{"a compaction of a follower", 1, true, false},
		{"a compaction of the leader", 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cared(t, func(w *world) { w.tablesRot(c.group, c.compacts, c.leads) })
		})
	}
}

func (w *world) tablesRot(group uint32, compacts, leads bool) {
	w.t.Helper()
	victim := w.follower()
	if group == Metadata {
		w.fillMeta()
	}
	g := victim.host().Group(group)
	if err := g.inst.Load().snapshot(); err != nil { // tables are what a flush has written
		w.t.Fatal(err)
	}
	before := g.Server()
	// Nothing of the tables is in memory any more but what a start reads.
	w.powerCut(nil, 0, victim)
	victim.up()
	w.eventually("all to be sound", w.sound)
	if leads {
		w.handTo(victim)
	}
	g = victim.host().Group(group)
	tables := victim.rotTables(group)
	acked := make(acks)
	for i := 0; g.Damage() == nil; i++ {
		if i == 3000 {
			w.t.Fatal("nobody finds the damage")
		}
		if !compacts {
			_, _ = g.Reader().StateHash(w.t.Context()) // what it finds shows in the group
		}
		w.publish(fmt.Sprintf("%d %s", i, padding), acked)
		w.pause(20 * time.Millisecond)
	}
	w.outOfService(victim, group, tables)
	w.eventually("all to be sound", w.sound)
	if now := victim.host().Group(group).Server(); now == before {
		w.t.Errorf("the replica is still %s", now)
	}
	w.publish("after", acked)
	w.holds(acked)
	w.complete(200)
}

// fillMeta makes group 0 larger than a block of a table.
func (w *world) fillMeta() {
	w.t.Helper()
	for i := range 30 {
		ctx, cancel := context.WithTimeout(w.t.Context(), simWait)
		err := w.nodes[0].host().Meta().Write(ctx, nil, []record.MetaWrite{
			{Key: fmt.Sprintf("row %d", i), Value: []byte(large(i))},
		})
		cancel()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	w.eventually("all replicas to be even", w.even)
}

// handTo makes a node lead group 1.
func (w *world) handTo(n *node) {
	w.t.Helper()
	w.eventually(n.name+" to lead", func() bool {
		leader := w.leader()
		if leader != n {
			ctx, cancel := context.WithTimeout(w.t.Context(), simWait)
			_ = leader.group().Transfer(ctx, n.name) // the next look sees what became of it
			cancel()
		}
		return leader == n
	})
}

// outOfService expects a group that has just been found damaged to be so for good, whatever
// restarts, and the rest of the node to work.
func (w *world) outOfService(victim *node, group uint32, files map[string]bool) {
	w.t.Helper()
	w.eventually("the marker", func() bool { return victim.marker(group) != nil })
	if d := victim.marker(group); !files[d.File] {
		w.t.Errorf("the marker names %q, want one of %v: %s", d.File, files, d.Reason)
	}
	for range 2 {
		marked, err := markedDamage(victim.mu.fs, group, fmt.Sprintf("data/groups/%d", group))
		if err != nil {
			w.t.Fatal(err)
		}
		w.powerCut(nil, 0, victim) // it reports what was fatal
		victim.up()
		if d := victim.host().Group(group).Damage(); marked != nil && (d == nil || d.File != marked.File) {
			w.t.Errorf("after a restart: %+v, the marker was %+v", d, marked)
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if group != Metadata {
		if err := addOne(ctx, victim.host().Meta()); err != nil {
			w.t.Errorf("group 0 of the node that has damage: %v", err)
		}
	}
}

// TestLogRots: what a follower has missed went bad on the disk of the leader, that has to read
// it there. The leader gives way and is replaced, the follower gets what it missed from another one.
func TestLogRots(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.tune = func(c *Config) { c.Log.TailBytes = -1 } // nothing of a log is in memory
		w.cared(func(w *world) {
			behind, leader := w.follower(), w.leader()
			before, log := leader.group().Server(), leader.group().rep.Load().logs.log
			if err := leader.group().inst.Load().snapshot(); err != nil {
				t.Fatal(err)
			}
			w.fabric.Isolate(behind.name, w.others(behind)...)
			acked, from := make(acks), log.LastIndex()
			for i := range 12 { // fewer than a snapshot leaves in the log
				if !w.publish(value(1000+i), acked) {
					t.Fatal("no answer with a majority at hand")
				}
			}
			if first := log.FirstIndex(); first > from {
				t.Fatalf("the log starts at %d, the follower ends at %d", first, from)
			}
			e, files := diskEdit{w, leader.mu.fs}, make(map[string]bool)
			for _, path := range e.segments("data/groups/1/log") {
				at := strings.Index(string(e.read(path)), value(1005))
				if at >= 0 {
					e.rot(path, int64(at))
					files[path] = true
				}
			}
			if len(files) == 0 {
				t.Fatal("no segment holds the entry")
			}
			w.fabric.Rejoin(behind.name, w.others(behind)...)
			w.eventually("the damage to be found", func() bool { return leader.group().Damage() != nil })
			w.outOfService(leader, 1, files)
			w.eventually("all to be sound", w.sound)
			if leader.group().Server() == before {
				t.Error("it is still the same replica")
			}
			w.publish("after", acked)
			w.holds(acked)
			w.complete(200)
		})
	})
}
