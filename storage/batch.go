package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// shortRange is up to how many rows a range is deleted by points: many range
// tombstones cost every reader more than a few point tombstones.
const shortRange = 8

// maxBatch bounds the keys and fixed values of one batch, bytes.
const maxBatch = math.MaxUint32

// Batch gathers the changes of one apply and commits them as one. Changes of the
// same row count in the order they were made; see Commit for what is written.
// Byte slices given to it must not change before Commit returns. It is empty
// again after Commit and may be used further. Not safe for concurrent use.
type Batch struct {
	s *Store

	// arena holds keys and fixed values; ops refer to it by offset, since it moves as it grows.
	arena  []byte
	ops    [len(prefixOrder)][]op
	ranges []rangeOp
	order  uint32  // changes so far
	places []place // reused by inOrder
	rows   map[string]record.MetaRow
	err    error // the first misuse; Commit returns it

	index, term uint64
	fence       record.Fence
	time        int64
	confIndex   uint64
	conf        []byte
}

// op is a put or a delete of one row.
type op struct {
	key, val, end uint32 // arena[key:val] is the key, arena[val:end] the value unless ext is set
	order         uint32
	del           bool
	ext           []byte // the caller's
}

// rangeOp deletes the keys from start to before end.
type rangeOp struct {
	start, mid, end uint32 // arena[start:mid] and arena[mid:end]
	order           uint32
}

// NewBatch returns an empty batch.
func (s *Store) NewBatch() *Batch { return &Batch{s: s} }

// Len returns the number of changes so far.
func (b *Batch) Len() int { return int(b.order) }

func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// put ends an op whose key starts at arena[start:] and whose value starts at val.
func (b *Batch) put(start, val int, ext []byte) { b.add(start, val, ext, false) }

func (b *Batch) del(start int) { b.add(start, len(b.arena), nil, true) }

func (b *Batch) add(start, val int, ext []byte, del bool) {
	if len(b.arena) > maxBatch {
		b.fail(fmt.Errorf("storage: batch of more than %d bytes of keys", uint64(maxBatch)))
		return
	}
	i := prefixIndex(b.arena[start])
	b.order++
	b.ops[i] = append(b.ops[i], op{
		key: uint32(start), val: uint32(val), end: uint32(len(b.arena)), order: b.order, del: del, ext: ext,
	})
}

func (b *Batch) delRange(start, mid int) {
	if len(b.arena) > maxBatch {
		b.fail(fmt.Errorf("storage: batch of more than %d bytes of keys", uint64(maxBatch)))
		return
	}
	b.order++
	b.ranges = append(b.ranges, rangeOp{
		start: uint32(start), mid: uint32(mid), end: uint32(len(b.arena)), order: b.order,
	})
}

// delPrefix deletes every row whose key starts with arena[start:].
func (b *Batch) delPrefix(start int) {
	mid := len(b.arena)
	b.arena = appendSuccessor(b.arena, b.arena[start:mid])
	b.delRange(start, mid)
}

// delSeqs deletes the rows whose keys are arena[start:] followed by a sequence of first to last.
func (b *Batch) delSeqs(start int, first, last uint64) {
	prefix := len(b.arena) - start
	switch {
	case first > last:
		b.fail(fmt.Errorf("storage: range from %d to %d", first, last))
	case last-first < shortRange:
		for seq := first; ; seq++ {
			at := len(b.arena)
			b.arena = append(b.arena, b.arena[start:start+prefix]...)
			b.arena = binary.BigEndian.AppendUint64(b.arena, seq)
			b.del(at)
			if seq == last {
				return
			}
		}
	default:
		b.arena = binary.BigEndian.AppendUint64(b.arena, first)
		mid := len(b.arena)
		if last == math.MaxUint64 {
			b.arena = appendSuccessor(b.arena, b.arena[start:start+prefix])
		} else {
			b.arena = append(b.arena, b.arena[start:start+prefix]...)
			b.arena = binary.BigEndian.AppendUint64(b.arena, last+1)
		}
		b.delRange(start, mid)
	}
}

