package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// FormatVersion is the version of the rows; a database of another one is refused.
const FormatVersion = 1

// ErrOvertaken says that an installed snapshot made the operation pointless; the
// caller drops it and goes on with the installed state.
var ErrOvertaken = errors.New("overtaken by an installed snapshot")

// Applied is how far a state has come. It is part of every batch.
type Applied struct {
	Index, Term uint64
	// Fence is that of the last envelope applied.
	Fence record.Fence
	// Time is the highest cluster time of an envelope so far, nanoseconds.
	Time int64
	// Conf is the newest group configuration, opaque, written by entry ConfIndex.
	ConfIndex uint64
	Conf      []byte
	// Covered is the index up to which the last local snapshot says the state
	// reaches: entries that never come to a state machine (no-ops, barriers) lift
	// it above Index.
	Covered uint64
}

// Reach is the index up to which the state holds every entry.
func (a *Applied) Reach() uint64 { return max(a.Index, a.Covered) }

// Store is the state of one group. All methods are safe for concurrent use,
// except that only one goroutine at a time may commit batches.
type Store struct {
	cfg Config
	fs  FS
	log *zap.Logger

	// commitMu makes Commit and Activate exclude each other.
	commitMu sync.Mutex
	// pointerMu is held over every change of the pointer file and of what it names.
	pointerMu sync.Mutex
	// failure is the first thing told to Config.Fatal. Nothing is written after it.
	failure atomic.Pointer[error]
	broken  chan struct{} // closed with the first failure
	// handles counts databases that are not closed yet.
	handles sync.WaitGroup

	in struct {
		mu   sync.Mutex
		held *incoming // guarded by mu; the unfinished install that is durable
		busy bool      // guarded by mu; an install is in progress
	}

	mu      sync.Mutex
	gone    error   // why there is no state at all; see Unavailable
	h       *handle // guarded by mu; the database in force, nil once closed
	ptr     Pointer // guarded by mu
	applied Applied // guarded by mu
	nextGen uint64  // guarded by mu
	// hurry is closed while hurrying; see Interrupt.
	hurry    chan struct{} // guarded by mu
	hurrying bool          // guarded by mu
}

// Open opens the state of a group, or makes an empty one if Dir has none. It
// removes what a crash left behind, and checks that the state reaches the
// snapshot that the pointer file names. Local data that fails a check gives an
// error that wraps record.ErrDamaged and names the file; nothing is changed then.
// A format version of another build gives record.ErrFormat.
func Open(cfg Config) (*Store, error) {
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		cfg: cfg, fs: cfg.FS, log: cfg.Logger.With(zap.String("dir", cfg.Dir)),
		broken: make(chan struct{}), hurry: make(chan struct{}),
	}
	if !cfg.ReadOnly {
		if err := makeDir(s.fs, cfg.Dir); err != nil {
			return nil, err
		}
	}
	ptr, names, err := s.establish()
	if err != nil {
		return nil, err
	}
	h, applied, err := s.openChecked(&ptr)
	if err != nil {
		return nil, err
	}
	// Only now: beside a damaged state nothing is touched.
	if !cfg.ReadOnly {
		err = s.keepIncoming(&ptr, &applied)
		if err == nil {
			err = s.removeLeftovers(&ptr, names)
		}
		if err != nil {
			return nil, errors.Join(err, s.closeHandle(h))
		}
	}
	s.h, s.ptr, s.applied = h, ptr, applied
	return s, nil
}

