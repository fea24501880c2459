package seglog

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func readFile(tb testing.TB, fs vfs.FS, name string) []byte {
	tb.Helper()
	f, err := fs.Open(name)
	must(tb, err)
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	must(tb, err)
	return b
}

// snapshot is the content of a directory, to build damaged copies from.
type snapshot map[string][]byte

func take(tb testing.TB, fs vfs.FS) snapshot {
	tb.Helper()
	dir := testConfig(fs).Dir
	names, err := fs.List(dir)
	must(tb, err)
	s := snapshot{}
	for _, n := range names {
		s[n] = readFile(tb, fs, fs.PathJoin(dir, n))
	}
	return s
}

// with returns a file system with the snapshot's files, one of them replaced (or removed if nil).
func (s snapshot) with(tb testing.TB, name string, content []byte) *vfs.MemFS {
	tb.Helper()
	fs := vfs.NewCrashableMem()
	dir := testConfig(fs).Dir
	must(tb, fs.MkdirAll(dir, 0o755))
	for n, b := range s {
		if n == name {
			b = content
		}
		if b != nil {
			must(tb, writeFile(fs, fs.PathJoin(dir, n), slices.Clone(b)))
		}
	}
	if _, ok := s[name]; !ok && content != nil {
		must(tb, writeFile(fs, fs.PathJoin(dir, name), slices.Clone(content)))
	}
	must(tb, syncDir(fs, dir))
	must(tb, syncAncestors(fs, dir))
	return fs
}

func flipped(b []byte, at, bit int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1 << bit
	return b
}

// wantDamage checks that Open and Check find damage in the file, and that Open changed nothing.
func wantDamage(t *testing.T, fs vfs.FS, file string) {
	t.Helper()
	before := take(t, fs)
	_, openErr := Open(testConfig(fs))
	_, checkErr := Check(fs, testConfig(fs).Dir)
	dumpErr := Dump(fs, testConfig(fs).Dir, io.Discard)
	for what, err := range map[string]error{"open": openErr, "check": checkErr, "dump": dumpErr} {
		var d *DamageError
		if !errors.As(err, &d) || !errors.Is(err, ErrDamaged) {
			t.Fatalf("%s: %v, want damage in %s", what, err, file)
		}
		if fs.PathBase(d.File) != file {
			t.Fatalf("%s: damage in %s, want %s: %v", what, d.File, file, err)
		}
	}
	after := take(t, fs)
	if len(after) != len(before) {
		t.Fatalf("open changed the damaged directory: %d files, then %d", len(before), len(after))
	}
	for n, b := range before {
		if !slices.Equal(b, after[n]) {
			t.Fatalf("open changed %s of a damaged log", n)
		}
	}
}

// damageLog builds a log of several segments that holds every kind of record. The last batch is the append of
// one entry; the log is abandoned before or after it is sealed.
func damageLog(t *testing.T, sealed bool) (snapshot, *contents, []*segment) {
	t.Helper()
	fs := vfs.NewMem()
	cfg := testConfig(fs)
	cfg.Recycle = -1
	l := mustOpen(t, cfg)
	model := &contents{}
	do := func(o op) {
		must(t, o.run(l))
		model.apply(o)
	}
	do(op{kind: opVote, term: 3, bytes: []byte("node-b")})
	do(op{kind: opPayload, bytes: []byte("payload")})
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 6 {
		do(op{kind: opAppend, entries: randomEntries(rng, model.last()+1, 3, 10, 1000)})
		do(op{kind: opSuffix, index: model.last()})
		do(op{kind: opTerm, term: 3 + uint64(i)})
	}
	do(op{kind: opPrefix, index: 2})
	do(op{kind: opSeal})
	do(op{kind: opPayload, bytes: []byte("payload 2")})
	do(op{kind: opAppend, entries: randomEntries(rng, model.last()+1, 3, 2, 100)})
	do(op{kind: opAppend, entries: randomEntries(rng, model.last()+1, 3, 1, 100)})
	if sealed {
		do(op{kind: opSeal})
	}
	if n := len(l.view.st.segs); n < 3 {
		t.Fatalf("only %d segments", n)
	}
	return take(t, fs), model, l.view.st.segs
}

