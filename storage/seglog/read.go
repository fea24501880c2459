package seglog

import (
	"fmt"
	"sync"
	"time"
)

// readAhead is how much Get reads before it knows an entry's size.
const readAhead = 64 << 10

// maxPooledBuffer is the largest read buffer kept for the next read.
const maxPooledBuffer = 2 << 20

// Get fills e with the entry at index: from memory if it is recent, else from disk, verified by its checksum.
// It returns ErrNotFound outside [FirstIndex, LastIndex] and a *DamageError if the entry does not verify. The
// slices in e may be shared with the log and must not be changed.
func (l *Log) Get(index uint64, e *Entry) error {
	l.view.mu.RLock()
	if l.view.closed {
		l.view.mu.RUnlock()
		return ErrClosed
	}
	if l.view.tail.get(index, e) {
		l.view.mu.RUnlock()
		l.counters.tailReads.Add(1)
		return nil
	}
	if index == 0 || index < l.view.st.first || index > l.view.st.last {
		err := fmt.Errorf("%w: %d of %d..%d", ErrNotFound, index, l.view.st.first, l.view.st.last)
		l.view.mu.RUnlock()
		return err
	}
	seg, from, to := l.view.st.locate(index)
	seg.refs.Add(1)
	l.view.mu.RUnlock()
	defer seg.release()
	l.counters.diskReads.Add(1)
	return readEntry(seg, &l.buffers, span{from: from, to: to, index: index}, e)
}

// span is where a record lies: in [from+4, to), behind the chain value it continues.
type span struct {
	from, to int64
	index    uint64
}

// readEntry reads and verifies the record of an entry.
func readEntry(seg *segment, pool *sync.Pool, at span, e *Entry) error {
	buf, ok := pool.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	defer func() {
		if cap(*buf) <= maxPooledBuffer {
			pool.Put(buf)
		}
	}()
	room := at.to - at.from
	n := min(room, readAhead)
	if err := readInto(seg, buf, at.from, n); err != nil {
		return err
	}
	size := recordTrailer + recordPrefix + int64(le.Uint32((*buf)[recordTrailer:])) + recordTrailer
	if size > room {
		return at.damaged(seg, "length runs into the next record")
	}
	if size > n {
		if err := readInto(seg, buf, at.from, size); err != nil {
			return err
		}
	}
	b := *buf
	rec, _, err := decodeRecord(b[recordTrailer:], le.Uint32(b))
	if err != nil {
		return at.damaged(seg, err.Error())
	}
	got, err := rec.entry()
	if err != nil {
		return at.damaged(seg, err.Error())
	}
	if got.Index != at.index {
		return at.damaged(seg, fmt.Sprintf("record is of entry %d", got.Index))
	}
	// One allocation for both slices; the buffer goes back.
	own := make([]byte, len(got.Ext)+len(got.Data))
	copy(own[copy(own, got.Ext):], got.Data)
	got.Ext, got.Data = own[:len(got.Ext):len(got.Ext)], own[len(got.Ext):]
	*e = got
	return nil
}

func (at span) damaged(seg *segment, reason string) error {
	return damaged(seg.name, at.from+recordTrailer, "entry %d: %s", at.index, reason)
}

func readInto(seg *segment, buf *[]byte, off, n int64) error {
	if int64(cap(*buf)) < n {
		*buf = make([]byte, n)
	}
	*buf = (*buf)[:n]
	return readAt(seg.file, seg.name, *buf, off)
}

// OldestTime returns the time of the oldest entry, the zero time if the log is empty. It reads the entry from
// disk the first time, so that it can fail like Get.
func (l *Log) OldestTime() (time.Time, error) {
	l.view.mu.RLock()
	first, cached, at, cuts := l.view.st.first, l.view.oldestOf, l.view.oldest, l.view.cuts
	l.view.mu.RUnlock()
	if first == 0 {
		return time.Time{}, nil
	}
	if cached != first {
		var e Entry
		if err := l.Get(first, &e); err != nil {
			return time.Time{}, err
		}
		at = e.AppendedAt
		l.view.mu.Lock()
		if l.view.cuts == cuts {
			l.view.oldestOf, l.view.oldest = first, at
		}
		l.view.mu.Unlock()
	}
	return time.Unix(0, at), nil
}

// Bytes returns what the segments hold from their first live entry on, in bytes on disk.
func (l *Log) Bytes() int64 {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	return l.view.st.bytes()
}
