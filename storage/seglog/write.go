package seglog

import (
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// payloadEvery is how often a changed seal payload rides on a batch while the log is too busy to be
	// sealed. It costs the payload's bytes and no sync.
	payloadEvery = 50 * time.Millisecond
	// maxKeptBuffer is the largest encoding buffer kept between two batches.
	maxKeptBuffer = 8 << 20
)

// Append writes entries behind the last one (the first one may have any index if the log is empty) and
// returns when they are durable: one write and one sync, unless they need more than one segment. It keeps the
// Ext and Data slices until they leave the in-memory tail; the caller must not change them.
//
// ErrOutOfOrder, ErrTooLarge and ErrNoSpace leave the log as it was. After ErrFailed nothing is known.
func (l *Log) Append(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.begin(); err != nil {
		return err
	}
	defer l.end()
	room, err := l.admit(entries)
	if err != nil {
		return err
	}
	active := l.view.st.active()
	l.openBatch(room, true)
	if active.end+l.w.enc.size()+room <= active.size-controlReserve(active.size) {
		return l.appendTo(active, entries)
	}
	return l.appendFresh(entries)
}

// admit checks the entries and returns what their records take.
func (l *Log) admit(entries []Entry) (int64, error) {
	st := &l.view.st // only the holder of w.mu changes it
	var room int64
	limit := maxEntryBytes(l.cfg.SegmentSize)
	for i := range entries {
		e := &entries[i]
		if i == 0 && !st.follows(e.Index) {
			return 0, fmt.Errorf("%w: entry %d appended to a log that ends at %d",
				ErrOutOfOrder, e.Index, st.last)
		}
		if i > 0 && e.Index != entries[i-1].Index+1 {
			return 0, fmt.Errorf("%w: entry %d follows %d in one append",
				ErrOutOfOrder, e.Index, entries[i-1].Index)
		}
		if len(e.Ext) > MaxExt {
			return 0, fmt.Errorf("%w: extension of entry %d has %d bytes, the limit is %d",
				ErrTooLarge, e.Index, len(e.Ext), MaxExt)
		}
		if n := int64(len(e.Ext) + len(e.Data)); n > limit {
			return 0, fmt.Errorf("%w: entry %d has %d bytes, the limit is %d with segments of %d",
				ErrTooLarge, e.Index, n, limit, l.cfg.SegmentSize)
		}
		room += e.recordSize()
	}
	return room, nil
}

// appendTo adds entries to the open batch, writes it to seg and publishes them.
func (l *Log) appendTo(seg *segment, entries []Entry) error {
	b := &l.w.enc
	first := seg.end + int64(len(b.buf))
	for i := range entries {
		b.entry(&entries[i])
	}
	if err := l.writeBatch(seg, func(st *state) {
		at := first
		for i := range entries {
			e := &entries[i]
			st.push(seg, e.Index, e.Term, at)
			l.view.tail.push(e)
			at += e.recordSize()
		}
	}); err != nil {
		return err
	}
	l.counters.entries.Add(uint64(len(entries)))
	if l.cfg.SyncPrepare || seg.end < seg.size/2 || !l.pool.wants() {
		return nil
	}
	select {
	case l.prep <- struct{}{}:
	default:
	}
	return nil
}

// appendFresh writes entries that do not fit into the active segment to fresh ones, usually one.
func (l *Log) appendFresh(entries []Entry) error {
	pieces := split(entries, freshCapacity(l.cfg.SegmentSize))
	fresh, err := l.takeSegments(len(pieces))
	if err != nil {
		return err
	}
	before := l.view.st.last
	for i, piece := range pieces {
		if err = l.rotate(fresh[i]); err != nil {
			l.giveBack(fresh[i:])
			break
		}
		l.openBatch(recordsSize(piece), true)
		if err = l.appendTo(fresh[i], piece); err != nil {
			l.giveBack(fresh[i+1:])
			break
		}
	}
	if err != nil && l.view.st.last != before && l.failed.Load() == nil {
		return l.undo(before, err)
	}
	return err
}

// undo takes back the pieces of an append that ran out of space half-way. It is no truncation by a later
// leader, so it leaves the truncation term alone.
func (l *Log) undo(before uint64, cause error) error {
	from, term := before+1, l.view.st.truncTerm
	if before == 0 {
		from = l.view.st.first
	}
	if err := l.control(func(b *batch) { b.numbers(recordSuffix, from, term) }, func(st *state) {
		st.truncateSuffix(from, term)
		l.cutFrom(from)
	}); err != nil {
		return l.fail(fmt.Errorf("take back a half-written append (%w): %w", cause, err))
	}
	return cause
}

// split cuts entries into pieces whose records fit into capacity bytes each.
func split(entries []Entry, capacity int64) [][]Entry {
	var pieces [][]Entry
	for len(entries) > 0 {
		n, used := 0, int64(0)
		for n < len(entries) && used+entries[n].recordSize() <= capacity {
			used += entries[n].recordSize()
			n++
		}
		pieces = append(pieces, entries[:n])
		entries = entries[n:]
	}
	return pieces
}

func recordsSize(entries []Entry) int64 {
	var n int64
	for i := range entries {
		n += entries[i].recordSize()
	}
	return n
}

