package replication

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// oldFiles are the files of a replica, but for its log, that can be put back to what they
// were while the others stay: from a copy of the disk that is older than the node's place in the
// cluster, than its replica, or than what was stored last.
var oldFiles = []struct {
	name string
	// reseeded: the copy is of a replica that was replaced since.
	reseeded bool
	// noticed: whatever else the state is like, the start finds it.
	noticed bool
	put     func(old, now diskEdit, group string)
}{
	{"pointer", false, false, func(old, now diskEdit, g string) { old.back(now, g+"/state/POINTER") }},
	{"pointer of a state that was replaced", true, false, func(old, now diskEdit, g string) {
		old.back(now, g+"/state/POINTER")
	}},
	{"manifest", false, false, func(old, now diskEdit, g string) {
		old.back(now, old.find(g+"/state/db-1", "MANIFEST-", ""))
	}},
	// The one that a database begins with.
	{"marker of the manifest", false, true, func(_, now diskEdit, g string) {
		now.remove(now.find(g+"/state/db-1", "marker.manifest", ""))
		now.write(g+"/state/db-1/marker.manifest.000001.MANIFEST-000001", nil)
	}},
	{"table", false, true, func(old, now diskEdit, g string) {
		var last string
		old.each(g, ".sst", func(path string) { last = path })
		now.each(g, ".sst", func(path string) { now.write(path, old.read(last)) })
	}},
	{"INCARNATION", true, false, func(old, now diskEdit, g string) { old.back(now, g+"/INCARNATION") }},
	{"DAMAGED", true, true, func(_, now diskEdit, g string) {
		now.write(g+"/DAMAGED", now.read(now.find(g, asidePrefix, "")+"/DAMAGED"))
	}},
}

// back puts a file of an old copy of a disk in its place of today.
func (e diskEdit) back(now diskEdit, path string) {
	e.w.t.Helper()
	now.fail(now.fs.MkdirAll(now.fs.PathDir(path), 0o755))
	b := e.read(path)
	if _, err := now.fs.Stat(path); err == nil && bytes.Equal(b, now.read(path)) {
		e.w.t.Fatalf("%s has not changed since", path)
	}
	now.write(path, b)
}

// TestOldFilePutBack: one file of a replica is an older copy, which verifies by itself. Whether
// that is noticed or does no harm, nothing that was acknowledged is lost, not even if the
// replica is needed for a majority, and it is complete in the end.
func TestOldFilePutBack(t *testing.T) {
	for i, kind := range oldFiles {
		for group := range uint32(2) {
			t.Run(fmt.Sprintf("%s of group %d", kind.name, group), func(t *testing.T) {
				t.Parallel()
				cared(t, func(w *world) {
					victim := w.nodes[i%len(w.nodes)]
					old := victim.keep(group)
					if kind.reseeded {
						victim.host().Group(group).damaged(record.Damaged("data/somewhere", "made up"))
						w.eventually("another replica", func() bool {
							return victim.host().Group(group).Damage() == nil && w.sound()
						})
					}
					noticed := w.oldFileBack(victim, group, func(now diskEdit) {
						kind.put(diskEdit{w, old}, now, fmt.Sprintf("data/groups/%d", group))
					})
					if kind.noticed && !noticed {
						t.Error("nobody noticed it")
					}
				})
			})
		}
	}
}

// TestOldNodeFilePutBack: the same of the file NODE, as it was before its node came to a cluster.
func TestOldNodeFilePutBack(t *testing.T) {
	bubble(t, 3, func(w *world) {
		victim := w.nodes[1]
		victim.up()
		old := victim.mu.fs.CrashClone(crashAll)
		w.cared(func(w *world) {
			w.oldFileBack(victim, 1, func(now diskEdit) { diskEdit{w, old}.back(now, "data/NODE") })
			w.eventually("it knows its cluster", func() bool {
				return victim.host().ClusterID() == w.leader().host().ClusterID()
			})
		})
	})
}

// keep returns the disk of a node as it is with a snapshot of what there is.
func (n *node) keep(group uint32) *vfs.MemFS {
	n.w.t.Helper()
	if err := n.host().Group(group).inst.Load().snapshot(); err != nil {
		n.w.t.Fatal(err)
	}
	return n.mu.fs.CrashClone(crashAll)
}

func (w *world) oldFileBack(victim *node, group uint32, put func(now diskEdit)) (noticed bool) {
	w.t.Helper()
	const count = 250
	for i := 200; i < count; i++ {
		w.put(value(i))
		if i%5 == 0 {
			ctx, cancel := context.WithTimeout(w.t.Context(), simWait)
			if err := addOne(ctx, w.leader().host().Meta()); err != nil {
				w.t.Fatal(err)
			}
			cancel()
		}
	}
	w.eventually("all replicas to be even", w.even)
	victim.keep(group)
	var other *node
	for _, n := range w.nodes {
		if n != victim {
			other = n
		}
	}
	w.powerCut(nil, 0, victim, other)
	put(diskEdit{w, victim.mu.fs})
	victim.up()
	w.pause(20 * Local().Election)
	noticed = victim.host().Group(group).Damage() != nil
	for _, n := range w.nodes {
		if n != other && n.group().Term() != nil { // with the vote of the victim
			if m, err := n.group().Reader().Message(testStream, count); err != nil || string(m.Payload) != value(count-1) {
				w.t.Errorf("%s leads, and its message %d is %.20q, %v", n.name, count, m.Payload, err)
			}
		}
	}
	other.up()
	w.eventually("all to be sound", w.sound)
	w.complete(count)
	w.put(value(count))
	w.complete(count + 1)
	w.powerCut(nil, 0, victim)
	victim.up()
	w.eventually("all to be sound", w.sound)
	w.complete(count + 1)
	return noticed
}
