package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

// contents is everything a log promises to keep. It is also the deliberately dumb model of a log.
type contents struct {
	First     uint64
	Entries   []Entry
	Term      uint64
	VotedTerm uint64
	Candidate string
	TruncTerm uint64
}

func (c *contents) last() uint64 {
	if len(c.Entries) == 0 {
		return 0
	}
	return c.First + uint64(len(c.Entries)) - 1
}

func (c *contents) clone() *contents {
	d := *c
	d.Entries = slices.Clone(c.Entries)
	return &d
}

func (c *contents) normalize() {
	if len(c.Entries) == 0 {
		c.First, c.Entries = 0, nil
	}
}

type opKind int

const (
	opAppend opKind = iota
	opPrefix
	opSuffix
	opReset
	opTerm
	opVote
	opPayload
	opSeal
	opOpen
)

// op is one call on a log.
type op struct {
	kind    opKind
	entries []Entry
	index   uint64
	term    uint64
	bytes   []byte
}

func (o op) String() string {
	switch o.kind {
	case opAppend:
		return fmt.Sprintf("append %d..%d", o.entries[0].Index, o.entries[len(o.entries)-1].Index)
	case opPrefix:
		return fmt.Sprintf("truncate <= %d", o.index)
	case opSuffix:
		return fmt.Sprintf("truncate >= %d", o.index)
	case opReset:
		return "reset"
	case opTerm:
		return fmt.Sprintf("term %d", o.term)
	case opVote:
		return fmt.Sprintf("vote %q in %d", o.bytes, o.term)
	case opPayload:
		return fmt.Sprintf("payload of %d", len(o.bytes))
	case opOpen:
		return "open"
	default:
		return "seal"
	}
}

func (o op) run(l *Log) error {
	switch o.kind {
	case opAppend:
		return l.Append(o.entries)
	case opPrefix:
		return l.TruncatePrefix(o.index)
	case opSuffix:
		return l.TruncateSuffix(o.index)
	case opReset:
		return l.Reset()
	case opTerm:
		return l.SetTerm(o.term)
	case opVote:
		return l.SetVote(o.term, o.bytes)
	case opPayload:
		return l.SetSealPayload(o.bytes)
	default:
		return l.Seal()
	}
}

// apply is the model's side of run.
func (c *contents) apply(o op) {
	switch o.kind {
	case opAppend:
		if len(c.Entries) == 0 {
			c.First = o.entries[0].Index
		}
		c.Entries = append(c.Entries, o.entries...)
	case opPrefix:
		if n := int64(o.index) - int64(c.First) + 1; n > 0 {
			n = min(n, int64(len(c.Entries)))
			c.Entries, c.First = c.Entries[n:], c.First+uint64(n)
		}
	case opSuffix:
		if len(c.Entries) > 0 && o.index <= c.last() {
			c.Entries = c.Entries[:max(0, int64(o.index)-int64(c.First))]
			c.TruncTerm = c.Term
		}
	case opReset:
		c.Entries, c.TruncTerm = nil, c.Term
	case opTerm:
		c.Term = o.term
	case opVote:
		c.Term, c.VotedTerm, c.Candidate = o.term, o.term, string(o.bytes)
	case opPayload, opSeal, opOpen:
	}
	c.normalize()
}

// after returns every state that a crash during o may leave: before, after, and for an append the pieces that
// fit into a segment each.
func (c *contents) after(o op) []*contents {
	done := c.clone()
	done.apply(o)
	states := []*contents{c.clone(), done}
	if o.kind == opAppend && recordsSize(o.entries) > freshCapacity(testSegment) {
		n := 0
		for _, piece := range split(o.entries, freshCapacity(testSegment)) {
			n += len(piece)
			part := c.clone()
			part.apply(op{kind: opAppend, entries: o.entries[:n]})
			states = append(states, part)
		}
	}
	return states
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = le.AppendUint64(b, rng.Uint64())
	}
	return b[:n]
}

func randomEntries(rng *rand.Rand, first, term uint64, n, size int) []Entry {
	entries := make([]Entry, n)
	for i := range entries {
		e := Entry{Index: first + uint64(i), Term: term, Type: uint8(rng.IntN(4)), AppendedAt: rng.Int64()}
		e.Data, e.Ext = randomBytes(rng, rng.IntN(size+1)), randomBytes(rng, rng.IntN(17))
		entries[i] = e
	}
	return entries
}

