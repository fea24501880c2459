package disk

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/holdfast-mq/holdfast/testenv/faultfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mb      = 1 << 20
	minFree = 256 * mb // margin 32
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newDisk returns an empty disk of a size with the directory "data".
func newDisk(t *testing.T, size int64) *faultfs.Quota {
	t.Helper()
	q, err := faultfs.NewQuota(vfs.NewMem(), "data", size)
	must(t, err)
	must(t, q.MkdirAll("data", 0o755))
	return q
}

func newGuard(t *testing.T, q *faultfs.Quota, minFree, ballast int64) *Guard {
	t.Helper()
	g, err := New(Config{FS: q, Dir: "data", MinFree: minFree, Ballast: ballast})
	must(t, err)
	return g
}

// look is what Run does at each tick.
func look(t *testing.T, g *Guard) {
	t.Helper()
	g.Poll()
	g.Restore(t.Context())
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		"FS": {Dir: "d"}, "Dir": {FS: vfs.NewMem()},
		"MinFree": {FS: vfs.NewMem(), Dir: "d", MinFree: -1},
		"Ballast": {FS: vfs.NewMem(), Dir: "d", Ballast: -1},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestThresholds drives the free space over every edge.
func TestThresholds(t *testing.T) {
	t.Parallel()
	free, broken := int64(0), error(nil)
	g, err := New(Config{
		FS: vfs.NewMem(), Dir: "data", MinFree: minFree, Free: func() (int64, error) { return free, broken },
	})
	must(t, err)
	if !g.Refusing() {
		t.Error("a node that starts on a full disk accepts")
	}
	for _, v := range []struct {
		free int64
		want bool
	}{
		{minFree + 32*mb - 1, true}, // not yet beyond the margin
		{minFree + 32*mb, false},
		{minFree, false}, // the edge itself is enough
		{minFree - 1, true},
		{minFree, true},
		{1 << 40, false},
		{0, true},
	} {
		free = v.free
		g.Poll()
		if got := g.Status(); got.Refusing != v.want || got.Free != v.free || (got.Reason == "") == v.want {
			t.Errorf("%d bytes free: %+v, want refusing %v", v.free, got, v.want)
		}
	}
	broken = errors.New("no answer")
	g.Poll()
	if got := g.Status(); !got.Refusing || got.Free != -1 {
		t.Errorf("a disk that cannot be asked: %+v, want what was decided before", got)
	}
	broken, free = nil, 1<<40
	g.Poll()
	if got := g.Status(); got.Refusing || got.Free != 1<<40 {
		t.Errorf("when it answers again: %+v", got)
	}
}

// TestBallast: made when there is room, given back at a full disk, so that the write
// that met it succeeds, and made again before publishes are accepted.
func TestBallast(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		t.Run(errno.Error(), func(t *testing.T) {
			t.Parallel()
			testBallast(t, errno)
		})
	}
}

func testBallast(t *testing.T, errno syscall.Errno) {
	const ballast = 10*mb + 1
	q := newDisk(t, minFree+ballast-1)
	q.Errno = errno
	g := newGuard(t, q, minFree, ballast)
	if look(t, g); !g.Refusing() || g.Status().Ballast != 0 {
		t.Errorf("one byte short: %+v", g.Status())
	}
	q.SetLimit(minFree + ballast + 32*mb)
	if look(t, g); g.Refusing() || g.Status().Ballast != ballast {
		t.Errorf("with room: %+v", g.Status())
	}
	if st, err := q.Stat("data/" + BallastFile); err != nil || st.Size() != ballast {
		t.Errorf("the file is %v, %v", st, err)
	}
	f, err := g.FS().Create("data/file", "")
	must(t, err)
	q.Fill(100)
	_, err = f.Write(make([]byte, 101))
	must(t, err)
	if got := g.Status(); !got.Refusing || got.Ballast != 0 || got.Full != 1 {
		t.Errorf("after a full disk: %+v", got)
	}
	if look(t, g); !g.Refusing() {
		t.Error("accepts although nothing was freed")
	}
	if err := f.Preallocate(0, minFree); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a preallocation without room: %v", err)
	}
	q.Fill(0)
	if _, err := f.Write([]byte{1}); !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, errno) ||
		!strings.Contains(err.Error(), errno.Error()) {
		t.Errorf("without ballast: %v", err)
	}
	q.Fill(minFree + ballast + 32*mb - 1)
	if look(t, g); !g.Refusing() {
		t.Error("accepts without room for the ballast")
	}
	q.Fill(minFree + ballast + 32*mb)
	if look(t, g); g.Refusing() || g.Status().Ballast != ballast {
		t.Errorf("when the space is back: %+v", g.Status())
	}
	must(t, f.Close())
	// Another guard takes over the ballast, one with another size makes it anew.
	if g = newGuard(t, q, minFree, ballast); g.Status().Ballast != ballast {
		t.Errorf("after a restart: %+v", g.Status())
	}
	for _, size := range []int64{mb, 0} {
		g = newGuard(t, q, minFree, size)
		look(t, g)
		if got := g.Status().Ballast; got != size {
			t.Errorf("ballast of %d bytes, want %d", got, size)
		}
	}
	if _, err := q.Stat("data/" + BallastFile); err == nil {
		t.Error("a ballast of 0 bytes leaves the file")
	}
}

