package seglog

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func kilobyte(index uint64) []Entry {
	return []Entry{{Index: index, Term: 1, Data: make([]byte, 1000)}}
}

func TestNextSegmentIsPreparedAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(vfs.NewMem())
		cfg.SyncPrepare = false
		l := mustOpen(t, cfg)
		i := uint64(1)
		for ; l.view.st.active().end < testSegment/2; i++ {
			synctest.Wait()
			if n := l.Stats().Ready; n != 0 {
				t.Fatalf("%d segments ready at offset %d", n, l.view.st.active().end)
			}
			must(t, l.Append(kilobyte(i)))
		}
		synctest.Wait()
		if s := l.Stats(); s.Ready != 1 || s.Rotations != 0 || s.DiskBytes != 2*testSegment {
			t.Fatalf("stats at half: %+v", s)
		}
		for ; l.Stats().Rotations == 0; i++ {
			must(t, l.Append(kilobyte(i)))
		}
		synctest.Wait()
		if s := l.Stats(); s.Ready != 0 || s.Segments != 2 {
			t.Fatalf("stats after the rotation: %+v", s)
		}
		must(t, l.Close())
	})
}

// TestPreparationAheadRunsOutOfSpace: it rests for a while, is tried again, and no append fails meanwhile.
func TestPreparationAheadRunsOutOfSpace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		inj := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(o errorfs.Op) error {
			if o.Kind == errorfs.OpCreate && strings.HasSuffix(o.Path, segmentSuffix+tempSuffix) {
				tries++
				return syscall.ENOSPC
			}
			return nil
		})}
		cfg := testConfig(errorfs.Wrap(vfs.NewMem(), inj))
		cfg.SyncPrepare = false
		l := mustOpen(t, cfg)
		inj.On()
		i := uint64(1)
		for ; i <= 12; i++ {
			must(t, l.Append(kilobyte(i)))
			synctest.Wait()
		}
		if tries != 1 || l.Stats().Failed != nil {
			t.Fatalf("%d tries, stats %+v", tries, l.Stats())
		}
		inj.Off()
		must(t, l.Append(run(i, i, 1)))
		synctest.Wait()
		if n := l.Stats().Ready; n != 0 {
			t.Fatalf("%d ready before the rest is over", n)
		}
		synctestSleep(prepareRetry)
		must(t, l.Append(run(i+1, i+1, 1)))
		synctest.Wait()
		if n := l.Stats().Ready; n != 1 {
			t.Fatalf("%d ready", n)
		}
		must(t, l.Close())
	})
}

// TestPreparationAheadFails: an I/O error there ends the log like any other.
func TestPreparationAheadFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inj := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(o errorfs.Op) error {
			if o.Kind == errorfs.OpFileWrite && strings.HasSuffix(o.Path, segmentSuffix+tempSuffix) {
				return syscall.EIO
			}
			return nil
		})}
		cfg := testConfig(errorfs.Wrap(vfs.NewMem(), inj))
		cfg.SyncPrepare = false
		l := mustOpen(t, cfg)
		inj.On()
		for i := uint64(1); i <= 9; i++ {
			must(t, l.Append(kilobyte(i)))
		}
		synctest.Wait()
		if err := l.Append(kilobyte(10)); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		must(t, l.Close())
	})
}

// TestPreallocateIsOptional: a file system that cannot reserve space is not full.
func TestPreallocateIsOptional(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINVAL} {
		l := mustOpen(t, testConfig(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(o errorfs.Op) error {
			if o.Kind == errorfs.OpFilePreallocate {
				return cause
			}
			return nil
		}))))
		must(t, l.Append(run(1, 2, 1)))
	}
}

// TestSpareLimit: Config.Recycle spares are kept, the rest is removed.
func TestSpareLimit(t *testing.T) {
	t.Parallel()
	for recycle, want := range map[int]int{-1: 0, 0: DefaultRecycle, 1: 1, 3: 3} {
		cfg := testConfig(vfs.NewMem())
		cfg.Recycle = recycle
		l := mustOpen(t, cfg)
		for i := uint64(1); i <= 80; i++ {
			must(t, l.Append(kilobyte(i)))
		}
		must(t, l.TruncatePrefix(79))
		names, err := cfg.FS.List(cfg.Dir)
		must(t, err)
		if s := l.Stats(); s.Spares != want || s.Segments != 1 || len(names) != want+2 {
			t.Errorf("recycle %d: stats %+v, files %v", recycle, s, names)
		}
		must(t, l.Close())
		l = mustOpen(t, cfg)
		if s := l.Stats(); s.Spares != want {
			t.Errorf("recycle %d: %d spares after the restart", recycle, s.Spares)
		}
	}
}
