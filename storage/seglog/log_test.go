package seglog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

func entry(index, term uint64, data string) Entry {
	return Entry{Index: index, Term: term, Type: 1, AppendedAt: int64(index) * 1e9, Data: []byte(data)}
}

func run(first, last, term uint64) []Entry {
	var es []Entry
	for i := first; i <= last; i++ {
		es = append(es, entry(i, term, fmt.Sprintf("entry %d of term %d", i, term)))
	}
	return es
}

func wantContents(t *testing.T, l *Log, want *contents) {
	t.Helper()
	got, err := read(l)
	must(t, err)
	if d := diff(want, got); d != "" {
		t.Fatalf("(-want +got)\n%s", d)
	}
}

func TestNewLogIsEmpty(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, testConfig(vfs.NewMem()))
	wantContents(t, l, &contents{})
	if at, err := l.OldestTime(); err != nil || !at.IsZero() {
		t.Errorf("oldest time %v, %v", at, err)
	}
	if n := l.Bytes(); n != 0 {
		t.Errorf("bytes %d", n)
	}
	if i, term := l.Last(); i != 0 || term != 0 {
		t.Errorf("last %d in term %d", i, term)
	}
	if p := l.SealPayload(); p != nil {
		t.Errorf("payload %q", p)
	}
	if _, ok := l.InFlightSince(); ok {
		t.Error("a write is in flight")
	}
	want := Recovery{Segments: 1}
	if d := cmp.Diff(want, l.Recovery()); d != "" {
		t.Errorf("recovery (-want +got)\n%s", d)
	}
}

func TestAppendIsOneWriteAndOneSync(t *testing.T) {
	t.Parallel()
	var steps []string
	fs := &stepFS{FS: vfs.NewMem(), step: func(what string) {
		steps = append(steps, strings.Fields(what)[0])
	}}
	cfg := testConfig(fs)
	l := mustOpen(t, cfg)
	for i := range uint64(5) {
		steps = nil
		must(t, l.Append(run(10*i+1, 10*i+10, 1)))
		if got := strings.Join(steps, " "); got != "write syncdata" {
			t.Fatalf("append did %q", got)
		}
	}
	if s := l.Stats(); s.Syncs != 5 || s.Batches != 5 || s.Entries != 50 || s.Segments != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestRefusedAppends(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, testConfig(vfs.NewMem()))
	must(t, l.Append(run(7, 9, 2)))
	limit := int(l.MaxEntryBytes())
	big := func(ext, data int) []Entry {
		return []Entry{{Index: 10, Term: 2, Ext: make([]byte, ext), Data: make([]byte, data)}}
	}
	for name, tc := range map[string]struct {
		entries []Entry
		want    error
		says    string
	}{
		"gap":        {run(11, 12, 2), ErrOutOfOrder, "entry 11 appended to a log that ends at 9"},
		"again":      {run(9, 9, 2), ErrOutOfOrder, "entry 9 appended"},
		"gap inside": {[]Entry{entry(10, 2, ""), entry(12, 2, "")}, ErrOutOfOrder, "entry 12 follows 10"},
		"one too large": {
			big(0, limit+1), ErrTooLarge,
			fmt.Sprintf("has %d bytes, the limit is %d", limit+1, limit),
		},
		"ext too large":  {big(MaxExt+1, 0), ErrTooLarge, "has 65536 bytes, the limit is 65535"},
		"both too large": {big(100, limit-99), ErrTooLarge, "the limit is"},
	} {
		t.Run(name, func(t *testing.T) {
			err := l.Append(tc.entries)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v saying %q", err, tc.want, tc.says)
			}
		})
	}
	must(t, l.Append(nil))
	if l.FirstIndex() != 7 || l.LastIndex() != 9 {
		t.Fatalf("log is %d..%d", l.FirstIndex(), l.LastIndex())
	}
	must(t, l.Append(big(0, limit)))
	must(t, l.Append([]Entry{{Index: 11, Term: 2, Ext: make([]byte, 100), Data: make([]byte, limit-100)}}))
	l = mustOpen(t, testConfig(vfs.NewMem()))
	if err := l.Append([]Entry{entry(0, 1, "")}); !errors.Is(err, ErrOutOfOrder) {
		t.Errorf("index 0: %v", err)
	}
}

