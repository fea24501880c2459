package seglog

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// Log is an open segment log. Its methods may be called from any goroutine; writes run one at a time.
type Log struct {
	cfg  Config
	pool *pool
	// opened carries the monotonic clock against which the atomics below count.
	opened   time.Time
	recovery Recovery

	// w is the writer's: one write at a time, from its first check to its last disk operation.
	w struct {
		mu      sync.Mutex
		closed  bool
		dirFile vfs.File
		enc     batch
		// sealed says that a seal lies at the end of the active segment. The next batch overwrites it.
		sealed bool
		// durable and inSeal are the payload versions in the newest batch and in the seal that have one.
		durable, inSeal uint64
		// payloadAt is when a batch last carried a payload, as time since opened.
		payloadAt time.Duration
	}

	// view is what readers see. Only the holder of w.mu changes it, except for the payload.
	view struct {
		mu     sync.RWMutex
		st     state
		tail   tail
		closed bool
		// version counts the payloads that were set.
		version uint64
		// oldest caches the time of the entry oldestOf. cuts counts what can put another entry there.
		oldest   int64
		oldestOf uint64
		cuts     uint64
	}

	failed atomic.Pointer[error]
	// inFlight is when the running write began, as ns since opened plus 1; 0 when none runs.
	inFlight atomic.Int64
	// written is when the last batch became durable, as ns since opened.
	written atomic.Int64

	counters counters
	// buffers are *[]byte for reads from disk.
	buffers sync.Pool

	stop chan struct{}
	wake chan struct{}
	prep chan struct{}
	wg   sync.WaitGroup
}

// Recovery says what Open found.
type Recovery struct {
	// Segments is the number of live segments, Bytes what their batches take, Entries the live entries.
	Segments int
	Bytes    int64
	Entries  uint64
	// Sealed says that a seal covered the last batch: nothing can have been cut unnoticed.
	Sealed bool
	// Torn says that an unfinished batch was cut off, which began at TornOffset of TornFile and announced
	// TornRecords records (0 if even its header was unfinished). It had not been acknowledged, unless it was
	// hit by damage before it could be sealed.
	Torn        bool
	TornFile    string
	TornOffset  int64
	TornRecords int
	// Removed are files that a crash had left over.
	Removed []string
}

// Open opens the log in cfg.Dir, or creates one if the directory holds none. It reads and verifies all live
// segments. A *DamageError means that something which was durable is wrong or missing; nothing is changed
// then. ErrVersion means that the files are of another format.
func Open(cfg Config) (*Log, error) {
	cfg = cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := cfg.FS.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("seglog: create %s: %w", cfg.Dir, err)
	}
	l := &Log{
		cfg: cfg, opened: time.Now(),
		stop: make(chan struct{}), wake: make(chan struct{}, 1), prep: make(chan struct{}, 1),
	}
	if err := l.recover(); err != nil {
		return nil, err
	}
	l.start()
	return l, nil
}

func (l *Log) recover() (err error) {
	ld, err := load(l.cfg.FS, l.cfg.Dir, nil)
	defer func() {
		if err != nil {
			ld.close()
			if l.pool != nil {
				l.pool.close()
			}
			if l.w.dirFile != nil {
				_ = l.w.dirFile.Close()
			}
		}
	}()
	if err != nil {
		return err
	}
	if l.w.dirFile, err = l.cfg.FS.OpenDir(l.cfg.Dir); err != nil {
		return fmt.Errorf("seglog: open %s: %w", l.cfg.Dir, err)
	}
	if l.pool, err = newPool(&l.cfg); err != nil {
		return err
	}
	if err := l.settle(ld); err != nil {
		return err
	}
	if ld.fresh {
		if err := l.create(ld); err != nil {
			return err
		}
	}
	l.adopt(ld)
	return nil
}

// settle makes durable what was read, sorts out the left-overs and makes the last segment writable.
func (l *Log) settle(ld *loaded) error {
	// The process before this one may have been killed between a rename or write and its sync. What is
	// served from now on must not vanish in a later power loss.
	if err := l.w.dirFile.Sync(); err != nil {
		return fmt.Errorf("seglog: sync %s: %w", l.cfg.Dir, err)
	}
	for _, seg := range ld.st.segs {
		l.pool.own.number = max(l.pool.own.number, seg.number)
	}
	for _, name := range ld.unlisted {
		kept, err := l.pool.adopt(name)
		if err != nil {
			return fmt.Errorf("seglog: remove left-over %s: %w", name, err)
		}
		if !kept {
			l.recovery.Removed = append(l.recovery.Removed, name)
		}
	}
	if ld.fresh {
		return nil
	}
	active := ld.st.active()
	f, err := l.cfg.FS.OpenReadWrite(active.name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("seglog: open %s: %w", active.name, err)
	}
	_ = active.file.Close()
	active.file = f
	if err := f.SyncData(); err != nil {
		return fmt.Errorf("seglog: sync %s: %w", active.name, err)
	}
	return nil
}

// create makes the first segment and the first list. A crash before the list is durable leaves no log.
func (l *Log) create(ld *loaded) error {
	if err := syncAncestors(l.cfg.FS, l.cfg.Dir); err != nil {
		return err
	}
	seg, err := l.pool.take()
	if err != nil {
		return err
	}
	ld.st.segs = []*segment{seg}
	_, err = replaceList(l.cfg.FS, l.cfg.Dir, l.w.dirFile, []listEntry{seg.listed()})
	if err != nil && isNoSpace(err) {
		return noSpace("create the segment list", err)
	}
	if err != nil {
		return fmt.Errorf("seglog: %w", err)
	}
	return nil
}

