package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	blockSize = 4096
	// capacity is what statfs tells of a disk without a quota.
	capacity = 64 << 30
	// unmountTries bounds how often an unmount waits for files that are still open.
	unmountTries = 100
	unmountWait  = 50 * time.Millisecond
	// keepSize is FALLOC_FL_KEEP_SIZE.
	keepSize = 1
	// noReplace is RENAME_NOREPLACE.
	noReplace = 1
)

// A mounted is a disk at its place in the tree of the machine.
type mounted struct {
	disk   *Disk
	point  string
	server *fuse.Server
}

func mount(d *Disk, point string) (*mounted, error) {
	m := &mounted{disk: d, point: point}
	return m, m.mount()
}

func (m *mounted) mount() error {
	zero, long := time.Duration(0), time.Hour
	var err error
	m.server, err = fs.Mount(m.point, &inode{d: m.disk, n: m.disk.root}, &fs.Options{
		EntryTimeout: &zero, AttrTimeout: &long, NegativeTimeout: &zero,
		MountOptions: fuse.MountOptions{
			// Files change through this mount alone, so the kernel knows what they hold, and how long they are: to be
			// asked before each read of a page that it has makes a node take many times as long to start.
			ExplicitDataCacheControl: true,
			FsName:                   "lazyfs", Name: "lazyfs", DirectMountStrict: true, AllowOther: true, MaxWrite: 1 << 20,
		},
	})
	return err
}

func (m *mounted) unmount() error {
	m.disk.hang(false)
	var err error
	for range unmountTries {
		if err = m.server.Unmount(); err == nil {
			m.server.Wait()
			return nil
		}
		<-time.After(unmountWait)
	}
	return err
}

// cut is a loss of power: whoever used the files must be dead.
func (m *mounted) cut() error {
	if err := m.unmount(); err != nil {
		return errors.Join(errors.New("somebody has files open"), err)
	}
	m.disk.cut()
	return m.mount()
}

// inode is how go-fuse sees a node.
type inode struct {
	fs.Inode
	d *Disk
	n *node
}

var (
	_ fs.NodeFsyncer   = (*inode)(nil)
	_ fs.NodeRenamer   = (*inode)(nil)
	_ fs.NodeCreater   = (*inode)(nil)
	_ fs.NodeAllocater = (*inode)(nil)
	_ fs.NodeSetattrer = (*inode)(nil)
	_ fs.NodeReaddirer = (*inode)(nil)
	_ fs.NodeStatfser  = (*inode)(nil)
	_ fs.NodeLinker    = (*inode)(nil)
)

func (n *node) kind() uint32 {
	if n.dir {
		return syscall.S_IFDIR
	}
	return syscall.S_IFREG
}

func (i *inode) child(ctx context.Context, n *node, out *fuse.EntryOut) *fs.Inode {
	i.d.fill(n, &out.Attr)
	return i.NewInode(ctx, &inode{d: i.d, n: n}, fs.StableAttr{Mode: n.kind(), Ino: n.ino})
}

func (d *Disk) fill(n *node, a *fuse.Attr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.Ino, a.Mode, a.Nlink, a.Blksize = n.ino, n.kind()|n.mode, 1, blockSize
	a.Size = uint64(len(n.data))
	a.Blocks = (a.Size + 511) / 512
	a.SetTimes(&n.at, &n.at, &n.at)
}

func (i *inode) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	i.d.mu.Lock()
	defer i.d.mu.Unlock()
	size := i.d.faults.quota
	if size == 0 {
		size = capacity
	}
	out.Bsize, out.Frsize, out.NameLen = blockSize, blockSize, 255
	out.Blocks = uint64(size / blockSize)
	out.Bfree = uint64(max(size-i.d.used, 0) / blockSize)
	out.Bavail, out.Files, out.Ffree = out.Bfree, 1<<30, 1<<30
	return 0
}

func (i *inode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n, err := i.d.lookup(i.n, name)
	if err != 0 {
		return nil, err
	}
	return i.child(ctx, n, out), 0
}

func (i *inode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	i.d.fill(i.n, &out.Attr)
	return 0
}

func (i *inode) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		if err := i.d.resize(i.n, int(size)); err != 0 {
			return err
		}
	}
	if mode, ok := in.GetMode(); ok {
		i.d.mu.Lock()
		i.n.mode = mode & 0o7777
		i.d.mu.Unlock()
	}
	i.d.fill(i.n, &out.Attr)
	return 0
}

func (i *inode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n, err := i.d.create(i.n, name, true, mode)
	if err != 0 {
		return nil, err
	}
	return i.child(ctx, n, out), 0
}

func (i *inode) Create(
	ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut,
) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	n, err := i.d.create(i.n, name, false, mode)
	if err == syscall.EEXIST && flags&syscall.O_EXCL == 0 && !n.dir {
		err = 0
		if flags&syscall.O_TRUNC != 0 {
			err = i.d.resize(n, 0)
		}
	}
	if err != 0 {
		return nil, nil, 0, err
	}
	return i.child(ctx, n, out), nil, 0, 0
}

func (i *inode) Link(
	ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut,
) (*fs.Inode, syscall.Errno) {
	t, ok := target.(*inode)
	if !ok || t.n.dir {
		return nil, syscall.EPERM
	}
	if err := i.d.link(i.n, name, t.n); err != 0 {
		return nil, err
	}
	return i.child(ctx, t.n, out), 0
}

func (i *inode) Unlink(_ context.Context, name string) syscall.Errno {
	return i.d.remove(i.n, name, false)
}

func (i *inode) Rmdir(_ context.Context, name string) syscall.Errno {
	return i.d.remove(i.n, name, true)
}

func (i *inode) Rename(
	_ context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32,
) syscall.Errno {
	to, ok := parent.(*inode)
	if !ok || flags&^noReplace != 0 {
		return syscall.EINVAL
	}
	return i.d.rename(i.n, name, to.n, newName, flags&noReplace != 0)
}

func (i *inode) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	i.d.mu.Lock()
	defer i.d.mu.Unlock()
	var list []fuse.DirEntry
	for name, n := range i.n.names {
		list = append(list, fuse.DirEntry{Name: name, Mode: n.kind(), Ino: n.ino})
	}
	slices.SortFunc(list, func(a, b fuse.DirEntry) int { return cmp.Compare(a.Name, b.Name) })
	return fs.NewListDirStream(list), 0
}

func (i *inode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_TRUNC != 0 {
		return nil, 0, i.d.resize(i.n, 0)
	}
	return nil, 0, 0
}

func (i *inode) Read(_ context.Context, _ fs.FileHandle, into []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	return fuse.ReadResultData(into[:i.d.read(i.n, into, int(at))]), 0
}

func (i *inode) Write(_ context.Context, _ fs.FileHandle, b []byte, at int64) (uint32, syscall.Errno) {
	if err := i.d.write(i.n, b, int(at)); err != 0 {
		return 0, err
	}
	return uint32(len(b)), 0
}

func (i *inode) Flush(context.Context, fs.FileHandle) syscall.Errno { return 0 }

func (i *inode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return i.d.sync(i.n) }

func (i *inode) Allocate(_ context.Context, _ fs.FileHandle, at, size uint64, mode uint32) syscall.Errno {
	switch end := int(at + size); {
	case mode&^keepSize != 0:
		return syscall.EOPNOTSUPP
	case mode&keepSize == 0 && end > len(i.n.data):
		return i.d.resize(i.n, end)
	}
	return 0
}
