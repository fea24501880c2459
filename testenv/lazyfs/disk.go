package main

import (
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A span is a part of a file, from inclusive, to exclusive.
type span struct{ from, to int }

// A node is a file or a directory, as it is and as it would be after a cut.
type node struct {
	ino  uint64
	dir  bool
	mode uint32
	at   time.Time

	data  []byte
	dirty []span // parts of data that may differ from saved
	saved []byte

	names      map[string]*node
	savedNames map[string]*node
}

// Disk is a file system in memory. Its methods return what a system call would.
type Disk struct {
	strict bool

	mu     sync.Mutex
	root   *node
	lastID uint64
	used   int64
	faults faults
	hung   chan struct{} // closed when syncs go on; nil while none hangs
	paced  chan struct{} // closed when the delay of syncs changes
}

type faults struct {
	delay               time.Duration
	quota               int64
	failSync, failWrite bool
}

func newDisk(strict bool) *Disk {
	d := &Disk{strict: strict, paced: make(chan struct{})}
	d.root = d.newNode(true, 0o755)
	return d
}

func (d *Disk) newNode(dir bool, mode uint32) *node {
	d.lastID++
	n := &node{ino: d.lastID, dir: dir, mode: mode & 0o7777, at: time.Now()}
	if dir {
		n.names, n.savedNames = map[string]*node{}, map[string]*node{}
	}
	return n
}

// setName changes a name of a directory; nil removes it.
func (d *Disk) setName(dir *node, name string, n *node) {
	set := func(names map[string]*node) {
		if n == nil {
			delete(names, name)
		} else {
			names[name] = n
		}
	}
	set(dir.names)
	if !d.strict {
		set(dir.savedNames)
	}
	dir.at = time.Now()
}

func (d *Disk) lookup(dir *node, name string) (*node, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := dir.names[name]
	if n == nil {
		return nil, syscall.ENOENT
	}
	return n, 0
}

// create makes a file or directory. One that is there is returned with EEXIST.
func (d *Disk) create(in *node, name string, dir bool, mode uint32) (*node, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := in.names[name]; n != nil {
		return n, syscall.EEXIST
	}
	n := d.newNode(dir, mode)
	d.setName(in, name, n)
	return n, 0
}

func (d *Disk) link(in *node, name string, n *node) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in.names[name] != nil {
		return syscall.EEXIST
	}
	d.setName(in, name, n)
	return 0
}

func (d *Disk) remove(in *node, name string, dir bool) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := in.names[name]
	switch {
	case n == nil:
		return syscall.ENOENT
	case dir && !n.dir:
		return syscall.ENOTDIR
	case !dir && n.dir:
		return syscall.EISDIR
	case len(n.names) > 0:
		return syscall.ENOTEMPTY
	}
	d.setName(in, name, nil)
	d.recount()
	return 0
}

func (d *Disk) rename(in *node, name string, to *node, newName string, noReplace bool) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, old := in.names[name], to.names[newName]
	switch {
	case n == nil:
		return syscall.ENOENT
	case old != nil && noReplace:
		return syscall.EEXIST
	case old != nil && len(old.names) > 0:
		return syscall.ENOTEMPTY
	case old == n:
		return 0
	}
	d.setName(in, name, nil)
	d.setName(to, newName, n)
	d.recount()
	return 0
}

// recount sums up what the files hold that have a name.
func (d *Disk) recount() {
	d.used = 0
	d.each(func(n *node) { d.used += int64(len(n.data)) })
}

// each calls f for all nodes that have a name.
func (d *Disk) each(f func(*node)) {
	seen := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		f(n)
		for _, child := range n.names {
			walk(child)
		}
	}
	walk(d.root)
}

// resize changes the size of a file, in the way that ftruncate does.
func (d *Disk) resize(n *node, size int) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.setSize(n, size)
}

func (d *Disk) setSize(n *node, size int) syscall.Errno {
	old := len(n.data)
	if grown := int64(size - old); grown > 0 && d.faults.quota > 0 && d.used+grown > d.faults.quota {
		return syscall.ENOSPC
	}
	d.used += int64(size - old)
	if size <= old {
		n.data = n.data[:size]
		n.dirty = slices.DeleteFunc(n.dirty, func(s span) bool { return s.from >= size })
		for i := range n.dirty {
			n.dirty[i].to = min(n.dirty[i].to, size)
		}
	} else {
		n.data = slices.Grow(n.data, size-old)[:size]
		clear(n.data[old:])
		n.touch(old, size)
	}
	n.at = time.Now()
	return 0
}

// touch notes that a part was written.
func (n *node) touch(from, to int) {
	if i := len(n.dirty) - 1; i >= 0 && from >= n.dirty[i].from && from <= n.dirty[i].to {
		n.dirty[i].to = max(n.dirty[i].to, to)
		return
	}
	n.dirty = append(n.dirty, span{from, to})
}

func (d *Disk) write(n *node, b []byte, at int) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.failWrite {
		return syscall.EIO
	}
	if end := at + len(b); end > len(n.data) {
		if err := d.setSize(n, end); err != 0 {
			return err
		}
	}
	copy(n.data[at:], b)
	n.touch(at, at+len(b))
	n.at = time.Now()
	return 0
}

func (d *Disk) read(n *node, into []byte, at int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at >= len(n.data) {
		return 0
	}
	return copy(into, n.data[at:])
}

// sync makes bytes, size or names durable, as slowly and as badly as it was told to.
func (d *Disk) sync(n *node) syscall.Errno {
	d.mu.Lock()
	hung, delay, paced := d.hung, d.faults.delay, d.paced
	d.mu.Unlock()
	if hung != nil {
		<-hung
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-paced: // what has waited so long does not wait any longer than a new one
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults.failSync {
		return syscall.EIO
	}
	n.save()
	return 0
}

// pace sets how long syncs take; those that are waiting end.
func (d *Disk) pace(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.delay = delay
	close(d.paced)
	d.paced = make(chan struct{})
}

func (n *node) save() {
	if n.dir {
		n.savedNames = maps.Clone(n.names)
		return
	}
	size := len(n.data)
	if size > len(n.saved) {
		n.saved = slices.Grow(n.saved, size-len(n.saved))
	}
	n.saved = n.saved[:size]
	for _, s := range n.dirty {
		copy(n.saved[s.from:s.to], n.data[s.from:s.to])
	}
	n.dirty = n.dirty[:0]
}

// cut forgets what is not durable.
func (d *Disk) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		n.data, n.dirty = slices.Clone(n.saved), nil
		if !n.dir {
			return
		}
		n.names = make(map[string]*node, len(n.savedNames))
		for name, child := range n.savedNames {
			n.names[name] = child
			walk(child)
		}
	}
	walk(d.root)
	d.recount()
}

// set changes the faults.
func (d *Disk) set(change func(*faults)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.faults)
}

// hang keeps syncs from returning, or lets them go on.
func (d *Disk) hang(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case on && d.hung == nil:
		d.hung = make(chan struct{})
	case !on && d.hung != nil:
		close(d.hung)
		d.hung = nil
	}
}
