package storage

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// rebuildBatch is how many bytes Rebuild writes at a time.
const rebuildBatch = 1 << 20

// Rebuild makes a state in cfg.Dir, which must be empty, of what can be read of the tables
// in a database directory whose manifest cannot: for salvage, since nobody knows then which
// tables were in force. Of the versions of a row, the one with the highest internal sequence
// number wins, then the one of the newer table; deletes and range deletes count. A table
// that was to be removed and still is there may bring back rows that were deleted. What lies
// in a damaged block is left out, as are tables that cannot be opened; the second result
// names them. from is on fsys and is not changed. A stream whose own rows are lost gets
// bounds that hold all its messages. The first error is of the new state.
func Rebuild(ctx context.Context, fsys FS, from string, cfg Config) (*Store, []error, error) {
	r := &rebuild{fs: fsys, dir: from}
	if err := r.open(ctx); err != nil {
		r.close()
		return nil, nil, err
	}
	defer r.close()
	s, err := Open(cfg)
	if err != nil {
		return nil, nil, err
	}
	if err := r.copy(s); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	if err := errors.Join(s.Flush(), s.Close()); err != nil {
		return nil, nil, err
	}
	s, err = Open(cfg) // it knows what it holds only now
	return s, r.damage, err
}

// rebuild merges tables. It implements heap.Interface over their next rows.
type rebuild struct {
	fs      FS
	dir     string
	tables  []*looseTable
	damage  []error
	deletes []rangeDelete // by start
	active  []rangeDelete // those that began before the current key
	streams map[record.StreamID]*looseStream
}

// looseTable is a table that is read by itself.
type looseTable struct {
	path   string
	number int
	reader *sstable.Reader
	iter   sstable.Iterator
	r      *rebuild

	key    []byte // the next row
	seq    uint64
	delete bool
	value  []byte
}

type rangeDelete struct {
	start, end []byte
	seq        uint64
}

// looseStream is what the messages say of a stream.
type looseStream struct {
	state              bool // its own row is there
	first, last, count uint64
}

func (r *rebuild) open(ctx context.Context) error {
	names, err := r.fs.List(r.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", r.dir, err)
	}
	slices.Sort(names)
	for i, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		t := &looseTable{path: r.fs.PathJoin(r.dir, name), number: i, r: r}
		if err := t.open(ctx); err != nil {
			r.damaged(t.path, err)
			t.close()
			continue
		}
		r.tables = append(r.tables, t)
	}
	slices.SortFunc(r.deletes, func(a, b rangeDelete) int { return bytes.Compare(a.start, b.start) })
	r.streams = make(map[record.StreamID]*looseStream)
	return nil
}

func (r *rebuild) damaged(path string, err error) {
	r.damage = append(r.damage, record.Damaged(path, "%w", err))
}

func (r *rebuild) close() {
	for _, t := range r.tables {
		t.close()
	}
}

func (t *looseTable) open(ctx context.Context) error {
	f, err := t.r.fs.Open(t.path)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	var o pebble.Options
	o.EnsureDefaults()
	if t.reader, err = sstable.NewReader(ctx, readable, o.MakeReaderOptions()); err != nil {
		return errors.Join(err, readable.Close())
	}
	if err := t.rangeDeletes(ctx); err != nil {
		t.r.damaged(t.path, fmt.Errorf("its range deletes: %w", err))
	}
	t.iter, err = t.reader.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	return err
}

func (t *looseTable) close() {
	// Nothing was written, and what could not be read is in the list of damage.
	if t.iter != nil {
		_ = t.iter.Close()
	}
	if t.reader != nil {
		_ = t.reader.Close()
	}
	t.iter, t.reader = nil, nil
}