// TestLargestEntryBehindLargestHead is the edge of MaxEntryBytes: nothing else may eat its room.
func TestLargestEntryBehindLargestHead(t *testing.T) {
	t.Parallel()
	cfg := testConfig(vfs.NewMem())
	l := mustOpen(t, cfg)
	must(t, l.SetVote(1, bytes.Repeat([]byte{'c'}, MaxCandidate)))
	must(t, l.SetSealPayload(bytes.Repeat([]byte{'p'}, MaxSealPayload)))
	l.w.payloadAt = l.elapsed() + time.Hour // however slow the test is, no batch takes the payload along
	data := bytes.Repeat([]byte{'d'}, int(l.MaxEntryBytes()))
	for i := range uint64(3) {
		must(t, l.Append([]Entry{{Index: 1 + i, Term: 1, Data: data}}))
	}
	if s := l.Stats(); s.Segments != 3 {
		t.Errorf("%d segments", s.Segments)
	}
	if end := l.view.st.active().end; end > testSegment-controlReserve(testSegment) {
		t.Errorf("the segment ends at %d, in the room for votes", end)
	}
	must(t, l.Close())
	l = mustOpen(t, cfg)
	var e Entry
	must(t, l.Get(3, &e))
	if !bytes.Equal(e.Data, data) {
		t.Error("data differs")
	}
}

func TestLimitsOfVoteAndPayload(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, testConfig(vfs.NewMem()))
	must(t, l.SetVote(1, make([]byte, MaxCandidate)))
	if err := l.SetVote(1, make([]byte, MaxCandidate+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("candidate: %v", err)
	}
	must(t, l.SetSealPayload(make([]byte, MaxSealPayload)))
	if err := l.SetSealPayload(make([]byte, MaxSealPayload+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("payload: %v", err)
	}
	if n := len(l.SealPayload()); n != MaxSealPayload {
		t.Errorf("payload has %d bytes", n)
	}
}

func TestConfigLimits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no fs":             {func(c *Config) { c.FS = nil }, "FS is missing"},
		"no dir":            {func(c *Config) { c.Dir = "" }, "Dir is empty"},
		"segment too small": {func(c *Config) { c.SegmentSize = 12288 }, "SegmentSize is 12288"},
		"segment too large": {func(c *Config) { c.SegmentSize = MaxSegmentSize + 4096 }, "SegmentSize is"},
		"segment odd":       {func(c *Config) { c.SegmentSize = MinSegmentSize + 1 }, "multiple of 4096"},
		"seal after":        {func(c *Config) { c.SealAfter = -1 }, "SealAfter"},
	} {
		cfg := testConfig(vfs.NewMem())
		tc.change(&cfg)
		if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := Config{FS: vfs.NewMem(), Dir: "log"}
	l, err := Open(cfg)
	must(t, err)
	must(t, l.Append(run(1, 2, 1)))
	must(t, l.Close())
	r, err := Check(cfg.FS, cfg.Dir)
	if err != nil || r.LastIndex != 2 || r.Segments[0].Size != DefaultSegmentSize {
		t.Errorf("%+v, %v", r, err)
	}
	d := Config{}.defaults()
	if d.SegmentSize != DefaultSegmentSize || d.TailBytes != DefaultTailBytes ||
		d.Recycle != DefaultRecycle || d.SealAfter != 0 || d.Logger == nil {
		t.Errorf("defaults %+v", d)
	}
}

