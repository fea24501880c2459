package disk

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardedFS is vfs.OnDiskFull with what that leaves out: preallocations, and a pause
// after a table that could not be written.
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
	f, err := p.FS.Create(name, c)
	if isTable(name) && err != nil {
		p.g.tableFailed()
	}
	return p.file(f, isTable(name) || strings.HasPrefix(p.PathBase(name), manifestPrefix), err)
}

// OpenReadWrite implements vfs.FS.
func (p guardedFS) OpenReadWrite(
	name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	f, err := p.FS.OpenReadWrite(name, c, opts...)
	return p.file(f, false, err)
}

// ReuseForWrite implements vfs.FS.
func (p guardedFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.ReuseForWrite(oldname, newname, c)
	return p.file(f, false, err)
}

func (p guardedFS) file(f vfs.File, table bool, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return guardedFile{f, p.g, table}, nil
}

// guardedFile is a file that may be written to.
type guardedFile struct {
	vfs.File

	g     *Guard
	table bool // a failure ends a flush
}

// Write implements vfs.File.
func (f guardedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if err != nil && f.table {
		f.g.tableFailed()
	}
	return n, err
}

// Sync implements vfs.File.
func (f guardedFile) Sync() error {
	err := f.File.Sync()
	if err != nil && f.table {
		f.g.tableFailed()
	}
	return err
}

// SyncData implements vfs.File.
func (f guardedFile) SyncData() error {
	err := f.File.SyncData()
	if err != nil && f.table {
		f.g.tableFailed()
	}
	return err
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

// manifestPrefix begins the name of Pebble's list of tables: a flush that cannot write
// it made its table for nothing.
const manifestPrefix = "MANIFEST-"

// isTable tells Pebble's tables by their names.
func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }

func (g *Guard) tableFailed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tableAt = time.Now()
}

// wait is how long a file must not be created yet.
func (g *Guard) wait(name string) time.Duration {
	if !isTable(name) {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tableAt.IsZero() {
		return 0
	}
	return RetryAfter - time.Since(g.tableAt)
}
