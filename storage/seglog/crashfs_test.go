package seglog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// stepFS calls step after every operation that changes the file system, and in the middle of every write.
type stepFS struct {
	vfs.FS

	// rng decides where writes are cut in two; nil leaves them whole.
	rng  *rand.Rand
	step func(what string)
}

func (s *stepFS) file(f vfs.File, err error, what, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	s.step(what + " " + name)
	return &stepFile{File: f, fs: s, name: name}, nil
}

func (s *stepFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, c)
	return s.file(f, err, "create", name)
}

func (s *stepFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if _, err := s.Stat(name); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s would be created by OpenReadWrite: %w", name, err)
	}
	f, err := s.FS.OpenReadWrite(name, c, o...)
	return s.file(f, err, "open", name)
}

func (s *stepFS) OpenDir(name string) (vfs.File, error) {
	f, err := s.FS.OpenDir(name)
	return s.file(f, err, "opendir", name)
}

func (s *stepFS) Remove(name string) error {
	err := s.FS.Remove(name)
	s.step("remove " + name)
	return err
}

func (s *stepFS) Rename(from, to string) error {
	err := s.FS.Rename(from, to)
	s.step("rename " + from + " " + to)
	return err
}

func (s *stepFS) MkdirAll(name string, perm os.FileMode) error {
	err := s.FS.MkdirAll(name, perm)
	s.step("mkdir " + name)
	return err
}

type stepFile struct {
	vfs.File

	fs   *stepFS
	name string
}

func (f *stepFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.fs.step("write " + f.name)
	return n, err
}

// WriteAt writes in two parts, if wanted, so that a crash can fall between any two bytes.
func (f *stepFile) WriteAt(b []byte, off int64) (int, error) {
	cut := 0
	if f.fs.rng != nil {
		cut = f.fs.rng.IntN(len(b))
	}
	if cut > 0 {
		if n, err := f.File.WriteAt(b[:cut], off); err != nil {
			return n, err
		}
		f.fs.step(fmt.Sprintf("write %d of %d bytes at %d of %s", cut, len(b), off, f.name))
	}
	n, err := f.File.WriteAt(b[cut:], off+int64(cut))
	f.fs.step(fmt.Sprintf("write %d bytes at %d of %s", len(b), off, f.name))
	return cut + n, err
}

func (f *stepFile) Sync() error {
	err := f.File.Sync()
	f.fs.step("sync " + f.name)
	return err
}

func (f *stepFile) SyncData() error {
	err := f.File.SyncData()
	f.fs.step("syncdata " + f.name)
	return err
}

// explorer runs a history and crashes the machine after every step of the file system.
type explorer struct {
	seed uint64
	rng  *rand.Rand
	// mem is the file system of the running log.
	mem *vfs.MemFS
	// allowed are the states that a crash now may leave; now is the running call.
	allowed []*contents
	now     op
	// nested crashes the recovery too.
	nested bool

	crashes    int
	ran        map[opKind]int
	dropped    int
	violations []string
}

// crashKinds: nothing unsynced survives; some of it does; all of it does (a killed process); all of it, and
// removed and renamed names are gone too.
var crashKinds = []string{
	"synced only", "random half", "random tenth", "everything", "everything, names removed",
}

func (x *explorer) clone(mem *vfs.MemFS, kind string) *vfs.MemFS {
	cfg := vfs.CrashCloneCfg{RNG: x.rng}
	switch kind {
	case "random half":
		cfg.UnsyncedDataPercent = 50
	case "random tenth":
		cfg.UnsyncedDataPercent = 10
	case "everything", "everything, names removed":
		cfg.UnsyncedDataPercent = 100
	}
	clone := mem.CrashClone(cfg)
	if kind != "everything, names removed" {
		return clone
	}
	dir := testConfig(nil).Dir
	live, _ := mem.List(dir)
	names, _ := clone.List(dir)
	for _, n := range names {
		if !slices.Contains(live, n) {
			_ = clone.Remove(clone.PathJoin(dir, n))
		}
	}
	return clone
}

func (x *explorer) step(what string) {
	for _, kind := range crashKinds {
		x.crashes++
		clone := x.clone(x.mem, kind)
		if err := x.verify(clone); err != nil {
			x.violations = append(x.violations,
				fmt.Sprintf("seed %d, during %v, crash after %s (%s): %v", x.seed, x.now, what, kind, err))
		}
	}
}

