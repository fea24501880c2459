package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// handle is one open database. The store replaces it as a whole when a snapshot
// is installed; readers that are at work keep the one they started with.
type handle struct {
	db          *pebble.DB
	lock        *pebble.Lock
	compactions *compactions
	name        string // within the group's directory
	path        string
	lists       string // the file that listed the tables when it was opened

	refs   int  // guarded by Store.mu; the store itself holds one
	remove bool // guarded by Store.mu; the files go when it is closed

	unseen  int           // bytes committed since room looked; guarded by Store.commitMu
	eased   chan struct{} // a flush or a compaction has ended; cap 1
	flushed flushes
	flushes atomic.Uint64          // completed flushes
	corrupt atomic.Pointer[string] // file of the last corruption found

	durableMu sync.Mutex
	durable   durable // guarded by durableMu
}

// durable is the reach of the tables as it was last read.
type durable struct {
	known bool
	at    uint64 // value of flushes that reach belongs to
	reach uint64
}

type openMode int

const (
	modeOpen openMode = iota
	modeCreate
	modeReadOnly
	modeVerify // read-only, outside of the shared caches
)

// pebbleFormat is pinned: a newer library must not raise the format of the files
// by itself, since an older replica has to open a checkpoint of them.
const pebbleFormat = pebble.FormatTableFormatV6

const (
	bloomBitsPerKey       = 10
	blockSize             = 16 << 10
	indexBlockSize        = 64 << 10
	l0CompactionThreshold = 8
	l0StopWrites          = 64
)

// openDB opens or makes a database. The caller closes it by retire, release or closeHandle.
func (s *Store) openDB(name string, mode openMode) (*handle, error) {
	h := &handle{
		name: name, path: s.fs.PathJoin(s.cfg.Dir, name), refs: 1, compactions: &compactions{},
		eased: make(chan struct{}, 1),
	}
	h.lists = h.path
	if mode == modeCreate {
		if err := makeDir(s.fs, h.path); err != nil {
			return nil, err
		}
	} else if err := h.checkFormat(s.fs); err != nil {
		return nil, err
	}
	var err error
	// Locked here and not by Pebble, so that "in use" is never taken for damage.
	if h.lock, err = pebble.LockDirectory(h.path, s.fs); err != nil {
		return nil, fmt.Errorf("lock %s: %w", h.path, err)
	}
	if mode == modeOpen {
		err = h.dropLogs(s.fs)
	}
	if err == nil {
		h.db, err = pebble.Open(h.path, s.options(h, mode))
	}
	if err != nil {
		return nil, errors.Join(openError(s.fs, h, err), h.lock.Close())
	}
	h.compactions.start()
	s.handles.Add(1)
	return h, nil
}

