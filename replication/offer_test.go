package replication

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/transport"
)

// large is a value that makes states of some size.
func large(i int) string {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	b := make([]byte, 4000)
	for k := range b {
		b[k] = 'a' + byte(rng.UintN(26))
	}
	return fmt.Sprintf("%d %s", i, b)
}

// farBehind founds a cluster of three nodes, of which it returns the one that is down and
// so far behind that it needs a snapshot of some size.
func (w *world) farBehind() *node {
	w.t.Helper()
	w.found()
	return w.leaveBehind(make(acks))
}

// leaveBehind is farBehind in a cluster that there is.
func (w *world) leaveBehind(acked acks) *node {
	w.t.Helper()
	c := w.nodes[2]
	acked[w.put("first")] = "first"
	c.down()
	for i := range 100 {
		acked[w.put(large(i))] = large(i)
	}
	leader := w.leader()
	w.eventually("a log that is cut", func() bool {
		return leader.group().rep.Load().logs.log.FirstIndex() > 50
	})
	return c
}

func (w *world) snapshotBytes() (sent, resumed, done uint64) {
	for _, n := range w.nodes {
		if h := n.host(); h != nil {
			k := h.trans.Counters()
			sent += k.SnapshotBytesSent.Load()
			resumed += k.SnapshotsResumed.Load()
			done += k.SnapshotsSent.Load()
		}
	}
	return sent, resumed, done
}

// slow makes the links to a node slow, so that an install takes a while.
func (w *world) slow(to *node, d time.Duration) {
	for _, n := range w.nodes {
		if n != to {
			w.fabric.Delay(n.name, to.name, d)
		}
	}
}

// held is what the leader keeps: streams and followers.
func (n *node) held() (offers, followers int, floor uint64) {
	o := n.group().rep.Load().snaps.offers
	floor = o.floor()
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all), len(o.behind), floor
}

func smallChunks(c *transport.Config) { c.SnapshotChunk, c.SnapshotWindow = 4<<10, 4<<10 }

// TestInstallGoesOnAfterResets: whatever cuts an install, the rest of it is sent, not all.
func TestInstallGoesOnAfterResets(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				w.transport = smallChunks
				rng := rand.New(rand.NewPCG(seed, 7))
				c := w.farBehind()
				leader := w.leader()
				w.slow(c, time.Millisecond)
				stop := make(chan struct{})
				offered := w.watch(stop)
				c.up()
				resets, restarts := 0, 0
				caught := func() bool {
					return c.group().Status().Applied >= leader.group().Status().Applied
				}
				for deadline := time.Now().Add(5 * time.Minute); !caught(); {
					if time.Now().After(deadline) {
						t.Error("the follower does not catch up")
						break
					}
					// A cut that finds no bytes on their way cuts nothing; and there may be none
					// for a while, as the leader waits longer after each failure.
					from, _, _ := w.snapshotBytes()
					w.eventually("an install that goes on", func() bool {
						at, _, _ := w.snapshotBytes()
						return at >= from+(8<<10) || caught()
					})
					w.pause(time.Duration(rng.IntN(20)) * time.Millisecond)
					before := c.group().Status().Applied
					if before > 10 || resets+restarts > 25 {
						continue // the install is over
					}
					if rng.IntN(5) == 0 {
						c.down()
						w.pause(50 * time.Millisecond)
						c.up()
						restarts++
					} else {
						w.fabric.Drop(leader.name, c.name)
						resets++
					}
				}
				sent, resumed, done := w.snapshotBytes()
				close(stop)
				size := offered()
				if limit := size + uint64(resets+restarts)*(4<<10); sent > limit {
					t.Errorf("%d bytes sent for %d, after %d resets and %d restarts at most %d",
						sent, size, resets, restarts, limit)
				}
				t.Logf("%d bytes of a snapshot of %d, %d resets, %d restarts, gone on with %d times, %d done",
					sent, size, resets, restarts, resumed, done)
				if resumed == 0 || resets == 0 {
					t.Errorf("%d resets, gone on with %d times: the run does too little", resets, resumed)
				}
				w.eventually("nothing is kept any more", func() bool {
					offers, followers, floor := leader.held()
					return offers == 0 && followers == 0 && floor == 1<<64-1
				})
			})
		})
	}
}

// watch notes the sizes of the snapshots of group 1 that are offered, until stop is closed.
func (w *world) watch(stop <-chan struct{}) (size func() uint64) {
	sizes := map[string]uint64{}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			for _, n := range w.nodes {
				h := n.host()
				if h == nil || h.Group(1).rep.Load().snaps == nil {
					continue
				}
				o := h.Group(1).rep.Load().snaps.offers
				o.mu.Lock()
				for f := range o.all {
					if f.c != nil {
						id := f.c.ID()
						sizes[n.name+string(id[:])] = uint64(f.c.Size())
					}
				}
				o.mu.Unlock()
			}
		}
	})
	return func() (sum uint64) {
		done.Wait()
		for _, s := range sizes {
			sum += s
		}
		return sum
	}
}

// TestNoInstallLivelock: a follower catches up under writes that make the leader cut its
// log several times in each install, with one install.
func TestNoInstallLivelock(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.transport = smallChunks
		c := w.farBehind()
		leader := w.leader()
		w.slow(c, 5*time.Millisecond)
		first := leader.group().Reader().Pointer().Snapshot.Index
		c.up()
		stop := make(chan struct{})
		var done sync.WaitGroup
		done.Go(func() {
			for i := 1000; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					w.put(large(i))
				}
			}
		})
		w.eventually("an install under writes", func() bool { return c.group().Status().Applied > 50 })
		cuts := leader.group().Reader().Pointer().Snapshot.Index
		w.slow(c, 0)
		w.eventually("the follower is there", func() bool {
			return c.group().Status().Applied+20 > leader.group().Status().Applied
		})
		close(stop)
		done.Wait()
		_, _, installs := w.snapshotBytes()
		if installs != 1 {
			t.Errorf("%d installs, want one", installs)
		}
		if cuts < first+64 {
			t.Errorf("snapshots at %d and %d: the log was not to be cut in the install", first, cuts)
		}
	})
}

