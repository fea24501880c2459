package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestCursors(t *testing.T) {
	t.Parallel()
	for _, c := range []SweepCursor{{}, {After: "a.b"}, {After: "a", Subject: "\xff.x", Seq: 1 << 63}} {
		got, err := ParseSweepCursor(c.Encode())
		if diff := cmp.Diff(c, got); err != nil || diff != "" {
			t.Errorf("%+v: %v (-want +got):\n%s", c, err, diff)
		}
	}
	if c, err := ParseSweepCursor(nil); err != nil || c != (SweepCursor{}) {
		t.Errorf("an empty one is %+v, %v, want the begin", c, err)
	}
	p := PurgeCursor{Filter: "a.*", From: 7, UpTo: 9, Purged: 3, Reply: "_INBOX.1", Deadline: 1 << 62}
	b := p.Encode()
	got, err := ParsePurgeCursor(b)
	if diff := cmp.Diff(p, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for n := range b {
		if _, err := ParsePurgeCursor(b[:n]); !errors.Is(err, record.ErrFormat) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if _, err := ParsePurgeCursor(append(b, 0)); !errors.Is(err, record.ErrFormat) {
		t.Errorf("one byte more: %v", err)
	}
}

// TestLongCursorIsLeftOut: the row stands for the work all the same.
func TestLongCursorIsLeftOut(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{maxCursor: maxCursor, maxCursor + 1: 0} {
		w := newWorld(t, Config{})
		s := w.p.Create(1, []byte("{}"), 1)
		before := w.p.Builder().Size()
		s.PutSweep(SweepDead, []byte(strings.Repeat("x", size)))
		if got := w.p.Builder().Size() - before; got < want || got > want+64 {
			t.Errorf("a cursor of %d bytes takes %d", size, got)
		}
	}
}

func FuzzCursors(f *testing.F) {
	f.Add(SweepCursor{After: "a", Subject: "b", Seq: 3}.Encode())
	p := PurgeCursor{Filter: "a.*", From: 7, UpTo: 9, Purged: 3, Reply: "_INBOX.1", Deadline: 1}
	f.Add(p.Encode())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseSweepCursor(b); err == nil {
			if again, err := ParseSweepCursor(c.Encode()); err != nil || again != c {
				t.Fatalf("%+v is read as %+v, %v", c, again, err)
			}
		}
		if c, err := ParsePurgeCursor(b); err == nil {
			if again, err := ParsePurgeCursor(c.Encode()); err != nil || again != c {
				t.Fatalf("%+v is read as %+v, %v", c, again, err)
			}
		}
	})
}
