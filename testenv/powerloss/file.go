package powerloss

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// pageSize is the grain in which unsynced bytes are held.
	pageSize = 4096
	// runPages bounds the pages of one write of a sync: between two of them a kill may come.
	runPages = 16
)

// inode is the bytes of a file.
type inode struct {
	path string // in the stage

	mu      sync.RWMutex // guards what follows
	handles int
	real    *os.File // while there are handles
	size    int64
	disk    int64            // size of the real file
	pages   map[int64][]byte // unsynced, by number
	changed time.Time
}

func newInode(path string) *inode { return &inode{path: path, changed: time.Now()} }

func (n *inode) open() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handles == 0 {
		var err error
		if n.real, err = os.OpenFile(n.path, os.O_RDWR, 0); err != nil {
			return err
		}
	}
	n.handles++
	return nil
}

// close ends one handle. What was not synced stays with the inode.
func (n *inode) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handles--; n.handles > 0 {
		return nil
	}
	err := n.real.Close()
	n.real = nil
	return err
}

func (n *inode) readAt(p []byte, off int64) (int, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if off >= n.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), n.size-off)]
	if err := n.fill(want, off); err != nil {
		return 0, err
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(want), nil
}

// fill reads what is there, unsynced pages before the real file.
func (n *inode) fill(p []byte, off int64) error {
	for len(p) > 0 {
		page, at := off/pageSize, off%pageSize
		take := min(int64(len(p)), pageSize-at)
		if b := n.pages[page]; b != nil {
			copy(p[:take], b[at:])
		} else {
			take = n.clean(off, int64(len(p)))
			if err := n.readReal(p[:take], off); err != nil {
				return err
			}
		}
		p, off = p[take:], off+take
	}
	return nil
}

// clean returns how many bytes from off on, at most most, are in no unsynced page.
func (n *inode) clean(off, most int64) int64 {
	if len(n.pages) == 0 {
		return most
	}
	end := (off/pageSize + 1) * pageSize
	for end-off < most && n.pages[end/pageSize] == nil {
		end += pageSize
	}
	return min(end-off, most)
}

