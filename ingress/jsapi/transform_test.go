package jsapi

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// transforms are sources and destinations, good and bad.
func transforms() [][2]string {
	return [][2]string{
		{"", "b.>"},
		{">", ">"},
		{">", "b.>"},
		{"a.>", "b.>"},
		{"a.>", "b"},
		{"a", "b.>"},
		{"a", "b"},
		{"a.b", "c"},
		{"a.*", "b.$1"},
		{"a.*", "b.{{wildcard(1)}}"},
		{"a.*", "b.{{ Wildcard( 1 ) }}"},
		{"a.*.*", "$2.b.$1"},
		{"a.*.*", "b.$2"},
		{"a.*", "b"},
		{"a.*", "b.$2"},
		{"a.*", "b.$0"},
		{"a.*", "b.$x"},
		{"a.*", "b.*"},
		{"a", "b.$1"},
		{"*.*", "{{partition(3,1,2)}}"},
		{"*.*", "x.{{partition(5)}}"},
		{"a.b", "x.{{partition(5)}}"},
		{"*.*", "x.{{partition(5,3)}}"},
		{"*.*", "x.{{partition(x)}}"},
		{"*.*", "x.{{partition(0,1)}}"},
		{"a.b", "x.{{partition(5,1)}}"},
		{"*.>", "{{partition(10,1)}}.$1.>"},
		{"*", "{{splitfromleft(1,3)}}"},
		{"*", "{{splitFromRight(1,3)}}"},
		{"*", "{{SliceFromLeft(1,3)}}"},
		{"*", "{{sliceFromRight(1,3)}}"},
		{"*", "{{left(1,2)}}"},
		{"*", "{{right(1,2)}}"},
		{"*", "{{split(1,-)}}"},
		{"*", "{{split(1, -)}}"},
		{"*", "{{split(1)}}"},
		{"*", "{{split(1,a,b)}}"},
		{"*", "{{split(x,-)}}"},
		{"*", "{{left(1)}}"},
		{"*", "{{left(1,2,3)}}"},
		{"*", "{{left(1,x)}}"},
		{"*", "{{left(2,2)}}"},
		{"*", "{{left(1,0)}}"},
		{"*", "{{left(1,-3)}}"},
		{"*", "{{wildcard()}}"},
		{"*", "{{wildcard(1,2)}}"},
		{"*", "{{wildcard(x)}}"},
		{"*", "{{unknown(1)}}"},
		{"*", "{{wildcard}}"},
		{"a", "{{wildcard(1)}}"},
		{"a", "b.{{random(1)}}"},
		{"*", "{{random(1)}}"},
		{"*", "{{random(0)}}"},
		{"*", "{{random(x)}}"},
		{"*", "{{random(1,2)}}"},
		{"a..b", "c"},
		{"a", "b..c"},
		{"a", ">.b"},
		{"a", "{{"},
		{"a", "{{}}"},
		{"a", "$"},
		{"a.*", "$1.$1"},
		{"a", "$JS"},
	}
}

func TestOracleTransform(t *testing.T) {
	t.Parallel()
	subjects := []string{
		"a", "b", "a.b", "a.b.c", "x.y", "abcdefgh", "abcdef", "a-b-c", "-a--b-", "abc", "ab",
		"one.two.three.four",
	}
	for _, tc := range transforms() {
		ours, err := ParseTransform(tc[0], tc[1])
		theirs, theirErr := server.NewSubjectTransform(tc[0], tc[1])
		if (err == nil) != (theirErr == nil) {
			t.Errorf("%v: %v, real %v", tc, err, theirErr)
			continue
		}
		if err != nil {
			if err.Error() != theirErr.Error() {
				t.Errorf("%v: %q, real %q", tc, err, theirErr)
			}
			continue
		}
		for _, s := range subjects {
			got, ok := ours.Apply(s)
			want, err := theirs.Match(s)
			if ok != (err == nil) || got != want {
				t.Errorf("%v of %s: %q %v, real %q %v", tc, s, got, ok, want, err)
			}
		}
	}
}

func TestTransformRandom(t *testing.T) {
	t.Parallel()
	tr, err := ParseTransform("a", "b.{{random(3)}}")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for range 200 {
		s, ok := tr.Apply("a")
		n, err := strconv.Atoi(strings.TrimPrefix(s, "b."))
		if !ok || err != nil || n < 0 || n > 2 {
			t.Fatal(s)
		}
		seen[s] = true
	}
	if len(seen) != 3 {
		t.Errorf("200 times gave only %v", seen)
	}
}

func FuzzTransform(f *testing.F) {
	for _, tc := range transforms() {
		f.Add(tc[0], tc[1], "a.bcd")
	}
	f.Fuzz(func(t *testing.T, src, dest, subject string) {
		tr, err := ParseTransform(src, dest)
		if err != nil {
			_ = fmt.Sprint(err)
			return
		}
		if got, ok := tr.Apply(subject); ok && subject != "" && got == "" {
			t.Errorf("%q -> %q of %q is empty", src, dest, subject)
		}
	})
}