// dropLogs removes write-ahead logs, which hold nothing. Pebble would flush what it reads there before it is open: on a
// full disk it would try that for ever, without a pause.
func (h *handle) dropLogs(fsys FS) error {
	names, err := fsys.List(h.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			if err := fsys.Remove(fsys.PathJoin(h.path, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// openError says damage unless the operating system failed: a database that the
// pointer names was complete once, so all that Pebble may complain of is wrong in its files.
func openError(fsys FS, h *handle, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open %s: %w", h.path, err)
	}
	return &record.FileError{
		File:  fileIn(fsys, h.path, err.Error()),
		Cause: fmt.Errorf("%w: open %s: %w", record.ErrDamaged, h.path, err),
	}
}

// fileIn finds the file of a directory that a text of Pebble names: a file name, or
// the number of a table. Without one it is the directory.
func fileIn(fsys FS, dir, text string) string {
	names, err := fsys.List(dir)
	if err != nil {
		return dir
	}
	for _, name := range names {
		if number, table := strings.CutSuffix(name, ".sst"); strings.Contains(text, name) ||
			table && strings.Contains(text, number) {
			return fsys.PathJoin(dir, name)
		}
	}
	if m := tableNumber(text); m != "" {
		return fsys.PathJoin(dir, m+".sst")
	}
	return dir
}

// tableNumber finds the number of a table in a text, six digits at least, "" if there is none.
func tableNumber(text string) string {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r < '0' || r > '9' }) {
		if len(word) >= 6 {
			return word
		}
	}
	return ""
}

// formatMarker starts the name of the file that says Pebble's format; it ends in the number.
const formatMarker = "marker.format-version."

// checkFormat refuses the files of a newer Pebble: they are not damaged. It notes what lists the tables: Pebble takes the
// damaged end of that for a torn write, so that what it lists there is missing without an error.
func (h *handle) checkFormat(fsys FS) error {
	names, err := fsys.List(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return record.Damaged(h.path, "is missing")
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", h.path, err)
	}
	for _, name := range names {
		if file := fsys.PathJoin(h.path, name); strings.HasPrefix(name, "MANIFEST-") && file > h.lists {
			h.lists = file
		}
		rest, ok := strings.CutPrefix(name, formatMarker)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(rest[strings.LastIndexByte(rest, '.')+1:], 10, 32)
		if err == nil && pebble.FormatMajorVersion(n) > pebble.FormatNewest {
			return fmt.Errorf("%w: %s has Pebble format %d, this build knows up to %d",
				record.ErrFormat, h.path, n, pebble.FormatNewest)
		}
	}
	return nil
}

func (s *Store) options(h *handle, mode openMode) *pebble.Options {
	o := &pebble.Options{
		FS:                          markerFS{s.fs},
		DisableWAL:                  true,
		ErrorIfNotExists:            mode != modeCreate,
		ErrorIfExists:               mode == modeCreate,
		ReadOnly:                    mode == modeReadOnly || mode == modeVerify,
		FormatMajorVersion:          pebbleFormat,
		Lock:                        h.lock,
		MemTableSize:                uint64(s.cfg.MemTableSize),
		MemTableStopWritesThreshold: neverMemTables,
		L0CompactionThreshold:       l0CompactionThreshold,
		L0StopWritesThreshold:       neverL0,
		FlushDelayDeleteRange:       s.cfg.FlushDelay,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		Logger:                      logger{log: s.log.WithOptions(zap.AddCallerSkip(1)), fatal: s.fatal},
		EventListener:               s.listener(h, mode),
		CacheSize:                   privateCacheBytes,
	}
	o.Experimental.CompactionScheduler = h.compactions
	if s.cfg.Shared != nil && mode != modeVerify {
		o.Cache, o.FileCache = s.cfg.Shared.cache, s.cfg.Shared.files
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = blockSize
		o.Levels[i].IndexBlockSize = indexBlockSize
		// Point reads do not use the filters of the last level: there the block itself is as near.
		if i < len(o.Levels)-1 {
			o.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
		}
	}
	return o
}

// wrap marks corruption as damage and names the file.
func (h *handle) wrap(err error) error {
	if err == nil || !pebble.IsCorruptionError(err) {
		return err
	}
	path := h.path
	if p := h.corrupt.Load(); p != nil {
		path = *p
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		path, err = info.Path, info.Details // err has a line of Pebble's own about them
	}
	return record.Damaged(path, "%w", err)
}

// badRow says that a row does not have its form: the checksum of its block was
// right, so it was written wrong or by a build that did not raise the format version.
func (h *handle) badRow(key []byte, err error) error {
	return record.Damaged(h.path, "row %q: %w", key, err)
}

// get calls f with the value of a key, valid during the call; ok says that there is one.
func (h *handle) get(key []byte, f func(val []byte) error) (ok bool, err error) {
	val, closer, err := h.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, h.wrap(err)
	}
	if err := f(val); err != nil {
		return true, errors.Join(h.badRow(key, err), closer.Close())
	}
	return true, h.wrap(closer.Close())
}

// putMeta writes one of the store's own rows outside of a batch.
func (h *handle) putMeta(name string, val []byte) error {
	return h.wrap(h.db.Set(metaKey(nil, name), val, pebble.NoSync))
}

