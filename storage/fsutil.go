package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// syncDir makes the entries of a directory durable.
func syncDir(fsys FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeDir makes dir and its missing parents, each durably.
func makeDir(fsys FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := fsys.PathDir(dir)
	if parent != dir {
		if err := makeDir(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}
	return syncDir(fsys, parent)
}

// writeFile writes a file and syncs it; its directory entry is the caller's.
func writeFile(fsys FS, name string, data []byte) error {
	f, err := fsys.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// errNotReplaced says of a failed replaceFile that the old file is surely the one in force.
var errNotReplaced = errors.New("not replaced")

// replaceFile replaces dir/name durably and atomically.
func replaceFile(fsys FS, dir, name string, data []byte) error {
	path := fsys.PathJoin(dir, name)
	if err := writeFile(fsys, path+tmpSuffix, data); err != nil {
		return fmt.Errorf("%w: %w", errNotReplaced, err)
	}
	if err := fsys.Rename(path+tmpSuffix, path); err != nil {
		return fmt.Errorf("rename %s: %w", path+tmpSuffix, err)
	}
	return syncDir(fsys, dir)
}

const tmpSuffix = ".tmp"

func readFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// removeTree removes a directory and makes that durable.
func removeTree(fsys FS, parent, name string) error {
	if err := fsys.RemoveAll(fsys.PathJoin(parent, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", fsys.PathJoin(parent, name), err)
	}
	return syncDir(fsys, parent)
}