// establish reads the pointer, and makes an empty state or makes it again where
// there is none or a half made one. It returns the names in the directory, too.
func (s *Store) establish() (Pointer, []string, error) {
	if s.cfg.ReadOnly && s.cfg.DB != "" {
		return Pointer{DB: s.cfg.DB}, nil, nil
	}
	ptr, ok, err := readPointer(s.fs, s.cfg.Dir)
	if err != nil {
		return Pointer{}, nil, err
	}
	names, err := s.fs.List(s.cfg.Dir)
	if err != nil {
		return Pointer{}, nil, fmt.Errorf("list %s: %w", s.cfg.Dir, err)
	}
	slices.Sort(names)
	s.noteGenerations(names)
	if !ok {
		// The pointer is durable before the first database exists.
		for _, name := range names {
			if _, isDB := generation(name, dbPrefix); isDB {
				return Pointer{}, nil, record.Damaged(s.fs.PathJoin(s.cfg.Dir, pointerFile),
					"is missing beside %s", name)
			}
		}
		ptr = Pointer{DB: dirName(dbPrefix, 1), creating: true}
	}
	switch {
	case !ptr.creating:
		return ptr, names, nil
	case s.cfg.ReadOnly:
		return Pointer{}, nil, fmt.Errorf("%s: no state: %w", s.cfg.Dir, record.ErrNotFound)
	case !ok:
		if err := writePointer(s.fs, s.cfg.Dir, &ptr); err != nil {
			return Pointer{}, nil, err
		}
	}
	ptr, err = s.create(ptr)
	return ptr, names, err
}

// noteGenerations makes new directories get numbers that none of the names has:
// a crash may bring a removed one back.
func (s *Store) noteGenerations(names []string) {
	s.nextGen = 2
	for _, name := range names {
		for _, prefix := range []string{dbPrefix, outPrefix} {
			if n, ok := generation(name, prefix); ok {
				s.nextGen = max(s.nextGen, n+1)
			}
		}
	}
}

// removeLeftovers removes databases that are not in force and not of an unfinished
// install, checkpoints that were not closed, and unfinished files.
func (s *Store) removeLeftovers(ptr *Pointer, names []string) error {
	for _, name := range names {
		_, isDB := generation(name, dbPrefix)
		_, isOut := generation(name, outPrefix)
		temp := name == pointerFile+tmpSuffix || name == incomingFile+tmpSuffix
		kept := name == ptr.DB || s.in.held != nil && name == s.in.held.db
		if kept || (!isDB && !isOut && !temp) {
			continue
		}
		s.log.Info("removing a leftover", zap.String("name", name))
		if err := removeTree(s.fs, s.cfg.Dir, name); err != nil {
			return err
		}
	}
	return nil
}

// create makes the first database, complete and durable before the pointer says so.
func (s *Store) create(ptr Pointer) (Pointer, error) {
	if err := removeTree(s.fs, s.cfg.Dir, ptr.DB); err != nil {
		return Pointer{}, err
	}
	h, err := s.openDB(ptr.DB, modeCreate)
	if err != nil {
		return Pointer{}, err
	}
	err = h.putMeta(metaFormat, binary.BigEndian.AppendUint32(nil, FormatVersion))
	if err == nil {
		err = s.flush(h)
	}
	if err = errors.Join(err, s.closeHandle(h)); err != nil {
		return Pointer{}, fmt.Errorf("make %s: %w", h.path, err)
	}
	ptr.creating = false
	err = writePointer(s.fs, s.cfg.Dir, &ptr)
	return ptr, err
}

// openChecked opens the database that ptr names and checks that it reaches the
// snapshot ptr stands for.
func (s *Store) openChecked(ptr *Pointer) (*handle, Applied, error) {
	mode := modeOpen
	if s.cfg.ReadOnly {
		mode = modeReadOnly
	}
	h, err := s.openDB(ptr.DB, mode)
	if err != nil {
		return nil, Applied{}, err
	}
	applied, err := h.load()
	if err == nil && applied.Reach() < ptr.Snapshot.Index {
		err = record.Damaged(h.lists, "leads to entry %d, its snapshot stands for %d",
			applied.Reach(), ptr.Snapshot.Index)
	}
	if err != nil {
		return nil, Applied{}, errors.Join(err, s.closeHandle(h))
	}
	return h, applied, nil
}