// randomOp picks a call that makes sense in state c.
func randomOp(rng *rand.Rand, c *contents) op {
	if c.Term == 0 {
		return op{kind: opVote, term: 1 + uint64(rng.IntN(3)), bytes: []byte("node-0")}
	}
	switch n := rng.IntN(100); {
	case n < 48:
		first := c.last() + 1
		if c.last() == 0 {
			first = 1 + uint64(rng.IntN(50))
		}
		count, size := 1+rng.IntN(6), 300
		switch rng.IntN(12) {
		case 0:
			count, size = 3, 6000
		case 1:
			count, size = 20, 4000
		}
		return op{kind: opAppend, entries: randomEntries(rng, first, c.Term, count, size)}
	case n < 60:
		return op{kind: opPrefix, index: c.First + uint64(rng.IntN(len(c.Entries)+2))}
	case n < 68:
		return op{kind: opSuffix, index: max(1, c.last()-uint64(rng.IntN(8)))}
	case n < 70:
		return op{kind: opReset}
	case n < 76:
		return op{kind: opTerm, term: c.Term + uint64(rng.IntN(3))}
	case n < 86:
		term := c.Term + uint64(rng.IntN(2))
		return op{kind: opVote, term: term, bytes: fmt.Appendf(nil, "node-%d", rng.IntN(3))}
	case n < 93:
		return op{kind: opPayload, bytes: bytes.Repeat([]byte{byte(n)}, rng.IntN(200))}
	default:
		return op{kind: opSeal}
	}
}

const testSegment = MinSegmentSize

// testConfig starts no goroutine and has small segments.
func testConfig(fs vfs.FS) Config {
	return Config{FS: fs, Dir: "data/log", SegmentSize: testSegment, SyncPrepare: true, TailBytes: 2000}
}

func mustOpen(tb testing.TB, cfg Config) *Log {
	tb.Helper()
	l, err := Open(cfg)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// read returns what the log holds, every entry read.
func read(l *Log) (*contents, error) {
	c := &contents{First: l.FirstIndex(), TruncTerm: l.TruncationTerm()}
	var cand []byte
	c.Term, c.VotedTerm, cand = l.Vote()
	c.Candidate = string(cand)
	last := l.LastIndex()
	for i := c.First; i <= last && i > 0; i++ {
		var e Entry
		if err := l.Get(i, &e); err != nil {
			return nil, fmt.Errorf("get %d of %d..%d: %w", i, c.First, last, err)
		}
		if term, err := l.Term(i); err != nil || term != e.Term {
			return nil, fmt.Errorf("term of %d is %d, %w; the entry says %d", i, term, err, e.Term)
		}
		c.Entries = append(c.Entries, e)
	}
	if n := len(c.Entries); n > 0 && c.Entries[n-1].Term != l.LastTerm() {
		return nil, fmt.Errorf("last term is %d, the last entry says %d", l.LastTerm(), c.Entries[n-1].Term)
	}
	for _, outside := range []uint64{0, c.First - 1, last + 1} {
		var e Entry
		if err := l.Get(outside, &e); (outside == 0 || outside != c.First) && !errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("get %d outside of %d..%d: %w", outside, c.First, last, err)
		}
	}
	c.normalize()
	return c, nil
}

func (c *contents) equal(d *contents) bool {
	return c.First == d.First && c.Term == d.Term && c.VotedTerm == d.VotedTerm &&
		c.Candidate == d.Candidate && c.TruncTerm == d.TruncTerm &&
		slices.EqualFunc(c.Entries, d.Entries, sameEntry)
}

func sameEntry(a, b Entry) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && a.AppendedAt == b.AppendedAt &&
		bytes.Equal(a.Ext, b.Ext) && bytes.Equal(a.Data, b.Data)
}

func diff(want, got *contents) string {
	if want.equal(got) {
		return ""
	}
	return cmp.Diff(want, got, cmp.Comparer(bytes.Equal))
}

func TestRandomHistoryAgainstModel(t *testing.T) {
	t.Parallel()
	for i := range max(3, 12/thin) {
		seed := uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			randomHistory(t, seed)
		})
	}
}

func randomHistory(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := testConfig(vfs.NewMem())
	cfg.TailBytes = []int64{-1, 1000, 1 << 20}[seed%3]
	cfg.Recycle = []int{-1, 1, 0}[seed/3%3]
	l := mustOpen(t, cfg)
	model := &contents{}
	var payload []byte
	for step := range 400 {
		o := randomOp(rng, model)
		if err := o.run(l); err != nil {
			t.Fatalf("seed %d step %d, %v: %v", seed, step, o, err)
		}
		model.apply(o)
		if o.kind == opPayload {
			payload = o.bytes
		}
		reopened := rng.IntN(20) == 0
		if reopened {
			must(t, l.Close())
			l = mustOpen(t, cfg)
			if r := l.Recovery(); r.Torn {
				t.Fatalf("seed %d step %d: clean log reported torn: %+v", seed, step, r)
			}
		}
		if !reopened && rng.IntN(10) > 0 {
			continue
		}
		got, err := read(l)
		if err != nil {
			t.Fatalf("seed %d step %d, after %v: %v", seed, step, o, err)
		}
		if d := diff(model, got); d != "" {
			t.Fatalf("seed %d step %d, after %v: (-model +log)\n%s", seed, step, o, d)
		}
		// A closed log has sealed the payload, unless it never held a batch.
		if p := l.SealPayload(); len(model.Entries) > 0 && !bytes.Equal(p, payload) {
			t.Fatalf("seed %d step %d: payload %q, want %q", seed, step, p, payload)
		}
	}
	must(t, l.Close())
	if _, err := Check(cfg.FS, cfg.Dir); err != nil {
		t.Fatalf("seed %d: check: %v", seed, err)
	}
}