// TestPreallocationGetsTheBallast, which vfs.OnDiskFull alone does not give it.
func TestPreallocationGetsTheBallast(t *testing.T) {
	t.Parallel()
	q := newDisk(t, 100*mb)
	q.Errno = syscall.EDQUOT
	g := newGuard(t, q, 0, 20*mb)
	look(t, g)
	f, err := g.FS().OpenReadWrite("data/file", "")
	must(t, err)
	q.Fill(0)
	must(t, f.Preallocate(0, 20*mb))
	must(t, f.Close())
	if got := g.Status(); !got.Refusing || got.Ballast != 0 || got.Full != 1 {
		t.Errorf("afterwards: %+v", got)
	}
}

// TestNoBallastInTheWay: a disk that fills up while the ballast is made gets it back.
func TestNoBallastInTheWay(t *testing.T) {
	t.Parallel()
	q := newDisk(t, 100*mb)
	g := newGuard(t, q, 0, 20*mb)
	if more, err := g.grow(true); !more || err != nil {
		t.Fatal(more, err)
	}
	f, err := g.FS().Create("data/file", "")
	must(t, err)
	q.Fill(0)
	_, err = f.Write(make([]byte, 4*mb))
	must(t, err) // the part that was made
	if more, err := g.grow(false); more || err != nil || g.Status().Ballast != 0 {
		t.Errorf("the ballast grows on: %v, %v, %+v", more, err, g.Status())
	}
	must(t, f.Close())
	// It never causes a full disk of its own.
	q.Fill(50 * mb)
	g.Poll()
	q.Fill(9 * mb)
	g.Restore(t.Context())
	if used, _ := q.Used(); g.Status().Ballast != 0 || used != 4*mb {
		t.Errorf("%d bytes are used, %+v", used, g.Status())
	}
}

// TestRun: the loop sees what happens to the disk, and ends.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newDisk(t, minFree+100*mb)
		g := newGuard(t, q, minFree, 8*mb)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); g.Run(ctx) }()
		for _, v := range []struct {
			free int64
			want bool
		}{{minFree - 1, true}, {minFree + 100*mb, false}} {
			q.Fill(v.free)
			<-time.After(PollEvery)
			synctest.Wait()
			if g.Refusing() != v.want {
				t.Errorf("%d bytes free: %+v", v.free, g.Status())
			}
		}
		cancel()
		<-done
	})
}

// TestTablesArePaced: while the disk is full a table is created once in RetryAfter;
// everything else goes on.
func TestTablesArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newDisk(t, mb)
		g := newGuard(t, q, 0, 0)
		try := func(name string) error {
			f, err := g.FS().Create(name, "")
			must(t, err)
			_, err = f.Write(make([]byte, 2*mb))
			return errors.Join(err, f.Close())
		}
		begin := time.Now()
		for i := range 5 {
			if err := try("data/000001.sst"); !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			if d := time.Since(begin); d != time.Duration(i)*RetryAfter {
				t.Errorf("try %d after %v", i, d)
			}
		}
		begin = time.Now()
		if err := try("data/file"); !errors.Is(err, syscall.ENOSPC) || time.Since(begin) != 0 {
			t.Errorf("another file: %v after %v", err, time.Since(begin))
		}
	})
}
