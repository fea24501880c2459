package storage

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// FS is the file system that everything of a store goes through. Tests pass an
// in-memory one that can lose what was not synced.
type FS = vfs.FS

// DefaultFS returns the operating system's file system.
//
//nolint:ireturn // one of several file systems
func DefaultFS() FS { return vfs.Default }

// Defaults of Config and limits of its fields.
const (
	// DefaultMemTableSize is what a group gathers in memory before it is written out.
	DefaultMemTableSize = 64 << 20
	// MinMemTableSize is the smallest Config.MemTableSize.
	MinMemTableSize = 4 << 10
	// MaxMemTableSize is the largest Config.MemTableSize; Pebble's arenas end at 4 GiB.
	MaxMemTableSize = 1 << 30
	// DefaultMemTables is how many of them may wait before writes stop.
	DefaultMemTables = 4
	// DefaultFlushDelay is how long a range delete stays in memory before it is
	// written out, so that disk space comes back on an idle group too.
	DefaultFlushDelay = 30 * time.Second
	// DefaultCacheBytes is the default size of the shared block cache.
	DefaultCacheBytes = 256 << 20
	// DefaultOpenFiles is the default number of table files that the shared file cache keeps open.
	DefaultOpenFiles = 2000

	privateCacheBytes = 4 << 20
	fileCacheShards   = 4
)

// Config says how to open a store. The zero value of a field without "required"
// means its default.
type Config struct {
	// FS is the file system; default DefaultFS().
	FS FS
	// Dir is the group's state directory: required, made if missing, used by
	// nothing else. Files in it that the store does not know are left alone.
	Dir string
	// Shared holds the caches that all stores of a process share; default: small private ones.
	Shared *Shared
	// MemTableSize, bytes; default DefaultMemTableSize. Small in simulation.
	MemTableSize int
	// MemTables, at least 2; default DefaultMemTables.
	MemTables int
	// FlushDelay bounds how long a range delete stays in memory; default DefaultFlushDelay.
	FlushDelay time.Duration
	// InstallSync is how many bytes of a checkpoint's stream an install takes between two
	// times that it makes them durable; default InstallSyncBytes.
	InstallSync uint64
	// ReadOnly opens for offline tools: nothing is written or removed, Commit and
	// every snapshot operation fail. The store must have been opened for writing once.
	ReadOnly bool
	// DB, with ReadOnly, is the database directory to open where the pointer file does not
	// verify or is gone, for salvage: what it holds is some state of the group, perhaps an
	// old one, perhaps one that was never in force. Empty = the one that the pointer names.
	DB string
	// Logger; default: silent.
	Logger *zap.Logger
	// Damaged is told of every corruption that Pebble finds, by a read or in the
	// background; the error wraps record.ErrDamaged and names the file. It is
	// called with Pebble's locks held: it must neither block nor call the store.
	// Default: Fatal.
	Damaged func(error)
	// Fatal is told of failures after which this process must not go on: a failed
	// write of the manifest, a background write error other than a full disk. It must
	// not call the store, and it should not return; if it does, the store takes no
	// more writes. Default: an error in the log.
	Fatal func(error)
}

func (c *Config) defaults() {
	if c.FS == nil {
		c.FS = DefaultFS()
	}
	if c.MemTableSize == 0 {
		c.MemTableSize = DefaultMemTableSize
	}
	if c.MemTables == 0 {
		c.MemTables = DefaultMemTables
	}
	if c.FlushDelay == 0 {
		c.FlushDelay = DefaultFlushDelay
	}
	if c.InstallSync == 0 {
		c.InstallSync = InstallSyncBytes
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Fatal == nil {
		log := c.Logger
		c.Fatal = func(err error) { log.Error("storage failed", zap.Error(err)) }
	}
	if c.Damaged == nil {
		c.Damaged = c.Fatal
	}
}

func (c *Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("storage: Dir is empty")
	case c.MemTableSize < MinMemTableSize || c.MemTableSize > MaxMemTableSize:
		return fmt.Errorf("storage: MemTableSize %d is not in %d to %d",
			c.MemTableSize, MinMemTableSize, MaxMemTableSize)
	case c.MemTables < 2:
		return fmt.Errorf("storage: MemTables %d is below 2", c.MemTables)
	case c.FlushDelay < 0:
		return fmt.Errorf("storage: FlushDelay %v is negative", c.FlushDelay)
	}
	return nil
}

// Shared holds the block cache and the file cache of all stores of a process.
type Shared struct {
	cache *pebble.Cache
	files *pebble.FileCache
}

// NewShared makes caches for cacheBytes of blocks and openFiles open table
// files; 0 means DefaultCacheBytes and DefaultOpenFiles. Memtables are charged
// to the block cache too.
func NewShared(cacheBytes int64, openFiles int) *Shared {
	if cacheBytes <= 0 {
		cacheBytes = DefaultCacheBytes
	}
	if openFiles <= 0 {
		openFiles = DefaultOpenFiles
	}
	return &Shared{cache: pebble.NewCache(cacheBytes), files: pebble.NewFileCache(fileCacheShards, openFiles)}
}

// Close gives the caches back. Every store that uses them must be closed before.
func (s *Shared) Close() {
	s.files.Unref()
	s.cache.Unref()
}