func (l *Log) adopt(ld *loaded) {
	l.view.st = ld.st
	l.view.tail = tail{budget: l.cfg.TailBytes}
	l.w.sealed = ld.end.sealed
	if len(ld.st.payload) > 0 {
		// A payload that only the seal holds must be written again when a batch overwrites the seal.
		l.view.version, l.w.inSeal = 1, 1
		if !ld.payloadSealed {
			l.w.durable = 1
		}
	}
	active := ld.st.active()
	r := &l.recovery
	r.Segments, r.Bytes, r.Sealed = len(ld.st.segs), ld.st.bytes(), ld.end.sealed
	if ld.st.last > 0 {
		r.Entries = ld.st.last - ld.st.first + 1
	}
	if ld.end.torn {
		r.Torn, r.TornFile, r.TornOffset, r.TornRecords = true, active.name, active.end, ld.end.tornRecords
		l.cfg.Logger.Warn("cut an unfinished batch off the log", zap.String("file", r.TornFile),
			zap.Int64("offset", r.TornOffset), zap.Int("records", r.TornRecords))
	}
}

func (l *Log) start() {
	if l.cfg.SealAfter > 0 {
		l.wg.Go(l.sealer)
		l.wake <- struct{}{} // what was recovered may be unsealed
	}
	if !l.cfg.SyncPrepare {
		l.wg.Go(l.preparer)
	}
}

// preparer prepares segments ahead of their use, one a signal. It ends when stop is closed.
func (l *Log) preparer() {
	for {
		select {
		case <-l.stop:
			return
		case <-l.prep:
		}
		err := l.pool.prepareAhead()
		switch {
		case err == nil:
		case isNoSpace(err):
			l.cfg.Logger.Warn("no space to prepare the next log segment", zap.String("dir", l.cfg.Dir),
				zap.Error(err))
		default:
			_ = l.fail(err)
		}
	}
}

// Close seals, makes the seal durable and closes the files. Later calls return ErrClosed; a second Close
// returns nil. After ErrFailed nothing is written.
func (l *Log) Close() error {
	l.w.mu.Lock()
	if l.w.closed {
		l.w.mu.Unlock()
		return nil
	}
	l.w.closed = true
	close(l.stop)
	l.w.mu.Unlock()
	l.wg.Wait()

	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	var err error
	if l.failed.Load() == nil {
		err = l.sealDurably()
	}
	l.view.mu.Lock()
	l.view.closed = true
	segs := l.view.st.segs
	l.view.mu.Unlock()
	for _, seg := range segs {
		seg.release()
	}
	l.pool.close()
	_ = l.w.dirFile.Close()
	return err
}

// Recovery reports what Open found.
func (l *Log) Recovery() Recovery {
	r := l.recovery
	r.Removed = slices.Clone(r.Removed)
	return r
}

// FirstIndex returns the index of the oldest entry, 0 if the log is empty.
func (l *Log) FirstIndex() uint64 {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	return l.view.st.first
}

// LastIndex returns the index of the newest entry, 0 if the log is empty.
func (l *Log) LastIndex() uint64 {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	return l.view.st.last
}

// LastTerm returns the term of the newest entry, 0 if the log is empty.
func (l *Log) LastTerm() uint64 {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	return l.view.st.lastTerm()
}

// Last returns the newest entry's index and term as one consistent pair, both 0 if the log is empty.
func (l *Log) Last() (index, term uint64) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	return l.view.st.last, l.view.st.lastTerm()
}

// Term returns the term of an entry without reading it, or ErrNotFound.
func (l *Log) Term(index uint64) (uint64, error) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	if index == 0 || index < l.view.st.first || index > l.view.st.last {
		return 0, fmt.Errorf("%w: %d of %d..%d", ErrNotFound, index, l.view.st.first, l.view.st.last)
	}
	return l.view.st.termOf(index), nil
}

// MaxEntryBytes is the largest Ext plus Data that Append takes in one entry.
func (l *Log) MaxEntryBytes() int64 { return maxEntryBytes(l.cfg.SegmentSize) }

// fail makes the log refuse every further write. The first cause stays.
func (l *Log) fail(cause error) error {
	err := fmt.Errorf("%w: %w", ErrFailed, cause)
	if l.failed.CompareAndSwap(nil, &err) {
		l.cfg.Logger.Error("log failed, the process must stop", zap.String("dir", l.cfg.Dir),
			zap.Error(cause))
	}
	return *l.failed.Load()
}

// begin checks that the log takes writes and notes that one is in flight. The caller holds w.mu and then
// calls end.
func (l *Log) begin() error {
	if l.w.closed {
		return ErrClosed
	}
	if err := l.failed.Load(); err != nil {
		return *err
	}
	l.inFlight.Store(int64(l.elapsed()) + 1)
	return nil
}

func (l *Log) end() { l.inFlight.Store(0) }

func (l *Log) elapsed() time.Duration { return time.Since(l.opened) }

// InFlightSince returns when the running write or sync began, if one runs. It takes no lock, so that it
// answers while the disk hangs.
func (l *Log) InFlightSince() (time.Time, bool) {
	n := l.inFlight.Load()
	if n == 0 {
		return time.Time{}, false
	}
	return l.opened.Add(time.Duration(n - 1)), true
}
