package record

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFenceAdmits(t *testing.T) {
	t.Parallel()
	at := Fence{Term: 3, Epoch: 2, Ordinal: 5}
	for name, c := range map[string]struct {
		next, base Fence
		term       uint64
		want       bool
	}{
		"next ordinal":                   {Fence{3, 2, 6}, Fence{}, 3, true},
		"same ordinal":                   {Fence{3, 2, 5}, Fence{}, 3, false},
		"a gap":                          {Fence{3, 2, 7}, Fence{}, 3, false},
		"next ordinal of an older epoch": {Fence{3, 1, 6}, Fence{}, 3, false},
		"next ordinal of a later epoch":  {Fence{3, 3, 6}, Fence{}, 3, false},
		"entry of a later term":          {Fence{3, 2, 6}, Fence{}, 4, false},
		"new epoch on this state":        {Fence{3, 3, 1}, at, 3, true},
		"new epoch on another state":     {Fence{3, 3, 1}, Fence{3, 2, 4}, 3, false},
		"a skipped epoch":                {Fence{3, 9, 1}, at, 3, true},
		"the same epoch again":           {Fence{3, 2, 1}, at, 3, false},
		"new term, first epoch":          {Fence{4, 1, 1}, at, 4, true},
		"new term in an entry of the old": {
			Fence{4, 1, 1}, at, 3, false,
		},
		"older term":             {Fence{2, 9, 1}, at, 2, false},
		"new term, next ordinal": {Fence{4, 2, 6}, at, 4, false},
		"ordinal 0":              {Fence{3, 3, 0}, at, 3, false},
	} {
		if got := at.Admits(c.next, c.base, c.term); got != c.want {
			t.Errorf("%s: %v after %v: %v, want %v", name, c.next, at, got, c.want)
		}
	}
	if !(Fence{}).Admits(Fence{1, 1, 1}, Fence{}, 1) {
		t.Error("the first envelope of a group is refused")
	}
}

func TestFenceCompare(t *testing.T) {
	t.Parallel()
	order := []Fence{{}, {0, 0, 1}, {0, 1, 0}, {1, 0, 0}, {1, 0, 9}, {1, 2, 0}, {2, 0, 0}}
	for i, a := range order {
		for j, b := range order {
			if got, want := a.Compare(b), cmpInt(i, j); got != want {
				t.Errorf("%v against %v: %d, want %d", a, b, got, want)
			}
		}
	}
	if got := (Fence{1, 2, 3}).String(); got != "1.2.3" {
		t.Errorf("text %q", got)
	}
}

func cmpInt(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// fillWords sets every integer field of a struct to another value.
func fillWords(v reflect.Value, start uint64) {
	for _, f := range v.Fields() {
		start = start*31 + 7
		switch f.Kind() { //nolint:exhaustive // the others have no fields like that
		case reflect.Int64:
			f.SetInt(-int64(start % 1000))
		case reflect.Uint64:
			f.SetUint(start)
		case reflect.Uint32:
			f.SetUint(start % 4)
		}
	}
}

// TestFixedRows: every field of a fixed row survives, and other lengths are refused.
func TestFixedRows(t *testing.T) {
	t.Parallel()
	var state StreamState
	var stat SubjectStat
	var consumer ConsumerState
	var pending Pending
	var fence Fence
	for i, p := range []any{&state, &stat, &consumer, &pending, &fence} {
		fillWords(reflect.ValueOf(p).Elem(), uint64(i+1))
	}
	for name, c := range map[string]struct {
		want  any
		bytes []byte
		size  int
		parse func([]byte) (any, error)
	}{
		"stream state": {
			state, AppendStreamState(nil, &state), StreamStateSize,
			func(b []byte) (any, error) { return ParseStreamState(b) },
		},
		"subject": {
			stat, AppendSubjectStat(nil, stat), SubjectStatSize,
			func(b []byte) (any, error) { return ParseSubjectStat(b) },
		},
		"consumer state": {
			consumer, AppendConsumerState(nil, &consumer), ConsumerStateSize,
			func(b []byte) (any, error) { return ParseConsumerState(b) },
		},
		"pending": {
			pending, AppendPending(nil, &pending), PendingSize,
			func(b []byte) (any, error) { return ParsePending(pending.Seq, b) },
		},
		"fence": {
			fence, AppendFence(nil, fence), FenceSize,
			func(b []byte) (any, error) { return ParseFence(b) },
		},
	} {
		if len(c.bytes) != c.size {
			t.Errorf("%s has %d bytes, want %d", name, len(c.bytes), c.size)
		}
		got, err := c.parse(c.bytes)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, b := range [][]byte{nil, c.bytes[:c.size-1], append(bytes.Clone(c.bytes), 0)} {
			if _, err := c.parse(b); !errors.Is(err, ErrFormat) {
				t.Errorf("%s of %d bytes: %v", name, len(b), err)
			}
		}
	}
	bad := AppendPending(nil, &Pending{Kind: PendingExhausted + 1})
	if _, err := ParsePending(1, bad); !errors.Is(err, ErrFormat) {
		t.Errorf("unknown pending kind: %v", err)
	}
}

func TestProposalID(t *testing.T) {
	t.Parallel()
	if id := NewProposalID(5, 6); id.Boot() != 5 || id == NewProposalID(5, 7) || id == NewProposalID(6, 6) {
		t.Errorf("%x", id)
	}
}

// FuzzMessage: any bytes give a message or an error, and a message gives the same bytes again.
func FuzzMessage(f *testing.F) {
	for _, m := range []Message{
		{},
		{Time: -1, Subject: "a.b", Header: []byte("NATS/1.0\r\nA: b\r\n\r\n"), Payload: []byte("payload")},
		{Time: math.MaxInt64, Subject: strings.Repeat("s", MaxSubject), Payload: []byte{0}},
	} {
		f.Add(AppendMessage(nil, &m))
	}
	f.Add([]byte("short"))
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(9, b)
		subject, serr := MessageSubject(b)
		at, terr := MessageTime(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) || serr == nil {
				t.Errorf("parsed: %v, subject: %v", err, serr)
			}
			return
		}
		if serr != nil || terr != nil || string(subject) != m.Subject || at != m.Time || m.Seq != 9 {
			t.Errorf("%+v, subject %q %v, time %d %v", m, subject, serr, at, terr)
		}
		if got := AppendMessage(nil, &m); !bytes.Equal(got, b) {
			t.Errorf("%x came back as %x", b, got)
		}
		if n := MessageSize(m.Subject, m.Header, m.Payload); n != len(b) {
			t.Errorf("size %d of %d bytes", n, len(b))
		}
		// What is appended to one part must not run into the next.
		_ = append(m.Header, 'x')
		if got := AppendMessage(nil, &m); !bytes.Equal(got, b) {
			t.Error("the header's capacity reaches into the payload")
		}
	})
}

func TestSubjectHash(t *testing.T) {
	t.Parallel()
	// Published values of 64-bit FNV-1a.
	for subject, want := range map[string]uint64{
		"": 0xcbf29ce484222325, "a": 0xaf63dc4c8601ec8c, "foobar": 0x85944171f73967e8,
	} {
		if got := SubjectHash(subject); got != want {
			t.Errorf("%q: %#x, want %#x", subject, got, want)
		}
	}
}
