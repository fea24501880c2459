package replication

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestLeaderCannotSend: a follower is so far behind that it needs a snapshot, and the leader
// cannot send a sound one. It finds that out, and another node leads and sends its own.
func TestLeaderCannotSend(t *testing.T) {
	for name, v := range map[string]struct {
		spoil func(w *world, leader *node)
		file  string // that the report names
	}{
		"tables rot": {func(_ *world, n *node) { n.rotTables(1) }, ".sst"},
		// What nobody reads who makes the copy; the follower refuses it.
		"a block of messages rots": {func(w *world, n *node) {
			e, largest, size := diskEdit{w, n.mu.fs}, "", 0
			e.each("data/groups/1", ".sst", func(path string) {
				if b := e.read(path); len(b) > size {
					largest, size = path, len(b)
				}
			})
			e.rot(largest, int64(size/2))
		}, ".sst"},
		"a table is missing": {func(w *world, n *node) {
			e := diskEdit{w, n.mu.fs}
			e.each("data/groups/1", ".sst", e.remove)
		}, ".sst"},
		"the manifest rots": {func(w *world, n *node) {
			e := diskEdit{w, n.mu.fs}
			e.each("data/groups/1", "MANIFEST-", func(path string) { e.rot(path, 40) })
		}, ""},
		"the manifest is missing": {func(w *world, n *node) {
			e := diskEdit{w, n.mu.fs}
			e.each("data/groups/1", "MANIFEST-", e.remove)
		}, "MANIFEST-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 3, func(w *world) {
				end := w.careFor()
				defer end()
				acked := make(acks)
				c := w.leaveBehind(acked)
				leader := w.leader()
				v.spoil(w, leader)
				c.up()
				w.eventually("the damage to be seen", func() bool { return leader.group().Damage() != nil })
				w.eventually("the marker", func() bool { return leader.marker(1) != nil })
				if d := leader.marker(1); !strings.Contains(d.File, "/state/db-") || !strings.Contains(d.File, v.file) {
					t.Errorf("the marker names %q, want a %s of the state: %s", d.File, v.file, d.Reason)
				}
				if next := w.leader(); next == leader {
					t.Error("it still leads")
				}
				w.eventually("all to be sound", w.sound)
				w.publish("after", acked)
				w.holds(acked)
			})
		})
	}
}

// TestLeaderCannotRead: the same, with a disk of the leader that does not read what it has
// to send. That node stops, as with any failure of its disk; another one leads.
func TestLeaderCannotRead(t *testing.T) {
	for name, file := range map[string]string{"the copy": "/out-", "the manifest": "/db-1/MANIFEST-"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 3, func(w *world) {
				var broken [3]atomic.Bool
				for i, n := range w.nodes {
					n.wrap = func(fs vfs.FS) vfs.FS {
						return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
							read := op.Kind == errorfs.OpFileRead || op.Kind == errorfs.OpFileReadAt
							if read && broken[i].Load() && strings.Contains(op.Path, "groups/1/state"+file) {
								return osError(op, syscall.EIO)
							}
							return nil
						}))
					}
				}
				end := w.careFor()
				defer end()
				acked := make(acks)
				c := w.leaveBehind(acked)
				leader := w.leader()
				disk := &broken[slices.Index(w.nodes, leader)]
				disk.Store(true)
				c.up()
				w.eventually("the leader to stop", func() bool { return len(leader.fatal) > 0 })
				if err := <-leader.fatal; !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), file) {
					t.Errorf("it stops with %v", err)
				}
				leader.fell()
				w.eventually("the follower is there", func() bool {
					return c.group().Status().Applied >= w.leader().group().Status().Applied
				})
				w.publish("without it", acked)
				disk.Store(false)
				leader.up()
				w.eventually("all to be sound", w.sound)
				w.holds(acked)
			})
		})
	}
}

// TestPointerIsGone: a leader whose pointer file is removed sends snapshots all the same,
// and writes another one with the next of its own; a start before that finds the damage.
func TestPointerIsGone(t *testing.T) {
	for name, snapshots := range map[string]bool{"power cut before a snapshot": false, "after one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 3, func(w *world) {
				end := w.careFor()
				defer end()
				acked := make(acks)
				c := w.leaveBehind(acked)
				leader := w.leader()
				before := leader.group().Server()
				e := diskEdit{w, leader.mu.fs}
				e.remove("data/groups/1/state/POINTER")
				d, err := e.fs.OpenDir("data/groups/1/state")
				e.fail(err)
				e.fail(errors.Join(d.Sync(), d.Close()))
				c.up()
				w.eventually("the follower is there", func() bool {
					return c.group().Status().Applied >= w.leader().group().Status().Applied
				})
				if snapshots {
					w.publish("one more", acked)
					if err := leader.group().inst.Load().snapshot(); err != nil {
						t.Fatal(err)
					}
				}
				w.powerCut(nil, 0, leader)
				leader.up()
				if d := leader.group().Damage(); snapshots != (d == nil) || d != nil && !strings.HasSuffix(d.File, "/POINTER") {
					t.Errorf("after a power cut: %+v", d)
				}
				w.publish("after", acked)
				w.eventually("all to be sound", w.sound)
				w.publish("all there", acked)
				w.holds(acked)
				if same := leader.group().Server() == before; same != snapshots {
					t.Errorf("the replica is the same: %t", same)
				}
			})
		})
	}
}
