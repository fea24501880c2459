package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"defaults":       {func(c *Config) { c.MemTableSize = 0 }, true},
		"no dir":         {func(c *Config) { c.Dir = "" }, false},
		"least memtable": {func(c *Config) { c.MemTableSize = MinMemTableSize }, true},
		"small memtable": {func(c *Config) { c.MemTableSize = MinMemTableSize - 1 }, false},
		"large memtable": {func(c *Config) { c.MemTableSize = MaxMemTableSize + 1 }, false},
		"two memtables":  {func(c *Config) { c.MemTables = 2 }, true},
		"one memtable":   {func(c *Config) { c.MemTables = 1 }, false},
		"negative delay": {func(c *Config) { c.FlushDelay = -1 }, false},
	} {
		cfg := testConfig(vfs.NewMem())
		c.change(&cfg)
		s, err := Open(cfg)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			closeStore(t, s)
		}
	}
}

// TestLeftovers: what a crash left behind goes, what the store does not know stays.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openStore(t, testConfig(fs))
	fill(t, s, 3)
	must(t, s.Flush())
	want := hashOf(t, s)
	closeStore(t, s)
	for _, dir := range []string{"db-2", "db-17", "out-3", "db-x", "out-", "db-01", "keep"} {
		must(t, fs.MkdirAll(testDir+"/"+dir, 0o755))
		must(t, writeFile(fs, testDir+"/"+dir+"/f", []byte("x")))
	}
	must(t, writeFile(fs, testDir+"/POINTER.tmp", []byte("half")))
	must(t, writeFile(fs, testDir+"/DAMAGED", []byte("a marker of another layer")))

	cfg := testConfig(fs)
	cfg.ReadOnly = true
	before := filesOf(t, fs)
	closeStore(t, openStore(t, cfg))
	if got := filesOf(t, fs); got != before {
		t.Errorf("a read-only open changed the files to %s", got)
	}
	s = openStore(t, testConfig(fs))
	if got := filesOf(t, fs); got != "[DAMAGED POINTER db-01 db-1 db-x keep out-]" {
		t.Errorf("files %s", got)
	}
	if got := hashOf(t, s); got != want {
		t.Errorf("state %v, want %v", got, want)
	}
	in, err := s.BeginInstall(SnapshotMeta{Index: 9})
	must(t, err)
	if in.name != "db-18" {
		t.Errorf("staging in %s, a name that a crash may bring back", in.name)
	}
	must(t, in.Abort())
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	cfg := testConfig(fs)
	cfg.ReadOnly = true
	if _, err := Open(cfg); err == nil {
		t.Error("a state that is not there was opened read-only")
	}
	w := openStore(t, testConfig(fs))
	fill(t, w, 3)
	must(t, w.Flush())
	want := hashOf(t, w)
	closeStore(t, w)
	s := openStore(t, cfg)
	if got := hashOf(t, s); got != want {
		t.Errorf("state %v, want %v", got, want)
	}
	b := s.NewBatch()
	b.SetApplied(4, 1, record.Fence{}, 0)
	if err := b.Commit(); err == nil {
		t.Error("committed to a read-only store")
	}
	if err := s.PublishLocal(SnapshotMeta{Index: 3}); err == nil {
		t.Error("published from a read-only store")
	}
	if _, err := s.Checkpoint(); err == nil {
		t.Error("checkpoint of a read-only store")
	}
	if _, err := s.BeginInstall(SnapshotMeta{Index: 9}); err == nil {
		t.Error("install into a read-only store")
	}
}