// PutMessage stores a serialized message and its subject row. The error wraps
// record.ErrFormat if its subject cannot be read.
func (b *Batch) PutMessage(stream record.StreamID, seq uint64, serialized []byte) error {
	subject, err := record.MessageSubject(serialized)
	if err != nil {
		return fmt.Errorf("message %d of stream %d: %w", seq, stream, err)
	}
	at := len(b.arena)
	b.arena = messageKey(b.arena, stream, seq)
	b.put(at, len(b.arena), serialized)
	at = len(b.arena)
	b.arena = subjectKey(b.arena, stream, subject, seq)
	b.put(at, len(b.arena), nil)
	return nil
}

// DeleteMessage removes a message row. Its subject row is another change: see DeleteSubject.
func (b *Batch) DeleteMessage(stream record.StreamID, seq uint64) {
	at := len(b.arena)
	b.arena = messageKey(b.arena, stream, seq)
	b.del(at)
}

// DeleteMessages removes the message rows of first to last, both included.
// Ranges of one batch that meet are written as one.
func (b *Batch) DeleteMessages(stream record.StreamID, first, last uint64) {
	at := len(b.arena)
	b.arena = appendStream(b.arena, prefixMessage, stream)
	b.delSeqs(at, first, last)
}

// DeleteSubject removes the subject row of a message.
func (b *Batch) DeleteSubject(stream record.StreamID, subject string, seq uint64) {
	at := len(b.arena)
	b.arena = subjectKey(b.arena, stream, subject, seq)
	b.del(at)
}

// PutSubjectStat stores the counters of a subject.
func (b *Batch) PutSubjectStat(stream record.StreamID, subject string, stat record.SubjectStat) {
	at := len(b.arena)
	b.arena = statKey(b.arena, stream, subject)
	val := len(b.arena)
	b.arena = record.AppendSubjectStat(b.arena, stat)
	b.put(at, val, nil)
}

// DeleteSubjectStat removes the counters of a subject.
func (b *Batch) DeleteSubjectStat(stream record.StreamID, subject string) {
	at := len(b.arena)
	b.arena = statKey(b.arena, stream, subject)
	b.del(at)
}

// PutDedup stores that a message id was used for a sequence at a time, and the
// time-ordered twin of that row. Whoever replaces an expired row deletes that one
// first (DeleteDedup with its time): its twin has another key.
func (b *Batch) PutDedup(stream record.StreamID, id string, seq uint64, time int64) {
	at := len(b.arena)
	b.arena = dedupKey(b.arena, stream, id)
	val := len(b.arena)
	b.arena = appendDedup(b.arena, seq, time)
	b.put(at, val, nil)
	at = len(b.arena)
	b.arena = dedupTimeKey(b.arena, stream, time, id)
	val = len(b.arena)
	b.arena = binary.BigEndian.AppendUint64(b.arena, seq)
	b.put(at, val, nil)
}

// DeleteDedup removes a message id that was used at the given time, and its twin.
func (b *Batch) DeleteDedup(stream record.StreamID, id string, time int64) {
	at := len(b.arena)
	b.arena = dedupKey(b.arena, stream, id)
	b.del(at)
	at = len(b.arena)
	b.arena = dedupTimeKey(b.arena, stream, time, id)
	b.del(at)
}

// PutDue stores that something of the given kind falls due in a bucket of time.
func (b *Batch) PutDue(bucket uint64, stream record.StreamID, ticket uint64, kind uint8) {
	at := len(b.arena)
	b.arena = dueKey(b.arena, bucket, stream, ticket)
	val := len(b.arena)
	b.arena = append(b.arena, kind)
	b.put(at, val, nil)
}

// DeleteDue removes a due row.
func (b *Batch) DeleteDue(bucket uint64, stream record.StreamID, ticket uint64) {
	at := len(b.arena)
	b.arena = dueKey(b.arena, bucket, stream, ticket)
	b.del(at)
}

// PutStream stores the description of a stream, opaque here.
func (b *Batch) PutStream(stream record.StreamID, description []byte) {
	at := len(b.arena)
	b.arena = streamKey(b.arena, stream, partDescription)
	b.put(at, len(b.arena), description)
}

