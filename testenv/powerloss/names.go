package powerloss

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Create implements vfs.FS.
func (f *FS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	path, ok := f.split(name)
	if !ok {
		return vfs.Default.Create(name, c)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.create(path)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	return f.handle(n, name, true)
}

func (f *FS) create(path []string) (*node, error) {
	d, base, err := f.findParent(path)
	if err != nil {
		return nil, err
	}
	if old := d.live[base]; old != nil && old.dir != nil {
		return nil, syscall.EISDIR
	}
	n, err := f.newFile()
	if err != nil {
		return nil, err
	}
	return n, f.put(d, base, n)
}

// OpenReadWrite implements vfs.FS.
func (f *FS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	path, ok := f.split(name)
	if !ok {
		return vfs.Default.OpenReadWrite(name, c, opts...)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(path)
	if errors.Is(err, syscall.ENOENT) {
		n, err = f.create(path)
	}
	if err == nil && n.dir != nil {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return f.handle(n, name, true)
}

// Open implements vfs.FS.
func (f *FS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	path, ok := f.split(name)
	if !ok {
		return vfs.Default.Open(name, opts...)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(path)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return f.handle(n, name, false)
}

// OpenDir implements vfs.FS.
func (f *FS) OpenDir(name string) (vfs.File, error) {
	path, ok := f.split(name)
	if !ok {
		return vfs.Default.OpenDir(name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(path)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return f.handle(n, name, false)
}

// Link implements vfs.FS.
func (f *FS) Link(oldname, newname string) error {
	from, in := f.split(oldname)
	to, too := f.split(newname)
	if !in && !too {
		return vfs.Default.Link(oldname, newname)
	}
	if in != too {
		return &os.LinkError{Op: "link", Old: oldname, New: newname, Err: syscall.EXDEV}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(from)
	if err == nil && n.dir != nil {
		err = syscall.EPERM
	}
	if err == nil {
		var d *directory
		var base string
		if d, base, err = f.findParent(to); err == nil && d.live[base] != nil {
			err = syscall.EEXIST
		}
		if err == nil {
			err = f.put(d, base, n)
		}
	}
	if err != nil {
		return &os.LinkError{Op: "link", Old: oldname, New: newname, Err: err}
	}
	return nil
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldname, newname string) error {
	from, in := f.split(oldname)
	to, too := f.split(newname)
	if !in && !too {
		return vfs.Default.Rename(oldname, newname)
	}
	if in != too {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: syscall.EXDEV}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.rename(from, to); err != nil {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	}
	return nil
}

func (f *FS) rename(from, to []string) error {
	old, oldBase, err := f.findParent(from)
	if err != nil {
		return err
	}
	d, base, err := f.findParent(to)
	if err != nil {
		return err
	}
	n := old.live[oldBase]
	switch {
	case n == nil:
		return syscall.ENOENT
	case len(to) > len(from) && slices.Equal(to[:len(from)], from):
		return syscall.EINVAL // into itself
	case d.live[base] == n:
		return nil // two names of one file
	}
	if there := d.live[base]; there != nil {
		switch {
		case there.dir != nil && n.dir == nil:
			return syscall.EISDIR
		case there.dir == nil && n.dir != nil:
			return syscall.ENOTDIR
		case there.dir != nil && len(there.dir.live) > 0:
			return syscall.ENOTEMPTY
		}
	}
	n.refs++ // it must outlive its old name
	if err := f.put(d, base, n); err != nil {
		return err
	}
	if err := f.drop(old, oldBase); err != nil {
		return err
	}
	return f.unref(n)
}

// ReuseForWrite implements vfs.FS.
func (f *FS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return f.OpenReadWrite(newname, c)
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	path, ok := f.split(name)
	if !ok {
		return vfs.Default.Remove(name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	d, base, err := f.findParent(path)
	if err == nil {
		switch n := d.live[base]; {
		case n == nil:
			err = syscall.ENOENT
		case n.dir != nil && len(n.dir.live) > 0:
			err = syscall.ENOTEMPTY
		default:
			err = f.drop(d, base)
		}
	}
	if err != nil {
		return pathError("remove", name, err)
	}
	return nil
}

// RemoveAll implements vfs.FS.
func (f *FS) RemoveAll(name string) error {
	path, ok := f.split(name)
	if !ok {
		return vfs.Default.RemoveAll(name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	d, base, err := f.findParent(path)
	if errors.Is(err, syscall.ENOENT) || (err == nil && d.live[base] == nil) {
		return nil
	}
	if err == nil {
		err = f.drop(d, base)
	}
	if err != nil {
		return pathError("remove", name, err)
	}
	return nil
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(name string, perm os.FileMode) error {
	path, ok := f.split(name)
	if !ok {
		return vfs.Default.MkdirAll(name, perm)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.top.dir
	for _, part := range path {
		n := d.live[part]
		if n == nil {
			n = &node{dir: &directory{live: make(map[string]*node), disk: make(map[string]*node)}}
			if err := f.put(d, part, n); err != nil {
				return pathError("mkdir", name, err)
			}
		}
		if n.dir == nil {
			return pathError("mkdir", name, syscall.ENOTDIR)
		}
		d = n.dir
	}
	return nil
}

// Lock implements vfs.FS: it excludes other users of this FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	if _, ok := f.split(name); !ok {
		return vfs.Default.Lock(name)
	}
	f.mu.Lock()
	held := f.locked[name]
	f.locked[name] = true
	f.mu.Unlock()
	if held {
		return nil, pathError("lock", name, syscall.EAGAIN)
	}
	file, err := f.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		f.unlock(name)
		return nil, err
	}
	return &lock{File: file, fs: f, name: name}, nil
}

func (f *FS) unlock(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.locked, name)
}

// lock is a held lock.
type lock struct {
	vfs.File

	fs   *FS
	name string
}

// Close gives the lock back.
func (l *lock) Close() error {
	l.fs.unlock(l.name)
	return l.File.Close()
}

// List implements vfs.FS.
func (f *FS) List(name string) ([]string, error) {
	path, ok := f.split(name)
	if !ok {
		return vfs.Default.List(name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(path)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("list", name, err)
	}
	names := make([]string, 0, len(n.dir.live))
	for name := range n.dir.live {
		names = append(names, name)
	}
	return names, nil
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (vfs.FileInfo, error) {
	path, ok := f.split(name)
	if !ok {
		return vfs.Default.Stat(name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(path)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return n.info(filepath.Base(name)), nil
}

// PathBase implements vfs.FS.
func (*FS) PathBase(path string) string { return filepath.Base(path) }

// PathJoin implements vfs.FS.
func (*FS) PathJoin(elem ...string) string { return filepath.Join(elem...) }

// PathDir implements vfs.FS.
func (*FS) PathDir(path string) string { return filepath.Dir(path) }

// GetDiskUsage implements vfs.FS: that of the real disk.
func (*FS) GetDiskUsage(path string) (vfs.DiskUsage, error) { return vfs.Default.GetDiskUsage(path) }

// Unwrap implements vfs.FS: nothing may go around it.
func (*FS) Unwrap() vfs.FS { return nil }
