package storage

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestPrefixOrder(t *testing.T) {
	t.Parallel()
	if !slices.IsSorted([]byte(prefixOrder)) {
		t.Errorf("prefixes are not in byte order: %q", prefixOrder)
	}
	for _, p := range streamPrefixes {
		if !strings.ContainsRune(prefixOrder, p) {
			t.Errorf("prefix %q is unknown", p)
		}
	}
}

// FuzzSubjectKey: keys sort as (stream, subject, sequence) do, and are read back.
func FuzzSubjectKey(f *testing.F) {
	f.Add(uint32(1), "a.b", uint64(3), uint32(1), "a.b.c", uint64(2))
	f.Add(uint32(1), "a\x00", uint64(3), uint32(1), "a", uint64(math.MaxUint64))
	f.Add(uint32(1), "a\x00\xff", uint64(0), uint32(1), "a\x00", uint64(0))
	f.Add(uint32(1), "a\x00\x01", uint64(0), uint32(1), "a", uint64(0))
	f.Add(uint32(1), "", uint64(0), uint32(2), "\x00", uint64(0))
	f.Fuzz(func(t *testing.T, s1 uint32, n1 string, q1 uint64, s2 uint32, n2 string, q2 uint64) {
		k1 := subjectKey(nil, record.StreamID(s1), n1, q1)
		k2 := subjectKey(nil, record.StreamID(s2), []byte(n2), q2)
		want := cmp.Or(cmp.Compare(s1, s2), strings.Compare(n1, n2), cmp.Compare(q1, q2))
		if got := bytes.Compare(k1, k2); got != want {
			t.Errorf("%d %q %d against %d %q %d: %d, want %d", s1, n1, q1, s2, n2, q2, got, want)
		}
		name, rest, err := cutEscaped(k1[5:])
		if err != nil || string(name) != n1 || len(rest) != 8 {
			t.Errorf("%q read back as %q with %x, %v", n1, name, rest, err)
		}
		if lastWord(k1) != q1 || uint32(keyStream(k1)) != s1 {
			t.Errorf("%d %d read back as %d %d", s1, q1, keyStream(k1), lastWord(k1))
		}
		// A key lies within the range of its own subject and of no other.
		lower := subjectPrefix(nil, record.StreamID(s1), n1)
		in := bytes.Compare(k2, lower) >= 0 && bytes.Compare(k2, appendSuccessor(nil, lower)) < 0
		if same := s1 == s2 && n1 == n2; in != same {
			t.Errorf("%d %q in the range of %d %q: %v", s2, n2, s1, n1, in)
		}
	})
}

// FuzzCutEscaped: any bytes give a string or an error, and a string is escaped in one way only.
func FuzzCutEscaped(f *testing.F) {
	f.Add(appendEscaped(nil, "a\x00b"))
	f.Add([]byte{0})
	f.Add([]byte{0, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, err := cutEscaped(b)
		if err == nil && !bytes.Equal(append(appendEscaped(nil, s), rest...), b) {
			t.Errorf("%x read as %x and %x", b, s, rest)
		}
	})
}

func TestFixedKeyOrder(t *testing.T) {
	t.Parallel()
	words := []uint64{0, 1, 255, 256, 1 << 32, math.MaxUint64 - 1, math.MaxUint64}
	times := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	var keys [][]byte
	for _, stream := range []record.StreamID{0, 1, math.MaxUint32} {
		for _, time := range times {
			for _, id := range []string{"", "\x00", "a"} {
				keys = append(keys, dedupTimeKey(nil, stream, time, id))
			}
		}
	}
	for _, stream := range []record.StreamID{0, 1, math.MaxUint32} {
		for _, seq := range words {
			keys = append(keys, messageKey(nil, stream, seq))
		}
	}
	for _, stream := range []record.StreamID{0, 1, math.MaxUint32} {
		for _, consumer := range []record.ConsumerID{0, 1, math.MaxUint32} {
			for _, seq := range words {
				keys = append(keys, pendingKey(nil, stream, consumer, seq))
			}
		}
	}
	for i := range len(keys) - 1 {
		if bytes.Compare(keys[i], keys[i+1]) >= 0 {
			t.Errorf("key %x does not sort before %x", keys[i], keys[i+1])
		}
	}
	var due [][]byte
	for _, bucket := range words {
		for _, stream := range []record.StreamID{0, math.MaxUint32} {
			for _, ticket := range words {
				due = append(due, dueKey(nil, bucket, stream, ticket))
			}
		}
	}
	if !slices.IsSortedFunc(due, bytes.Compare) {
		t.Error("due keys do not sort by bucket, stream, ticket")
	}
	for _, time := range times {
		if got := timeOf(orderedTime(time)); got != time {
			t.Errorf("time %d read back as %d", time, got)
		}
	}
}

func TestAppendSuccessor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ prefix, want string }{
		{"M", "N"},
		{"M\x00", "M\x01"},
		{"M\xff", "N"},
		{"M\x01\xff\xff", "M\x02"},
		{"M\xff\xff\xff\xff", "N"},
	} {
		if got := appendSuccessor([]byte("x"), []byte(c.prefix)); string(got) != "x"+c.want {
			t.Errorf("successor of %q: %q, want %q", c.prefix, got[1:], c.want)
		}
	}
}
