package faultfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Quota is a vfs.FS with room for a number of bytes. Safe for concurrent use.
type Quota struct {
	vfs.FS

	// Errno is what a write beyond it fails with; 0 is ENOSPC.
	Errno syscall.Errno

	mu    sync.Mutex // guards what follows
	limit int64
	used  int64
	fails uint64
	files map[string]*usage
}

// usage is what a file takes, whatever its names.
type usage struct {
	bytes int64
	links int
}

// NewQuota puts a limit on a file system, whose tree at dir may hold files already.
func NewQuota(under vfs.FS, dir string, limit int64) (*Quota, error) {
	q := &Quota{FS: under, limit: limit, files: make(map[string]*usage)}
	if err := q.count(dir); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *Quota) count(dir string) error {
	names, err := q.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an empty disk
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		full := q.PathJoin(dir, name)
		st, err := q.Stat(full)
		switch {
		case err != nil:
			return err
		case st.IsDir():
			err = q.count(full)
		default:
			q.files[clean(full)] = &usage{bytes: st.Size(), links: 1}
			q.used += st.Size()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func clean(name string) string { return path.Clean("/" + name) }

// SetLimit changes the size of the disk; below what is used, nothing more fits.
func (q *Quota) SetLimit(limit int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = limit
}

// Fill leaves free bytes of room.
func (q *Quota) Fill(free int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = q.used + free
}

// Used is how many bytes are taken, Fails how often there was no room.
func (q *Quota) Used() (used int64, fails uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used, q.fails
}

// take makes a file at least size bytes large.
func (q *Quota) take(op, name string, u *usage, size int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	more := size - u.bytes
	if more <= 0 {
		return nil
	}
	if u.links > 0 && q.used+more > q.limit {
		q.fails++
		errno := q.Errno
		if errno == 0 {
			errno = syscall.ENOSPC
		}
		return &os.PathError{Op: op, Path: name, Err: errno}
	}
	u.bytes = size
	if u.links > 0 {
		q.used += more
	}
	return nil
}

// named returns the usage of a name, made if it is missing.
func (q *Quota) named(name string) *usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.nameLocked(clean(name))
}

func (q *Quota) nameLocked(name string) *usage {
	u := q.files[name]
	if u == nil {
		u = &usage{links: 1}
		q.files[name] = u
	}
	return u
}

// forget takes a name away.
func (q *Quota) forget(name string) {
	if u := q.files[name]; u != nil {
		delete(q.files, name)
		if u.links--; u.links == 0 {
			q.used -= u.bytes
		}
	}
}

// Create implements vfs.FS.
func (q *Quota) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := q.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	q.forget(clean(name))
	u := q.nameLocked(clean(name))
	q.mu.Unlock()
	return &quotaFile{File: f, q: q, u: u, name: name}, nil
}

// OpenReadWrite implements vfs.FS.
func (q *Quota) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := q.FS.OpenReadWrite(name, c, o...)
	if err != nil {
		return nil, err
	}
	return &quotaFile{File: f, q: q, u: q.named(name), name: name}, nil
}

// ReuseForWrite implements vfs.FS.
func (q *Quota) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := q.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return q.OpenReadWrite(newname, c)
}

// Link implements vfs.FS.
func (q *Quota) Link(oldname, newname string) error {
	if err := q.FS.Link(oldname, newname); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.nameLocked(clean(oldname))
	u.links++
	q.files[clean(newname)] = u
	return nil
}

// Rename implements vfs.FS.
func (q *Quota) Rename(oldname, newname string) error {
	if err := q.FS.Rename(oldname, newname); err != nil {
		return err
	}
	from, to := clean(oldname), clean(newname)
	q.mu.Lock()
	defer q.mu.Unlock()
	if u := q.files[from]; u != nil && from != to {
		q.forget(to)
		delete(q.files, from)
		q.files[to] = u
	}
	for name, u := range q.files {
		if rest, ok := strings.CutPrefix(name, from+"/"); ok {
			delete(q.files, name)
			q.files[to+"/"+rest] = u
		}
	}
	return nil
}

// Remove implements vfs.FS.
func (q *Quota) Remove(name string) error {
	if err := q.FS.Remove(name); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forget(clean(name))
	return nil
}

// RemoveAll implements vfs.FS.
func (q *Quota) RemoveAll(name string) error {
	if err := q.FS.RemoveAll(name); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forget(clean(name))
	for file := range q.files {
		if strings.HasPrefix(file, clean(name)+"/") {
			q.forget(file)
		}
	}
	return nil
}

// GetDiskUsage implements vfs.FS.
func (q *Quota) GetDiskUsage(string) (vfs.DiskUsage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return vfs.DiskUsage{
		AvailBytes: uint64(max(q.limit-q.used, 0)), TotalBytes: uint64(q.limit), UsedBytes: uint64(q.used),
	}, nil
}

// Unwrap implements vfs.FS.
func (q *Quota) Unwrap() vfs.FS { return q.FS }

// quotaFile is a file that may be written to.
type quotaFile struct {
	vfs.File

	q    *Quota
	u    *usage
	name string
	pos  int64
}

// Write implements vfs.File.
func (f *quotaFile) Write(p []byte) (int, error) {
	if err := f.q.take("write", f.name, f.u, f.pos+int64(len(p))); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	f.pos += int64(n)
	return n, err
}

// Read implements vfs.File.
func (f *quotaFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.pos += int64(n)
	return n, err
}

// WriteAt implements vfs.File.
func (f *quotaFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.q.take("write", f.name, f.u, off+int64(len(p))); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

// Preallocate implements vfs.File.
func (f *quotaFile) Preallocate(off, length int64) error {
	if err := f.q.take("preallocate", f.name, f.u, off+length); err != nil {
		return err
	}
	return f.File.Preallocate(off, length)
}
