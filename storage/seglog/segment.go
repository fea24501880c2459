package seglog

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// segment is one segment file in use. number, use, size, name and file never change. Of the rest, end, chain
// and the extent are written by the log's writer under Log.view.mu and read under Log.view.mu.
type segment struct {
	segmentHeader

	name string
	file vfs.File

	// refs counts the owner (1) and the readers between locate and release. The last one closes the file; a
	// segment may be overwritten only by an owner whose release was the last.
	refs atomic.Int32

	// end is where the next batch goes; chain is the chain value there. A seal lies at end, not before it.
	end   int64
	chain uint32

	// The live entries of this segment are [first, first+len(offsets)), one gapless range: a suffix
	// truncation cuts ranges from behind and appends go behind all of them. first is 0 when there is none.
	first   uint64
	offsets []uint32
}

func newSegment(h segmentHeader, name string, file vfs.File) *segment {
	s := &segment{segmentHeader: h, name: name, file: file, end: segmentHeaderSize, chain: chainSeed(h.use)}
	s.refs.Store(1)
	return s
}

func (s *segment) listed() listEntry {
	return listEntry{number: s.number, use: s.use, end: s.end, chain: s.chain}
}

// last is the last live index, 0 when there is none.
func (s *segment) last() uint64 {
	if len(s.offsets) == 0 {
		return 0
	}
	return s.first + uint64(len(s.offsets)) - 1
}

func (s *segment) push(index uint64, offset int64) {
	if len(s.offsets) == 0 {
		s.first = index
	}
	s.offsets = append(s.offsets, uint32(offset))
}

// cutFrom drops the entries >= from.
func (s *segment) cutFrom(from uint64) {
	if len(s.offsets) == 0 || from > s.last() {
		return
	}
	if from <= s.first {
		s.first, s.offsets = 0, nil
		return
	}
	s.offsets = s.offsets[:from-s.first]
}

// cutBelow drops the entries < first.
func (s *segment) cutBelow(first uint64) {
	if len(s.offsets) == 0 || first <= s.first {
		return
	}
	if first > s.last() {
		s.first, s.offsets = 0, nil
		return
	}
	s.offsets = s.offsets[first-s.first:]
	s.first = first
}

// liveBytes is what the segment holds from its first live entry on.
func (s *segment) liveBytes() int64 {
	if len(s.offsets) == 0 {
		return 0
	}
	return s.end - int64(s.offsets[0])
}

// release ends one use of the file and reports whether it was the last.
func (s *segment) release() bool {
	if s.refs.Add(-1) > 0 {
		return false
	}
	_ = s.file.Close()
	return true
}

// readAt fills b from off. A file that ends early and a medium that cannot be read are damage; other errors
// (say, no free file descriptor) are not.
func readAt(f vfs.File, name string, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return damaged(name, off+int64(n), "file ends early")
	case errors.Is(err, syscall.EIO):
		return &DamageError{File: name, Offset: off, Reason: "cannot be read", Cause: err}
	default:
		return fmt.Errorf("seglog: read %s: %w", name, err)
	}
}

// window reads a file front to back in large pieces and hands out slices of them.
type window struct {
	file vfs.File
	name string
	size int64

	buf []byte
	off int64
}

const windowSize = 1 << 20

// at returns up to n bytes at off, fewer only at the end of the file. The slice is valid until the next call.
func (w *window) at(off, n int64) ([]byte, error) {
	n = min(n, w.size-off)
	if n <= 0 {
		return nil, nil
	}
	if off < w.off || off+n > w.off+int64(len(w.buf)) {
		if err := w.fill(off, min(max(n, windowSize), w.size-off)); err != nil {
			return nil, err
		}
	}
	return w.buf[off-w.off:][:n], nil
}

func (w *window) fill(off, n int64) error {
	if int64(cap(w.buf)) < n {
		w.buf = make([]byte, n)
	}
	w.buf, w.off = w.buf[:n], off
	if err := readAt(w.file, w.name, w.buf, off); err != nil {
		w.buf = w.buf[:0]
		return err
	}
	return nil
}