func TestTruncationsAndReopen(t *testing.T) {
	t.Parallel()
	type call = func(*Log) error
	prefix := func(upTo uint64) call { return func(l *Log) error { return l.TruncatePrefix(upTo) } }
	suffix := func(from uint64) call { return func(l *Log) error { return l.TruncateSuffix(from) } }
	both := func(a, b call) call { return func(l *Log) error { return errors.Join(a(l), b(l)) } }
	for name, tc := range map[string]struct {
		do   call
		want contents
	}{
		"prefix":           {prefix(4), contents{First: 5, Entries: run(5, 10, 1)}},
		"prefix below":     {prefix(0), contents{First: 1, Entries: run(1, 10, 1)}},
		"prefix all":       {prefix(10), contents{}},
		"prefix beyond":    {prefix(99), contents{}},
		"suffix":           {suffix(8), contents{First: 1, Entries: run(1, 7, 1), TruncTerm: 3}},
		"suffix last":      {suffix(10), contents{First: 1, Entries: run(1, 9, 1), TruncTerm: 3}},
		"suffix beyond":    {suffix(11), contents{First: 1, Entries: run(1, 10, 1)}},
		"suffix all":       {suffix(1), contents{TruncTerm: 3}},
		"reset":            {(*Log).Reset, contents{TruncTerm: 3}},
		"suffix of prefix": {both(prefix(4), suffix(2)), contents{TruncTerm: 3}},
		"new suffix": {
			func(l *Log) error { return errors.Join(l.TruncateSuffix(9), l.Append(run(9, 9, 3))) },
			contents{First: 1, Entries: append(run(1, 8, 1), run(9, 9, 3)...), TruncTerm: 3},
		},
		"elsewhere after reset": {
			func(l *Log) error { return errors.Join(l.Reset(), l.Append(run(500, 501, 3))) },
			contents{First: 500, Entries: run(500, 501, 3), TruncTerm: 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(vfs.NewMem())
			l := mustOpen(t, cfg)
			must(t, l.Append(run(1, 10, 1)))
			must(t, l.SetVote(3, []byte("b")))
			must(t, tc.do(l))
			want := tc.want
			want.Term, want.VotedTerm, want.Candidate = 3, 3, "b"
			wantContents(t, l, &want)
			must(t, l.Close())
			l = mustOpen(t, cfg)
			wantContents(t, l, &want)
			if !l.Recovery().Sealed {
				t.Error("a closed log is not sealed")
			}
		})
	}
}

func TestSuffixTruncationFromZeroIsRefused(t *testing.T) {
	t.Parallel()
	if err := mustOpen(t, testConfig(vfs.NewMem())).TruncateSuffix(0); !errors.Is(err, ErrOutOfOrder) {
		t.Error(err)
	}
}

func TestVote(t *testing.T) {
	t.Parallel()
	cfg := testConfig(vfs.NewMem())
	l := mustOpen(t, cfg)
	want := func(term, voted uint64, cand string) {
		t.Helper()
		gt, gv, gc := l.Vote()
		if gt != term || gv != voted || string(gc) != cand {
			t.Fatalf("vote is %d, %q in %d; want %d, %q in %d", gt, gc, gv, term, cand, voted)
		}
	}
	want(0, 0, "")
	must(t, l.SetTerm(4))
	want(4, 0, "")
	must(t, l.SetVote(5, []byte("a")))
	want(5, 5, "a")
	must(t, l.SetTerm(7))
	want(7, 5, "a")
	syncs := l.Stats().Syncs
	must(t, l.SetTerm(7))
	if n := l.Stats().Syncs; n != syncs || syncs != 3 {
		t.Errorf("%d syncs, then %d", syncs, n)
	}
	for _, err := range []error{l.SetTerm(6), l.SetVote(6, []byte("c"))} {
		if !errors.Is(err, ErrOutOfOrder) || !strings.Contains(err.Error(), "term 6 after term 7") {
			t.Errorf("lower term: %v", err)
		}
	}
	must(t, l.Close())
	l = mustOpen(t, cfg)
	want(7, 5, "a")
}