// readReal reads the real file; behind its end there are zeros.
func (n *inode) readReal(p []byte, off int64) error {
	got := 0
	if off < n.disk {
		var err error
		if got, err = n.real.ReadAt(p[:min(int64(len(p)), n.disk-off)], off); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	clear(p[got:])
	return nil
}

func (n *inode) writeAt(p []byte, off int64, leaks func() bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pages == nil {
		n.pages = make(map[int64][]byte)
	}
	n.changed = time.Now()
	for len(p) > 0 {
		page, at := off/pageSize, off%pageSize
		take := min(int64(len(p)), pageSize-at)
		b := n.pages[page]
		if b == nil {
			b = make([]byte, pageSize)
			if take < pageSize {
				if err := n.readReal(b, page*pageSize); err != nil {
					return err
				}
			}
			n.pages[page] = b
		}
		copy(b[at:], p[:take])
		p, off = p[take:], off+take
		n.size = max(n.size, off)
		if leaks() {
			if err := n.flush([]int64{page}); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes pages, which follow each other, to the real file.
func (n *inode) flush(run []int64) error {
	off := run[0] * pageSize
	b := make([]byte, 0, len(run)*pageSize)
	for _, page := range run {
		b = append(b, n.pages[page]...)
	}
	b = b[:min(int64(len(b)), n.size-off)]
	if _, err := n.real.WriteAt(b, off); err != nil {
		return err
	}
	n.disk = max(n.disk, off+int64(len(b)))
	for _, page := range run {
		delete(n.pages, page)
	}
	return nil
}

// sync writes everything to the real file.
func (n *inode) sync() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var runs [][]int64
	for _, page := range slices.SortedFunc(maps.Keys(n.pages), cmp.Compare[int64]) {
		last := len(runs) - 1
		if last >= 0 && len(runs[last]) < runPages && runs[last][len(runs[last])-1] == page-1 {
			runs[last] = append(runs[last], page)
		} else {
			runs = append(runs, []int64{page})
		}
	}
	rand.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
	for _, run := range runs {
		if err := n.flush(run); err != nil {
			return err
		}
	}
	if n.disk < n.size {
		if err := n.real.Truncate(n.size); err != nil {
			return err
		}
		n.disk = n.size
	}
	return nil
}

// file is an open handle.
type file struct {
	fs    *FS
	n     *node
	name  string
	write bool
	pos   int64 // of Read and Write, one of which runs at a time
}

var _ vfs.File = (*file)(nil)

// handle opens a node; the caller holds mu.
func (f *FS) handle(n *node, name string, write bool) (vfs.File, error) {
	if n.file != nil {
		if err := n.file.open(); err != nil {
			return nil, err
		}
	}
	n.refs++
	return &file{fs: f, n: n, name: name, write: write}, nil
}

// Close implements vfs.File.
func (h *file) Close() error {
	if h.n == nil {
		return os.ErrClosed
	}
	n := h.n
	h.n = nil
	var err error
	if n.file != nil {
		err = n.file.close()
	}
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return errors.Join(err, h.fs.unref(n))
}

// bytes returns the inode of a file that is open.
func (h *file) bytes(op string) (*inode, error) {
	switch {
	case h.n == nil:
		return nil, pathError(op, h.name, os.ErrClosed)
	case h.n.file == nil:
		return nil, pathError(op, h.name, syscall.EISDIR)
	}
	return h.n.file, nil
}

// Read implements vfs.File.
func (h *file) Read(p []byte) (int, error) {
	n, err := h.ReadAt(p, h.pos)
	h.pos += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// ReadAt implements vfs.File.
func (h *file) ReadAt(p []byte, off int64) (int, error) {
	n, err := h.bytes("read")
	if err != nil {
		return 0, err
	}
	return n.readAt(p, off)
}

// Write implements vfs.File.
func (h *file) Write(p []byte) (int, error) {
	n, err := h.WriteAt(p, h.pos)
	h.pos += int64(n)
	return n, err
}

// WriteAt implements vfs.File.
func (h *file) WriteAt(p []byte, off int64) (int, error) {
	n, err := h.bytes("write")
	if err != nil {
		return 0, err
	}
	if !h.write {
		return 0, pathError("write", h.name, syscall.EBADF)
	}
	if err := n.writeAt(p, off, h.fs.leaks); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Preallocate implements vfs.File: it does nothing.
func (h *file) Preallocate(int64, int64) error { return nil }

// Prefetch implements vfs.File: it does nothing.
func (h *file) Prefetch(int64, int64) error { return nil }

// Stat implements vfs.File.
func (h *file) Stat() (vfs.FileInfo, error) {
	if h.n == nil {
		return nil, pathError("stat", h.name, os.ErrClosed)
	}
	return h.n.info(h.fs.PathBase(h.name)), nil
}

// Sync implements vfs.File.
func (h *file) Sync() error {
	if h.n == nil {
		return pathError("sync", h.name, os.ErrClosed)
	}
	if h.n.file != nil {
		return h.n.file.sync()
	}
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.fs.syncDir(h.n.dir)
}

// SyncData implements vfs.File.
func (h *file) SyncData() error { return h.Sync() }

// SyncTo implements vfs.File: it promises nothing and does nothing.
func (h *file) SyncTo(int64) (fullSync bool, err error) { return false, nil }

// Fd implements vfs.File: nothing may go around it.
func (h *file) Fd() uintptr { return vfs.InvalidFd }

// info is what is known of a file.
type info struct {
	name    string
	size    int64
	dir     bool
	changed time.Time
}

func (n *node) info(name string) info {
	if n.dir != nil {
		return info{name: name, dir: true}
	}
	n.file.mu.RLock()
	defer n.file.mu.RUnlock()
	return info{name: name, size: n.file.size, changed: n.file.changed}
}

// Name implements fs.FileInfo.
func (i info) Name() string { return i.name }

// Size implements fs.FileInfo.
func (i info) Size() int64 { return i.size }

// Mode implements fs.FileInfo.
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o750
	}
	return 0o600
}

// ModTime implements fs.FileInfo.
func (i info) ModTime() time.Time { return i.changed }

// IsDir implements fs.FileInfo.
func (i info) IsDir() bool { return i.dir }

// Sys implements fs.FileInfo.
func (i info) Sys() any { return nil }

// DeviceID implements vfs.FileInfo.
func (i info) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
