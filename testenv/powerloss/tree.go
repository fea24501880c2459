package powerloss

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// node is a file or a directory; exactly one of the two is set.
type node struct {
	file *inode
	dir  *directory
	// refs counts its names, live and on disk, and its open handles. With the last one everything of it in
	// the stage goes.
	refs int
}

// directory is a directory, as the process sees it and as the disk has it.
type directory struct {
	live map[string]*node
	disk map[string]*node // what the real directory holds

	// Where the real directory is: root, or name in parent, or stage; nowhere if all are empty.
	root   string
	parent *directory
	name   string
	stage  string
}

// real is the path of the real directory, "" if there is none yet.
func (d *directory) real() string {
	switch {
	case d.root != "":
		return d.root
	case d.parent != nil:
		return filepath.Join(d.parent.real(), d.name)
	}
	return d.stage
}

// newFile makes a file without a name.
func (f *FS) newFile() (*node, error) {
	n := &node{file: newInode(f.newStage())}
	empty, err := os.OpenFile(n.file.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return n, empty.Close()
}

// put gives a node a name, in place of what had it.
func (f *FS) put(d *directory, name string, n *node) error {
	n.refs++
	old := d.live[name]
	d.live[name] = n
	var err error
	if f.leaks() {
		err = f.place(d, name, n)
	}
	if old != nil {
		err = errors.Join(err, f.unref(old))
	}
	return err
}

// drop takes a name away.
func (f *FS) drop(d *directory, name string) error {
	n := d.live[name]
	delete(d.live, name)
	var err error
	if d.disk[name] != nil && f.leaks() {
		err = f.displace(d, name)
	}
	return errors.Join(err, f.unref(n))
}

// unref ends one use of a node.
func (f *FS) unref(n *node) error {
	if n.refs--; n.refs > 0 {
		return nil
	}
	if n.file != nil {
		return os.Remove(n.file.path)
	}
	var errs []error
	for _, name := range slices.Collect(maps.Keys(n.dir.disk)) {
		if n.dir.disk[name].dir != nil {
			errs = append(errs, f.displace(n.dir, name)) // it may have another name
		}
	}
	if n.dir.stage != "" {
		errs = append(errs, os.RemoveAll(n.dir.stage))
	}
	for _, names := range []map[string]*node{n.dir.live, n.dir.disk} {
		for _, child := range names {
			errs = append(errs, f.unref(child))
		}
	}
	return errors.Join(errs...)
}

// syncDir makes the real directory what the process sees: first what is new, then
// what has gone.
func (f *FS) syncDir(d *directory) error {
	if err := f.materialize(d); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(d.live)) {
		if n := d.live[name]; d.disk[name] != n {
			if err := f.place(d, name, n); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.disk)) {
		if d.live[name] == nil {
			if err := f.displace(d, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// materialize gives a directory a real one, in the stage, if it has none.
func (f *FS) materialize(d *directory) error {
	if d.real() != "" {
		return nil
	}
	d.stage = f.newStage()
	return os.Mkdir(d.stage, 0o750)
}

// place makes a name durable.
func (f *FS) place(d *directory, name string, n *node) error {
	if err := f.materialize(d); err != nil {
		return err
	}
	if old := d.disk[name]; old == n {
		return nil
	} else if old != nil && (old.dir != nil || n.dir != nil) {
		if err := f.displace(d, name); err != nil {
			return err
		}
	}
	at := filepath.Join(d.real(), name)
	if n.file != nil {
		// In one step, also over another file.
		second := f.newStage()
		if err := os.Link(n.file.path, second); err != nil {
			return err
		}
		if err := os.Rename(second, at); err != nil {
			return err
		}
	} else if err := f.move(d, name, n.dir); err != nil {
		return err
	}
	old := d.disk[name]
	d.disk[name] = n
	n.refs++
	if old != nil {
		return f.unref(old)
	}
	return nil
}

// move brings a real directory to its name in d, from where it is.
func (f *FS) move(d *directory, name string, moved *directory) error {
	if err := f.materialize(moved); err != nil {
		return err
	}
	if err := os.Rename(moved.real(), filepath.Join(d.real(), name)); err != nil {
		return err
	}
	if from := moved.parent; from != nil {
		n := from.disk[moved.name]
		delete(from.disk, moved.name)
		n.refs--
	}
	moved.parent, moved.name, moved.stage = d, name, ""
	return nil
}

// displace takes a durable name away. A directory goes to the stage: it may have
// another name later.
func (f *FS) displace(d *directory, name string) error {
	n := d.disk[name]
	at := filepath.Join(d.real(), name)
	var err error
	if n.file != nil {
		err = os.Remove(at)
	} else {
		stage := f.newStage()
		if err = os.Rename(at, stage); err == nil {
			n.dir.parent, n.dir.name, n.dir.stage = nil, "", stage
		}
	}
	if err != nil {
		return err
	}
	delete(d.disk, name)
	return f.unref(n)
}