// TestEverythingSurvivesManyRotations fills many segments, so that all state comes from heads only.
func TestEverythingSurvivesManyRotations(t *testing.T) {
	t.Parallel()
	cfg := testConfig(vfs.NewMem())
	l := mustOpen(t, cfg)
	must(t, l.SetVote(9, []byte("voter")))
	must(t, l.SetSealPayload([]byte("marks")))
	must(t, l.Append(run(1, 3, 9)))
	must(t, l.TruncateSuffix(2))
	for i := uint64(2); i < 400; i++ {
		must(t, l.Append([]Entry{{Index: i, Term: 9, Data: make([]byte, 1000)}}))
		if i%40 == 0 {
			must(t, l.TruncatePrefix(i-20))
		}
	}
	must(t, l.TruncatePrefix(379))
	s := l.Stats()
	if s.Rotations < 20 || s.Segments > 3 || s.Spares == 0 || s.Spares > DefaultRecycle {
		t.Errorf("stats %+v", s)
	}
	if s.DiskBytes != int64(s.Segments+s.Spares+s.Ready)*testSegment {
		t.Errorf("disk bytes %d", s.DiskBytes)
	}
	names, err := cfg.FS.List(cfg.Dir)
	must(t, err)
	if len(names) != s.Segments+s.Spares+s.Ready+1 {
		t.Errorf("%d files %v, stats %+v", len(names), names, s)
	}
	must(t, l.Close())
	l = mustOpen(t, cfg)
	if term, voted, cand := l.Vote(); term != 9 || voted != 9 || string(cand) != "voter" {
		t.Errorf("vote %d %d %q", term, voted, cand)
	}
	if l.TruncationTerm() != 9 || string(l.SealPayload()) != "marks" {
		t.Errorf("truncation term %d, payload %q", l.TruncationTerm(), l.SealPayload())
	}
	if l.FirstIndex() != 380 || l.LastIndex() != 399 {
		t.Errorf("log is %d..%d", l.FirstIndex(), l.LastIndex())
	}
	if r := l.Recovery(); r.Entries != 20 || r.Segments != s.Segments || len(r.Removed) != 0 {
		t.Errorf("recovery %+v", r)
	}
}

func TestAppendOverSeveralSegments(t *testing.T) {
	t.Parallel()
	cfg := testConfig(vfs.NewMem())
	l := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(5, 5))
	es := randomEntries(rng, 1, 1, 40, 6000)
	must(t, l.Append(es))
	if s := l.Stats(); s.Segments < 6 {
		t.Errorf("%d segments", s.Segments)
	}
	must(t, l.Close())
	wantContents(t, mustOpen(t, cfg), &contents{First: 1, Entries: es})
}

func TestTailServesRecentEntries(t *testing.T) {
	t.Parallel()
	cfg := testConfig(vfs.NewMem())
	cfg.TailBytes = 10 * (100 + 96)
	l := mustOpen(t, cfg)
	for i := uint64(1); i <= 50; i++ {
		must(t, l.Append([]Entry{{Index: i, Term: 1, Data: bytes.Repeat([]byte{byte(i)}, 100)}}))
	}
	if s := l.Stats(); s.TailEntries != 10 || s.TailBytes != cfg.TailBytes {
		t.Errorf("tail holds %d entries, %d bytes", s.TailEntries, s.TailBytes)
	}
	get := func(i, tail, disk uint64) {
		t.Helper()
		var e Entry
		must(t, l.Get(i, &e))
		if !bytes.Equal(e.Data, bytes.Repeat([]byte{byte(i)}, 100)) {
			t.Errorf("data of %d", i)
		}
		if s := l.Stats(); s.TailReads != tail || s.DiskReads != disk {
			t.Errorf("after %d: %d from the tail, %d from disk", i, s.TailReads, s.DiskReads)
		}
	}
	get(41, 1, 0)
	get(40, 1, 1)
	get(50, 2, 1)
	must(t, l.TruncateSuffix(46))
	var e Entry
	if err := l.Get(46, &e); !errors.Is(err, ErrNotFound) {
		t.Errorf("46 after the cut: %v", err)
	}
	get(45, 3, 1)
	must(t, l.Append([]Entry{{Index: 46, Term: 2, Data: make([]byte, 5000)}}))
	if s := l.Stats(); s.TailEntries != 0 {
		t.Errorf("an entry above the budget left %d in the tail", s.TailEntries)
	}
	must(t, l.Get(46, &e))
	if len(e.Data) != 5000 || e.Term != 2 {
		t.Errorf("entry %d of term %d", len(e.Data), e.Term)
	}
}

func TestOldestTimeAndBytes(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, testConfig(vfs.NewMem()))
	must(t, l.Append(run(1, 10, 1)))
	oldest := func(sec int64) {
		t.Helper()
		if at, err := l.OldestTime(); err != nil || !at.Equal(time.Unix(sec, 0)) {
			t.Errorf("oldest %v, %v; want %d s", at, err, sec)
		}
	}
	oldest(1)
	all := l.Bytes()
	must(t, l.TruncatePrefix(5))
	oldest(6)
	if n := l.Bytes(); n <= 0 || n >= all {
		t.Errorf("%d bytes of %d are left", n, all)
	}
	must(t, l.TruncateSuffix(6))
	must(t, l.Append([]Entry{{Index: 6, Term: 2, AppendedAt: 42e9}}))
	oldest(42)
}

func TestSealPayloadRidesOnBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		l := mustOpen(t, testConfig(mem))
		payload := func() string {
			r, err := Check(mem, testConfig(mem).Dir)
			must(t, err)
			return string(r.SealPayload)
		}
		must(t, l.SetSealPayload([]byte("one")))
		must(t, l.Append(run(1, 1, 1)))
		if p := payload(); p != "one" {
			t.Errorf("head carries %q", p)
		}
		must(t, l.SetSealPayload([]byte("two")))
		must(t, l.Append(run(2, 2, 1)))
		if p := payload(); p != "one" {
			t.Errorf("busy log wrote %q at once", p)
		}
		synctestSleep(payloadEvery)
		must(t, l.Append(run(3, 3, 1)))
		if p := payload(); p != "two" {
			t.Errorf("busy log wrote %q after %v", p, payloadEvery)
		}
		must(t, l.SetSealPayload([]byte("three")))
		must(t, l.Seal())
		if p := payload(); p != "three" {
			t.Errorf("seal carries %q", p)
		}
		must(t, l.Append(run(4, 4, 1)))
		if p := payload(); p != "three" {
			t.Errorf("the batch over the seal lost its payload: %q", p)
		}
		must(t, l.SetVote(2, nil))
		must(t, l.SetSealPayload([]byte("four")))
		must(t, l.Seal())
		must(t, l.Seal())
		if s := l.Stats(); s.Seals != 2 {
			t.Errorf("%d seals", s.Seals)
		}
		must(t, l.SetSealPayload([]byte("five")))
		must(t, l.Seal())
		if p := payload(); p != "five" {
			t.Errorf("a new seal carries %q", p)
		}
	})
}

// synctestSleep waits in virtual time.
func synctestSleep(d time.Duration) { <-time.After(d) }

func TestSealerSealsWhenIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(vfs.NewMem())
		cfg.SealAfter = DefaultSealAfter
		l := mustOpen(t, cfg)
		sealed := func() bool {
			r, err := Check(cfg.FS, cfg.Dir)
			must(t, err)
			return r.Sealed
		}
		for i := range uint64(4) {
			must(t, l.Append(run(i+1, i+1, 1)))
			synctestSleep(DefaultSealAfter / 2)
			if sealed() {
				t.Fatal("sealed while busy")
			}
		}
		synctestSleep(DefaultSealAfter/2 + time.Millisecond)
		synctest.Wait()
		if !sealed() {
			t.Fatal("not sealed when idle")
		}
		must(t, l.Append(run(5, 5, 1)))
		if sealed() {
			t.Fatal("the next batch left the seal")
		}
		synctestSleep(DefaultSealAfter + time.Millisecond)
		synctest.Wait()
		if s := l.Stats(); !sealed() || s.Seals != 2 {
			t.Fatalf("%d seals", s.Seals)
		}
		must(t, l.Close())
	})
}

// TestNoGoroutines: in virtual time a goroutine that blocks on a real disk would stop the clock.
func TestNoGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(testConfig(vfs.NewMem()))
		must(t, err)
		must(t, l.Append(run(1, 300, 1)))
		// Not closed: the bubble would report a goroutine that is left.
	})
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		hang := false
		fs := &stepFS{FS: vfs.NewMem(), step: func(what string) {
			if hang && strings.HasPrefix(what, "syncdata") {
				<-hold
			}
		}}
		l := mustOpen(t, testConfig(fs))
		hang = true
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.Append(run(1, 1, 1)) })
		synctestSleep(3 * time.Second)
		if since, ok := l.InFlightSince(); !ok || time.Since(since) != 3*time.Second || !since.Equal(start) {
			t.Errorf("in flight since %v, %t", since, ok)
		}
		if l.LastIndex() != 0 {
			t.Error("an entry shows before it is durable")
		}
		close(hold)
		wg.Wait()
		if _, ok := l.InFlightSince(); ok || l.LastIndex() != 1 {
			t.Errorf("still in flight, last is %d", l.LastIndex())
		}
	})
}

