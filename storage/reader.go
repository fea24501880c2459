package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// scan calls f for the rows from lower to before upper, in key order, until it
// returns false. Key and value are valid during the call. It sees the state as it
// was when it began.
func (h *handle) scan(lower, upper []byte, f func(it *pebble.Iterator) (bool, error)) error {
	it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return h.wrap(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		more, err := f(it)
		if err != nil {
			return errors.Join(h.badRow(it.Key(), err), it.Close())
		}
		if !more {
			break
		}
	}
	return h.wrap(errors.Join(it.Error(), it.Close()))
}

// view runs f on the database in force, which stays open meanwhile.
func (s *Store) view(f func(h *handle) error) error {
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release(h)
	return f(h)
}

func (s *Store) scan(lower, upper []byte, f func(it *pebble.Iterator) (bool, error)) error {
	return s.view(func(h *handle) error { return h.scan(lower, upper, f) })
}

func (s *Store) get(key []byte, f func(val []byte) error) (ok bool, err error) {
	h, err := s.acquire()
	if err != nil {
		return false, err
	}
	defer s.release(h)
	return h.get(key, f)
}

// StreamRow is what a store holds of a stream itself.
type StreamRow struct {
	ID          record.StreamID
	Description []byte // opaque here
	State       record.StreamState
}

// Stream returns the description and the counters of a stream, or an error that
// wraps record.ErrNotFound.
func (s *Store) Stream(stream record.StreamID) (StreamRow, error) {
	var out StreamRow
	found := false
	lower := appendStream(nil, prefixStream, stream)
	err := s.scanStreams(lower, appendSuccessor(nil, lower), func(row *StreamRow) bool {
		out, found = *row, true
		return false
	})
	if err == nil && !found {
		err = fmt.Errorf("stream %d: %w", stream, record.ErrNotFound)
	}
	return out, err
}

// Streams calls f for every stream in the order of their ids until it returns
// false. The row may be kept.
func (s *Store) Streams(f func(StreamRow) bool) error {
	lower := []byte{prefixStream}
	return s.scanStreams(lower, appendSuccessor(nil, lower), func(row *StreamRow) bool { return f(*row) })
}

func (s *Store) scanStreams(lower, upper []byte, f func(*StreamRow) bool) error {
	var row *StreamRow
	stopped := false
	err := s.scan(lower, upper, func(it *pebble.Iterator) (more bool, err error) {
		key := it.Key()
		if len(key) != streamKeySize {
			return false, fmt.Errorf("%w: key of %d bytes", record.ErrFormat, len(key))
		}
		if row != nil && row.ID != keyStream(key) {
			if stopped = !f(row); stopped {
				return false, nil
			}
			row = nil
		}
		if row == nil {
			row = &StreamRow{ID: keyStream(key)}
		}
		if key[streamKeySize-1] == partDescription {
			row.Description = bytes.Clone(it.Value())
			return true, nil
		}
		row.State, err = record.ParseStreamState(it.Value())
		return true, err
	})
	if err == nil && row != nil && !stopped {
		f(row)
	}
	return err
}

// ConsumerRow is what a store holds of a consumer itself.
type ConsumerRow struct {
	Stream      record.StreamID
	ID          record.ConsumerID
	Description []byte // opaque here
	State       record.ConsumerState
}

// Consumer returns the description and the cursors of a consumer, or an error
// that wraps record.ErrNotFound.
func (s *Store) Consumer(stream record.StreamID, consumer record.ConsumerID) (ConsumerRow, error) {
	var out ConsumerRow
	found := false
	lower := consumerKey(nil, stream, consumer, partDescription)
	err := s.scanConsumers(lower, appendSuccessor(nil, lower[:len(lower)-1]), func(row *ConsumerRow) bool {
		out, found = *row, true
		return false
	})
	if err == nil && !found {
		err = fmt.Errorf("consumer %d of stream %d: %w", consumer, stream, record.ErrNotFound)
	}
	return out, err
}

// Consumers calls f for every consumer of a stream in the order of their ids
// until it returns false. The row may be kept.
func (s *Store) Consumers(stream record.StreamID, f func(ConsumerRow) bool) error {
	lower := appendStream(nil, prefixConsumer, stream)
	return s.scanConsumers(lower, appendSuccessor(nil, lower), func(row *ConsumerRow) bool { return f(*row) })
}

// AllConsumers calls f for every consumer of every stream, in the order of streams and
// ids, until it returns false. The row may be kept.
func (s *Store) AllConsumers(f func(ConsumerRow) bool) error {
	lower := []byte{prefixConsumer}
	return s.scanConsumers(lower, appendSuccessor(nil, lower), func(row *ConsumerRow) bool { return f(*row) })
}