// PutStreamState stores the counters of a stream.
func (b *Batch) PutStreamState(stream record.StreamID, state *record.StreamState) {
	at := len(b.arena)
	b.arena = streamKey(b.arena, stream, partState)
	val := len(b.arena)
	b.arena = record.AppendStreamState(b.arena, state)
	b.put(at, val, nil)
}

// DeleteStream removes every row of a stream except its due rows, which lie
// between those of others; they are dropped when they fall due, since a stream id
// is never used again.
func (b *Batch) DeleteStream(stream record.StreamID) {
	for i := range len(streamPrefixes) {
		at := len(b.arena)
		b.arena = appendStream(b.arena, streamPrefixes[i], stream)
		b.delPrefix(at)
	}
}

// PutConsumer stores the description of a consumer, opaque here.
func (b *Batch) PutConsumer(stream record.StreamID, consumer record.ConsumerID, description []byte) {
	at := len(b.arena)
	b.arena = consumerKey(b.arena, stream, consumer, partDescription)
	b.put(at, len(b.arena), description)
}

// PutConsumerState stores the cursors of a consumer.
func (b *Batch) PutConsumerState(
	stream record.StreamID, consumer record.ConsumerID, state *record.ConsumerState,
) {
	at := len(b.arena)
	b.arena = consumerKey(b.arena, stream, consumer, partState)
	val := len(b.arena)
	b.arena = record.AppendConsumerState(b.arena, state)
	b.put(at, val, nil)
}

// DeleteConsumer removes every row of a consumer.
func (b *Batch) DeleteConsumer(stream record.StreamID, consumer record.ConsumerID) {
	for _, part := range []byte{partDescription, partState} {
		at := len(b.arena)
		b.arena = consumerKey(b.arena, stream, consumer, part)
		b.del(at)
	}
	at := len(b.arena)
	b.arena = pendingPrefix(b.arena, stream, consumer)
	b.delPrefix(at)
}

// PutPending stores a pending row; p.Seq is its key.
func (b *Batch) PutPending(stream record.StreamID, consumer record.ConsumerID, p *record.Pending) {
	at := len(b.arena)
	b.arena = pendingKey(b.arena, stream, consumer, p.Seq)
	val := len(b.arena)
	b.arena = record.AppendPending(b.arena, p)
	b.put(at, val, nil)
}

// DeletePending removes a pending row.
func (b *Batch) DeletePending(stream record.StreamID, consumer record.ConsumerID, seq uint64) {
	at := len(b.arena)
	b.arena = pendingKey(b.arena, stream, consumer, seq)
	b.del(at)
}

// DeletePendings removes the pending rows of first to last, both included.
func (b *Batch) DeletePendings(stream record.StreamID, consumer record.ConsumerID, first, last uint64) {
	at := len(b.arena)
	b.arena = pendingPrefix(b.arena, stream, consumer)
	b.delSeqs(at, first, last)
}

// PutSweep stores where unfinished long work of a stream has come to.
func (b *Batch) PutSweep(stream record.StreamID, kind uint8, cursor []byte) {
	at := len(b.arena)
	b.arena = sweepKey(b.arena, stream, kind)
	b.put(at, len(b.arena), cursor)
}

// DeleteSweep removes the cursor of finished work.
func (b *Batch) DeleteSweep(stream record.StreamID, kind uint8) {
	at := len(b.arena)
	b.arena = sweepKey(b.arena, stream, kind)
	b.del(at)
}

// PutMeta stores a row of group 0.
func (b *Batch) PutMeta(row record.MetaRow) {
	at := len(b.arena)
	b.arena = rowKey(b.arena, row.Key)
	val := len(b.arena)
	b.arena = appendRow(b.arena, &row)
	b.put(at, val, nil)
	b.note(row)
}

// DeleteMeta removes a row of group 0.
func (b *Batch) DeleteMeta(key string) {
	at := len(b.arena)
	b.arena = rowKey(b.arena, key)
	b.del(at)
	b.note(record.MetaRow{Key: key})
}

func (b *Batch) note(row record.MetaRow) {
	if b.rows == nil {
		b.rows = make(map[string]record.MetaRow)
	}
	b.rows[row.Key] = row
}