func TestClosed(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, testConfig(vfs.NewMem()))
	must(t, l.Append(run(1, 2, 1)))
	must(t, l.Close())
	must(t, l.Close())
	var e Entry
	for name, err := range map[string]error{
		"append": l.Append(run(3, 3, 1)), "vote": l.SetVote(1, nil), "term": l.SetTerm(2), "seal": l.Seal(),
		"prefix": l.TruncatePrefix(1), "suffix": l.TruncateSuffix(1), "reset": l.Reset(), "get": l.Get(2, &e),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadersDuringRecycling: readers of dropped segments get their entry or ErrNotFound, never other bytes.
func TestReadersDuringRecycling(t *testing.T) {
	t.Parallel()
	cfg := testConfig(vfs.NewMem())
	cfg.TailBytes, cfg.SyncPrepare, cfg.SealAfter = -1, false, time.Millisecond
	l := mustOpen(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for r := range uint64(3) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(r, 7))
			var e Entry
			for ctx.Err() == nil {
				first, last := l.FirstIndex(), l.LastIndex()
				if last <= first {
					continue
				}
				i := first + rng.Uint64N(last-first)
				err := l.Get(i, &e)
				if errors.Is(err, ErrNotFound) {
					continue
				}
				if err != nil || e.Index != i || len(e.Data) != 500 || le.Uint64(e.Data) != i {
					t.Errorf("get %d: %v, entry %d of %d bytes", i, err, e.Index, len(e.Data))
					return
				}
				if _, err := l.OldestTime(); err != nil && !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
				_ = l.Bytes()
			}
		})
	}
	for i := uint64(1); i < 3000; i++ {
		data := make([]byte, 500)
		le.PutUint64(data, i)
		must(t, l.SetSealPayload(data[:8]))
		must(t, l.Append([]Entry{{Index: i, Term: 1, Data: data}}))
		if i%64 == 0 {
			must(t, l.TruncatePrefix(i-60))
		}
	}
	cancel()
	wg.Wait()
	must(t, l.Close())
	if _, err := Check(cfg.FS, cfg.Dir); err != nil {
		t.Error(err)
	}
}

// TestRealFiles runs on the operating system's file system, links included.
func TestRealFiles(t *testing.T) {
	t.Parallel()
	cfg := testConfig(vfs.Default)
	cfg.Dir, cfg.SyncPrepare = t.TempDir()+"/a/b/log", false
	l := mustOpen(t, cfg)
	model := &contents{}
	rng := rand.New(rand.NewPCG(4, 4))
	for range 60 {
		o := randomOp(rng, model)
		must(t, o.run(l))
		model.apply(o)
	}
	wantContents(t, l, model)
	must(t, l.Close())
	// A second name of every live file, as an interrupted rename leaves it.
	r, err := Check(cfg.FS, cfg.Dir)
	must(t, err)
	for i, s := range r.Segments {
		must(t, os.Link(s.File, fmt.Sprintf("%s/%s", cfg.Dir, segmentName(1e6+uint64(i)))))
		must(t, os.Link(s.File, fmt.Sprintf("%s/x%d%s", cfg.Dir, i, tempSuffix)))
	}
	l = mustOpen(t, cfg)
	if n := len(l.Recovery().Removed); n < 2*len(r.Segments) {
		t.Errorf("removed %v", l.Recovery().Removed)
	}
	for range 60 {
		o := randomOp(rng, model)
		must(t, o.run(l))
		model.apply(o)
	}
	must(t, l.Close())
	wantContents(t, mustOpen(t, cfg), model)
}

// TestOtherSegmentSize opens a log whose files have another size than new ones will.
func TestOtherSegmentSize(t *testing.T) {
	t.Parallel()
	cfg := testConfig(vfs.NewMem())
	l := mustOpen(t, cfg)
	model := &contents{}
	rng := rand.New(rand.NewPCG(8, 8))
	for _, size := range []int64{4 * testSegment, testSegment, 2 * testSegment} {
		for range 100 {
			o := randomOp(rng, model)
			must(t, o.run(l))
			model.apply(o)
		}
		must(t, l.Close())
		cfg.SegmentSize = size
		l = mustOpen(t, cfg)
		wantContents(t, l, model)
	}
}

