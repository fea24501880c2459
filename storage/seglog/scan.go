package seglog

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// batchVisitor sees every batch of a segment once it is verified as a whole. recs is valid until it returns.
type batchVisitor func(h batchHeader, recs []record) error

// scanResult is where a segment's valid content ends and what lies there.
type scanResult struct {
	end    int64
	chain  uint32
	sealed bool
	// torn is set when the bytes at end are an unfinished batch of this use.
	torn bool
	// tornRecords is what the torn batch announced, 0 if its header is torn too.
	tornRecords int
}

// scanner verifies one segment file.
type scanner struct {
	win    window
	listed listEntry
	last   bool
	visit  batchVisitor

	pos   int64
	chain uint32
	recs  []record
}

// scanSegment verifies the file of a listed segment from its first batch to its end and shows the batches to
// visit. Which invalid bytes are damage and which a torn write is the rule in doc.go.
func scanSegment(seg *segment, listed listEntry, last bool, visit batchVisitor) (scanResult, error) {
	size, err := fileSize(seg.file, seg.name)
	if err != nil {
		return scanResult{}, err
	}
	if size < seg.size {
		// A segment gets its name and its place in the list only after its full size was synced.
		return scanResult{}, damaged(seg.name, size, "file is shorter than its %d bytes", seg.size)
	}
	s := &scanner{
		win:    window{file: seg.file, name: seg.name, size: seg.size},
		listed: listed, last: last, visit: visit, pos: segmentHeaderSize, chain: chainSeed(seg.use),
	}
	return s.run()
}

func fileSize(f vfs.File, name string) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, &DamageError{File: name, Reason: "cannot be examined", Cause: err}
	}
	return info.Size(), nil
}

func (s *scanner) run() (scanResult, error) {
	for {
		if s.pos == s.listed.end && s.chain != s.listed.chain {
			return scanResult{}, s.unlike()
		}
		if s.pos == s.listed.end && !s.last {
			return scanResult{end: s.pos, chain: s.chain}, nil
		}
		h, chain, err := s.batch()
		if err != nil {
			return s.invalid(h, err)
		}
		if h.prev != s.chain {
			return scanResult{}, damaged(s.win.name, s.pos, "intact batch does not continue its predecessor")
		}
		next := alignUp(s.pos + batchHeaderSize + h.length)
		if s.pos < s.listed.end && (next > s.listed.end || h.kind == batchSeal) {
			return scanResult{}, s.unlike()
		}
		if err := s.visit(h, s.recs); err != nil {
			return scanResult{}, err
		}
		if h.kind == batchSeal {
			return s.behindSeal()
		}
		s.pos, s.chain = next, chain
	}
}

func (s *scanner) unlike() error {
	return damaged(s.win.name, s.pos, "content differs from what the segment list recorded")
}

// batch decodes the batch at pos into recs and returns the chain value after it. The header is returned even
// if only the records are bad.
func (s *scanner) batch() (batchHeader, uint32, error) {
	b, err := s.win.at(s.pos, batchHeaderSize)
	if err != nil {
		return batchHeader{}, 0, err
	}
	h, err := decodeBatchHeader(b, s.listed.use, s.pos)
	if err != nil {
		if len(b) >= 8 && le.Uint64(b) == s.listed.use {
			h.kind = batchRecords // a torn header; tells invalid that something was begun here
		}
		return h, 0, err
	}
	padded := alignUp(h.length)
	body, err := s.win.at(s.pos+batchHeaderSize, padded)
	if err != nil {
		return h, 0, err
	}
	if int64(len(body)) < padded {
		return h, 0, errShort
	}
	for _, c := range body[h.length:] {
		if c != 0 {
			return h, 0, errPadding
		}
	}
	var chain uint32
	s.recs, chain, err = decodeRecords(h, body[:h.length], s.recs[:0])
	return h, chain, err
}

// invalid decides what it means that the bytes at pos are no valid batch.
func (s *scanner) invalid(h batchHeader, cause error) (scanResult, error) {
	var damage *DamageError
	if errors.As(cause, &damage) || !isFormat(cause) {
		return scanResult{}, cause
	}
	if s.pos < s.listed.end || !s.last {
		return scanResult{}, damaged(s.win.name, s.pos, "%v, before the recorded end %d", cause, s.listed.end)
	}
	later, found, err := s.laterBatch()
	if err != nil {
		return scanResult{}, err
	}
	if found {
		return scanResult{}, damaged(s.win.name, s.pos, "%v, and a later batch exists at %d", cause, later)
	}
	res := scanResult{end: s.pos, chain: s.chain, torn: h.kind != 0, tornRecords: int(h.count)}
	if h.kind == batchSeal {
		res.torn, res.tornRecords = false, 0 // a torn seal covers nothing and loses nothing
	}
	return res, nil
}

func (s *scanner) behindSeal() (scanResult, error) {
	later, found, err := s.laterBatch()
	if err != nil {
		return scanResult{}, err
	}
	if found {
		return scanResult{}, damaged(s.win.name, s.pos, "seal is followed by a batch at %d", later)
	}
	return scanResult{end: s.pos, chain: s.chain, sealed: true}, nil
}

// laterBatch looks for a batch header of this use behind pos, up to the end of the file. One proves that all
// before it was durable when it was written: a batch is written only after its predecessor was synced.
func (s *scanner) laterBatch() (at int64, found bool, err error) {
	var use [8]byte
	le.PutUint64(use[:], s.listed.use)
	for off := s.pos + batchAlign; off+batchHeaderSize <= s.win.size; {
		b, err := s.win.at(off, windowSize)
		if err != nil {
			return 0, false, err
		}
		for i := 0; ; {
			k := bytes.Index(b[i:], use[:])
			if k < 0 {
				break
			}
			i += k
			if at := off + int64(i); at%batchAlign == 0 {
				if _, err := decodeBatchHeader(b[i:], s.listed.use, at); err == nil {
					return at, true, nil
				}
			}
			i++
		}
		// Overlap, so that a header across two windows is seen whole in the second.
		off += max(int64(len(b))-batchHeaderSize, batchAlign) &^ (batchAlign - 1)
	}
	return 0, false, nil
}

// isFormat tells what the bytes say from what the file system says.
func isFormat(err error) bool {
	for _, e := range []error{
		errShort, errUse, errOffset, errHeaderCRC, errRecordCRC, errShape, errBody, errPadding,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// readSegmentHeader reads and verifies the first bytes of a segment file.
func readSegmentHeader(f vfs.File, name string) (segmentHeader, error) {
	var b [segmentHeaderSize]byte
	if err := readAt(f, name, b[:], 0); err != nil {
		return segmentHeader{}, err
	}
	return decodeSegmentHeader(name, b[:])
}