// Close ends the store and waits for the readers that are at work; it must not
// be called by one. It does not flush: what the log holds is applied again. On a full disk it takes as long as a
// table's creation may be held up there (disk.RetryAfter).
func (s *Store) Close() error {
	s.Interrupt()
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	s.mu.Lock()
	h := s.h
	s.h = nil
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	err := s.retire(h, false)
	s.handles.Wait()
	return err
}

// Applied returns how far the state has come.
func (s *Store) Applied() Applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.applied
	a.Conf = slices.Clone(a.Conf)
	return a
}

// DurableApplied returns the index up to which the state survives a power cut:
// the reach of what the last completed flush wrote. The log is never cut beyond
// it. It is 0, which cuts nothing, if that cannot be read.
func (s *Store) DurableApplied() uint64 {
	h, err := s.acquire()
	if err != nil {
		return 0
	}
	defer s.release(h)
	if s.failure.Load() != nil {
		return 0
	}
	reach, err := h.durableReach()
	if err != nil {
		s.log.Error("durable index", zap.Error(err))
		return 0
	}
	return reach
}

// Flush makes everything committed so far durable. On a full disk it fails.
func (s *Store) Flush() error {
	if err := s.writable(); err != nil {
		return err
	}
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release(h)
	return s.flush(h)
}

// Pointer returns the pointer file's content in force.
func (s *Store) Pointer() Pointer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ptr
	p.Snapshot.Conf = slices.Clone(p.Snapshot.Conf)
	return p
}

// fatal tells that the process must end, and fails the store in case it goes on.
func (s *Store) fatal(err error) {
	if s.failure.CompareAndSwap(nil, &err) {
		close(s.broken)
	}
	s.cfg.Fatal(err)
}

// writable says why the store may not be written to.
func (s *Store) writable() error {
	if s.cfg.ReadOnly {
		return fmt.Errorf("storage: %s is open read-only", s.cfg.Dir)
	}
	if err := s.failure.Load(); err != nil {
		return fmt.Errorf("storage: failed before: %w", *err)
	}
	return nil
}

// acquire returns the database in force and keeps it open until release.
func (s *Store) acquire() (*handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != nil {
		return nil, fmt.Errorf("storage: %w", s.gone)
	}
	if s.h == nil {
		return nil, fmt.Errorf("storage: %w", record.ErrClosed)
	}
	s.h.refs++
	return s.h, nil
}

// release gives a handle back; the last user of a retired one closes it.
func (s *Store) release(h *handle) {
	s.mu.Lock()
	h.refs--
	last := h.refs == 0
	s.mu.Unlock()
	if last {
		if err := s.finish(h); err != nil {
			s.fatal(fmt.Errorf("close %s: %w", h.path, err))
		}
	}
}

// retire drops the store's own reference of a handle that is no longer in force.
// The files go with the last reader if remove is set.
func (s *Store) retire(h *handle, remove bool) error {
	s.mu.Lock()
	h.remove = remove
	h.refs--
	last := h.refs == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.finish(h)
}

// SetAside moves a group's state directory out of the way instead of deleting
// it: dir becomes "damaged-<name>-<n>" in the same parent, with the reason in a
// file REASON. It returns the new path. The store must be closed. A missing
// directory gives record.ErrNotFound.
func SetAside(fsys FS, dir, reason string) (string, error) {
	if _, err := fsys.Stat(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s: %w", dir, record.ErrNotFound)
		}
		return "", err
	}
	if err := replaceFile(fsys, dir, "REASON", []byte(reason+"\n")); err != nil {
		return "", err
	}
	parent := fsys.PathDir(dir)
	for n := uint64(1); ; n++ {
		path := fsys.PathJoin(parent, dirName("damaged-"+fsys.PathBase(dir)+"-", n))
		if _, err := fsys.Stat(path); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := fsys.Rename(dir, path); err != nil {
			return "", fmt.Errorf("rename %s: %w", dir, err)
		}
		return path, syncDir(fsys, parent)
	}
}
