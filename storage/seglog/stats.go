package seglog

import (
	"sync/atomic"
	"time"
)

// counters are written without a lock by the paths they count.
type counters struct {
	entries, batches, bytes, seals, rotations, syncs atomic.Uint64
	tailReads, diskReads                             atomic.Uint64
	lastSync, maxSync, syncTime                      atomic.Int64
}

func (c *counters) synced(d time.Duration) {
	c.syncs.Add(1)
	c.syncTime.Add(int64(d))
	c.lastSync.Store(int64(d))
	if int64(d) > c.maxSync.Load() {
		c.maxSync.Store(int64(d)) // only the writer stores
	}
}

// Stats are counts since Open and the present sizes.
type Stats struct {
	// Segments are listed, Spares wait for re-use, Ready are prepared for the next rotation.
	Segments, Spares, Ready int
	// DiskBytes is the size of all these files, LiveBytes what Bytes returns.
	DiskBytes, LiveBytes int64
	// TailEntries and TailBytes are in memory.
	TailEntries int
	TailBytes   int64
	// Entries, Batches, BatchBytes and Seals were written, Rotations happened.
	Entries, Batches, BatchBytes, Seals, Rotations uint64
	// Syncs is the number of data syncs of segments; LastSync, MaxSync and SyncTime (the sum) are their
	// durations.
	Syncs                       uint64
	LastSync, MaxSync, SyncTime time.Duration
	// TailReads and DiskReads are Gets by where the entry came from.
	TailReads, DiskReads uint64
	// Failed is the cause once the log has failed.
	Failed error
}

// Stats returns a snapshot of the counters.
func (l *Log) Stats() Stats {
	c := &l.counters
	s := Stats{
		Entries: c.entries.Load(), Batches: c.batches.Load(), BatchBytes: c.bytes.Load(),
		Seals: c.seals.Load(), Rotations: c.rotations.Load(), Syncs: c.syncs.Load(),
		LastSync: time.Duration(c.lastSync.Load()), MaxSync: time.Duration(c.maxSync.Load()),
		SyncTime:  time.Duration(c.syncTime.Load()),
		TailReads: c.tailReads.Load(), DiskReads: c.diskReads.Load(),
	}
	if err := l.failed.Load(); err != nil {
		s.Failed = *err
	}
	l.view.mu.RLock()
	s.Segments, s.LiveBytes = len(l.view.st.segs), l.view.st.bytes()
	s.TailEntries, s.TailBytes = l.view.tail.count, l.view.tail.bytes
	for _, seg := range l.view.st.segs {
		s.DiskBytes += seg.size
	}
	l.view.mu.RUnlock()
	l.pool.own.mu.Lock()
	s.Spares, s.Ready = len(l.pool.own.spares), len(l.pool.own.ready)
	l.pool.own.mu.Unlock()
	s.DiskBytes += int64(s.Spares+s.Ready) * l.cfg.SegmentSize
	return s
}
