package powerloss

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Config describes an FS.
type Config struct {
	// Root is the tree that is covered: a directory that exists.
	Root string
	// Stage is a directory on the file system of Root, outside of it, for nobody else. It is made, and
	// emptied. Default: Root with StageSuffix.
	Stage string
	// Leak is the percentage of unsynced pages and names that reach the real tree early, 0 to 100.
	Leak int
}

// StageSuffix makes the default of Config.Stage from Config.Root.
const StageSuffix = ".powerloss"

// FS is a vfs.FS whose unsynced changes live in memory. Safe for concurrent use, as
// far as vfs.File is.
type FS struct {
	root, stage string
	leak        int

	mu     sync.Mutex // guards what follows and the tree
	top    *node
	staged int // names used in the stage
	locked map[string]bool
}

var _ vfs.FS = (*FS)(nil)

// New covers the tree at cfg.Root as it is.
func New(cfg Config) (*FS, error) {
	root, err := filepath.Abs(cfg.Root)
	if err != nil {
		return nil, err
	}
	if cfg.Stage == "" {
		cfg.Stage = root + StageSuffix
	}
	stage, err := filepath.Abs(cfg.Stage)
	if err != nil {
		return nil, err
	}
	if cfg.Leak < 0 || cfg.Leak > 100 {
		return nil, fmt.Errorf("powerloss: leak of %d percent, want 0 to 100", cfg.Leak)
	}
	if strings.HasPrefix(stage+"/", root+"/") {
		return nil, fmt.Errorf("powerloss: stage %s lies in the root %s", stage, root)
	}
	if err := errors.Join(os.RemoveAll(stage), os.MkdirAll(stage, 0o750)); err != nil {
		return nil, err
	}
	f := &FS{root: root, stage: stage, leak: cfg.Leak, locked: make(map[string]bool)}
	f.top = &node{dir: &directory{root: root}, refs: 1}
	if err := f.load(f.top, make(map[uint64]*node)); err != nil {
		return nil, fmt.Errorf("powerloss: %w", err)
	}
	return f, nil
}

// load reads a real directory. Names that share an inode share a node.
func (f *FS) load(n *node, inodes map[uint64]*node) error {
	d := n.dir
	d.live, d.disk = make(map[string]*node), make(map[string]*node)
	entries, err := os.ReadDir(d.real())
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		var child *node
		switch {
		case e.IsDir():
			child = &node{dir: &directory{parent: d, name: e.Name()}}
			if err := f.load(child, inodes); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			if child, err = f.adopt(filepath.Join(d.real(), e.Name()), info, inodes); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s is neither a file nor a directory", filepath.Join(d.real(), e.Name()))
		}
		child.refs += 2
		d.live[e.Name()], d.disk[e.Name()] = child, child
	}
	return nil
}

func (f *FS) adopt(path string, info os.FileInfo, inodes map[uint64]*node) (*node, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("%s: no inode number", path)
	}
	if n := inodes[st.Ino]; n != nil {
		return n, nil
	}
	n := &node{file: &inode{path: f.newStage(), size: info.Size(), disk: info.Size(), changed: info.ModTime()}}
	inodes[st.Ino] = n
	return n, os.Link(path, n.file.path)
}

func (f *FS) newStage() string {
	f.staged++
	return filepath.Join(f.stage, strconv.Itoa(f.staged))
}

// leaks draws whether something reaches the real tree early.
func (f *FS) leaks() bool {
	return f.leak > 0 && rand.IntN(100) < f.leak
}

// split returns the path of a name below the root, and whether it is there.
func (f *FS) split(name string) ([]string, bool) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, false
	}
	if abs == f.root {
		return nil, true
	}
	rel, ok := strings.CutPrefix(abs, f.root+"/")
	if !ok {
		return nil, false
	}
	return strings.Split(rel, "/"), true
}

func pathError(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }

// find returns the node of a path; the caller holds mu.
func (f *FS) find(path []string) (*node, error) {
	n := f.top
	for _, part := range path {
		if n.dir == nil {
			return nil, syscall.ENOTDIR
		}
		if n = n.dir.live[part]; n == nil {
			return nil, syscall.ENOENT
		}
	}
	return n, nil
}

// findParent returns the directory that holds, or may hold, the last part of a path.
func (f *FS) findParent(path []string) (*directory, string, error) {
	if len(path) == 0 {
		return nil, "", syscall.EBUSY // the root stays
	}
	n, err := f.find(path[:len(path)-1])
	switch {
	case err != nil:
		return nil, "", err
	case n.dir == nil:
		return nil, "", syscall.ENOTDIR
	}
	return n.dir, path[len(path)-1], nil
}