func TestDump(t *testing.T) {
	t.Parallel()
	cfg := testConfig(vfs.NewMem())
	l := mustOpen(t, cfg)
	must(t, l.SetVote(2, []byte("b")))
	must(t, l.Append([]Entry{
		{Index: 5, Term: 2, Type: 3, AppendedAt: 1e9, Ext: []byte("x"), Data: []byte("data")},
	}))
	must(t, l.Append(run(6, 7, 2)))
	must(t, l.TruncatePrefix(5))
	must(t, l.TruncateSuffix(7))
	must(t, l.SetSealPayload([]byte("pay")))
	must(t, l.Seal())
	must(t, l.Append(run(7, 7, 2)))
	must(t, l.Reset())
	must(t, l.Close())
	must(t, writeFile(cfg.FS, cfg.Dir+"/left.tmp", []byte("x")))
	var b strings.Builder
	must(t, Dump(cfg.FS, cfg.Dir, &b))
	got := regexp.MustCompile(`(use|chain) [0-9a-f]+`).ReplaceAllString(b.String(), "$1 X")
	want := `segment data/log/00000000000000000001.seg use X size 16384 listed end 64 chain X
        64 batch of 93 bytes, 2 records, after chain X
        96   head 0..0 last term 0, term 0, vote "" in term 0, truncation term 0, payload 0
       160   vote term 2, vote "b" in term 2
       192 batch of 41 bytes, 1 records, after chain X
       224   entry 5 term 2 type 3 at 1970-01-01T00:00:01Z ext 1 data 4
       272 batch of 106 bytes, 2 records, after chain X
       304   entry 6 term 2 type 1 at 1970-01-01T00:00:06Z ext 0 data 17
       357   entry 7 term 2 type 1 at 1970-01-01T00:00:07Z ext 0 data 17
       416 batch of 20 bytes, 1 records, after chain X
       448   truncate-prefix, first is 6
       472 batch of 28 bytes, 1 records, after chain X
       504   truncate-suffix from 7 in term 2
       536 batch of 68 bytes, 2 records, after chain X
       568   payload 3
       583   entry 7 term 2 type 1 at 1970-01-01T00:00:07Z ext 0 data 17
       640 batch of 20 bytes, 1 records, after chain X
       672   reset in term 2
       696 seal of 15 bytes, 1 records, after chain X
       728   payload 3
unlisted left.tmp
log 0..0 last term 0, term 2, vote "b" in term 2, truncation term 2, sealed true, torn false
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestCheckReportsWhatItRead(t *testing.T) {
	t.Parallel()
	cfg := testConfig(vfs.NewMem())
	must(t, cfg.FS.MkdirAll(cfg.Dir, 0o755))
	r, err := Check(cfg.FS, cfg.Dir)
	must(t, err)
	if d := cmp.Diff(Report{}, r); d != "" {
		t.Errorf("no log: (-want +got)\n%s", d)
	}
	l := mustOpen(t, cfg)
	must(t, l.SetVote(2, []byte("b")))
	must(t, l.Append(run(1, 2, 2)))
	must(t, l.TruncateSuffix(2))
	must(t, l.SetSealPayload([]byte("pay")))
	must(t, l.Close())
	if r, err = Check(cfg.FS, cfg.Dir); err != nil {
		t.Fatal(err)
	}
	use := r.Segments[0].Use
	want := Report{
		Segments: []SegmentReport{{
			File: "data/log/" + segmentName(1), Number: 1, Use: use, Size: testSegment,
			End: l.view.st.active().end, Batches: 3, Entries: 2,
		}},
		FirstIndex: 1, LastIndex: 1, LastTerm: 2, Term: 2, VotedTerm: 2, Candidate: []byte("b"),
		TruncationTerm: 2, SealPayload: []byte("pay"), Sealed: true,
	}
	if d := cmp.Diff(want, r); d != "" || use == 0 {
		t.Errorf("(-want +got)\n%s", d)
	}
}
