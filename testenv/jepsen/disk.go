package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

const (
	// diskSize is the size of a node's disk, in bytes; the image is sparse.
	diskSize = 1 << 30
	// fillStep is by how much a disk is filled at a time, in bytes.
	fillStep = 1 << 20
	filler   = "filler"
)

// disk is what a node has its files on, if that is a file system of its own.
type disk interface {
	// cutPower makes the disk what a power cut at this moment leaves of it. Nobody may use it.
	cutPower(ctx context.Context) error
	// fill leaves so many bytes: when they are used, writes fail for want of space, until free.
	fill(left int64) error
	// free ends every fault of the disk.
	free() error
	// close unmounts the disk and forgets what is on it.
	close() error
}

// DiskKind is a kind of disk.
type DiskKind string

// Kinds of disks.
const (
	// Lazy is testenv/lazyfs: in memory, loses all that was not synced, names included whose directory was not; can be
	// slow. No file system has to keep more.
	Lazy DiskKind = "lazy"
	// LazyNames keeps all names and loses bytes only, as LazyFS does, and ext4 with the name of a file that was synced.
	LazyNames DiskKind = "lazy-names"
	// Loop is ext4 in an image: a real file system, which has synced by itself what is old.
	Loop DiskKind = "loop"
	// Plain is a directory; power cuts are kills then.
	Plain DiskKind = "none"
)

// DiskKinds are all kinds, the best one first.
func DiskKinds() []DiskKind { return []DiskKind{Lazy, LazyNames, Loop, Plain} }

// Lazy says whether it is a file system of testenv/lazyfs.
func (k DiskKind) Lazy() bool { return k == Lazy || k == LazyNames }

// loopDisk is an ext4 file system of its own, in an image behind a loop device. What was
// written and not synced is in the page cache above it, so a copy of the image is what
// a power cut leaves behind.
type loopDisk struct {
	image, dir string
	cuts       int
	current    string // the image that is mounted
}

// mountAt makes a disk for the directory dir of a cluster; nil for a plain directory.
//
//nolint:ireturn // one of several kinds, or none
func (c *Config) mountAt(ctx context.Context, name string) (disk, error) {
	dir := filepath.Join(c.Dir, name)
	switch c.Disk {
	case Lazy:
		return newLazyDisk(c.Lazyfs, dir, "--strict")
	case LazyNames:
		return newLazyDisk(c.Lazyfs, dir)
	case Loop:
		return newLoopDisk(ctx, filepath.Join(c.Dir, name+".img"), dir)
	default:
		return nil, os.MkdirAll(dir, 0o700)
	}
}

// canMount says why disks of the kind cannot be used here, nil if they can.
func (c *Config) canMount(ctx context.Context) error {
	switch {
	case c.Disk == Plain:
		return errors.New("nodes were to have no disks of their own")
	case c.Disk.Lazy() && c.Lazyfs == "":
		return errors.New("the program of testenv/lazyfs is missing")
	case c.Disk == Loop && os.Geteuid() != 0:
		return errors.New("mounting a disk image needs root")
	}
	d, err := c.mountAt(ctx, "probe")
	if err != nil {
		return fmt.Errorf("no disk of its own for each node: %w", err)
	}
	return errors.Join(d.close(), os.RemoveAll(filepath.Join(c.Dir, "probe")))
}

// newLoopDisk makes a disk and mounts it at dir.
func newLoopDisk(ctx context.Context, image, dir string) (*loopDisk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Create(image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		return nil, err
	}
	d := &loopDisk{image: image, dir: dir, current: image}
	if err := command(ctx, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", image); err != nil {
		return nil, errors.Join(err, os.Remove(image))
	}
	if err := d.mount(ctx); err != nil {
		return nil, errors.Join(err, os.Remove(image))
	}
	return d, nil
}

// mount mounts the current image. Its journal is written when somebody syncs, and not
// by the clock: what nobody synced is to be lost.
func (d *loopDisk) mount(ctx context.Context) error {
	return command(ctx, "mount", "-o", "loop,commit=300", d.current, d.dir)
}

// cutPower replaces the disk by what a power cut at this moment leaves of it. Nobody may use it.
func (d *loopDisk) cutPower(ctx context.Context) error {
	d.cuts++
	next := d.image + "." + strconv.Itoa(d.cuts)
	if err := command(ctx, "cp", "--sparse=always", "--reflink=auto", d.current, next); err != nil {
		return err
	}
	if err := syscall.Unmount(d.dir, 0); err != nil {
		return fmt.Errorf("unmounting %s: %w", d.dir, err)
	}
	old := d.current
	d.current = next
	return errors.Join(os.Remove(old), d.mount(ctx))
}

// fill writes until no more is left.
func (d *loopDisk) fill(left int64) (err error) {
	f, err := os.OpenFile(filepath.Join(d.dir, filler), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for step := int64(fillStep); step > 0; step /= 2 {
		block := make([]byte, step)
		for {
			if u, err := usage(d.dir); err != nil {
				return err
			} else if left > 0 && u.free-step < left {
				break
			}
			if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
				break
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// space is how many bytes of a disk are in use, and left.
type space struct{ used, free int64 }

// usage is that of the disk of a directory.
func usage(dir string) (space, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return space{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	block := st.Bsize
	return space{used: int64(st.Blocks-st.Bfree) * block, free: int64(st.Bavail) * block}, nil
}

// free removes what fill wrote.
func (d *loopDisk) free() error {
	err := os.Remove(filepath.Join(d.dir, filler))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// close unmounts the disk and removes its image.
func (d *loopDisk) close() error {
	return errors.Join(syscall.Unmount(d.dir, 0), os.Remove(d.current))
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
