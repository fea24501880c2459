package replication

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/disk"
	"github.com/holdfast-mq/holdfast/testenv/faultfs"
)

// osError is an error of the operating system on a file, as it comes from there.
func osError(op errorfs.Op, err error) error {
	return &os.PathError{Op: "use", Path: op.Path, Err: err}
}

// TestFailedDisk: wherever an operation fails, the node stops and names the file; the
// others go on, and with a disk that works, and has lost what was not synced, it is one of
// them again. What was acknowledged is on all of them.
func TestFailedDisk(t *testing.T) {
	for name, v := range map[string]struct {
		file string // in the path
		op   errorfs.OpKind
	}{
		"log write":         {"groups/1/log", errorfs.OpFileWriteAt},
		"log sync":          {"groups/1/log", errorfs.OpFileSyncData},
		"log list":          {"groups/1/log/SEGMENTS", errorfs.OpFileSync},
		"log directory":     {"groups/1/log", errorfs.OpRename},
		"table write":       {".sst", errorfs.OpFileWrite},
		"table sync":        {".sst", errorfs.OpFileSyncData},
		"manifest write":    {"MANIFEST-", errorfs.OpFileWrite},
		"manifest sync":     {"MANIFEST-", errorfs.OpFileSync},
		"pointer write":     {"groups/1/state/POINTER", errorfs.OpFileWrite},
		"pointer sync":      {"groups/1/state/POINTER", errorfs.OpFileSync},
		"pointer rename":    {"groups/1/state/POINTER", errorfs.OpRename},
		"metadata log sync": {"groups/0/log", errorfs.OpFileSyncData},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				var broken atomic.Bool
				var hit atomic.Pointer[string]
				n := w.nodes[1]
				n.wrap = func(fs vfs.FS) vfs.FS {
					return guarded(w, fs, 0, func(op errorfs.Op) error {
						if op.Kind != v.op || !broken.Load() || !strings.Contains(op.Path, v.file) {
							return nil
						}
						hit.CompareAndSwap(nil, &op.Path)
						return osError(op, syscall.EIO)
					}).FS()
				}
				w.found()
				acked := acks{w.put("before"): "before"}
				broken.Store(true)
				var fatal error
				for i := 0; fatal == nil; i++ {
					if i == 2000 {
						w.t.Fatal("the node goes on")
					}
					w.publish(fmt.Sprintf("%d %s", i, padding), acked)
					if i%20 == 0 {
						ctx, cancel := context.WithTimeout(w.t.Context(), simWait)
						_ = addOne(ctx, w.leader().host().Meta()) // group 0 writes, too
						cancel()
					}
					w.pause(10 * time.Millisecond)
					select {
					case fatal = <-n.fatal:
					default:
					}
				}
				if text := fatal.Error(); !strings.Contains(text, syscall.EIO.Error()) || !strings.Contains(text, v.file) {
					w.t.Errorf("%v of %s: stopped with %q", v.op, *hit.Load(), text)
				}
				n.fellPowerless()
				for i := range 5 {
					w.publish(fmt.Sprint("without it ", i), acked)
				}
				acked[w.put("without it")] = "without it"
				broken.Store(false)
				n.up()
				last := w.put("with it")
				acked[last] = "with it"
				w.same(last)
				w.holds(acked)
				// Also what it has acknowledged since is on its disk.
				w.powerCut(nil, 0, w.nodes...)
				for _, n := range w.nodes {
					n.up()
				}
				w.same(w.put("after"))
				w.holds(acked)
			})
		})
	}
}

// freeFS is as large as another file system.
type freeFS struct {
	vfs.FS
	size vfs.FS
}

// GetDiskUsage implements vfs.FS: a file system that cannot say has room.
func (f freeFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	if u, err := f.size.GetDiskUsage(path); err == nil {
		return u, nil
	}
	return vfs.DiskUsage{AvailBytes: 1 << 40}, nil
}