func TestBitFlipsInSealedLog(t *testing.T) {
	t.Parallel()
	files, model, segs := damageLog(t, true)
	rng := rand.New(rand.NewPCG(2, 2))
	for _, seg := range segs {
		name := segmentName(seg.number)
		// A flip in the version is damage too: the preamble's checksum tells it from a future format.
		for at := 0; at < int(seg.end); at += 1 + rng.IntN(30*thin) {
			fs := files.with(t, name, flipped(files[name], at, rng.IntN(8)))
			wantDamage(t, fs, name)
		}
	}
	for at := range files[listName] {
		wantDamage(t, files.with(t, listName, flipped(files[listName], at, rng.IntN(8))), listName)
	}
	// A flip in the seal takes the seal away and nothing else.
	last := segs[len(segs)-1]
	name := segmentName(last.number)
	for at := int(last.end); at < int(last.end)+batchHeaderSize+16; at++ {
		l := mustOpen(t, testConfig(files.with(t, name, flipped(files[name], at, 3))))
		wantContents(t, l, model)
		if l.Recovery().Sealed {
			t.Fatalf("flip at %d left the seal", at)
		}
		must(t, l.Close())
	}
}

// TestBitFlipsInUnsealedLastBatch is the stated limit: such a flip cannot be told from a torn write. All
// before the batch is still checked.
func TestBitFlipsInUnsealedLastBatch(t *testing.T) {
	t.Parallel()
	files, model, segs := damageLog(t, false)
	last := segs[len(segs)-1]
	name := segmentName(last.number)
	begin := int(last.offsets[len(last.offsets)-1]) - batchHeaderSize
	cut := model.clone()
	cut.Entries = cut.Entries[:len(cut.Entries)-1]
	rng := rand.New(rand.NewPCG(2, 2))
	for at := begin; at < int(last.end); at += 1 + rng.IntN(3*thin) {
		l := mustOpen(t, testConfig(files.with(t, name, flipped(files[name], at, rng.IntN(8)))))
		wantContents(t, l, cut)
		r := l.Recovery()
		torn := r.Torn && r.TornOffset == int64(begin) && strings.HasSuffix(r.TornFile, name)
		if at >= begin+8 && !torn {
			t.Fatalf("flip at %d: %+v", at, r)
		}
		must(t, l.Close())
	}
	for at := segmentHeaderSize; at < begin; at += 1 + rng.IntN(8*thin) {
		wantDamage(t, files.with(t, name, flipped(files[name], at, rng.IntN(8))), name)
	}
}

// TestTornLastBatch cuts the last batch at every byte, before garbage and before zeros.
func TestTornLastBatch(t *testing.T) {
	t.Parallel()
	files, model, segs := damageLog(t, false)
	last := segs[len(segs)-1]
	name := segmentName(last.number)
	begin := int(last.offsets[len(last.offsets)-1]) - batchHeaderSize
	cut := model.clone()
	cut.Entries = cut.Entries[:len(cut.Entries)-1]
	for at := begin; at < int(last.end)-batchAlign; at++ {
		for _, garbage := range []byte{0, 0xa5} {
			b := slices.Clone(files[name])
			for i := at; i < len(b); i++ {
				b[i] = garbage
			}
			l := mustOpen(t, testConfig(files.with(t, name, b)))
			wantContents(t, l, cut)
			must(t, l.Append(randomEntries(rand.New(rand.NewPCG(1, 1)), cut.last()+1, 9, 1, 10)))
			must(t, l.Close())
		}
	}
}