// verify opens the disk of a crashed machine, checks it, goes on using it, and checks it again.
func (x *explorer) verify(disk *vfs.MemFS) error {
	cfg := testConfig(disk)
	if x.nested && x.rng.IntN(12) == 0 {
		return x.recoverTwice(disk)
	}
	l, err := Open(cfg)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { _ = l.Close() }()
	got, err := read(l)
	if err != nil {
		return err
	}
	if err := x.among(got); err != nil {
		return err
	}
	for range 2 {
		o := randomOp(x.rng, got)
		if err := o.run(l); err != nil {
			return fmt.Errorf("after recovery: %v: %w", o, err)
		}
		got.apply(o)
	}
	killed := x.clone(disk, "random half")
	again, err := Open(testConfig(killed))
	if err != nil {
		return fmt.Errorf("second open: %w", err)
	}
	defer func() { _ = again.Close() }()
	second, err := read(again)
	if err != nil {
		return fmt.Errorf("after second open: %w", err)
	}
	if d := diff(got, second); d != "" {
		return fmt.Errorf("second open differs (-before +after)\n%s", d)
	}
	return nil
}

func (x *explorer) among(got *contents) error {
	for _, want := range x.allowed {
		if want.equal(got) {
			return nil
		}
	}
	want := x.allowed[len(x.allowed)-1]
	lost := ""
	if len(x.allowed) == 1 {
		lost = "acknowledged call lost: "
	}
	return fmt.Errorf("%sgot %d..%d term %d vote %q/%d cut in %d, "+
		"want one of %d states, the last %d..%d term %d vote %q/%d cut in %d",
		lost, got.First, got.last(), got.Term, got.Candidate, got.VotedTerm, got.TruncTerm,
		len(x.allowed), want.First, want.last(), want.Term, want.Candidate, want.VotedTerm, want.TruncTerm)
}

// recoverTwice crashes again after every step of the recovery itself.
func (x *explorer) recoverTwice(disk *vfs.MemFS) error {
	var failed error
	cfg := testConfig(&stepFS{FS: disk, rng: x.rng, step: func(what string) {
		for _, kind := range []string{"synced only", "random half", "everything"} {
			x.crashes++
			l, err := Open(testConfig(x.clone(disk, kind)))
			if err != nil {
				failed = fmt.Errorf("open after crash of the recovery after %s (%s): %w", what, kind, err)
				return
			}
			got, err := read(l)
			if err == nil {
				err = x.among(got)
			}
			_ = l.Close()
			if err != nil {
				failed = fmt.Errorf("crash of the recovery after %s (%s): %w", what, kind, err)
			}
		}
	}})
	l, err := Open(cfg)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	_ = l.Close()
	return failed
}

// explore runs steps random calls with a crash after every file-system step and returns what went wrong.
func explore(seed uint64, steps int, nested bool) *explorer {
	rng := rand.New(rand.NewPCG(seed, 2))
	x := &explorer{now: op{kind: opOpen}, seed: seed, rng: rng, mem: vfs.NewCrashableMem(), nested: nested}
	model := &contents{}
	x.allowed, x.ran = []*contents{model}, map[opKind]int{}
	history := rand.New(rand.NewPCG(seed, 3))
	cfg := testConfig(&stepFS{FS: x.mem, rng: x.rng, step: x.step})
	cfg.Recycle = []int{-1, 1, 0}[seed%3]
	l, err := Open(cfg)
	if err != nil {
		x.violations = append(x.violations, fmt.Sprintf("seed %d: open: %v", seed, err))
		return x
	}
	for range steps {
		x.now = randomOp(history, model)
		x.allowed = model.after(x.now)
		if err := x.now.run(l); err != nil {
			x.violations = append(x.violations, fmt.Sprintf("seed %d, %v: %v", seed, x.now, err))
			return x
		}
		model.apply(x.now)
		x.ran[x.now.kind]++
		x.allowed = []*contents{model.clone()}
		x.step("return of " + x.now.String())
		if len(x.violations) > 0 {
			return x
		}
	}
	x.dropped = int(l.Stats().Rotations) + 1 - l.Stats().Segments
	if err := l.Close(); err != nil {
		x.violations = append(x.violations, fmt.Sprintf("seed %d: close: %v", seed, err))
	}
	return x
}