// Meta returns a row of group 0 as it is after the changes of this batch; Version 0 = no such row.
func (b *Batch) Meta(key string) (record.MetaRow, error) {
	if row, ok := b.rows[key]; ok {
		return row, nil
	}
	return b.s.Meta(key)
}

// SetApplied says which entry the batch reaches. Every batch needs it, with a
// higher index than the one before. time is the cluster time of the last
// envelope; the highest one is kept.
func (b *Batch) SetApplied(index, term uint64, fence record.Fence, time int64) {
	b.index, b.term, b.fence, b.time = index, term, fence, max(b.time, time)
}

// SetConf stores the group's configuration, written by the entry index.
func (b *Batch) SetConf(index uint64, conf []byte) { b.confIndex, b.conf = index, conf }

// Reset empties the batch without committing it.
func (b *Batch) Reset() {
	arena, ranges := b.arena[:0], b.ranges[:0]
	if cap(arena) > keepArena {
		arena, ranges = nil, nil
	}
	ops := b.ops
	for i := range ops {
		clear(ops[i]) // lets go of the caller's slices
		ops[i] = ops[i][:0]
		if arena == nil {
			ops[i] = nil
		}
	}
	*b = Batch{s: b.s, arena: arena, ops: ops, ranges: ranges, places: b.places[:0]}
}

// keepArena is up to which size a batch keeps its memory for the next use.
const keepArena = 4 << 20

// Commit writes the batch as one, to memory: a power cut after it may lose it
// and every later one, never one before it. An error means that the state is
// unknown until the store is opened again, except for a batch that was misused
// (nothing is written then).
func (b *Batch) Commit() error {
	defer b.Reset()
	s := b.s
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release(h)
	next := s.Applied()
	switch {
	case b.err != nil:
		return b.err
	case b.index <= next.Index:
		return fmt.Errorf("storage: commit of entry %d after %d", b.index, next.Index)
	}
	next.Index, next.Term, next.Fence, next.Time = b.index, b.term, b.fence, max(next.Time, b.time)
	if b.conf != nil {
		next.ConfIndex, next.Conf = b.confIndex, append([]byte(nil), b.conf...)
	}
	b.putApplied(&next)
	pb := h.db.NewBatchWithSize(b.size())
	if err := b.write(pb); err != nil {
		return errors.Join(err, pb.Close())
	}
	s.room(h, pb.Len())
	if err := h.db.Apply(pb, pebble.NoSync); err != nil {
		return h.wrap(fmt.Errorf("apply entry %d: %w", b.index, err))
	}
	s.mu.Lock()
	// Covered is written by another goroutine.
	next.Covered = s.applied.Covered
	s.applied = next
	s.mu.Unlock()
	return pb.Close()
}

func (b *Batch) putApplied(a *Applied) {
	at := len(b.arena)
	b.arena = metaKey(b.arena, metaApplied)
	val := len(b.arena)
	b.arena = appendApplied(b.arena, a)
	b.put(at, val, nil)
	if b.conf == nil {
		return
	}
	at = len(b.arena)
	b.arena = metaKey(b.arena, metaConf)
	val = len(b.arena)
	b.arena = append(binary.BigEndian.AppendUint64(b.arena, a.ConfIndex), a.Conf...)
	b.put(at, val, nil)
}

func appendDedup(dst []byte, seq uint64, time int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, seq), uint64(time))
}

const rowFixed = 8 + record.ProposalIDSize

func appendRow(dst []byte, row *record.MetaRow) []byte {
	dst = binary.BigEndian.AppendUint64(dst, row.Version)
	dst = append(dst, row.Author[:]...)
	return append(dst, row.Value...)
}

func parseRow(key string, v []byte) (record.MetaRow, error) {
	if len(v) < rowFixed {
		return record.MetaRow{}, fmt.Errorf("%w: row of %d bytes", record.ErrFormat, len(v))
	}
	row := record.MetaRow{Key: key, Version: binary.BigEndian.Uint64(v)}
	row.Value = append([]byte{}, v[rowFixed:]...)
	copy(row.Author[:], v[8:])
	return row, nil
}
