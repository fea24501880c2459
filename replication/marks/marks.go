package marks

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Bounds of a vector.
const (
	// MaxMarks bounds the marks of a vector. A group has at most 9 voters; a change of
	// all of them is far below it.
	MaxMarks = 64
	// MaxName is the longest name, in bytes: what its one-byte length can hold.
	MaxName = 255

	version   = 1
	fixedHead = 1 + 2
	fixedMark = 1 + 8 + 8
)

// ErrFormat is returned for bytes that Append did not write.
var ErrFormat = errors.New("marks: malformed vector")

// Mark says how far a replica had fsynced the log of a leader. The zero value says nothing.
type Mark struct {
	Term, Index uint64
}

// Compare orders marks by term, then by index.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(cmp.Compare(m.Term, o.Term), cmp.Compare(m.Index, o.Index))
}

// Position is what a replica holds.
type Position struct {
	Term      uint64 // current term
	LastIndex uint64 // of the log or the snapshot, whichever is later
	LastTerm  uint64
	TruncTerm uint64 // of the newest suffix truncation or reset of the log, 0 = none
}

// Below says whether a replica at p lacks what the mark says it once had.
func (p Position) Below(m Mark) bool {
	if m == (Mark{}) {
		return false
	}
	if p.Term < m.Term {
		return true
	}
	return p.LastIndex < m.Index && p.LastTerm <= m.Term && p.TruncTerm <= m.Term
}

// Vector holds the highest mark of each replica, by server id.
type Vector map[string]Mark

// Raise keeps m if it is higher than the mark of a replica; it says whether it is.
func (v Vector) Raise(server string, m Mark) bool {
	if m.Compare(v[server]) <= 0 {
		return false
	}
	v[server] = m
	return true
}

// Keep forgets all but the named replicas.
func (v Vector) Keep(servers []string) {
	maps.DeleteFunc(v, func(server string, _ Mark) bool { return !slices.Contains(servers, server) })
}

// Append appends the form of a vector. What is beyond MaxMarks or MaxName is left out.
func Append(dst []byte, v Vector) []byte {
	if len(v) == 0 {
		return dst
	}
	names := slices.Sorted(maps.Keys(v))
	names = slices.DeleteFunc(names, func(name string) bool { return len(name) > MaxName })
	names = names[:min(len(names), MaxMarks)]
	dst = append(dst, version)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(names)))
	for _, name := range names {
		dst = append(dst, byte(len(name)))
		dst = append(dst, name...)
		dst = binary.BigEndian.AppendUint64(dst, v[name].Term)
		dst = binary.BigEndian.AppendUint64(dst, v[name].Index)
	}
	return dst
}

// Each calls f for the marks of a vector in the form of Append, in their order. f
// must not keep the name. Nothing is reported of bytes that are malformed.
func Each(b []byte, f func(server []byte, m Mark)) error {
	if err := walk(b, func([]byte, Mark) {}); err != nil {
		return err
	}
	return walk(b, f)
}

func walk(b []byte, f func(server []byte, m Mark)) error {
	if len(b) == 0 {
		return nil
	}
	if len(b) < fixedHead || b[0] != version {
		return fmt.Errorf("%w: %d bytes, first %#x, want version %d", ErrFormat, len(b), b[0], version)
	}
	n := int(binary.BigEndian.Uint16(b[1:]))
	if n == 0 || n > MaxMarks {
		return fmt.Errorf("%w: %d marks, want 1 to %d", ErrFormat, n, MaxMarks)
	}
	b = b[fixedHead:]
	var before []byte
	for i := range n {
		if len(b) == 0 || len(b) < fixedMark+int(b[0]) {
			return fmt.Errorf("%w: mark %d is cut short", ErrFormat, i)
		}
		name := b[1 : 1+int(b[0])]
		if i > 0 && slices.Compare(before, name) >= 0 {
			return fmt.Errorf("%w: mark %d is out of order", ErrFormat, i)
		}
		before = name
		b = b[1+len(name):]
		f(name, Mark{Term: binary.BigEndian.Uint64(b), Index: binary.BigEndian.Uint64(b[8:])})
		b = b[16:]
	}
	if len(b) > 0 {
		return fmt.Errorf("%w: %d bytes after the end", ErrFormat, len(b))
	}
	return nil
}

// Merge raises the marks of v by those of a vector in the form of Append. same says
// that v then holds exactly these, changed that it is not what it was.
func (v Vector) Merge(b []byte) (same, changed bool, err error) {
	n := 0
	same = true
	err = Each(b, func(server []byte, m Mark) {
		n++
		old, known := v[string(server)]
		switch {
		case !known && len(v) >= MaxMarks:
			same = false
		case m.Compare(old) > 0:
			v[string(server)] = m
			changed = true
		case m != old:
			same = false
		}
	})
	return same && n == len(v) && err == nil, changed, err
}