// guarded is the stack of a real node: faults under the guard of the disk.
func guarded(w *world, fs vfs.FS, ballast int64, inject errorfs.InjectorFunc) *disk.Guard {
	w.t.Helper()
	if err := fs.MkdirAll("data", 0o755); err != nil {
		w.t.Fatal(err)
	}
	g, err := disk.New(disk.Config{
		FS: freeFS{errorfs.Wrap(fs, inject), fs}, Dir: "data", Ballast: ballast,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	g.Restore(w.t.Context())
	return g
}

// fellPowerless is fell at the moment of a power cut: the disk loses what was not synced.
func (n *node) fellPowerless() {
	n.w.t.Helper()
	n.w.fabric.Isolate(n.name, n.w.others(n)...)
	lost := n.mu.fs.CrashClone(crashAll)
	n.fell()
	n.w.fabric.Rejoin(n.name, n.w.others(n)...)
	n.mu.lock.Lock()
	defer n.mu.lock.Unlock()
	n.mu.fs = lost
}

// fell ends a node that had to stop; it said so, perhaps many times.
func (n *node) fell() {
	n.w.t.Helper()
	n.mu.lock.Lock()
	h := n.mu.host
	n.mu.host = nil
	n.mu.lock.Unlock()
	if err := h.Shutdown(); err != nil {
		n.w.t.Logf("shutdown of %s: %v", n.name, err)
	}
	for len(n.fatal) > 0 {
		n.w.log.Debug("it had to stop", zap.Error(<-n.fatal))
	}
	n.check()
}

// same waits until every replica holds the message seq, the last one.
func (w *world) same(seq uint64) {
	w.t.Helper()
	w.eventually("all replicas are equal", func() bool {
		for _, n := range w.nodes {
			if _, err := n.group().Reader().Message(testStream, seq); err != nil {
				return false
			}
		}
		return true
	})
}

// TestSlowFollower: a follower whose disk hangs for almost as long as it may holds
// nobody up, and is replicated to again when it is over.
func TestSlowFollower(t *testing.T) {
	for name, during := range map[string]int{"idle": 0, "under load": 400} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				var hangs [3]atomic.Bool
				mend := make(chan struct{})
				for i, n := range w.nodes {
					n.wrap = func(fs vfs.FS) vfs.FS {
						return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
							if hangs[i].Load() && op.Kind == errorfs.OpFileSyncData {
								<-mend
							}
							return nil
						}))
					}
				}
				w.found()
				w.put("before")
				leader := w.leader()
				slow := (slices.Index(w.nodes, leader) + 1) % 3
				hangs[slow].Store(true)
				begin := time.Now()
				for i := range during {
					at := time.Now()
					w.put(fmt.Sprintf("%d %s", i, padding))
					if d := time.Since(at); d > time.Second {
						w.t.Errorf("put %d took %v", i, d)
					}
				}
				w.pause(stuckWrite - 2*time.Second - time.Since(begin))
				if w.leader() != leader {
					w.t.Error("the leader changed")
				}
				hangs[slow].Store(false)
				close(mend)
				w.same(w.put("after"))
			})
		})
	}
}

// TestStalledFollower: a follower that nobody reaches for a minute is replicated to
// again, by entries or by a snapshot.
func TestStalledFollower(t *testing.T) {
	for name, during := range map[string]int{"entries": 5, "snapshot": 400} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				w.found()
				w.put("before")
				leader := w.leader()
				slow := w.nodes[(slices.Index(w.nodes, leader)+1)%3]
				w.fabric.Isolate(slow.name, w.others(slow)...)
				begin := time.Now()
				for i := range during {
					w.put(fmt.Sprintf("%d %s", i, padding))
				}
				w.pause(time.Minute - time.Since(begin))
				w.fabric.Rejoin(slow.name, w.others(slow)...)
				w.same(w.put("after"))
			})
		})
	}
}

// fullDisk is a single node whose disk fills up at one write.
type fullDisk struct {
	*world

	n     *node
	ops   atomic.Int64
	at    atomic.Int64 // the write before which the disk fills up
	what  atomic.Pointer[string]
	quota atomic.Pointer[faultfs.Quota]
	guard atomic.Pointer[disk.Guard]
}

const (
	// ballastBytes is room for two segments of a log.
	ballastBytes = 128 << 10
	// anyRoom is a disk that does not fill up.
	anyRoom = 1 << 40
)

func newFullDisk(w *world, at, ballast int64) *fullDisk {
	d := &fullDisk{world: w, n: w.nodes[0]}
	d.n.wrap = func(fs vfs.FS) vfs.FS {
		q, err := faultfs.NewQuota(fs, "data", anyRoom)
		if err != nil {
			w.t.Fatal(err)
		}
		d.quota.Store(q)
		d.guard.Store(guarded(w, q, ballast, d.count))
		return d.guard.Load().FS()
	}
	w.found()
	w.put("before")
	d.ops.Store(0)
	d.at.Store(at)
	return d
}

// count counts what may need room; at the one that was asked for there is none left.
func (d *fullDisk) count(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate:
		if d.ops.Add(1) == d.at.Load() {
			d.what.Store(&op.Path)
			d.quota.Load().Fill(0)
		}
	default:
	}
	return nil
}

