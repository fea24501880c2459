package replication

import (
	"os"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// step is something that may need room on a disk.
type step struct{ file, op string }

// disks are those of one role. They get full together, at the n-th step of a kind that happens on any of them, and stay
// so: nothing that needs room succeeds.
type disks struct {
	// overwrites need room, as they do where blocks are never written in place; so do syncs and renames then.
	overwrites bool

	mu    sync.Mutex // guards what follows
	of    map[*fullFS]bool
	count map[step]int
	at    step
	n     int
	full  bool
	what  string // the file at which they got full
}

// begin makes the disks of nodes those that count; with n 0 they do not get full.
func (d *disks) begin(of []*fullFS, at step, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of, d.count, d.at, d.n = make(map[*fullFS]bool), make(map[step]int), at, n
	for _, f := range of {
		d.of[f] = true
	}
}

// room makes room again, for good.
func (d *disks) room() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.of = false, nil
}

// filled names the file at which the disks got full, "" if they did not.
func (d *disks) filled() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.what
}

// fullFS is one disk.
type fullFS struct {
	vfs.FS
	d *disks
}

// need is ENOSPC if there is no room for a step.
func (f *fullFS) need(op, name string, data []byte) error {
	d := f.d
	d.mu.Lock()
	defer d.mu.Unlock()
	inPlace := op == "overwrite" || op == "sync" || op == "rename"
	if !d.of[f] || inPlace && !d.overwrites {
		return nil
	}
	s := step{kindOf(name, data), op}
	if d.count[s]++; s == d.at && d.count[s] == d.n {
		d.full, d.what = true, name
	}
	if !d.full {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: syscall.ENOSPC}
}

// kindOf says what a file of a node is for; data is a batch of a log, if it is one.
func kindOf(name string, data []byte) string {
	base, dir := path.Base(name), path.Base(path.Dir(name))
	switch {
	case strings.HasPrefix(base, "SEGMENTS"):
		return "list of the log"
	case strings.HasSuffix(name, ".seg") && len(data) > 36:
		return batchOf(data)
	case strings.Contains(base, ".seg"):
		return "segment of the log"
	case strings.HasPrefix(base, "POINTER"):
		return "pointer of the snapshot"
	case strings.HasPrefix(base, "INCOMING"):
		return "record of an install"
	case strings.HasPrefix(dir, "out-"), strings.HasPrefix(base, "out-"):
		return "copy for a follower"
	case strings.HasSuffix(base, ".sst"):
		return "table"
	case strings.HasPrefix(base, "MANIFEST-"):
		return "manifest"
	case strings.HasPrefix(dir, "db-"), strings.HasPrefix(base, "db-"):
		return "other file of the state"
	default:
		return "other"
	}
}

// batchOf tells the batches of a log by their first record, as storage/seglog lays them out.
func batchOf(b []byte) string {
	switch {
	case b[20] == 2:
		return "seal with marks"
	case b[36] == 1:
		return "entries"
	case b[36] == 3:
		return "vote"
	default:
		return "other record of the log"
	}
}

func (f *fullFS) open(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &fullFile{File: file, f: f, name: name}, nil
}

// Create implements vfs.FS.
func (f *fullFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.need("create", name, nil); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, c)
	return f.open(name, file, err)
}

// OpenReadWrite implements vfs.FS.
func (f *fullFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	return f.open(name, file, err)
}

// OpenDir implements vfs.FS.
func (f *fullFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	return f.open(name, file, err)
}

// Link implements vfs.FS.
func (f *fullFS) Link(oldname, newname string) error {
	if err := f.need("link", newname, nil); err != nil {
		return err
	}
	return f.FS.Link(oldname, newname)
}

// MkdirAll implements vfs.FS.
func (f *fullFS) MkdirAll(name string, perm os.FileMode) error {
	if _, err := f.Stat(name); err == nil {
		return nil
	}
	if err := f.need("make directory", name, nil); err != nil {
		return err
	}
	return f.FS.MkdirAll(name, perm)
}

// Rename implements vfs.FS.
func (f *fullFS) Rename(oldname, newname string) error {
	if err := f.need("rename", newname, nil); err != nil {
		return err
	}
	return f.FS.Rename(oldname, newname)
}

// GetDiskUsage implements vfs.FS.
func (f *fullFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.full && f.d.of[f] {
		return vfs.DiskUsage{}, nil
	}
	return vfs.DiskUsage{AvailBytes: anyRoom}, nil
}

// Unwrap implements vfs.FS.
func (f *fullFS) Unwrap() vfs.FS { return f.FS }

// fullFile is a file, or a directory, that needs room.
type fullFile struct {
	vfs.File

	f    *fullFS
	name string
}

// Write implements vfs.File.
func (f *fullFile) Write(p []byte) (int, error) {
	if err := f.f.need("write", f.name, nil); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

// WriteAt implements vfs.File. A segment of a log has all of its blocks.
func (f *fullFile) WriteAt(p []byte, off int64) (int, error) {
	op := "write"
	if strings.HasSuffix(f.name, ".seg") {
		op = "overwrite"
	}
	if err := f.f.need(op, f.name, p); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

// Preallocate implements vfs.File.
func (f *fullFile) Preallocate(off, length int64) error {
	if err := f.f.need("preallocate", f.name, nil); err != nil {
		return err
	}
	return f.File.Preallocate(off, length)
}

// Sync implements vfs.File.
func (f *fullFile) Sync() error {
	if err := f.f.need("sync", f.name, nil); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *fullFile) SyncData() error {
	if err := f.f.need("sync", f.name, nil); err != nil {
		return err
	}
	return f.File.SyncData()
}
