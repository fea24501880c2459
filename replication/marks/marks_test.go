package marks

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBelow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		p    Position
		m    Mark
		want bool
	}{
		{"no mark", Position{}, Mark{}, false},
		{"a fresh replica with a mark", Position{}, Mark{1, 1}, true},
		{"exactly there", Position{Term: 5, LastIndex: 110, LastTerm: 5}, Mark{5, 110}, false},
		{"further on", Position{Term: 5, LastIndex: 111, LastTerm: 5}, Mark{5, 110}, false},
		{"one entry lost", Position{Term: 5, LastIndex: 109, LastTerm: 5}, Mark{5, 110}, true},
		// The rules of the marks, (a): what a later leader cut off.
		{
			"cut by term 6, nothing behind it yet",
			Position{Term: 6, LastIndex: 100, LastTerm: 4, TruncTerm: 6},
			Mark{5, 110},
			false,
		},
		{
			"cut by term 6, fewer entries behind it",
			Position{Term: 6, LastIndex: 101, LastTerm: 6, TruncTerm: 6},
			Mark{5, 110},
			false,
		},
		{
			"entries of term 6 without a cut of its own: an install",
			Position{Term: 6, LastIndex: 105, LastTerm: 6},
			Mark{5, 110},
			false,
		},
		{
			"an old cut excuses nothing",
			Position{Term: 6, LastIndex: 100, LastTerm: 4, TruncTerm: 5},
			Mark{5, 110},
			true,
		},
		{
			"a higher current term excuses nothing",
			Position{Term: 9, LastIndex: 100, LastTerm: 5},
			Mark{5, 110},
			true,
		},
		// (b): an old disk, consistent in itself.
		{"an older term", Position{Term: 4, LastIndex: 200, LastTerm: 4}, Mark{5, 110}, true},
		{
			"an older term, whatever was cut",
			Position{Term: 4, LastIndex: 200, LastTerm: 4, TruncTerm: 4},
			Mark{5, 110},
			true,
		},
		{"an old disk of the same term", Position{Term: 5, LastIndex: 40, LastTerm: 5}, Mark{5, 110}, true},
		// (c): back after a moment: nothing is missing, the embargo protects the lease.
		{"back with all it had", Position{Term: 5, LastIndex: 110, LastTerm: 5}, Mark{5, 110}, false},
		// (d): a heartbeat proves nothing, so it makes no mark; an append does.
		{"the tail lost below an append", Position{Term: 5, LastIndex: 99, LastTerm: 5}, Mark{5, 100}, true},
		// (e): founders without configuration have no marks.
		{"a founder", Position{Term: 1}, Mark{}, false},
		{"a mark of a term without entries", Position{Term: 5, LastIndex: 9, LastTerm: 3}, Mark{5, 9}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := tc.p.Below(tc.m); got != tc.want {
				t.Errorf("%+v below %+v: %t, want %t", tc.p, tc.m, got, tc.want)
			}
		})
	}
}

func TestRaise(t *testing.T) {
	t.Parallel()
	v := Vector{}
	for i, step := range []struct {
		m      Mark
		raised bool
		want   Mark
	}{
		{Mark{}, false, Mark{}},
		{Mark{2, 10}, true, Mark{2, 10}},
		{Mark{2, 10}, false, Mark{2, 10}},
		{Mark{2, 9}, false, Mark{2, 10}},
		{Mark{1, 99}, false, Mark{2, 10}},
		{Mark{3, 4}, true, Mark{3, 4}}, // a higher term goes before a higher index
		{Mark{3, 5}, true, Mark{3, 5}},
	} {
		if got := v.Raise("a/1", step.m); got != step.raised || v["a/1"] != step.want {
			t.Errorf("step %d: raised %t to %+v, want %t, %+v", i, got, v["a/1"], step.raised, step.want)
		}
	}
	v.Raise("b/1", Mark{1, 1})
	v.Keep([]string{"b/1", "c/1"})
	if want := (Vector{"b/1": {1, 1}}); !cmp.Equal(v, want) {
		t.Errorf("kept %v, want %v", v, want)
	}
}

func collect(t *testing.T, b []byte) Vector {
	t.Helper()
	v := Vector{}
	if _, _, err := v.Merge(b); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestForm(t *testing.T) {
	t.Parallel()
	if b := Append(nil, nil); len(b) != 0 {
		t.Errorf("no marks are %d bytes", len(b))
	}
	v := Vector{"b/2": {7, 9}, "a/1": {5, 110}}
	b := Append([]byte("x"), v)[1:]
	if diff := cmp.Diff(v, collect(t, b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for n := 1; n < len(b); n++ {
		if err := Each(b[:n], func([]byte, Mark) { t.Error("reported of a cut vector") }); !errors.Is(err, ErrFormat) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	many := Vector{}
	for i := range MaxMarks {
		many[fmt.Sprintf("n%03d/x", i)] = Mark{1, uint64(i + 1)}
	}
	if diff := cmp.Diff(many, collect(t, Append(nil, many))); diff != "" {
		t.Errorf("at the limit (-want +got):\n%s", diff)
	}
	one := maps.Clone(many)
	one["zz/x"] = Mark{1, 1}
	if got := collect(t, Append(nil, one)); len(got) != MaxMarks || got["zz/x"] != (Mark{}) {
		t.Errorf("past the limit: %d marks", len(got))
	}
	if _, changed, err := many.Merge(Append(nil, Vector{"zz/x": {1, 1}})); err != nil || changed {
		t.Errorf("a full vector took another name: %t, %v", changed, err)
	}
	for _, bad := range [][]byte{{2, 0, 1}, {1, 0, 0}, {1, 0, MaxMarks + 1}, append(Append(nil, v), 0)} {
		if _, _, err := (Vector{}).Merge(bad); !errors.Is(err, ErrFormat) {
			t.Errorf("% x: %v", bad, err)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	v := Vector{"a/1": {5, 10}}
	b := Append(nil, Vector{"a/1": {5, 11}, "b/1": {4, 3}})
	if same, changed, err := v.Merge(b); !same || !changed || err != nil {
		t.Errorf("a vector that dominates: same %t, changed %t, %v", same, changed, err)
	}
	if same, changed, err := v.Merge(b); !same || changed || err != nil {
		t.Errorf("again: same %t, changed %t, %v", same, changed, err)
	}
	b = Append(nil, Vector{"a/1": {5, 9}})
	if same, changed, err := v.Merge(b); same || changed || err != nil {
		t.Errorf("an older one: same %t, changed %t, %v", same, changed, err)
	}
	if want := (Vector{"a/1": {5, 11}, "b/1": {4, 3}}); !cmp.Equal(v, want) {
		t.Errorf("%v, want %v", v, want)
	}
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(Append(nil, Vector{"a/0011223344556677": {5, 110}, "b/8899aabbccddeeff": {5, 100}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		v := Vector{}
		if _, _, err := v.Merge(b); err != nil {
			if len(v) > 0 {
				t.Fatalf("marks %v of malformed bytes", v)
			}
			return
		}
		// What marks say nothing has no form of its own; the others come back as they were.
		again := Vector{}
		if _, _, err := again.Merge(Append(nil, v)); err != nil || !maps.Equal(again, v) {
			t.Fatalf("%v becomes %v, %v", v, again, err)
		}
	})
}
