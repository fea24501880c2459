package replication

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestFullDiskBehindACut: a leader whose disk gets full resigns, with entries that nobody else has. Its successor has it
// cut them, for which there is room, and store others, for which there is none. With room again it follows, unaided.
func TestFullDiskBehindACut(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var full [3]atomic.Bool
		for i, n := range w.nodes {
			n.wrap = func(fs vfs.FS) vfs.FS {
				return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if full[i].Load() && op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "groups/1/log") {
						return osError(op, syscall.ENOSPC)
					}
					return nil
				}))
			}
		}
		w.found()
		w.put("before")
		old := w.leader()
		disk := &full[slices.Index(w.nodes, old)]
		w.eventually("equal replicas", w.even)
		before := old.group().Status().LastLog
		w.fabric.Isolate(old.name, w.others(old)...)
		// The next one does not fit into the segment, nor its successor's first one in its place.
		for i := 0; old.group().Term() != nil; i++ {
			disk.Store(true)
			old.planner().submit(&request{value: fmt.Sprint(i, strings.Repeat("x", 12<<10)), answer: make(chan answer, 1)})
			w.pause(time.Millisecond)
		}
		if last := old.group().Status().LastLog; last <= before {
			t.Fatalf("the old leader's log ends at %d, as before", last)
		}
		seq := w.put(strings.Repeat("y", 40<<10))
		w.pause(2 * worldAppendTimeout) // what waits for the connection has all entries in one append
		w.fabric.Rejoin(old.name, w.others(old)...)
		w.eventually("the tail to be cut, and nothing stored in its place", func() bool {
			return old.group().rep.Load().logs.log.LastIndex() <= before
		})
		w.pause(10 * time.Second)
		disk.Store(false)
		w.same(seq)
		w.same(w.put("after"))
	})
}
