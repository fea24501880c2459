package disk

import (
	"errors"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// quotaError is EDQUOT that counts as ENOSPC: a user or, on ext4, a project that may not
// have more of a disk finds it full, and Pebble knows the one error only. It must be a
// single chain, as Pebble looks at the end of it.
type quotaError struct{ err error }

// Error names the operation, the file and the quota.
func (e quotaError) Error() string { return e.err.Error() }

// Unwrap makes errors.Is find ENOSPC.
func (e quotaError) Unwrap() error { return syscall.ENOSPC }

// Is makes errors.Is find EDQUOT and the cause, too.
func (e quotaError) Is(target error) bool { return errors.Is(e.err, target) }

func asFull(err error) error {
	if errors.Is(err, syscall.EDQUOT) {
		return quotaError{err}
	}
	return err
}

// quotaFS is a file system on which a quota that is used up is a full disk.
type quotaFS struct{ vfs.FS }

// Unwrap implements vfs.FS.
func (q quotaFS) Unwrap() vfs.FS { return q.FS }

// Create implements vfs.FS.
func (q quotaFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return quotaed(q.FS.Create(name, c))
}

// OpenReadWrite implements vfs.FS.
func (q quotaFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return quotaed(q.FS.OpenReadWrite(name, c, opts...))
}

// ReuseForWrite implements vfs.FS.
func (q quotaFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return quotaed(q.FS.ReuseForWrite(oldname, newname, c))
}

// Link implements vfs.FS.
func (q quotaFS) Link(oldname, newname string) error { return asFull(q.FS.Link(oldname, newname)) }

// Rename implements vfs.FS.
func (q quotaFS) Rename(oldname, newname string) error { return asFull(q.FS.Rename(oldname, newname)) }

// MkdirAll implements vfs.FS.
func (q quotaFS) MkdirAll(dir string, perm os.FileMode) error {
	return asFull(q.FS.MkdirAll(dir, perm))
}

// quotaFile is a file of a quotaFS that may be written to.
type quotaFile struct{ vfs.File }

func quotaed(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, asFull(err)
	}
	return quotaFile{f}, nil
}

// Write implements vfs.File.
func (f quotaFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, asFull(err)
}

// WriteAt implements vfs.File.
func (f quotaFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	return n, asFull(err)
}

// Preallocate implements vfs.File.
func (f quotaFile) Preallocate(off, length int64) error {
	return asFull(f.File.Preallocate(off, length))
}

// Sync implements vfs.File.
func (f quotaFile) Sync() error { return asFull(f.File.Sync()) }

// SyncData implements vfs.File.
func (f quotaFile) SyncData() error { return asFull(f.File.SyncData()) }

// SyncTo implements vfs.File.
func (f quotaFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, asFull(err)
}
