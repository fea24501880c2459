package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Message returns a copy of a message, or an error that wraps record.ErrNotFound.
// The caller knows the first sequence of the stream: rows below it are dead.
func (s *Store) Message(stream record.StreamID, seq uint64) (record.Message, error) {
	var m record.Message
	ok, err := s.get(messageKey(nil, stream, seq), func(v []byte) (err error) {
		m, err = record.ParseMessage(seq, bytes.Clone(v))
		return err
	})
	if err == nil && !ok {
		err = fmt.Errorf("message %d of stream %d: %w", seq, stream, record.ErrNotFound)
	}
	return m, err
}

// Scan calls f for the serialized messages of a stream from a sequence on, in
// order, until it returns false. The bytes are valid during the call only. from is
// at least the first sequence of the stream: what was deleted before it costs
// time to skip.
func (s *Store) Scan(stream record.StreamID, from uint64, f func(seq uint64, serialized []byte) bool) error {
	return s.scanSeqs(messageKey(nil, stream, from), messageKeySize, func(it *pebble.Iterator) bool {
		return f(lastWord(it.Key()), it.Value())
	})
}

// ScanKeys is Scan without the messages themselves.
func (s *Store) ScanKeys(stream record.StreamID, from uint64, f func(seq uint64) bool) error {
	return s.scanSeqs(messageKey(nil, stream, from), messageKeySize, func(it *pebble.Iterator) bool {
		return f(lastWord(it.Key()))
	})
}

// ScanSubject calls f for the sequences of a subject from one on, in order, until
// it returns false. from is at least the first sequence of the stream: rows below
// it are dead.
func (s *Store) ScanSubject(
	stream record.StreamID, subject string, from uint64, f func(seq uint64) bool,
) error {
	lower := subjectKey(nil, stream, subject, from)
	return s.scanSeqs(lower, len(lower), func(it *pebble.Iterator) bool { return f(lastWord(it.Key())) })
}

// scanSeqs scans from a key that ends in a sequence to the last one with the same beginning.
func (s *Store) scanSeqs(lower []byte, size int, f func(it *pebble.Iterator) bool) error {
	upper := appendSuccessor(nil, lower[:size-8])
	return s.scan(lower, upper, func(it *pebble.Iterator) (bool, error) {
		if len(it.Key()) != size {
			return false, fmt.Errorf("%w: key of %d bytes, want %d", record.ErrFormat, len(it.Key()), size)
		}
		return f(it), nil
	})
}

// SubjectRows calls f for the subject rows of a stream from one on, in the order of
// subject and sequence, until it returns false: those of sequences below below, and
// the first other one of each subject, behind which it goes on with the next subject.
// So it finds what is dead whatever became of the subject, and a subject of many
// messages costs a seek.
func (s *Store) SubjectRows(
	stream record.StreamID, subject string, from, below uint64, f func(subject string, seq uint64) bool,
) error {
	lower := subjectKey(nil, stream, subject, from)
	upper := appendSuccessor(nil, appendStream(nil, prefixSubject, stream))
	return s.view(func(h *handle) error {
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return h.wrap(err)
		}
		var behind []byte
		for ok := it.First(); ok; {
			key := it.Key()
			name, seq, err := parseSubjectKey(key)
			if err != nil {
				return errors.Join(h.badRow(key, err), it.Close())
			}
			if !f(string(name), seq) {
				break
			}
			if seq < below {
				ok = it.Next()
				continue
			}
			behind = appendSuccessor(behind[:0], key[:len(key)-8])
			ok = it.SeekGE(behind)
		}
		return h.wrap(errors.Join(it.Error(), it.Close()))
	})
}

// NextBySubject returns the first sequence of a subject at or after from; ok says
// that there is one. from is at least the first sequence of the stream.
func (s *Store) NextBySubject(
	stream record.StreamID, subject string, from uint64,
) (seq uint64, ok bool, err error) {
	err = s.ScanSubject(stream, subject, from, func(n uint64) bool {
		seq, ok = n, true
		return false
	})
	return seq, ok, err
}