func (s *Store) scanConsumers(lower, upper []byte, f func(*ConsumerRow) bool) error {
	var row *ConsumerRow
	stopped := false
	err := s.scan(lower, upper, func(it *pebble.Iterator) (more bool, err error) {
		key := it.Key()
		if len(key) != consumerKeySize {
			return false, fmt.Errorf("%w: key of %d bytes", record.ErrFormat, len(key))
		}
		stream, id := keyStream(key), record.ConsumerID(binary.BigEndian.Uint32(key[5:]))
		if row != nil && (row.ID != id || row.Stream != stream) {
			if stopped = !f(row); stopped {
				return false, nil
			}
			row = nil
		}
		if row == nil {
			row = &ConsumerRow{Stream: stream, ID: id}
		}
		if key[consumerKeySize-1] == partDescription {
			row.Description = bytes.Clone(it.Value())
			return true, nil
		}
		row.State, err = record.ParseConsumerState(it.Value())
		return true, err
	})
	if err == nil && row != nil && !stopped {
		f(row)
	}
	return err
}

// Pendings calls f for the pending rows of a consumer from a stream sequence
// on, in order, until it returns false. from is the consumer's ack floor + 1,
// never 0 on a long-lived consumer: what was removed below it costs time to skip.
func (s *Store) Pendings(
	stream record.StreamID, consumer record.ConsumerID, from uint64, f func(record.Pending) bool,
) error {
	upper := appendSuccessor(nil, pendingPrefix(nil, stream, consumer))
	return s.scan(pendingKey(nil, stream, consumer, from), upper, func(it *pebble.Iterator) (bool, error) {
		if len(it.Key()) != pendingKeySize {
			return false, fmt.Errorf("%w: key of %d bytes", record.ErrFormat, len(it.Key()))
		}
		p, err := record.ParsePending(lastWord(it.Key()), it.Value())
		return err == nil && f(p), err
	})
}

// Pending returns the pending row of a sequence; ok says that there is one.
func (s *Store) Pending(
	stream record.StreamID, consumer record.ConsumerID, seq uint64,
) (p record.Pending, ok bool, err error) {
	ok, err = s.get(pendingKey(nil, stream, consumer, seq), func(v []byte) (err error) {
		p, err = record.ParsePending(seq, v)
		return err
	})
	return p, ok, err
}

// DueRow says that something of a stream falls due. Rows of a deleted stream
// remain until then.
type DueRow struct {
	Bucket uint64
	Stream record.StreamID
	Ticket uint64
	Kind   uint8
}

// Due calls f for the due rows from a bucket on, in the order of bucket, stream
// and ticket, until it returns false.
func (s *Store) Due(from uint64, f func(DueRow) bool) error {
	lower := dueKey(nil, from, 0, 0)
	return s.scan(lower, []byte{prefixDue + 1}, func(it *pebble.Iterator) (bool, error) {
		key, val := it.Key(), it.Value()
		if len(key) != dueKeySize || len(val) != 1 {
			return false, fmt.Errorf("%w: due row of %d and %d bytes", record.ErrFormat, len(key), len(val))
		}
		return f(DueRow{
			Bucket: binary.BigEndian.Uint64(key[1:]),
			Stream: record.StreamID(binary.BigEndian.Uint32(key[9:])),
			Ticket: lastWord(key),
			Kind:   val[0],
		}), nil
	})
}

// SweepRow is the cursor of unfinished long work.
type SweepRow struct {
	Stream record.StreamID
	Kind   uint8
	Cursor []byte
}

// Sweeps calls f for every unfinished sweep until it returns false. The row may be kept.
func (s *Store) Sweeps(f func(SweepRow) bool) error {
	return s.scan([]byte{prefixSweep}, []byte{prefixSweep + 1}, func(it *pebble.Iterator) (bool, error) {
		key := it.Key()
		if len(key) != sweepKeySize {
			return false, fmt.Errorf("%w: key of %d bytes", record.ErrFormat, len(key))
		}
		row := SweepRow{Stream: keyStream(key), Kind: key[sweepKeySize-1], Cursor: bytes.Clone(it.Value())}
		return f(row), nil
	})
}

// Meta returns a row of group 0; Version 0 = no such row.
func (s *Store) Meta(key string) (record.MetaRow, error) {
	row := record.MetaRow{Key: key}
	_, err := s.get(rowKey(nil, key), func(v []byte) (err error) {
		row, err = parseRow(key, v)
		return err
	})
	return row, err
}

// ScanMeta calls f for the rows of group 0 whose keys start with prefix, in key
// order, until it returns false. The row may be kept.
func (s *Store) ScanMeta(prefix string, f func(record.MetaRow) bool) error {
	lower := rowKey(nil, prefix)
	return s.scan(lower, appendSuccessor(nil, lower), func(it *pebble.Iterator) (bool, error) {
		row, err := parseRow(string(it.Key()[1:]), it.Value())
		return err == nil && f(row), err
	})
}
