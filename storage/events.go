package storage

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// listener counts flushes and passes failures on. Pebble calls it with its locks held.
func (s *Store) listener(h *handle, mode openMode) *pebble.EventListener {
	return &pebble.EventListener{
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err == nil {
				h.flushes.Add(1)
				h.flushed.ended(nil)
			}
			h.ease()
		},
		CompactionEnd: func(pebble.CompactionInfo) { h.ease() },
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			h.corrupt.Store(&info.Path)
			if mode == modeVerify {
				return // of another replica: what is in force here is not damaged
			}
			s.cfg.Damaged(record.Damaged(info.Path, "%w", info.Details))
		},
		BackgroundError: func(err error) {
			s.log.Error("background work failed", zap.Error(err))
			switch {
			case errors.Is(err, syscall.ENOSPC):
				h.flushed.ended(err)
			case !pebble.IsCorruptionError(err): // that has its own event
				s.fatal(fmt.Errorf("background write in %s: %w", h.path, err))
			}
		},
	}
}

// ease wakes who waits in room.
func (h *handle) ease() {
	select {
	case h.eased <- struct{}{}:
	default:
	}
}

// logger adapts Pebble's log. Its fatal messages end the process elsewhere than in a library.
type logger struct {
	log   *zap.Logger
	fatal func(error)
}

// Infof logs what Pebble finds worth telling, which is little with our listener.
func (l logger) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

// Errorf logs an error that Pebble goes on after.
func (l logger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

// Fatalf hands over an error that Pebble cannot go on after.
func (l logger) Fatalf(format string, args ...any) {
	e := &fatalError{text: "pebble: " + fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			e.cause = err
		}
	}
	l.fatal(e)
}

// fatalError is what Pebble cannot go on after, with the error it told of.
type fatalError struct {
	text  string
	cause error
}

// Error implements error.
func (e *fatalError) Error() string { return e.text }

// Unwrap returns the error that Pebble told of.
func (e *fatalError) Unwrap() error { return e.cause }
