package storage

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/holdfast-mq/holdfast/storage/disk"
	"github.com/holdfast-mq/holdfast/testenv/faultfs"
)

// stopBound is how long a close may take on a full disk: a flush and a compaction may both be held up by the guard.
const stopBound = 2 * disk.RetryAfter

// smallDisk is a disk of a size under the guard of a real node, which has no ballast.
func smallDisk(t *testing.T, size int64) (*faultfs.Quota, FS) {
	t.Helper()
	q, err := faultfs.NewQuota(vfs.NewMem(), testDir, size)
	must(t, err)
	g, err := disk.New(disk.Config{FS: q, Dir: testDir})
	must(t, err)
	return q, g.FS()
}

// stuffed commits to a store whose disk is full until that waits; waiting is closed when it does not any more.
func stuffed(t *testing.T, s *Store) (waiting chan struct{}) {
	t.Helper()
	commits := make(chan struct{}, 1)
	waiting = make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(waiting)
		for {
			select {
			case <-stop:
				return
			default:
			}
			commit(t, s, func(b *Batch) { b.PutStream(1, serialized("s", 4<<10)) })
			select {
			case commits <- struct{}{}:
			default:
			}
		}
	}()
	for {
		select {
		case <-commits:
		case <-time.After(10 * disk.RetryAfter):
			close(stop)
			return waiting
		}
	}
}

// untilDone tries f for a while of virtual time.
func untilDone(f func() error) error {
	err := f()
	for range 20 {
		if err == nil {
			break
		}
		<-time.After(disk.RetryAfter / 2)
		err = f()
	}
	return err
}

// TestFullDiskHoldsNobody: commits wait for room on the disk, and go on when there is some, or at an Interrupt or a
// close. A flush does not wait.
func TestFullDiskHoldsNobody(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*faultfs.Quota, *Store){
		"room":      func(q *faultfs.Quota, _ *Store) { q.SetLimit(1 << 40) },
		"interrupt": func(_ *faultfs.Quota, s *Store) { s.Interrupt() },
		"close":     func(_ *faultfs.Quota, s *Store) { must(t, s.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q, fs := smallDisk(t, 1<<40)
				s := openStore(t, testConfig(fs))
				q.Fill(0)
				waiting := stuffed(t, s)
				if n := s.Stats().MemTableBytes; n < 4*64<<10 || n > 6*64<<10 {
					t.Errorf("commits wait with %d bytes in memory, want 4 memtables of 64 KiB and one that begins", n)
				}
				begin := time.Now()
				for range 100 {
					if err := s.Flush(); !errors.Is(err, syscall.ENOSPC) {
						t.Fatalf("a flush: %v", err)
					}
				}
				if n := s.Stats().MemTableBytes; n > 7*64<<10 {
					t.Errorf("%d bytes in memory after flushes that failed", n)
				}
				end(q, s)
				<-waiting
				if d := time.Since(begin); d > stopBound {
					t.Errorf("after %v", d)
				}
				q.SetLimit(1 << 40)
				s.Resume()
				if name != "close" {
					must(t, untilDone(s.Flush))
				}
			})
		})
	}
}

// TestOpenAgainOnAFullDisk: a state that is there is opened, or refused at once.
func TestOpenAgainOnAFullDisk(t *testing.T) {
	t.Parallel()
	for free := int64(0); ; free += 100 {
		opened := false
		synctest.Test(t, func(t *testing.T) {
			q, fs := smallDisk(t, 1<<40)
			s := openStore(t, testConfig(fs))
			commit(t, s, func(b *Batch) { b.PutStream(1, serialized("s", 10)) })
			must(t, s.Close())
			q.Fill(free)
			begin := time.Now()
			s, err := Open(testConfig(fs))
			if d := time.Since(begin); d > stopBound {
				t.Errorf("%d bytes free: %v after %v", free, err, d)
			}
			if opened = err == nil; opened {
				must(t, s.Close())
			} else if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%d bytes free: %v", free, err)
			}
		})
		if opened {
			t.Logf("%d bytes are enough", free)
			return
		}
	}
}

// TestOpenOnAFullDisk: a state for which there is no room is refused at once, wherever that shows, and made when there
// is some.
func TestOpenOnAFullDisk(t *testing.T) {
	t.Parallel()
	for size := int64(0); ; size += 100 {
		opened := false
		synctest.Test(t, func(t *testing.T) {
			q, fs := smallDisk(t, size)
			cfg := testConfig(fs)
			cfg.Fatal = func(err error) {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Logf("%d bytes: fatal: %v", size, err)
				}
			}
			begin := time.Now()
			s, err := Open(cfg)
			if d := time.Since(begin); d > stopBound {
				t.Errorf("%d bytes: %v after %v", size, err, d)
			}
			if opened = err == nil; !opened {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("%d bytes: %v", size, err)
				}
				q.SetLimit(1 << 40)
				s = openStore(t, cfg)
			}
			commit(t, s, func(b *Batch) { b.PutStream(1, serialized(fmt.Sprint(size), 10)) })
			must(t, s.Close())
		})
		if opened {
			t.Logf("%d bytes are enough", size)
			return
		}
	}
}

// TestInstallWithoutRoomForThePointer: what was received is dropped. Else each try would leave another copy on the full
// disk.
func TestInstallWithoutRoomForThePointer(t *testing.T) {
	t.Parallel()
	src := openStore(t, testConfig(vfs.NewMem()))
	fill(t, src, 60)
	o := offered(t, src)
	var full atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, "POINTER.tmp") {
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	}))
	s, err := Open(testConfig(fs))
	must(t, err)
	in, err := s.ContinueInstall(o.id, o.meta)
	must(t, err)
	_, err = in.Write(o.data)
	must(t, err)
	full.Store(true)
	if err := in.Commit(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a commit without room: %v", err)
	}
	names, err := fs.List(testDir)
	must(t, err)
	states := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, "db-") })
	if len(states) != 1 {
		t.Errorf("%v are there, want one state", names)
	}
	full.Store(false)
	must(t, o.finish(t, s))
	closeStore(t, s)
}
