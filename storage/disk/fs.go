package disk

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardedFS is vfs.OnDiskFull with what that leaves out: preallocations, and a pause
// between tables after a write met a full disk.
type guardedFS struct {
	vfs.FS

	g *Guard
}

// Unwrap implements vfs.FS.
func (p guardedFS) Unwrap() vfs.FS { return p.FS }

// Create implements vfs.FS.
func (p guardedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if d := p.g.wait(name); d > 0 {
		<-time.After(d)
	}
	return p.file(p.FS.Create(name, c))
}

// OpenReadWrite implements vfs.FS.
func (p guardedFS) OpenReadWrite(
	name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	return p.file(p.FS.OpenReadWrite(name, c, opts...))
}

// ReuseForWrite implements vfs.FS.
func (p guardedFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return p.file(p.FS.ReuseForWrite(oldname, newname, c))
}

func (p guardedFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return guardedFile{f, p.g}, nil
}

// guardedFile is a file that may be written to.
type guardedFile struct {
	vfs.File

	g *Guard
}

// Preallocate implements vfs.File.
func (f guardedFile) Preallocate(off, length int64) error {
	err := f.File.Preallocate(off, length)
	if errors.Is(err, syscall.ENOSPC) {
		f.g.onFull()
		err = f.File.Preallocate(off, length)
	}
	return err
}

// tableSuffix ends the names of Pebble's tables.
const tableSuffix = ".sst"

// wait is how long a file must not be created yet.
func (g *Guard) wait(name string) time.Duration {
	if !strings.HasSuffix(name, tableSuffix) {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.full == 0 {
		return 0
	}
	return RetryAfter - time.Since(g.fullAt)
}