// touch writes the row of the format version once more, as it is: so there is something to flush.
func (h *handle) touch() error {
	var version []byte
	_, err := h.get(metaKey(nil, metaFormat), func(v []byte) error {
		version = slices.Clone(v)
		return nil
	})
	if err != nil || version == nil {
		return err
	}
	return h.putMeta(metaFormat, version)
}

// load checks the format version and reads how far the state has come.
func (h *handle) load() (Applied, error) {
	var a Applied
	ok, err := h.get(metaKey(nil, metaFormat), func(v []byte) error {
		if len(v) != 4 {
			return fmt.Errorf("%w: format version of %d bytes", record.ErrFormat, len(v))
		}
		if n := binary.BigEndian.Uint32(v); n != FormatVersion {
			return &versionError{found: n}
		}
		return nil
	})
	var version *versionError
	switch {
	case errors.As(err, &version):
		return a, fmt.Errorf("%w: %s has format version %d, this build knows %d",
			record.ErrFormat, h.path, version.found, FormatVersion)
	case err != nil:
		return a, err
	case !ok:
		return a, record.Damaged(h.lists, "lists no table that has the format version")
	}
	for _, row := range []struct {
		name  string
		parse func([]byte) error
	}{
		{metaApplied, a.parseApplied},
		{metaConf, a.parseConf},
		{metaCovered, func(v []byte) (err error) { a.Covered, err = parseWord(v); return err }},
	} {
		if _, err := h.get(metaKey(nil, row.name), row.parse); err != nil {
			return a, err
		}
	}
	return a, nil
}

// versionError carries a format version out of a row's parser.
type versionError struct{ found uint32 }

func (e *versionError) Error() string { return fmt.Sprintf("format version %d", e.found) }

const appliedSize = 8 + 8 + record.FenceSize + 8

func appendApplied(dst []byte, a *Applied) []byte {
	dst = binary.BigEndian.AppendUint64(dst, a.Index)
	dst = binary.BigEndian.AppendUint64(dst, a.Term)
	dst = record.AppendFence(dst, a.Fence)
	return binary.BigEndian.AppendUint64(dst, uint64(a.Time))
}

func (a *Applied) parseApplied(v []byte) (err error) {
	if len(v) != appliedSize {
		return fmt.Errorf("%w: applied row of %d bytes, want %d", record.ErrFormat, len(v), appliedSize)
	}
	a.Index, a.Term = binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:])
	a.Time = int64(binary.BigEndian.Uint64(v[appliedSize-8:]))
	a.Fence, err = record.ParseFence(v[16 : appliedSize-8])
	return err
}

func (a *Applied) parseConf(v []byte) error {
	if len(v) < 8 {
		return fmt.Errorf("%w: configuration row of %d bytes", record.ErrFormat, len(v))
	}
	a.ConfIndex, a.Conf = binary.BigEndian.Uint64(v), slices.Clone(v[8:])
	return nil
}

func parseWord(v []byte) (uint64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: word of %d bytes", record.ErrFormat, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// durableReach reads the reach of the state from tables only. The result is kept
// until another flush is done.
func (h *handle) durableReach() (uint64, error) {
	h.durableMu.Lock()
	defer h.durableMu.Unlock()
	// Counted before it is read: a flush in between costs one more read, not a stale value.
	at := h.flushes.Load()
	if h.durable.known && h.durable.at == at {
		return h.durable.reach, nil
	}
	lower := metaKey(nil, "")
	it, err := h.db.NewIter(&pebble.IterOptions{
		LowerBound: lower, UpperBound: appendSuccessor(nil, lower), OnlyReadGuaranteedDurable: true,
	})
	if err != nil {
		return 0, h.wrap(err)
	}
	var a Applied
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		switch string(it.Key()[1:]) {
		case metaApplied:
			err = a.parseApplied(it.Value())
		case metaCovered:
			a.Covered, err = parseWord(it.Value())
		}
	}
	if err = errors.Join(err, it.Close()); err != nil {
		return 0, h.wrap(err)
	}
	h.durable.known, h.durable.at, h.durable.reach = true, at, a.Reach()
	return h.durable.reach, nil
}
