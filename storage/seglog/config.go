package seglog

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

const (
	// DefaultSegmentSize is the size of a segment file of an event group.
	DefaultSegmentSize = 64 << 20
	// MinSegmentSize leaves room for the head record and an entry worth the name.
	MinSegmentSize = 16 << 10
	// MaxSegmentSize keeps offsets within 32 bits.
	MaxSegmentSize = 1 << 30
	// DefaultTailBytes is the default budget of the in-memory tail.
	DefaultTailBytes = 16 << 20
	// DefaultSealAfter is how long a server's log is idle before its last batch is sealed.
	DefaultSealAfter = 50 * time.Millisecond
	// DefaultRecycle is the default number of spare segments.
	DefaultRecycle = 2

	// MaxCandidate bounds the candidate of a vote, in bytes.
	MaxCandidate = 512
	// MaxSealPayload bounds the payload of a seal, in bytes.
	MaxSealPayload = 2 << 10
	// MaxExt bounds Entry.Ext, in bytes (a 16-bit length on disk).
	MaxExt = 1<<16 - 1
)

// Config describes one log. Nothing of it can be changed after Open.
type Config struct {
	// FS holds the files. Required.
	FS vfs.FS
	// Dir is the log's own directory, created by Open when missing. Required. The log takes no lock: that
	// only one process uses the directory is the caller's business.
	Dir string
	// SegmentSize is the size of new segment files in bytes; 0 means DefaultSegmentSize. It bounds the size
	// of one entry (MaxEntryBytes). Files of another size stay readable and writable.
	SegmentSize int64
	// TailBytes bounds the entries kept in memory for Get; 0 means DefaultTailBytes, negative none.
	TailBytes int64
	// SealAfter is how long after the last write the idle sealer seals; 0 starts no sealer and leaves
	// sealing to the caller. A server sets DefaultSealAfter.
	SealAfter time.Duration
	// Recycle is the number of dropped segments kept for re-use; 0 means DefaultRecycle, negative none.
	Recycle int
	// SyncPrepare prepares the next segment inside the call that needs it, instead of ahead of it on a
	// goroutine. With SealAfter 0 the log then starts no goroutine at all, as virtual-time tests need it.
	SyncPrepare bool
	// Logger receives what an operator should know; nil discards it.
	Logger *zap.Logger
}

func (c Config) defaults() Config {
	if c.SegmentSize == 0 {
		c.SegmentSize = DefaultSegmentSize
	}
	if c.TailBytes == 0 {
		c.TailBytes = DefaultTailBytes
	}
	c.TailBytes = max(c.TailBytes, 0)
	if c.Recycle == 0 {
		c.Recycle = DefaultRecycle
	}
	c.Recycle = max(c.Recycle, 0)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.FS == nil:
		return errors.New("seglog: Config.FS is missing")
	case c.Dir == "":
		return errors.New("seglog: Config.Dir is empty")
	case c.SegmentSize < MinSegmentSize || c.SegmentSize > MaxSegmentSize || c.SegmentSize%4096 != 0:
		return fmt.Errorf("seglog: Config.SegmentSize is %d, want a multiple of 4096 from %d to %d",
			c.SegmentSize, MinSegmentSize, MaxSegmentSize)
	case c.SealAfter < 0:
		return fmt.Errorf("seglog: Config.SealAfter is %v, want 0 (no sealer) or more", c.SealAfter)
	}
	return nil
}

// controlReserve is the room at a segment's end that entries may not use: votes and truncations still go
// through when the disk has no room for another segment, and truncations are what makes room.
func controlReserve(segmentSize int64) int64 {
	return min(segmentSize/16, 64<<10)
}

// maxEntryBytes is the largest Ext plus Data of an entry: it must fit into a fresh segment behind the
// largest possible head record.
func maxEntryBytes(segmentSize int64) int64 {
	return freshCapacity(segmentSize) - entryOverhead
}

// freshCapacity is the room for entry records in a segment that holds nothing else but its head.
func freshCapacity(segmentSize int64) int64 {
	return segmentSize - controlReserve(segmentSize) - segmentHeaderSize - batchHeaderSize -
		maxHeadRecord - batchAlign
}