// takeSegments gets all the segments that a call needs before it writes anything.
func (l *Log) takeSegments(n int) ([]*segment, error) {
	segs := make([]*segment, 0, n)
	for range n {
		seg, err := l.pool.take()
		if err != nil {
			l.giveBack(segs)
			if isNoSpace(err) {
				return nil, err
			}
			return nil, l.fail(err)
		}
		segs = append(segs, seg)
	}
	return segs, nil
}

func (l *Log) giveBack(segs []*segment) {
	for _, seg := range slices.Backward(segs) {
		l.pool.giveBack(seg)
	}
}

// rotate makes seg the active segment: it is in the durable list before its first batch is written.
func (l *Log) rotate(seg *segment) error {
	segs := slices.Concat(l.view.st.segs, []*segment{seg})
	if err := l.replaceList(segs); err != nil {
		return err
	}
	l.view.mu.Lock()
	l.view.st.segs = segs
	l.view.mu.Unlock()
	l.w.sealed = false
	l.counters.rotations.Add(1)
	l.cfg.Logger.Debug("log rotated", zap.String("file", seg.name), zap.Int("segments", len(segs)))
	return nil
}

func (l *Log) replaceList(segs []*segment) error {
	entries := make([]listEntry, len(segs))
	for i, seg := range segs {
		entries[i] = seg.listed()
	}
	started, err := replaceList(l.cfg.FS, l.cfg.Dir, l.w.dirFile, entries)
	switch {
	case err == nil:
		return nil
	case !started && isNoSpace(err):
		return noSpace("replace the segment list", err)
	default:
		return l.fail(err)
	}
}

// openBatch starts a batch for the active segment with what must come before the caller's records: the head
// in a fresh segment, the payload when one waits for a batch and the caller lets it ride along.
func (l *Log) openBatch(room int64, payload bool) {
	b := &l.w.enc
	if cap(b.buf) > maxKeptBuffer {
		b.buf = nil
	}
	l.view.mu.RLock()
	hd, version := l.view.st.head(), l.view.version
	l.view.mu.RUnlock()
	b.version = 0
	switch {
	case l.view.st.active().end == segmentHeaderSize:
		b.reset(room + maxHeadRecord)
		b.head(&hd)
		b.version = version
	case payload && version != l.w.durable && (l.w.sealed || l.elapsed()-l.w.payloadAt >= payloadEvery):
		b.reset(room + recordPrefix + int64(len(hd.payload)) + recordTrailer)
		b.payload(hd.payload)
		b.version = version
	default:
		b.reset(room)
	}
}

// writeBatch writes the open batch at the end of seg, syncs it, and then lets publish change what readers
// see.
func (l *Log) writeBatch(seg *segment, publish func(*state)) error {
	b := &l.w.enc
	buf, chain := b.finish(batchRecords, seg.use, seg.end, seg.chain)
	if _, err := seg.file.WriteAt(buf, seg.end); err != nil {
		return l.writeFailed(seg, err)
	}
	if syncBatches {
		if err := l.sync(seg); err != nil {
			return err
		}
	}
	l.counters.batches.Add(1)
	l.counters.bytes.Add(uint64(len(buf)))
	l.w.sealed = false
	if b.version != 0 {
		l.w.durable, l.w.payloadAt = b.version, l.elapsed()
	}
	l.view.mu.Lock()
	seg.end, seg.chain = seg.end+int64(len(buf)), chain
	publish(&l.view.st)
	l.view.mu.Unlock()
	l.written.Store(int64(l.elapsed()))
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// writeFailed handles a write that may have left any part of a batch behind. After a full disk the log may go
// on only if the batch can surely not come back after a restart.
func (l *Log) writeFailed(seg *segment, cause error) error {
	if !isNoSpace(cause) {
		return l.fail(fmt.Errorf("write %s: %w", seg.name, cause))
	}
	l.w.sealed = false
	if _, err := seg.file.WriteAt(make([]byte, batchHeaderSize), seg.end); err != nil {
		return l.fail(fmt.Errorf("write %s (%w), then wipe: %w", seg.name, cause, err))
	}
	if err := l.sync(seg); err != nil {
		return err
	}
	return noSpace("write "+seg.name, cause)
}

func (l *Log) sync(seg *segment) error {
	start := time.Now()
	if err := seg.file.SyncData(); err != nil {
		// The kernel may have dropped the pages: a later sync that succeeds would prove nothing.
		return l.fail(fmt.Errorf("sync %s: %w", seg.name, err))
	}
	l.counters.synced(time.Since(start))
	return nil
}

// control writes one record that is not an entry; it may use the room that entries must leave.
func (l *Log) control(encode func(*batch), publish func(*state)) error {
	seg := l.view.st.active()
	l.openBatch(maxHeadRecord, false)
	encode(&l.w.enc)
	if seg.end+l.w.enc.size() > seg.size {
		fresh, err := l.takeSegments(1)
		if err != nil {
			return err
		}
		if err := l.rotate(fresh[0]); err != nil {
			l.giveBack(fresh)
			return err
		}
		seg = fresh[0]
		l.openBatch(maxHeadRecord, false)
		encode(&l.w.enc)
	}
	return l.writeBatch(seg, publish)
}