func TestMissingAndForeignFiles(t *testing.T) {
	t.Parallel()
	files, _, segs := damageLog(t, true)
	older := func(name string) []byte { return slices.Clone(files[name]) }
	first, middle := segmentName(segs[0].number), segmentName(segs[1].number)
	last := segmentName(segs[len(segs)-1].number)
	for _, name := range []string{first, middle, last} {
		t.Run("deleted "+name, func(t *testing.T) { wantDamage(t, files.with(t, name, nil), name) })
		for _, size := range []int{0, 10, segmentHeaderSize, 4096, testSegment - 1} {
			t.Run(fmt.Sprintf("cut to %d %s", size, name), func(t *testing.T) {
				wantDamage(t, files.with(t, name, older(name)[:size]), name)
			})
		}
		t.Run("zeroed "+name, func(t *testing.T) {
			wantDamage(t, files.with(t, name, make([]byte, testSegment)), name)
		})
		t.Run("zeroed head of "+name, func(t *testing.T) {
			b := older(name)
			clear(b[segmentHeaderSize : segmentHeaderSize+512])
			wantDamage(t, files.with(t, name, b), name)
		})
	}
	t.Run("other segment under the name", func(t *testing.T) {
		wantDamage(t, files.with(t, middle, older(first)), middle)
	})
	t.Run("list deleted", func(t *testing.T) { wantDamage(t, files.with(t, listName, nil), listName) })
	for _, size := range []int{0, 10, preambleSize, listHeaderSize + 10, len(files[listName]) - 1} {
		t.Run(fmt.Sprintf("list cut to %d", size), func(t *testing.T) {
			wantDamage(t, files.with(t, listName, older(listName)[:size]), listName)
		})
	}
	t.Run("zeroed block in the middle", func(t *testing.T) {
		b := older(middle)
		clear(b[4096:8192])
		wantDamage(t, files.with(t, middle, b), middle)
	})
}

