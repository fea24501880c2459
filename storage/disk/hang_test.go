package disk

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// stuckFS is a disk on which a file that is created says that it syncs, and does so when it is released.
type stuckFS struct {
	vfs.FS

	begun, release chan struct{}
}

func (s stuckFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, c)
	return stuckFile{f, s}, err
}

type stuckFile struct {
	vfs.File

	disk stuckFS
}

func (f stuckFile) Sync() error {
	select {
	case f.disk.begun <- struct{}{}:
	default:
	}
	<-f.disk.release
	return f.File.Sync()
}

// TestHungDiskIsNotWaitedFor: what every publish and every look at a node's health asks is answered while the ballast
// waits for the disk. That the disk hangs is found by those who look at the log.
func TestHungDiskIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	must(t, mem.MkdirAll("data", 0o755))
	disk := stuckFS{mem, make(chan struct{}, 1), make(chan struct{})}
	g, err := New(Config{
		FS: disk, Dir: "data", Ballast: 8 * mb, Free: func() (int64, error) { return 1 << 40, nil },
	})
	must(t, err)
	made := make(chan struct{})
	go func() {
		defer close(made)
		g.Restore(t.Context())
	}()
	<-disk.begun
	asked := make(chan Status, 1)
	go func() {
		g.Poll()
		g.Refusing()
		asked <- g.Status()
	}()
	select {
	case s := <-asked:
		if s.Refusing || s.Ballast != 0 {
			t.Errorf("while the disk hangs: %+v", s)
		}
	case <-time.After(10 * time.Second):
		t.Error("the guard waits for the disk")
	}
	close(disk.release)
	<-made
	if got := g.Status().Ballast; got != 8*mb {
		t.Errorf("the ballast has %d bytes when the disk goes on", got)
	}
}