// TestDamagedFiles: what is missing or wrong is damage that names the file.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(fs *vfs.MemFS) error
		want   error
		says   string
	}{
		"pointer missing": {func(fs *vfs.MemFS) error {
			return fs.Remove(testDir + "/POINTER")
		}, record.ErrDamaged, "POINTER"},
		"pointer empty": {func(fs *vfs.MemFS) error {
			return writeFile(fs, testDir+"/POINTER", nil)
		}, record.ErrDamaged, "POINTER"},
		"pointer flipped": {func(fs *vfs.MemFS) error {
			return flipBit(fs, testDir+"/POINTER", 13)
		}, record.ErrDamaged, "POINTER"},
		"pointer of another version": {func(fs *vfs.MemFS) error {
			b, err := readFile(fs, testDir+"/POINTER")
			b[7]++
			binary.BigEndian.PutUint32(b[len(b)-4:], castagnoliSum(b[:len(b)-4]))
			return errors.Join(err, writeFile(fs, testDir+"/POINTER", b))
		}, record.ErrFormat, "POINTER"},
		"database missing": {func(fs *vfs.MemFS) error {
			return fs.RemoveAll(testDir + "/db-1")
		}, record.ErrDamaged, "db-1"},
		"database empty": {func(fs *vfs.MemFS) error {
			return errors.Join(fs.RemoveAll(testDir+"/db-1"), fs.MkdirAll(testDir+"/db-1", 0o755))
		}, record.ErrDamaged, "db-1"},
		"tables missing": {func(fs *vfs.MemFS) error {
			names, err := fs.List(testDir + "/db-1")
			for _, n := range names {
				if strings.HasSuffix(n, ".sst") {
					err = errors.Join(err, fs.Remove(testDir+"/db-1/"+n))
				}
			}
			return err
		}, record.ErrDamaged, "db-1"},
		"database of a newer Pebble": {func(fs *vfs.MemFS) error {
			return writeFile(fs, testDir+"/db-1/marker.format-version.000002.999", nil)
		}, record.ErrFormat, "format 999"},
		"state below the snapshot": {func(fs *vfs.MemFS) error {
			p, _, err := readPointer(fs, testDir)
			p.Snapshot.Index++
			return errors.Join(err, writePointer(fs, testDir, &p))
		}, record.ErrDamaged, "db-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewMem()
			s := openStore(t, testConfig(fs))
			fill(t, s, 5)
			must(t, s.PublishLocal(SnapshotMeta{Index: 5, Term: 1}))
			closeStore(t, s)
			must(t, c.damage(fs))
			before := filesOf(t, fs)
			_, err := Open(testConfig(fs))
			damaged := errors.Is(c.want, record.ErrDamaged)
			if !errors.Is(err, c.want) || errors.Is(err, record.ErrDamaged) != damaged ||
				!strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("open: %v", err)
			}
			if after := filesOf(t, fs); after != before {
				t.Errorf("files %s, were %s", after, before)
			}
		})
	}
}

// TestFormatVersion: a state that another build wrote is refused, not called damaged.
func TestFormatVersion(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openStore(t, testConfig(fs))
	must(t, s.h.putMeta(metaFormat, binary.BigEndian.AppendUint32(nil, FormatVersion+1)))
	must(t, s.Flush())
	closeStore(t, s)
	_, err := Open(testConfig(fs))
	if !errors.Is(err, record.ErrFormat) || errors.Is(err, record.ErrDamaged) ||
		!strings.Contains(fmt.Sprint(err), "version 2") {
		t.Errorf("open: %v", err)
	}
}

// TestBitRot flips one bit of each file at many places. The state is then either
// refused, or some earlier one that is still above the snapshot, or reading it
// says that it is damaged. It is never wrong.
func TestBitRot(t *testing.T) {
	t.Parallel()
	clean := vfs.NewCrashableMem()
	s := openStore(t, testConfig(clean))
	history := map[uint64]StateHash{}
	for range 12 {
		fill(t, s, 2)
		history[s.Applied().Index] = hashOf(t, s)
		must(t, s.Flush())
		if s.Applied().Index == 16 {
			must(t, s.PublishLocal(SnapshotMeta{Index: 16, Term: 1}))
		}
	}
	closeStore(t, s)
	names, err := clean.List(testDir + "/db-1")
	must(t, err)
	slices.Sort(names)
	outcomes := map[string]int{}
	for _, name := range names {
		path := testDir + "/db-1/" + name
		st, err := clean.Stat(path)
		must(t, err)
		stride := max(st.Size()/int64(thinned(25)), 1)
		for at := int64(0); at < st.Size(); at += stride {
			fs := clean.CrashClone(vfs.CrashCloneCfg{})
			must(t, flipBit(fs, path, at))
			outcomes[rotten(t, fs, history, fmt.Sprintf("%s at %d", name, at))]++
		}
	}
	t.Log(outcomes)
	if outcomes["refused"]+outcomes["found"] == 0 || outcomes["intact"] == 0 {
		t.Errorf("the flips did not do what they should: %v", outcomes)
	}
}

func rotten(t *testing.T, fs FS, history map[uint64]StateHash, where string) string {
	t.Helper()
	cfg := testConfig(fs)
	cfg.Damaged = func(error) {}
	cfg.Fatal = func(error) {}
	s, err := Open(cfg)
	if err != nil {
		if !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%s: refused, but not as damaged: %v", where, err)
		}
		// A manifest whose damaged end is taken for a torn write may list a table that is gone since.
		if file := record.DamagedFile(err); strings.HasPrefix(where, "MANIFEST") &&
			!strings.Contains(file, "MANIFEST") && !strings.HasSuffix(file, ".sst") {
			t.Errorf("%s: refused because of %s: %v", where, file, err)
		}
		if strings.Contains(err.Error(), "carrier") {
			t.Errorf("%s: %v", where, err)
		}
		return "refused"
	}
	defer closeStore(t, s)
	h, err := s.StateHash(t.Context())
	if err != nil {
		if !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%s: read gives %v", where, err)
		}
		return "found"
	}
	if want, ok := history[h.Index]; !ok || h != want || h.Index < 16 {
		t.Errorf("%s: state %v, want %v", where, h, want)
	}
	if h.Index == 24 {
		return "intact"
	}
	return "earlier"
}