// TestOldCopies puts copies back that were good once.
func TestOldCopies(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	l := mustOpen(t, testConfig(fs))
	rng := rand.New(rand.NewPCG(3, 3))
	fill := func(segments int) {
		for n := l.Stats().Rotations + uint64(segments); l.Stats().Rotations < n; {
			must(t, l.Append(randomEntries(rng, l.LastIndex()+1, 1, 2, 1000)))
		}
		must(t, l.Append(randomEntries(rng, l.LastIndex()+1, 1, 2, 1000)))
	}
	fill(1)
	oldSmall := take(t, fs)
	must(t, l.Append(randomEntries(rng, l.LastIndex()+1, 1, 1, 100)))
	old := take(t, fs)
	oldLast := segmentName(l.view.st.active().number)
	fill(1)
	now := take(t, fs)
	t.Run("list that misses the newest segment", func(t *testing.T) {
		wantDamage(t, now.with(t, listName, old[listName]), listName)
	})
	t.Run("full segment when it was the last one", func(t *testing.T) {
		wantDamage(t, now.with(t, oldLast, old[oldLast]), oldLast)
	})
	must(t, l.TruncatePrefix(l.LastIndex()-1))
	fill(2)
	must(t, l.TruncatePrefix(l.LastIndex()-1))
	dropped := take(t, fs)
	t.Run("list of dropped segments", func(t *testing.T) {
		fs := dropped.with(t, listName, old[listName])
		if _, err := Open(testConfig(fs)); !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
	list, err := decodeList("", dropped[listName])
	must(t, err)
	live := segmentName(list[len(list)-1].number)
	t.Run("earlier use of a recycled file", func(t *testing.T) {
		wantDamage(t, dropped.with(t, live, old[oldLast]), live)
	})
	t.Run("last segment before the list was written", func(t *testing.T) {
		// The truncation recorded how far the segment reached.
		wantDamage(t, dropped.with(t, live, slices.Concat(dropped[live][:segmentHeaderSize+batchHeaderSize],
			make([]byte, testSegment-segmentHeaderSize-batchHeaderSize))), live)
	})
	t.Run("limit: older copy of the last segment alone", func(t *testing.T) {
		must(t, mustOpen(t, testConfig(old.with(t, oldLast, oldSmall[oldLast]))).Close())
	})
}

// TestConsistentButDifferent has checksums that are all right and a history that is not the one written.
func TestConsistentButDifferent(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	l := mustOpen(t, testConfig(fs))
	must(t, l.Append(run(1, 3, 1)))
	must(t, l.Append(run(4, 5, 1)))
	seg := l.view.st.active()
	name := segmentName(seg.number)
	files := take(t, fs)
	forge := func(entries ...[]Entry) []byte {
		b := slices.Clone(files[name])
		at, chain := int64(segmentHeaderSize), chainSeed(seg.use)
		for i, es := range entries {
			var enc batch
			enc.reset(0)
			if i == 0 {
				enc.head(&head{})
			}
			for j := range es {
				enc.entry(&es[j])
			}
			var out []byte
			out, chain = enc.finish(batchRecords, seg.use, at, chain)
			at += int64(copy(b[at:], out))
		}
		return b
	}
	if !slices.Equal(forge(run(1, 3, 1), run(4, 5, 1)), files[name]) {
		t.Fatal("the forger does not write what the log writes")
	}
	t.Run("first batch replaced under the second", func(t *testing.T) {
		wantDamage(t, files.with(t, name, forge(run(1, 3, 2))), name)
	})
	for i := range uint64(3) {
		must(t, l.Append([]Entry{{Index: 6 + i, Term: 1, Data: make([]byte, 6000)}}))
	}
	files = take(t, fs)
	if len(l.view.st.segs) != 2 {
		t.Fatalf("%d segments", len(l.view.st.segs))
	}
	history := func(term uint64) [][]Entry {
		all := [][]Entry{run(1, 3, term), run(4, 5, term)}
		for i := uint64(6); i <= seg.last(); i++ {
			all = append(all, []Entry{{Index: i, Term: term, Data: make([]byte, 6000)}})
		}
		return all
	}
	must(t, mustOpen(t, testConfig(files.with(t, name, forge(history(1)...)))).Close())
	t.Run("all replaced, same length", func(t *testing.T) {
		wantDamage(t, files.with(t, name, forge(history(2)...)), name)
	})
	t.Run("one batch fewer", func(t *testing.T) {
		b := forge(run(1, 3, 1))
		clear(b[seg.end-100:])
		wantDamage(t, files.with(t, name, b), name)
	})
}

// TestLeftOvers are files that a crash may leave beside a good log.
func TestLeftOvers(t *testing.T) {
	t.Parallel()
	files, model, segs := damageLog(t, true)
	live := segmentName(segs[1].number)
	header := func(size int64) []byte { return segmentHeader{number: 99, use: 5, size: size}.encode() }
	for name, tc := range map[string]struct {
		file    string
		content []byte
		kept    bool
	}{
		"other name of a live segment": {segmentName(90), files[live], false},
		"newer name without header":    {segmentName(99), make([]byte, testSegment), false},
		"newer name, prepared": {
			segmentName(99),
			append(header(testSegment), make([]byte, testSegment-segmentHeaderSize)...),
			true,
		},
		"short file":       {segmentName(99), header(testSegment), false},
		"empty file":       {segmentName(99), []byte{}, false},
		"temporary file":   {segmentName(99) + tempSuffix, []byte("x"), false},
		"temporary list":   {listName + tempSuffix, []byte("x"), false},
		"another size":     {segmentName(99), header(2 * testSegment), false},
		"nothing of ours":  {"README", []byte("x"), true},
		"almost our name":  {"1.seg", []byte("x"), true},
		"number too large": {strings.Repeat("9", 20) + segmentSuffix, []byte("x"), true},
	} {
		t.Run(name, func(t *testing.T) {
			fs := files.with(t, tc.file, tc.content)
			l := mustOpen(t, testConfig(fs))
			wantContents(t, l, model)
			_, err := fs.Stat(fs.PathJoin(testConfig(fs).Dir, tc.file))
			if kept := err == nil; kept != tc.kept {
				t.Errorf("kept %t, want %t; recovery %+v", kept, tc.kept, l.Recovery())
			}
			if removed := slices.Contains(l.Recovery().Removed, tc.file); removed == tc.kept {
				t.Errorf("recovery %+v", l.Recovery())
			}
			// The log must not write to it unless it is a spare.
			must(t, l.Append(randomEntries(rand.New(rand.NewPCG(1, 1)), model.last()+1, 3, 40, 1500)))
			must(t, l.Close())
			if _, err := Check(fs, testConfig(fs).Dir); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	files, _, segs := damageLog(t, true)
	first, last := segmentName(segs[0].number), segmentName(segs[len(segs)-1].number)
	for _, name := range []string{listName, first, last} {
		b := slices.Clone(files[name])
		le.PutUint32(b[8:], 2)
		le.PutUint32(b[12:], checksum(b[:12]))
		_, err := Open(testConfig(files.with(t, name, b)))
		if !errors.Is(err, ErrVersion) || errors.Is(err, ErrDamaged) ||
			!strings.Contains(err.Error(), name+" has version 2, this build reads 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGetVerifies flips bits under an open log.
func TestGetVerifies(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	cfg := testConfig(mem)
	cfg.TailBytes = -1
	l := mustOpen(t, cfg)
	must(t, l.Append(run(1, 5, 1)))
	big := Entry{Index: 6, Term: 1, Data: make([]byte, 9000)}
	must(t, l.Append([]Entry{big}))
	seg := l.view.st.active()
	buf, err := mem.UnsafeGetFileDataBuffer(seg.name)
	must(t, err)
	for index := uint64(1); index <= 6; index++ {
		off := int(seg.offsets[index-1])
		size := recordPrefix + int(le.Uint32(buf[off:])) + recordTrailer
		for at := off; at < off+size; at += 1 + size/50 {
			buf[at] ^= 0x10
			var e Entry
			err := l.Get(index, &e)
			var d *DamageError
			if !errors.As(err, &d) || d.File != seg.name || d.Offset != int64(off) {
				t.Fatalf("entry %d, flip at %d: %v", index, at, err)
			}
			buf[at] ^= 0x10
			must(t, l.Get(index, &e))
		}
	}
	f, err := mem.Create(seg.name, vfs.WriteCategoryUnspecified) // a new file, the log reads the old one
	must(t, err)
	must(t, f.Close())
	var e Entry
	must(t, l.Get(6, &e))
}

func TestUnreadableDiskIsDamage(t *testing.T) {
	t.Parallel()
	cause := error(syscall.EIO)
	inj := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(o errorfs.Op) error {
		records := strings.HasSuffix(o.Path, segmentSuffix) && o.Offset >= segmentHeaderSize
		if o.Kind == errorfs.OpFileReadAt && records {
			return cause
		}
		return nil
	})}
	cfg := testConfig(errorfs.Wrap(vfs.NewMem(), inj))
	cfg.TailBytes = -1
	l := mustOpen(t, cfg)
	must(t, l.Append(run(1, 2, 1)))
	inj.On()
	var e Entry
	if err := l.Get(1, &e); !errors.Is(err, ErrDamaged) || !errors.Is(err, syscall.EIO) {
		t.Errorf("get: %v", err)
	}
	must(t, l.Close())
	if _, err := Open(cfg); !errors.Is(err, ErrDamaged) || !errors.Is(err, syscall.EIO) {
		t.Errorf("open: %v", err)
	}
	cause = syscall.EMFILE
	if _, err := Open(cfg); errors.Is(err, ErrDamaged) || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("open: %v", err)
	}
	inj.Off()
	must(t, mustOpen(t, cfg).Close())
}