func (t *looseTable) rangeDeletes(ctx context.Context) error {
	it, err := t.reader.NewRawRangeDelIter(ctx, sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil || it == nil {
		return err
	}
	defer it.Close()
	span, err := it.First()
	for ; span != nil && err == nil; span, err = it.Next() {
		d := rangeDelete{start: bytes.Clone(span.Start), end: bytes.Clone(span.End)}
		for _, k := range span.Keys {
			d.seq = max(d.seq, uint64(k.SeqNum()))
		}
		t.r.deletes = append(t.r.deletes, d)
	}
	return err
}

// next reads the next row, behind what cannot be read of the table; false at its end.
func (t *looseTable) next() bool {
	if t.move(nil) {
		return true
	}
	for err := t.iter.Error(); err != nil; err = t.iter.Error() {
		t.r.damaged(t.path, fmt.Errorf("behind row %q: %w", t.key, err))
		if row, end := t.skip(); row || end {
			return row
		}
	}
	return false
}

// move goes to the next row, the first one, or the first one from a key on, and reads it.
// Without one it is the iterator that knows why.
func (t *looseTable) move(from []byte) bool {
	step := t.iter.Next
	switch {
	case from != nil:
		step = seek(t.iter.SeekGE, from)
	case t.key == nil:
		step = t.iter.First
	}
	for kv := step(); kv != nil; kv = t.iter.Next() {
		kind := kv.Kind()
		t.key, t.seq = append(t.key[:0], kv.K.UserKey...), uint64(kv.SeqNum())
		t.delete = kind != pebble.InternalKeyKindSet && kind != pebble.InternalKeyKindSetWithDelete
		value, _, err := kv.Value(nil)
		if err == nil {
			t.value = append(t.value[:0], value...)
			return true
		}
		t.r.damaged(t.path, fmt.Errorf("value of row %q: %w", t.key, err))
	}
	return false
}

// seek is a call of f with a key and no flags, whose types the library keeps to itself.
func seek[F, T any](f func([]byte, F) T, key []byte) func() T {
	return func() T {
		var none F
		return f(key, none)
	}
}

// seekWidth is how many bytes of a key tell where in a table it is: prefix, stream and
// sequence of a message.
const seekWidth = messageKeySize

// skip goes behind a block that cannot be read, to the first row of the next one that can.
// Which keys that has is not known: a key from which on there are readable rows is found by
// steps that double, and then the lowest such key between it and the last one that failed.
func (t *looseTable) skip() (row, end bool) {
	var at [seekWidth]byte
	copy(at[:], t.key)
	low, step := new(big.Int).SetBytes(at[:]), big.NewInt(1)
	top := new(big.Int).Lsh(big.NewInt(1), 8*seekWidth)
	try := func(n *big.Int) bool {
		t.move(n.FillBytes(at[:]))
		return t.iter.Error() == nil
	}
	high := new(big.Int)
	for {
		if high.Add(low, step); high.Cmp(top) >= 0 {
			return false, true
		}
		if try(high) {
			break
		}
		low.Set(high)
		step.Lsh(step, 1)
	}
	for mid := new(big.Int); ; {
		if mid.Add(low, high).Rsh(mid, 1); mid.Cmp(low) == 0 {
			break
		}
		if try(mid) {
			high.Set(mid)
		} else {
			low.Set(mid)
		}
	}
	return t.move(high.FillBytes(at[:])), false
}

// Heap of tables by their next rows: by key, newest first.

// Len implements heap.Interface.
func (r *rebuild) Len() int { return len(r.tables) }

// Less implements heap.Interface.
func (r *rebuild) Less(i, j int) bool {
	a, b := r.tables[i], r.tables[j]
	return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(b.seq, a.seq), cmp.Compare(b.number, a.number)) < 0
}

// Swap implements heap.Interface.
func (r *rebuild) Swap(i, j int) { r.tables[i], r.tables[j] = r.tables[j], r.tables[i] }

// Push implements heap.Interface; nothing is pushed.
func (r *rebuild) Push(any) {}

// Pop implements heap.Interface.
func (r *rebuild) Pop() any {
	t := r.tables[len(r.tables)-1]
	r.tables = r.tables[:len(r.tables)-1]
	return t
}

// copy writes the newest version of every row to a state.
func (r *rebuild) copy(s *Store) error {
	r.tables = slices.DeleteFunc(r.tables, func(t *looseTable) bool {
		if t.next() {
			return false
		}
		t.close()
		return true
	})
	heap.Init(r)
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release(h)
	batch := h.db.NewBatch()
	var last []byte
	format := metaKey(nil, metaFormat) // the new state has its own
	for err == nil && len(r.tables) > 0 {
		t := r.tables[0]
		if last == nil || !bytes.Equal(last, t.key) {
			last = append(last[:0], t.key...)
			if !t.delete && !r.deleted(t.key, t.seq) && !bytes.Equal(t.key, format) {
				r.note(t.key)
				err = batch.Set(t.key, t.value, nil)
			}
		}
		if t.next() {
			heap.Fix(r, 0)
		} else {
			heap.Remove(r, 0)
			t.close()
		}
		if err == nil && batch.Len() >= rebuildBatch {
			err = batch.Commit(pebble.NoSync)
			batch = h.db.NewBatch()
		}
	}
	if err == nil {
		err = r.bounds(batch)
	}
	if err == nil {
		return batch.Commit(pebble.NoSync)
	}
	return errors.Join(err, batch.Close())
}

// deleted says that a range delete covers a row. Keys come in order.
func (r *rebuild) deleted(key []byte, seq uint64) bool {
	for len(r.deletes) > 0 && bytes.Compare(r.deletes[0].start, key) <= 0 {
		r.active = append(r.active, r.deletes[0])
		r.deletes = r.deletes[1:]
	}
	r.active = slices.DeleteFunc(r.active, func(d rangeDelete) bool { return bytes.Compare(d.end, key) <= 0 })
	return slices.ContainsFunc(r.active, func(d rangeDelete) bool { return d.seq > seq })
}

// note keeps what a row says of its stream.
func (r *rebuild) note(key []byte) {
	message := len(key) == messageKeySize && key[0] == prefixMessage
	state := len(key) == streamKeySize && key[0] == prefixStream && key[streamKeySize-1] == partState
	if !message && !state {
		return
	}
	id := keyStream(key)
	st := r.streams[id]
	if st == nil {
		st = &looseStream{}
		r.streams[id] = st
	}
	if state {
		st.state = true
		return
	}
	seq := binary.BigEndian.Uint64(key[messageKeySize-8:])
	if st.count++; st.count == 1 {
		st.first = seq
	}
	st.last = seq
}

// bounds makes rows for streams that have messages and lost their own.
func (r *rebuild) bounds(b *pebble.Batch) error {
	for id, st := range r.streams {
		if st.state {
			continue
		}
		state := record.StreamState{FirstSeq: st.first, LastSeq: st.last, Messages: st.count}
		if err := b.Set(streamKey(nil, id, partState), record.AppendStreamState(nil, &state), nil); err != nil {
			return err
		}
	}
	return nil
}