// TestAppliesDoNotWaitForAnInstall: while the files of a checkpoint cannot be read, writes go on.
func TestAppliesDoNotWaitForAnInstall(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.transport = smallChunks
		gate := make(chan struct{})
		var shut, waiting atomic.Bool
		for _, n := range w.nodes[:2] {
			n.wrap = func(fs vfs.FS) vfs.FS {
				return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind == errorfs.OpFileReadAt && strings.Contains(op.Path, "/out-") &&
						strings.Contains(op.Path, "groups/1/") && shut.Load() {
						waiting.Store(true)
						<-gate
					}
					return nil
				}))
			}
		}
		c := w.farBehind()
		shut.Store(true)
		c.up()
		w.eventually("an install that waits", waiting.Load)
		start := time.Now()
		for i := range 100 {
			w.put(large(i))
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("100 writes took %v", d)
		}
		shut.Store(false)
		close(gate)
		w.eventually("the follower is there", func() bool {
			return c.group().Status().Applied >= w.leader().group().Status().Applied
		})
	})
}

// TestRefusingFollowerKeepsNothing: the log is cut as ever while a follower is damaged,
// unreachable, or stops in the middle of an install for good.
func TestRefusingFollowerKeepsNothing(t *testing.T) {
	for name, refuse := range map[string]func(w *world, c *node){
		"quarantined": func(_ *world, c *node) { c.host().trans.Quarantine(1, "a test") },
		"unreachable": func(w *world, c *node) { w.fabric.Isolate(c.name, w.others(c)...) },
		"stopped in an install": func(w *world, c *node) {
			w.eventually("an install", func() bool { _, n, _ := w.leader().held(); return n > 0 })
			c.down()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				w.transport = smallChunks
				c := w.farBehind()
				w.slow(c, 10*time.Millisecond)
				c.up()
				refuse(w, c)
				leader := w.leader()
				log := leader.group().rep.Load().logs.log
				r := testRetention()
				deadline := time.Now().Add(r.InstallKeep + 20*time.Second)
				for i := 0; time.Now().Before(deadline); i++ {
					w.put(large(i))
					w.pause(100 * time.Millisecond)
				}
				kept := log.LastIndex() - log.FirstIndex()
				if kept < r.MinTrailing-1 {
					t.Errorf("%d entries kept, want at least %d as without it", kept, r.MinTrailing)
				}
				if limit := r.LogMaxBytes * 4; log.Bytes() > limit {
					t.Errorf("%d bytes of log kept, want at most %d", log.Bytes(), limit)
				}
				if _, followers, floor := leader.held(); followers != 0 {
					t.Errorf("%d followers, floor %d: the log is kept for ever", followers, floor)
				}
				w.fabric.Rejoin(c.name, w.others(c)...)
			})
		})
	}
}

// TestLogIsKeptUpToALimit: what is kept for a follower ends at Retention.InstallLogBytes, or
// at the size of the snapshot if that is more, and what was kept is cut then.
func TestLogIsKeptUpToALimit(t *testing.T) {
	t.Parallel()
	b := newCrashBench(t, vfs.NewCrashableMem())
	defer b.close()
	b.grow(60)
	b.snapshot(4)
	r := testRetention()
	r.InstallLogBytes = 1 << 40
	o := newOffers(b.store, b.logs, r, zap.NewNop())
	b.snaps.offers, b.logs.floor = o, o.floor
	meta, rc, err := b.snaps.Open("")
	if err != nil {
		t.Fatal(err)
	}
	reader, ok := rc.(*offerReader)
	if !ok {
		t.Fatalf("opened a %T", rc)
	}
	reader.Reached("c/1", 100)
	b.grow(400)
	b.snapshot(4)
	if first := b.log.FirstIndex(); first != meta.Index {
		t.Errorf("the log starts at %d, kept from %d on", first, meta.Index)
	}
	// The same one again, while it is being sent and after it was cut.
	for range 2 {
		again, second, err := b.snaps.Open("")
		if err != nil || again.ID != meta.ID || again.Size != meta.Size {
			t.Fatalf("opened %+v, %v, want %+v", again, err, meta)
		}
		var one, two bytes.Buffer
		_, err1 := one.ReadFrom(second)
		_, err2 := reader.Seek(0, 0)
		_, err3 := two.ReadFrom(reader)
		if err1 != nil || err2 != nil || err3 != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Errorf("another stream: %v %v %v", err1, err2, err3)
		}
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
	}
	o.bytes = max(reader.f.c.Size(), b.log.Bytes()-1)
	if limit := reader.f.c.Size(); b.log.Bytes() <= limit {
		t.Fatalf("a log of %d bytes and a snapshot of %d: nothing to see", b.log.Bytes(), limit)
	}
	if err := b.logs.cutAgain(); err != nil {
		t.Fatal(err)
	}
	if first := b.log.FirstIndex(); first <= meta.Index {
		t.Errorf("the log still starts at %d", first)
	}
	if next, third, err := b.snaps.Open(""); err != nil || next.Index <= meta.Index {
		t.Errorf("the old snapshot is offered again: %+v, %v", next, err)
	} else if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	names, err := b.fs.List("state")
	if err != nil || strings.Contains(fmt.Sprint(names), "out-") {
		t.Errorf("files %v, %v", names, err)
	}
}
