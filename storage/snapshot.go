package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// acquirePointer is acquire with the pointer that was in force at the same moment.
func (s *Store) acquirePointer() (*handle, Pointer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != nil {
		return nil, Pointer{}, fmt.Errorf("storage: %w", s.gone)
	}
	if s.h == nil {
		return nil, Pointer{}, fmt.Errorf("storage: %w", record.ErrClosed)
	}
	s.h.refs++
	return s.h, s.ptr, nil
}

// PublishLocal makes the state a snapshot of itself: it notes that the state
// reaches meta.Index, flushes, and publishes that in the pointer file. Every
// entry up to meta.Index that comes to the state machine must have been
// committed before. Only then may the log be cut. ErrOvertaken if a newer
// snapshot was installed meanwhile.
func (s *Store) PublishLocal(meta SnapshotMeta) error {
	if err := s.writable(); err != nil {
		return err
	}
	h, ptr, err := s.acquirePointer()
	if err != nil {
		return err
	}
	defer s.release(h)
	if err := overtaken(h, &ptr, &meta); err != nil {
		return err
	}
	if err := h.putMeta(metaCovered, binary.BigEndian.AppendUint64(nil, meta.Index)); err != nil {
		return err
	}
	s.mu.Lock()
	if s.h == h {
		s.applied.Covered = meta.Index
	}
	s.mu.Unlock()
	if !plantedNoFlush {
		if err := s.flush(h); err != nil {
			return err
		}
	}
	s.pointerMu.Lock() // not before: a flush takes its time
	defer s.pointerMu.Unlock()
	ptr = s.Pointer()
	if err := overtaken(h, &ptr, &meta); err != nil {
		return err
	}
	if err := s.publish(Pointer{DB: h.name, Snapshot: meta}); err != nil {
		return err
	}
	// Whoever has come so far by the log has no use for an unfinished install.
	return s.dropHeld(func(r *incoming) bool { return r.meta.Index > meta.Index })
}

// overtaken says that a snapshot of h is older than what the pointer names.
func overtaken(h *handle, ptr *Pointer, meta *SnapshotMeta) error {
	if ptr.DB != h.name || ptr.Snapshot.Index > meta.Index {
		return fmt.Errorf("publish snapshot %d: %w (%d)", meta.Index, ErrOvertaken, ptr.Snapshot.Index)
	}
	return nil
}

// notPublished says of an error of publish that a full disk has kept the old pointer in force.
func notPublished(err error) bool {
	return errors.Is(err, errNotReplaced) && errors.Is(err, syscall.ENOSPC)
}

// publish replaces the pointer file; the caller holds pointerMu.
func (s *Store) publish(ptr Pointer) error {
	ptr.Snapshot.Conf = append([]byte(nil), ptr.Snapshot.Conf...)
	if err := writePointer(s.fs, s.cfg.Dir, &ptr); err != nil {
		err = fmt.Errorf("publish snapshot %d: %w", ptr.Snapshot.Index, err)
		if notPublished(err) {
			return err // tried again when there is room
		}
		// Which of the two is on disk is not known: only a new start can tell.
		s.fatal(err)
		return err
	}
	s.mu.Lock()
	s.ptr = ptr
	s.mu.Unlock()
	return nil
}

func (s *Store) newGeneration() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nextGen
	s.nextGen++
	return n
}

// NeedsActivate says that an installed snapshot is published and its state not in use yet.
func (s *Store) NeedsActivate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.h != nil && s.ptr.DB != s.h.name
}

// Activate puts the state of an installed snapshot in use: it opens the database
// that the pointer names; the old one is closed and removed when the last reader
// that is at work on it is done. Without such a snapshot it does nothing. After
// an error the process must stop, since the old state is no longer the group's.
func (s *Store) Activate() error {
	if err := s.writable(); err != nil {
		return err
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	s.pointerMu.Lock()
	defer s.pointerMu.Unlock()
	old, ptr, err := s.acquirePointer()
	if err != nil {
		return err
	}
	defer s.release(old)
	if ptr.DB == old.name {
		return nil
	}
	h, applied, err := s.openChecked(&ptr)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.h, s.applied = h, applied
	s.mu.Unlock()
	s.log.Info("installed state in use", zap.String("db", h.name), zap.Uint64("applied", applied.Index))
	return s.retire(old, true)
}
