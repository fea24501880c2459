package storage

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"

	"go.uber.org/zap"
)

// Pebble waits by itself, with its locks held, while too much is in memory or in tables of the top level: on a full
// disk for ever, and nothing ends that, not even a close. So it is told never to, and Store.room waits instead.
const (
	neverMemTables = math.MaxInt16
	neverL0        = math.MaxInt32
)

// roomShare: what is in memory is looked at whenever that part of a memtable was committed.
const roomShare = 4

// flushes is what is known of the flushes of a database. One for which there is no room is tried by Pebble until there
// is: nobody waits for that, and no other one is asked for meanwhile.
type flushes struct {
	mu      sync.Mutex      // guards what follows; never taken with a call of Pebble
	pending <-chan struct{} // of the last one that was asked for
	full    error           // why background work failed, nil again after a flush
	failed  chan struct{}   // closed when full is set
}

// ended is told how background work ended; nil is a flush that was done.
func (f *flushes) ended(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = err
	if err != nil && f.failed != nil {
		close(f.failed)
		f.failed = nil
	}
}

// waits is why the last flush has not ended, nil if it has, or may soon.
func (f *flushes) waits() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.pending:
		return nil
	default:
	}
	if f.pending == nil {
		return nil
	}
	return f.full
}

// failure is closed when background work fails from now on.
func (f *flushes) failure() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = make(chan struct{})
	}
	return f.failed
}

func (f *flushes) begun(done <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = done
}

func (f *flushes) why() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full
}

// flush makes everything committed so far durable. It fails on a full disk, and after a fatal error, since what Pebble
// then calls done may not be.
func (s *Store) flush(h *handle) error {
	err := h.flushed.waits()
	failure := h.flushed.failure()
	var done <-chan struct{}
	if err == nil {
		err = h.touch() // a flush of nothing that the manifest cannot take would be tried again without a pause
	}
	if err == nil {
		done, err = h.db.AsyncFlush()
	}
	if err != nil {
		return h.wrap(fmt.Errorf("flush %s: %w", h.path, err))
	}
	h.flushed.begun(done)
	for {
		select {
		case <-done:
			return s.writable()
		case <-s.broken:
			return s.writable()
		case <-failure:
		}
		if err := h.flushed.why(); err != nil {
			return fmt.Errorf("flush %s: %w", h.path, err)
		}
		failure = h.flushed.failure() // there was room again, for this flush or for one before
	}
}

// Interrupt ends the waits of commits for room on the disk, and lets none begin before Resume: they go into memory,
// whatever is there. Whoever is about to stop what commits calls it, since on a full disk nothing else may end that
// wait. Close does it, too.
func (s *Store) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hurrying {
		s.hurrying = true
		close(s.hurry)
	}
}

// Resume ends an Interrupt.
func (s *Store) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hurrying {
		s.hurrying = false
		s.hurry = make(chan struct{})
	}
}

// interrupted is closed by Interrupt.
func (s *Store) interrupted() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hurry
}

// room waits until size bytes more may be committed; the caller holds commitMu.
func (s *Store) room(h *handle, size int) {
	if h.unseen += size; h.unseen < s.cfg.MemTableSize/roomShare {
		return
	}
	h.unseen = 0
	for s.crowded(h) {
		select {
		case <-h.eased:
		case <-s.broken:
			return
		case <-s.interrupted():
			return
		}
	}
}

// crowded says that too much waits to be written out or merged.
func (s *Store) crowded(h *handle) bool {
	m := h.db.Metrics()
	return m.MemTable.Size > uint64(s.cfg.MemTables)*uint64(s.cfg.MemTableSize) || m.Levels[0].Sublevels >= l0StopWrites
}

// closeHandle closes a database. All that Pebble writes then is the end of a write-ahead log that holds nothing: a full
// disk is no failure.
func (s *Store) closeHandle(h *handle) error {
	defer s.handles.Done()
	err := h.db.Close()
	if errors.Is(err, syscall.ENOSPC) {
		s.log.Debug("closed on a full disk", zap.String("db", h.name), zap.Error(err))
		err = nil
	}
	return errors.Join(err, h.lock.Close())
}

// finish closes a database that nobody uses any more, and removes it if another one has taken its place.
func (s *Store) finish(h *handle) error {
	err := s.closeHandle(h)
	if !h.remove || err != nil {
		return err
	}
	err = removeTree(s.fs, s.cfg.Dir, h.name)
	if errors.Is(err, syscall.ENOSPC) { // what is left of it goes at the next open
		s.log.Warn("no room to remove a state that was replaced", zap.String("db", h.name), zap.Error(err))
		return nil
	}
	return err
}
