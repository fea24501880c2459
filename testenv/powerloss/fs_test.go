package powerloss

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

func newFS(t *testing.T, root string, leak int) *FS {
	t.Helper()
	f, err := New(Config{Root: root, Leak: leak})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// newRoot returns an empty directory whose stage is removed with it.
func newRoot(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o750); err != nil {
		t.Fatal(err)
	}
	return root
}

// tree reads everything below dir: paths relative to it, "/" behind those of directories.
func tree(t *testing.T, f vfs.FS, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	var walk func(path, rel string)
	walk = func(path, rel string) {
		names, err := f.List(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			full, rel := f.PathJoin(path, name), f.PathJoin(rel, name)
			st, err := f.Stat(full)
			if err != nil {
				t.Fatal(err)
			}
			if st.IsDir() {
				out[rel+"/"] = ""
				walk(full, rel)
				continue
			}
			b := read(t, f, full)
			if int64(len(b)) != st.Size() {
				t.Fatalf("%s: %d bytes read, size %d", full, len(b), st.Size())
			}
			out[rel] = string(b)
		}
	}
	walk(dir, "")
	return out
}

func read(t *testing.T, f vfs.FS, name string) []byte {
	t.Helper()
	h, err := f.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(h)
	if err := errors.Join(err, h.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

// summary makes a difference of large files readable.
func summary(m map[string]string) map[string]string {
	out := make(map[string]string)
	for name, b := range m {
		out[name] = fmt.Sprintf("%d bytes, %.12q…, sum %x", len(b), b, sum(b))
	}
	return out
}

func sum(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// pair is one file system and one below root, with the same handles open.
type pair struct {
	t    *testing.T
	rng  *rand.Rand
	mem  *vfs.MemFS
	fs   *FS
	root string
	open []both
	next byte
	log  []string
}

// both is one file, opened on both sides.
type both struct{ mem, fs vfs.File }

func (p *pair) path(rel string) string { return filepath.Join(p.root, rel) }

// names lists what there is, files or directories, sorted.
func (p *pair) names(dirs bool) []string {
	all := tree(p.t, p.mem, "/")
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return strings.HasSuffix(n, "/") != dirs })
}

func (p *pair) pick(list []string) string {
	return strings.TrimSuffix(list[p.rng.IntN(len(list))], "/")
}

// dir draws a directory, the root among them.
func (p *pair) dir() string { return p.pick(append(p.names(true), "/")) }

// fresh draws a name in a directory; few, so that they are used again.
func (p *pair) fresh(dir, kind string) string {
	return p.mem.PathJoin(dir, fmt.Sprintf("%s%d", kind, p.rng.IntN(4)))
}

// same fails unless both sides say the same.
func (p *pair) same(op string, mem, got error) {
	p.t.Helper()
	p.log = append(p.log, op)
	if (mem == nil) != (got == nil) || errors.Is(mem, fs.ErrNotExist) != errors.Is(got, fs.ErrNotExist) {
		p.t.Fatalf("%s: %v, MemFS says %v\n%s", op, got, mem, strings.Join(p.log, "\n"))
	}
}

func (p *pair) keep(op string, mem vfs.File, merr error, got vfs.File, gerr error) {
	p.t.Helper()
	p.same(op, merr, gerr)
	if merr == nil {
		p.open = append(p.open, both{mem, got})
	}
}

func (p *pair) data() []byte {
	p.next++
	n := 1 + p.rng.IntN(100)
	if p.rng.IntN(3) == 0 {
		n = p.rng.IntN(3 * pageSize)
	}
	return bytes.Repeat([]byte{'a' + p.next%26}, n)
}

// step does one random operation on both sides.
func (p *pair) step() {
	files := p.names(false)
	switch op := p.rng.IntN(20); {
	case op < 2:
		name := p.fresh(p.dir(), "f")
		m, merr := p.mem.Create(name, "")
		f, ferr := p.fs.Create(p.path(name), "")
		p.keep("create "+name, m, merr, f, ferr)
	case op < 4 && len(files) > 0:
		name := p.pick(files)
		m, merr := p.mem.OpenReadWrite(name, "")
		f, ferr := p.fs.OpenReadWrite(p.path(name), "")
		p.keep("open "+name, m, merr, f, ferr)
	case op < 9 && len(p.open) > 0:
		p.write()
	case op < 12 && len(p.open) > 0:
		h := p.open[p.rng.IntN(len(p.open))]
		p.same("sync", h.mem.Sync(), h.fs.SyncData())
	case op < 15:
		p.syncDir(p.dir())
	case op == 15:
		p.rename(files)
	case op == 16 && len(files) > 0:
		from, to := p.pick(files), p.fresh(p.dir(), "f")
		p.same("link "+from+" "+to, p.mem.Link(from, to), p.fs.Link(p.path(from), p.path(to)))
	case op == 17:
		name := p.fresh(p.dir(), "d")
		p.same("mkdir "+name, p.mem.MkdirAll(name, 0o755), p.fs.MkdirAll(p.path(name), 0o755))
	case op == 18:
		all := slices.Concat(files, p.names(true))
		if len(all) == 0 {
			return
		}
		name := p.pick(all)
		p.same("remove "+name, p.mem.Remove(name), p.fs.Remove(p.path(name)))
	case op == 19:
		p.rare(files)
	}
}

func (p *pair) write() {
	i := p.rng.IntN(len(p.open))
	h, b := p.open[i], p.data()
	if p.rng.IntN(6) == 0 {
		p.open = slices.Delete(p.open, i, i+1)
		p.same("close", h.mem.Close(), h.fs.Close())
		return
	}
	if p.rng.IntN(2) == 0 {
		_, merr := h.mem.Write(slices.Clone(b))
		_, ferr := h.fs.Write(b)
		p.same(fmt.Sprintf("write %d", len(b)), merr, ferr)
		return
	}
	off := int64(p.rng.IntN(4 * pageSize))
	_, merr := h.mem.WriteAt(slices.Clone(b), off)
	_, ferr := h.fs.WriteAt(b, off)
	p.same(fmt.Sprintf("write %d at %d", len(b), off), merr, ferr)
}

func (p *pair) syncDir(name string) {
	m, merr := p.mem.OpenDir(name)
	f, ferr := p.fs.OpenDir(p.path(name))
	p.same("open directory "+name, merr, ferr)
	if merr == nil {
		p.same("sync directory "+name, errors.Join(m.Sync(), m.Close()), errors.Join(f.Sync(), f.Close()))
	}
}

// rename moves a file anywhere, or a directory within its parent: MemFS lets one
// that moves further be in two places.
func (p *pair) rename(files []string) {
	dirs := p.names(true)
	switch {
	case p.rng.IntN(3) == 0 && len(dirs) > 0:
		from := p.pick(dirs)
		to := p.fresh(p.mem.PathDir(from), "e")
		if _, err := p.mem.Stat(to); err == nil {
			return // MemFS replaces a directory that is not empty
		}
		p.same("rename "+from+" "+to, p.mem.Rename(from, to), p.fs.Rename(p.path(from), p.path(to)))
	case len(files) > 0:
		from, to := p.pick(files), p.fresh(p.dir(), "f")
		if same(p.t, p.fs, p.path(from), p.path(to)) {
			return // two names of one file stay; MemFS drops one
		}
		p.same("rename "+from+" "+to, p.mem.Rename(from, to), p.fs.Rename(p.path(from), p.path(to)))
	}
}

func same(t *testing.T, f *FS, a, b string) bool {
	t.Helper()
	pa, _ := f.split(a)
	pb, _ := f.split(b)
	f.mu.Lock()
	defer f.mu.Unlock()
	na, err := f.find(pa)
	if err != nil {
		t.Fatal(err)
	}
	nb, err := f.find(pb)
	return err == nil && na == nb
}

func (p *pair) rare(files []string) {
	dirs := p.names(true)
	switch {
	case p.rng.IntN(2) == 0 && len(dirs) > 0:
		name := p.pick(dirs)
		p.same("remove all "+name, p.mem.RemoveAll(name), p.fs.RemoveAll(p.path(name)))
	case len(files) > 0:
		from, to := p.pick(files), p.fresh(p.dir(), "f")
		if same(p.t, p.fs, p.path(from), p.path(to)) {
			return
		}
		p.same("reuse "+from+" "+to, p.mem.Rename(from, to), p.fs.Rename(p.path(from), p.path(to)))
		m, merr := p.mem.OpenReadWrite(to, "")
		f, ferr := p.fs.OpenReadWrite(p.path(to), "")
		p.keep("open "+to, m, merr, f, ferr)
	}
}

// compare checks what is seen, and what a power cut would leave.
func (p *pair) compare() {
	p.t.Helper()
	for _, v := range []struct {
		what      string
		want, got map[string]string
	}{
		{"live", tree(p.t, p.mem, "/"), tree(p.t, p.fs, p.root)},
		{"after a power cut", tree(p.t, p.mem.CrashClone(vfs.CrashCloneCfg{}), "/"), tree(p.t, vfs.Default, p.root)},
	} {
		want := make(map[string]string)
		for name, b := range v.want {
			want[strings.TrimPrefix(name, "/")] = b
		}
		if !maps.Equal(want, v.got) {
			p.t.Fatalf("%s (-want +got):\n%s\nafter:\n%s", v.what,
				cmp.Diff(summary(want), summary(v.got)), strings.Join(p.log, "\n"))
		}
	}
}

func (p *pair) closeAll() {
	for _, h := range p.open {
		p.same("close", h.mem.Close(), h.fs.Close())
	}
	p.open = nil
}

// TestLikeCrashableMem runs random operations on an FS and on Pebble's CrashableMem.
// After each, both show the same files, and would after a power cut.
func TestLikeCrashableMem(t *testing.T) {
	t.Parallel()
	const seeds, steps = 16, 150
	for seed := range uint64(seeds) {
		p := &pair{t: t, rng: rand.New(rand.NewPCG(seed, 7)), mem: vfs.NewCrashableMem(), root: newRoot(t)}
		p.fs = newFS(t, p.root, 0)
		for range steps {
			p.step()
			p.compare()
		}
		p.closeAll()
		p.compare()
		// The real directory and a new FS on it are what the power cut left.
		want := tree(t, p.mem.CrashClone(vfs.CrashCloneCfg{}), "/")
		got := tree(t, newFS(t, p.root, 0), p.root)
		if len(want) != len(got) {
			t.Fatalf("seed %d: reopened (-want +got):\n%s", seed, cmp.Diff(summary(want), summary(got)))
		}
		checkStage(t, p.fs)
	}
}

// checkStage checks that a new FS's stage holds one name for each file, no more.
func checkStage(t *testing.T, old *FS) {
	t.Helper()
	f := newFS(t, old.root, 0)
	files := 0
	for name := range tree(t, f, f.root) {
		if !strings.HasSuffix(name, "/") {
			files++
		}
	}
	entries, err := os.ReadDir(f.stage)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > files {
		t.Errorf("%d names in the stage for %d names of files", len(entries), files)
	}
}

// TestNothingStays checks that removed files leave the stage, once that is durable.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	f := newFS(t, root, 0)
	sub := filepath.Join(root, "a", "b")
	must(t, f.MkdirAll(sub, 0o755))
	for _, dir := range []string{root, filepath.Dir(sub), sub} {
		syncDir(t, f, dir)
	}
	for i := range 5 {
		write(t, f, filepath.Join(sub, fmt.Sprint(i)), "x")
	}
	syncDir(t, f, sub)
	must(t, f.RemoveAll(filepath.Join(root, "a")))
	syncDir(t, f, root)
	entries, err := os.ReadDir(f.stage)
	must(t, err)
	if len(entries) != 0 {
		t.Errorf("the stage still holds %v", entries)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func syncDir(t *testing.T, f vfs.FS, name string) {
	t.Helper()
	d, err := f.OpenDir(name)
	must(t, err)
	must(t, errors.Join(d.Sync(), d.Close()))
}

// write makes a synced file whose name is not durable.
func write(t *testing.T, f vfs.FS, name, data string) {
	t.Helper()
	h, err := f.Create(name, "")
	must(t, err)
	_, err = h.Write([]byte(data))
	must(t, errors.Join(err, h.Sync(), h.Close()))
}

// TestLeak: with a leak of 100 percent nothing is held back.
func TestLeak(t *testing.T) {
	t.Parallel()
	for leak, want := range map[int]map[string]string{
		0:   {},
		100: {"d/": "", "d/f": "hello"},
	} {
		root := newRoot(t)
		f := newFS(t, root, leak)
		must(t, f.MkdirAll(filepath.Join(root, "d"), 0o755))
		h, err := f.Create(filepath.Join(root, "d", "f"), "")
		must(t, err)
		_, err = h.Write([]byte("hello"))
		must(t, errors.Join(err, h.Close()))
		if diff := cmp.Diff(want, tree(t, vfs.Default, root)); diff != "" {
			t.Errorf("leak of %d percent (-want +got):\n%s", leak, diff)
		}
	}
}

// TestRefused: what cannot be meant is an error that says so.
func TestRefused(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	for _, cfg := range []Config{
		{Root: root, Leak: -1},
		{Root: root, Leak: 101},
		{Root: root, Stage: filepath.Join(root, "stage")},
		{Root: filepath.Join(root, "missing")},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
	f := newFS(t, root, 0)
	write(t, f, filepath.Join(root, "f"), "x")
	must(t, f.MkdirAll(filepath.Join(root, "d"), 0o755))
	outside := filepath.Join(filepath.Dir(root), "outside")
	lock, err := f.Lock(filepath.Join(root, "lock"))
	must(t, err)
	for _, v := range []struct {
		what string
		err  error
		want error
	}{
		{"rename out of the root", f.Rename(filepath.Join(root, "f"), outside), syscall.EXDEV},
		{"link out of the root", f.Link(filepath.Join(root, "f"), outside), syscall.EXDEV},
		{"removal of the root", f.Remove(root), syscall.EBUSY},
		{"directory over itself", f.Rename(filepath.Join(root, "d"), filepath.Join(root, "d", "e")), syscall.EINVAL},
		{"file as a directory", f.MkdirAll(filepath.Join(root, "f", "g"), 0o755), syscall.ENOTDIR},
		{"file over a directory", f.Rename(filepath.Join(root, "f"), filepath.Join(root, "d")), syscall.EISDIR},
		{"second lock", second(f.Lock(filepath.Join(root, "lock"))), syscall.EAGAIN},
	} {
		if !errors.Is(v.err, v.want) {
			t.Errorf("%s: %v, want %v", v.what, v.err, v.want)
		}
	}
	must(t, lock.Close())
	lock, err = f.Lock(filepath.Join(root, "lock"))
	must(t, err)
	must(t, lock.Close())
}

func second(_ io.Closer, err error) error { return err }

// TestPebble: a database survives as far as it was flushed.
func TestPebble(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	path := filepath.Join(root, "db")
	db, err := pebble.Open(path, &pebble.Options{FS: newFS(t, root, 0), DisableWAL: true, Logger: silent{}})
	must(t, err)
	for i := range 100 {
		must(t, db.Set(fmt.Appendf(nil, "kept%d", i), bytes.Repeat([]byte("x"), 1000), pebble.NoSync))
		if i%20 == 0 {
			must(t, db.Flush())
		}
	}
	must(t, db.Flush())
	must(t, db.Set([]byte("lost"), []byte("x"), pebble.NoSync))
	// What a power cut leaves at this moment, without a change to it.
	left, err := pebble.Open(path, &pebble.Options{ReadOnly: true, Logger: silent{}})
	must(t, err)
	kept := 0
	it, err := left.NewIter(nil)
	must(t, err)
	for it.First(); it.Valid(); it.Next() {
		if !bytes.HasPrefix(it.Key(), []byte("kept")) {
			t.Errorf("%s is there and was not flushed", it.Key())
		}
		kept++
	}
	must(t, errors.Join(it.Close(), left.Close(), db.Close()))
	if kept != 100 {
		t.Errorf("%d rows are left of 100 that were flushed", kept)
	}
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(f string, a ...any) {
	panic(fmt.Sprintf(f, a...))
}