// PrevBySubject returns the last sequence of a subject that is at most upTo and
// at least floor, the first sequence of the stream; ok says that there is one.
func (s *Store) PrevBySubject(
	stream record.StreamID, subject string, floor, upTo uint64,
) (seq uint64, ok bool, err error) {
	if floor > upTo {
		return 0, false, nil
	}
	lower := subjectKey(nil, stream, subject, floor)
	upper := appendSuccessor(nil, lower[:len(lower)-8])
	if upTo < math.MaxUint64 {
		upper = subjectKey(nil, stream, subject, upTo+1)
	}
	err = s.view(func(h *handle) error {
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return h.wrap(err)
		}
		if ok = it.Last(); ok {
			seq = lastWord(it.Key())
		}
		return h.wrap(errors.Join(it.Error(), it.Close()))
	})
	return seq, ok && err == nil, err
}

// SubjectStat returns the counters of a subject; ok says that it has some.
func (s *Store) SubjectStat(
	stream record.StreamID, subject string,
) (stat record.SubjectStat, ok bool, err error) {
	ok, err = s.get(statKey(nil, stream, subject), func(v []byte) (err error) {
		stat, err = record.ParseSubjectStat(v)
		return err
	})
	return stat, ok, err
}

// Subjects calls f for the counters of every subject of a stream that starts
// with prefix (the literal part of a wildcard filter) and sorts after after
// ("" = from the first), in byte order, until it returns false.
func (s *Store) Subjects(
	stream record.StreamID, prefix, after string, f func(subject string, stat record.SubjectStat) bool,
) error {
	lower := statKey(nil, stream, prefix)
	upper := appendSuccessor(nil, lower)
	if after != "" {
		// The smallest key after a key is that key and a NUL.
		if next := append(statKey(nil, stream, after), 0); bytes.Compare(next, lower) > 0 {
			lower = next
		}
	}
	if bytes.Compare(lower, upper) >= 0 {
		return nil
	}
	return s.scan(lower, upper, func(it *pebble.Iterator) (bool, error) {
		stat, err := record.ParseSubjectStat(it.Value())
		return err == nil && f(string(it.Key()[5:]), stat), err
	})
}

// DedupRow says which message a message id was used for, and when.
type DedupRow struct {
	ID   string
	Seq  uint64
	Time int64 // nanoseconds of cluster time
}

// Dedup returns what a message id was used for; ok says that it was. The caller
// judges whether its time is still within the window.
func (s *Store) Dedup(stream record.StreamID, id string) (row DedupRow, ok bool, err error) {
	ok, err = s.get(dedupKey(nil, stream, id), func(v []byte) error {
		if len(v) != 16 {
			return fmt.Errorf("%w: dedup row of %d bytes", record.ErrFormat, len(v))
		}
		row = DedupRow{ID: id, Seq: binary.BigEndian.Uint64(v), Time: int64(binary.BigEndian.Uint64(v[8:]))}
		return nil
	})
	return row, ok, err
}

// DedupUntil calls f for the message ids of a stream that were used from one time
// up to another, both included, oldest first, until it returns false. from is the
// time of the oldest id that may still be there: what was removed before it costs
// time to skip.
func (s *Store) DedupUntil(stream record.StreamID, from, until int64, f func(DedupRow) bool) error {
	if from > until {
		return nil
	}
	lower := dedupTimeKey(nil, stream, from, "")
	upper := appendSuccessor(nil, dedupTimeKey(nil, stream, until, ""))
	return s.scan(lower, upper, func(it *pebble.Iterator) (bool, error) {
		key := it.Key()
		if len(key) < 13 || len(it.Value()) != 8 {
			return false, fmt.Errorf("%w: dedup time row of %d and %d bytes",
				record.ErrFormat, len(key), len(it.Value()))
		}
		return f(DedupRow{
			ID:   string(key[13:]),
			Seq:  binary.BigEndian.Uint64(it.Value()),
			Time: timeOf(binary.BigEndian.Uint64(key[5:])),
		}), nil
	})
}
