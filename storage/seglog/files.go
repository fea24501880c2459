package seglog

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Names and fixed sizes of the files; the tables are in doc.go.
const (
	formatVersion     = 1
	segmentMagic      = "HFSEGLOG"
	listMagic         = "HFSEGLST"
	segmentHeaderSize = 64
	listHeaderSize    = 24
	listEntrySize     = 32
	preambleSize      = 16
	segmentSuffix     = ".seg"
	tempSuffix        = ".tmp"
	listName          = "SEGMENTS"
	// maxListed bounds what a list may claim, so that a wrong count cannot ask for much memory.
	maxListed = 1 << 20
)

func segmentName(number uint64) string { return fmt.Sprintf("%020d%s", number, segmentSuffix) }

// segmentNumber is the inverse of segmentName.
func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0
}

// appendPreamble starts a file: magic, version and their own checksum. Every format version keeps these 16
// bytes, so that a future format is told from a flipped bit.
func appendPreamble(b []byte, magic string) []byte {
	start := len(b)
	b = append(b, magic...)
	b = le.AppendUint32(b, formatVersion)
	return le.AppendUint32(b, checksum(b[start:]))
}

func checkPreamble(file string, b []byte, magic string) error {
	switch {
	case len(b) < preambleSize:
		return damaged(file, 0, "file is too short for its header")
	case string(b[:8]) != magic:
		return damaged(file, 0, "magic is missing")
	case checksum(b[:12]) != le.Uint32(b[12:]):
		return damaged(file, 8, "preamble checksum does not match")
	}
	if v := le.Uint32(b[8:]); v != formatVersion {
		return fmt.Errorf("%w: %s has version %d, this build reads %d", ErrVersion, file, v, formatVersion)
	}
	return nil
}

// segmentHeader is the first 64 bytes of a segment file.
type segmentHeader struct {
	number uint64
	use    uint64
	size   int64
}

func (h segmentHeader) encode() []byte {
	b := appendPreamble(make([]byte, 0, segmentHeaderSize), segmentMagic)
	b = le.AppendUint64(b, h.number)
	b = le.AppendUint64(b, h.use)
	b = le.AppendUint64(b, uint64(h.size))
	b = append(b, make([]byte, segmentHeaderSize-4-len(b))...)
	return le.AppendUint32(b, checksum(b))
}

func decodeSegmentHeader(file string, b []byte) (segmentHeader, error) {
	if err := checkPreamble(file, b, segmentMagic); err != nil {
		return segmentHeader{}, err
	}
	if len(b) < segmentHeaderSize {
		return segmentHeader{}, damaged(file, 0, "file is too short for its header")
	}
	if checksum(b[:segmentHeaderSize-4]) != le.Uint32(b[segmentHeaderSize-4:]) {
		return segmentHeader{}, damaged(file, 0, "segment header checksum does not match")
	}
	h := segmentHeader{number: le.Uint64(b[16:]), use: le.Uint64(b[24:]), size: int64(le.Uint64(b[32:]))}
	if h.size < MinSegmentSize || h.size > MaxSegmentSize {
		return segmentHeader{}, damaged(file, 32, "segment size %d is out of range", h.size)
	}
	return h, nil
}

// listEntry is one live segment. end and chain are the segment's final position when it is not the last one,
// and a lower bound of what was durable when it is.
type listEntry struct {
	number uint64
	use    uint64
	end    int64
	chain  uint32
}

func encodeList(entries []listEntry) []byte {
	b := make([]byte, 0, listHeaderSize+len(entries)*listEntrySize+4)
	b = appendPreamble(b, listMagic)
	b = le.AppendUint32(b, uint32(len(entries)))
	b = le.AppendUint32(b, 0)
	for _, e := range entries {
		b = le.AppendUint64(b, e.number)
		b = le.AppendUint64(b, e.use)
		b = le.AppendUint64(b, uint64(e.end))
		b = le.AppendUint32(b, e.chain)
		b = le.AppendUint32(b, 0)
	}
	return le.AppendUint32(b, checksum(b))
}

func decodeList(file string, b []byte) ([]listEntry, error) {
	if err := checkPreamble(file, b, listMagic); err != nil {
		return nil, err
	}
	if len(b) < listHeaderSize+4 {
		return nil, damaged(file, 0, "segment list is too short")
	}
	count := int(le.Uint32(b[16:]))
	if count == 0 || count > maxListed || len(b) != listHeaderSize+count*listEntrySize+4 {
		return nil, damaged(file, 16, "segment list of %d bytes cannot hold %d segments", len(b), count)
	}
	if checksum(b[:len(b)-4]) != le.Uint32(b[len(b)-4:]) {
		return nil, damaged(file, 0, "segment list checksum does not match")
	}
	entries := make([]listEntry, count)
	for i := range entries {
		p := b[listHeaderSize+i*listEntrySize:]
		entries[i] = listEntry{
			number: le.Uint64(p), use: le.Uint64(p[8:]),
			end: int64(le.Uint64(p[16:])), chain: le.Uint32(p[24:]),
		}
		bad := entries[i].number == 0 || entries[i].end < segmentHeaderSize ||
			entries[i].end > MaxSegmentSize || (i > 0 && entries[i].number <= entries[i-1].number)
		if bad {
			at := int64(listHeaderSize + i*listEntrySize)
			return nil, damaged(file, at, "segment list entry is malformed")
		}
	}
	return entries, nil
}

// replaceList makes entries the live segments: the list is either the old or the new one after a crash, and
// surely the new one once nil is returned. started says whether the rename may have happened when it fails.
func replaceList(fs vfs.FS, dir string, dirFile vfs.File, entries []listEntry) (started bool, err error) {
	temp := fs.PathJoin(dir, listName+tempSuffix)
	if err := writeFile(fs, temp, encodeList(entries)); err != nil {
		return false, fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fs.Rename(temp, fs.PathJoin(dir, listName)); err != nil {
		return true, fmt.Errorf("rename %s: %w", temp, err)
	}
	if err := dirFile.Sync(); err != nil {
		return true, fmt.Errorf("sync %s: %w", dir, err)
	}
	return true, nil
}

func writeFile(fs vfs.FS, name string, b []byte) error {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// syncAncestors makes the path to dir durable. It goes all the way up, since a process that was killed may
// have made any part of the path and synced none of it. A directory that may not be opened is not one it
// made.
func syncAncestors(fs vfs.FS, dir string) error {
	for {
		parent := fs.PathDir(dir)
		if parent == dir {
			return nil
		}
		if err := syncDir(fs, parent); err != nil && !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("seglog: sync %s: %w", parent, err)
		}
		dir = parent
	}
}

func syncDir(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
