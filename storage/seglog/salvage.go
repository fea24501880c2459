package seglog

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Gap says where entries of a log are missing for Salvage: behind the entry After, and before
// the next one that it reports. After is 0 before the first one.
type Gap struct {
	After, Next uint64
	// Cause is the damage, as Open would return it.
	Cause error
}

// Salvage calls f for the live entries of a log that no process has open, in order,
// as far as they verify, and changes nothing. f must not keep the entry's slices. An
// error of f ends it, and is returned.
//
// Behind damage it goes on with the next segment that verifies from its first record on:
// behind is then the number of damaged places before an entry. Of these entries it is not
// known which a truncation between them cut off again, nor that they continue what came
// before; their terms and indexes are those that were written. The gaps name the damage;
// one with Next 0 is at the end. The report says what was intact before the first one.
func Salvage(fs vfs.FS, dir string, f func(e *Entry, behind int) error) (Report, []Gap, error) {
	c := &checkWatcher{}
	ld, damage := load(fs, dir, c)
	defer ld.close()
	s := &salvager{fs: fs, dir: dir, f: f}
	s.pool.New = func() any { return new([]byte) }
	report := c.report(ld)
	if err := s.entries(ld); err != nil {
		return report, s.gaps, err
	}
	if damage == nil {
		return report, s.gaps, nil
	}
	s.damaged(damage)
	if !errors.Is(damage, ErrDamaged) {
		return report, s.gaps, nil // it cannot be read at all
	}
	var number uint64
	for _, seg := range ld.st.segs {
		number = max(number, seg.number)
	}
	if d, ok := errors.AsType[*DamageError](damage); ok {
		if n, ok := segmentNumber(fs.PathBase(d.File)); ok {
			number = max(number, n)
		}
	}
	err := s.rest(number)
	return report, s.gaps, err
}

// salvager reads a log with damage in it.
type salvager struct {
	fs   vfs.FS
	dir  string
	f    func(e *Entry, behind int) error
	pool sync.Pool
	last uint64 // that was reported
	gaps []Gap
}

func (s *salvager) damaged(cause error) {
	s.gaps = append(s.gaps, Gap{After: s.last, Cause: cause})
}

// entries reports what was loaded. Its error is f's.
func (s *salvager) entries(ld *loaded) error {
	st := &ld.st
	if st.last == 0 {
		return nil
	}
	for index := st.first; index <= st.last; index++ {
		seg, from, to := st.locate(index)
		if seg == nil {
			continue // its segment is gone, or is another one that was read before
		}
		if to <= from {
			to = seg.size // the scan of this segment did not come to its end
		}
		var e Entry
		if err := readEntry(seg, &s.pool, span{from: from, to: to, index: index}, &e); err != nil {
			s.damaged(err)
			return nil
		}
		if n := len(s.gaps); n > 0 && s.gaps[n-1].Next == 0 {
			s.gaps[n-1].Next = index
		}
		s.last = index
		if err := s.f(&e, len(s.gaps)); err != nil {
			return err
		}
	}
	return nil
}

// rest reads the segments behind a number one by one.
func (s *salvager) rest(number uint64) error {
	list, err := s.list()
	if err != nil {
		s.damaged(err)
		return nil
	}
	for i, e := range list {
		if e.number <= number {
			continue
		}
		l := &loader{fs: s.fs, dir: s.dir, names: []string{segmentName(e.number)}, out: &loaded{}}
		damage := l.segment(e, i == len(list)-1 || e.end == 0)
		failed := s.entries(l.out)
		l.out.close()
		if failed != nil {
			return failed
		}
		if damage != nil {
			s.damaged(damage)
		}
	}
	return nil
}

// list returns the segments to read: those that are listed, or without a list that verifies
// all that have a header. Among these may be some that were given back; what they hold is
// old, and is in order.
func (s *salvager) list() ([]listEntry, error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("seglog: list %s: %w", s.dir, err)
	}
	slices.Sort(names)
	l := &loader{fs: s.fs, dir: s.dir, names: names, out: &loaded{}}
	if list, err := l.list(); err == nil && list != nil {
		return list, nil
	}
	var list []listEntry
	for _, name := range names {
		number, ok := segmentNumber(name)
		if !ok {
			continue
		}
		full := s.fs.PathJoin(s.dir, name)
		f, err := s.fs.Open(full)
		if err != nil {
			return nil, fmt.Errorf("seglog: open %s: %w", full, err)
		}
		h, err := readSegmentHeader(f, full)
		_ = f.Close()
		if err == nil && h.number == number {
			list = append(list, listEntry{number: number, use: h.use})
		}
	}
	return list, nil // without their ends
}