// TestInUse: a database that is open elsewhere is not called damaged.
func TestInUse(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openStore(t, testConfig(fs))
	if _, err := Open(testConfig(fs)); err == nil || errors.Is(err, record.ErrDamaged) {
		t.Errorf("opened twice: %v", err)
	}
	fill(t, s, 1)
}

func TestSetAside(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	for n := 1; n <= 2; n++ {
		s := openStore(t, testConfig(fs))
		fill(t, s, 2)
		must(t, s.Flush())
		closeStore(t, s)
		path, err := SetAside(fs, testDir, "bad block in 000004.sst")
		want := fmt.Sprintf("/data/damaged-group-1-%d", n)
		if path != want || err != nil {
			t.Fatalf("set aside to %q, %v", path, err)
		}
		crashed := fs.CrashClone(vfs.CrashCloneCfg{})
		reason, err := readFile(crashed, path+"/REASON")
		if string(reason) != "bad block in 000004.sst\n" || err != nil {
			t.Errorf("reason %q, %v", reason, err)
		}
		if exists(crashed, testDir) {
			t.Error("the directory is still there")
		}
		cfg := testConfig(crashed)
		cfg.Dir = path
		aside := openStore(t, cfg)
		if aside.Applied().Index != 2 {
			t.Errorf("the state set aside has come to %d", aside.Applied().Index)
		}
	}
	if _, err := SetAside(fs, testDir, "again"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a missing directory: %v", err)
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	shared := NewShared(1<<20, 16)
	fs := vfs.NewMem()
	cfg := testConfig(fs)
	cfg.Shared = shared
	a := openStore(t, cfg)
	cfg.Dir = "/data/group-2"
	b := openStore(t, cfg)
	for _, s := range []*Store{a, b} {
		fill(t, s, 40)
		must(t, s.Flush())
	}
	if x, y := hashOf(t, a), hashOf(t, b); x != y {
		t.Errorf("equal applies give %v and %v", x, y)
	}
	closeStore(t, a)
	closeStore(t, b)
	shared.Close()
}

func FuzzPointer(f *testing.F) {
	for _, p := range []Pointer{
		{DB: "db-1", creating: true},
		{
			DB: "db-12", Installed: true,
			Snapshot: SnapshotMeta{Index: 7, Term: 2, ConfIndex: 3, Conf: []byte("conf")},
		},
	} {
		f.Add(marshalPointer(&p))
	}
	f.Add([]byte(pointerMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePointer(b)
		if err == nil {
			if diff := cmp.Diff(string(b), string(marshalPointer(&p))); diff != "" {
				t.Error(diff)
			}
			return
		}
		if !errors.Is(err, record.ErrDamaged) && !errors.Is(err, record.ErrFormat) {
			t.Error(err)
		}
		// With a right checksum, too, nothing but an error may come of it.
		if len(b) >= 4 {
			binary.BigEndian.PutUint32(b[len(b)-4:], castagnoliSum(b[:len(b)-4]))
			if p, err := parsePointer(b); err == nil {
				if diff := cmp.Diff(string(b), string(marshalPointer(&p))); diff != "" {
					t.Error(diff)
				}
			}
		}
	})
}

func FuzzInstall(f *testing.F) {
	src := openStore(f, testConfig(vfs.NewMem()))
	fill(f, src, 2)
	data, _ := stream(f, src)
	f.Add(data)
	f.Add(data[:streamHeadSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		in := &Install{s: &Store{fs: vfs.NewMem(), cfg: Config{Dir: "/"}}, path: "/"}
		in.begin()
		if n, err := in.Write(b); err == nil && n != len(b) {
			t.Errorf("wrote %d of %d", n, len(b))
		} else if err != nil && !errors.Is(err, record.ErrFormat) {
			t.Error(err)
		}
		if in.complete() == nil && !bytes.Equal(b, data) && uint64(len(b)) != in.length {
			t.Error("an incomplete stream counts as complete")
		}
		if in.file != nil {
			must(t, in.file.Close())
		}
	})
}

// TestCompacts: the scheduler lets compactions run, also those that were waiting
// when the database was opened, and the reads stay right.
func TestCompacts(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openStore(t, testConfig(fs))
	for round := 0; s.Stats().Compactions < 3; round++ {
		if round == 500 {
			t.Fatalf("no compactions after %d flushes: %+v", round, s.Stats())
		}
		fill(t, s, 1)
		must(t, s.Flush())
	}
	if st := s.Stats(); st.Flushes < l0CompactionThreshold || st.DiskBytes == 0 || st.ReadAmp > l0StopWrites {
		t.Errorf("%+v", st)
	}
	want := hashOf(t, s)
	closeStore(t, s)
	if s.Stats() != (Stats{}) {
		t.Error("a closed store has numbers")
	}
	s = openStore(t, testConfig(fs))
	if got := hashOf(t, s); got != want {
		t.Errorf("state %v, want %v", got, want)
	}
}