// ask wants a value stored or a message deleted; false if that is not acknowledged in time.
func (d *fullDisk) ask(r request) (seq uint64, ok bool) {
	r.answer = make(chan answer, 1)
	if p := d.n.planner(); p == nil || !p.submit(&r) {
		return 0, false
	}
	select {
	case a := <-r.answer:
		return a.seq, a.err == nil
	case <-time.After(simWait):
		return 0, false
	}
}

// run publishes for a while of virtual time, as long as that is not refused; what is
// acknowledged goes to acked. It says how many publishes were not.
func (d *fullDisk) run(length time.Duration, acked map[uint64]string) (failed int) {
	for begin := time.Now(); time.Since(begin) < length; d.pause(20 * time.Millisecond) {
		if d.at.Load() > 0 && d.guard.Load().Refusing() {
			continue
		}
		value := fmt.Sprintf("%d %s", time.Now().UnixNano(), padding)
		if seq, ok := d.ask(request{value: value}); ok {
			acked[seq] = value
		} else {
			failed++
		}
	}
	return failed
}

func (d *fullDisk) holds(acked map[uint64]string) {
	d.t.Helper()
	for seq, value := range acked {
		m, err := d.n.group().Reader().Message(testStream, seq)
		if err != nil || string(m.Payload) != value {
			d.t.Fatalf("message %d of %d that were acknowledged is %.20q, %v", seq, len(acked), m.Payload, err)
		}
	}
}

// fullDiskRun is how long each run goes: long enough for flushes, snapshots and rotations.
const fullDiskRun = 8 * time.Second

// TestFullDiskAtEachWrite lets the disk fill up at one write after the other. With a
// ballast no publish fails, and when they are refused messages can still be deleted.
// Without one publishes fail, or the node stops where Pebble leaves it no choice. What
// was acknowledged is there, and all goes on when there is room.
func TestFullDiskAtEachWrite(t *testing.T) {
	var total int64
	bubble(t, 1, func(w *world) {
		d := newFullDisk(w, -1, 0)
		d.run(fullDiskRun, map[uint64]string{})
		total = d.ops.Load()
	})
	const runs = 24
	stopped := 0
	for i := range int64(runs) {
		at := 1 + i*(total-1)/runs
		for _, ballast := range []int64{0, ballastBytes} {
			bubble(t, 1, func(w *world) {
				if newFullDisk(w, at, ballast).fills(ballast) {
					stopped++
				}
			})
			if t.Failed() {
				t.Fatalf("write %d of %d, ballast of %d", at, total, ballast)
			}
		}
	}
	t.Logf("%d writes, %d tried: without a ballast the node had to stop at %d of them", total, runs, stopped)
}

// fills runs the disk over its end and back; it says whether the node stopped.
func (d *fullDisk) fills(ballast int64) (stopped bool) {
	acked := make(map[uint64]string)
	failed := d.run(fullDiskRun, acked)
	if d.what.Load() == nil {
		d.t.Logf("no write %d this time", d.at.Load())
		return false
	}
	if ballast > 0 {
		d.rescued(failed, acked)
	} else if stopped = len(d.n.fatal) > 0; stopped {
		err := <-d.n.fatal
		d.t.Logf("full at %s: stopped: %v", *d.what.Load(), err)
		if !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
			d.t.Error("the node stops for another reason than the full disk")
		}
		d.quota.Load().SetLimit(anyRoom)
		d.n.fell()
		d.n.up()
	}
	d.quota.Load().SetLimit(anyRoom)
	d.guard.Load().Poll()
	d.guard.Load().Restore(d.t.Context())
	if st := d.guard.Load().Status(); st.Refusing || st.Ballast != ballast {
		d.t.Errorf("with room again: %+v", st)
	}
	d.eventually("a publish", func() bool { _, ok := d.ask(request{value: "there is room again"}); return ok })
	d.holds(acked)
	d.powerCut(nil, 0, d.n)
	d.n.up()
	d.leader()
	d.holds(acked)
	return stopped
}

// rescued: the ballast was given back before any publish failed.
func (d *fullDisk) rescued(failed int, acked map[uint64]string) {
	d.t.Helper()
	st := d.guard.Load().Status()
	if failed > 0 || len(d.n.fatal) > 0 {
		d.t.Errorf("full at %s: %d publishes failed, %+v", *d.what.Load(), failed, st)
	}
	deletes := 0
	for seq := range acked { // as many as the ballast is good for
		if deletes++; deletes > 20 {
			return
		}
		if _, ok := d.ask(request{delete: seq}); !ok {
			d.t.Errorf("full at %s: delete %d of message %d failed", *d.what.Load(), deletes, seq)
		}
		delete(acked, seq)
	}
}
