package storage

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// CheckpointID names the stream of one checkpoint: no two checkpoints have the same,
// whoever made them. Zero names none.
type CheckpointID [16]byte

const (
	// incomingFile says how far the install of a snapshot has come; see the package comment.
	incomingFile    = "INCOMING"
	incomingMagic   = "HFIN"
	incomingVersion = 1

	// InstallSyncBytes is how much of a stream an install takes between two times that it
	// makes it durable: what a power cut can make it ask for again.
	InstallSyncBytes = 8 << 20
)

// incoming is the content of the file INCOMING: an unfinished install.
type incoming struct {
	id   CheckpointID
	meta SnapshotMeta
	db   string // its directory
	// what the stream said at its head
	files  uint32 // all of them
	length uint64
	// where it is
	written uint64
	step    installStep
	need    int
	buf     []byte // of the part that step is at
	left    uint64 // bytes of the last file still to come
	have    []heldFile
}

// heldFile is a file of an install; only the last one can be incomplete.
type heldFile struct {
	name string
	size uint64
	done bool
	sum  [sha256.Size]byte // of a complete one
}

const maxConfSize = 1 << 24

func (r *incoming) marshal() []byte {
	b := binary.BigEndian.AppendUint32([]byte(incomingMagic), incomingVersion)
	b = append(b, r.id[:]...)
	for _, v := range [...]uint64{r.meta.Index, r.meta.Term, r.meta.ConfIndex} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.meta.Conf)))
	b = append(b, r.meta.Conf...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.db)))
	b = append(b, r.db...)
	b = binary.BigEndian.AppendUint32(b, r.files)
	b = binary.BigEndian.AppendUint64(b, r.length)
	b = binary.BigEndian.AppendUint64(b, r.written)
	b = append(b, byte(r.step))
	b = binary.BigEndian.AppendUint16(b, uint16(r.need))
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.buf)))
	b = append(b, r.buf...)
	b = binary.BigEndian.AppendUint64(b, r.left)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.have)))
	for i := range r.have {
		f := &r.have[i]
		b = binary.BigEndian.AppendUint16(b, uint16(len(f.name)))
		b = append(b, f.name...)
		b = binary.BigEndian.AppendUint64(b, f.size)
		b = append(b, f.sum[:]...)
		done := byte(0)
		if f.done {
			done = 1
		}
		b = append(b, done)
	}
	return binary.BigEndian.AppendUint32(b, castagnoliSum(b))
}

// cursor reads fixed words; what is too short sets bad.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b = true, nil
		return make([]byte, max(0, min(n, sha256.Size)))
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) u16() int    { return int(binary.BigEndian.Uint16(c.take(2))) }
func (c *cursor) u32() uint32 { return binary.BigEndian.Uint32(c.take(4)) }
func (c *cursor) u64() uint64 { return binary.BigEndian.Uint64(c.take(8)) }

// parseIncoming reads what marshal wrote; anything else is record.ErrDamaged, a version
// of another build record.ErrFormat.
func parseIncoming(b []byte) (*incoming, error) {
	if len(b) < 12 || string(b[:4]) != incomingMagic ||
		castagnoliSum(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("%w: %d bytes are no record of an install", record.ErrDamaged, len(b))
	}
	c := &cursor{b: b[4 : len(b)-4]}
	if v := c.u32(); v != incomingVersion {
		return nil, fmt.Errorf("%w: record of an install of version %d, this build knows %d",
			record.ErrFormat, v, incomingVersion)
	}
	r := &incoming{}
	copy(r.id[:], c.take(len(r.id)))
	r.meta.Index, r.meta.Term, r.meta.ConfIndex = c.u64(), c.u64(), c.u64()
	if n := c.u32(); n > 0 && n <= maxConfSize {
		r.meta.Conf = append([]byte(nil), c.take(int(n))...)
	} else if n > 0 {
		c.bad = true
	}
	r.db = string(c.take(c.u16()))
	r.files, r.length, r.written = c.u32(), c.u64(), c.u64()
	r.step, r.need = installStep(c.take(1)[0]), c.u16()
	if n := c.u16(); n > 0 {
		r.buf = append([]byte(nil), c.take(n)...)
	}
	r.left = c.u64()
	for n := c.u32(); n > 0 && !c.bad; n-- {
		f := heldFile{name: string(c.take(c.u16())), size: c.u64()}
		copy(f.sum[:], c.take(len(f.sum)))
		f.done = c.take(1)[0] == 1
		r.have = append(r.have, f)
	}
	if c.bad || len(c.b) != 0 {
		return nil, fmt.Errorf("%w: record of an install has a wrong length", record.ErrDamaged)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

func badIncoming(format string, args ...any) error {
	return fmt.Errorf("%w: record of an install: %s", record.ErrDamaged, fmt.Sprintf(format, args...))
}

// open says that a file is being received.
func (r *incoming) open() bool { return r.step == stepFileData || r.step == stepFileSum }

// check says that the parts of a record agree: a resumed install counts on it.
func (r *incoming) check() error {
	_, named := generation(r.db, dbPrefix)
	have := uint64(len(r.have))
	switch {
	case !named, r.meta.Index == 0, r.id == CheckpointID{}:
		return badIncoming("directory %q, index %d, id %x", r.db, r.meta.Index, r.id)
	case r.need != r.step.size(r.need):
		return badIncoming("step %d of %d bytes", r.step, r.need)
	case r.files == 0 || r.files > maxStreamFiles || have > uint64(r.files):
		return badIncoming("%d of %d files", have, r.files)
	case len(r.buf) > 0 && len(r.buf) >= r.need, r.open() && have == 0:
		return badIncoming("%d of %d bytes of a part, %d files", len(r.buf), r.need, have)
	case (r.step == stepTrailer) != (!r.open() && have == uint64(r.files)):
		return badIncoming("step %d with %d of %d files", r.step, have, r.files)
	}
	at, err := r.checkFiles()
	if err != nil {
		return err
	}
	if r.step == stepFileName {
		at += fileHeadSize
	}
	if at += uint64(len(r.buf)); at != r.written || r.written >= r.length {
		return badIncoming("at %d of %d, its files say %d", r.written, r.length, at)
	}
	return nil
}

// checkFiles returns where in the stream the files end that are there.
func (r *incoming) checkFiles() (uint64, error) {
	at := uint64(streamHeadSize)
	names := make(map[string]bool, len(r.have))
	for i := range r.have {
		f := &r.have[i]
		writing := i == len(r.have)-1 && r.open()
		if !plainName(f.name) || names[f.name] || f.size > r.length || f.done == writing {
			return 0, badIncoming("file %q", f.name)
		}
		names[f.name] = true
		at += fileHeadSize + uint64(len(f.name)) + f.size
		switch {
		case f.done:
			at += sha256.Size
		case r.left > f.size || r.step == stepFileSum && r.left != 0:
			return 0, badIncoming("%d bytes of %d missing of file %q", r.left, f.size, f.name)
		default:
			at -= r.left
		}
	}
	return at, nil
}

// size is how long the part of a step is, that of a name is what it says; -1 for a step
// that an install is not interrupted at.
func (step installStep) size(name int) int {
	switch step {
	case stepFileHead:
		return fileHeadSize
	case stepFileName:
		return min(max(name, 1), maxFileName)
	case stepFileSum, stepTrailer:
		return sha256.Size
	case stepFileData:
		return 0
	default:
		return -1
	}
}

// readIncoming returns the unfinished install of a group's directory, nil without one.
func readIncoming(fsys FS, dir string) (*incoming, error) {
	b, err := readFile(fsys, fsys.PathJoin(dir, incomingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", fsys.PathJoin(dir, incomingFile), err)
	}
	return parseIncoming(b)
}

// keepIncoming decides at an open what of an unfinished install stays. Only a record that
// this build can go on from counts: whatever else is there was never promised to anybody.
func (s *Store) keepIncoming(ptr *Pointer, applied *Applied) error {
	r, err := readIncoming(s.fs, s.cfg.Dir)
	switch {
	case err != nil && !errors.Is(err, record.ErrDamaged) && !errors.Is(err, record.ErrFormat):
		return err
	case err == nil && r == nil:
		return nil
	case err == nil && r.db != ptr.DB && r.meta.Index > applied.Reach() && s.holds(r):
		s.in.held = r
		return nil
	}
	s.log.Info("dropping an unfinished install", zap.Error(err))
	return s.removeRecord()
}

// holds says that the files that a record names are there.
func (s *Store) holds(r *incoming) bool {
	for i := range r.have {
		f := &r.have[i]
		st, err := s.fs.Stat(s.fs.PathJoin(s.cfg.Dir, r.db, f.name))
		if err != nil || f.done && st.Size() != int64(f.size) || st.Size() < int64(f.size-r.leftOf(i)) {
			return false
		}
	}
	_, err := s.fs.Stat(s.fs.PathJoin(s.cfg.Dir, r.db))
	return err == nil
}

func (r *incoming) leftOf(i int) uint64 {
	if r.have[i].done {
		return 0
	}
	return r.left
}

// removeRecord removes INCOMING, durably and before what it names.
func (s *Store) removeRecord() error {
	err := s.fs.Remove(s.fs.PathJoin(s.cfg.Dir, incomingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", incomingFile, err)
	}
	return syncDir(s.fs, s.cfg.Dir)
}

// Held returns how many bytes of a checkpoint's stream an interrupted install has made
// durable; 0 if it is of another stream. ContinueInstall goes on from there.
func (s *Store) Held(id CheckpointID) int64 {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if r := s.in.held; r != nil && !s.in.busy && r.id == id && id != (CheckpointID{}) {
		return int64(r.written)
	}
	return 0
}

// dropHeld forgets an interrupted install and removes its files, unless it goes on at the
// moment or keep says otherwise.
func (s *Store) dropHeld(keep func(r *incoming) bool) error {
	s.in.mu.Lock()
	r := s.in.held
	if r == nil || s.in.busy || keep(r) {
		s.in.mu.Unlock()
		return nil
	}
	s.in.held = nil
	s.in.mu.Unlock()
	return s.removeInstall(r.db)
}

// removeInstall removes a directory that is not in force, the record that names it first.
func (s *Store) removeInstall(db string) error {
	if err := s.removeRecord(); err != nil {
		return err
	}
	return removeTree(s.fs, s.cfg.Dir, db)
}

// ContinueInstall is BeginInstall for the stream that id names: it goes on where an
// interrupted install of the same stream has come to (Held), also after a restart. What
// is left of an install of another stream is removed. Suspend makes it one to go on with.
func (s *Store) ContinueInstall(id CheckpointID, meta SnapshotMeta) (*Install, error) {
	s.in.mu.Lock()
	r := s.in.held
	fits := r != nil && !s.in.busy && r.id == id && id != (CheckpointID{}) &&
		r.meta.Index == meta.Index && r.meta.Term == meta.Term && r.meta.ConfIndex == meta.ConfIndex
	if fits {
		s.in.busy = true
	}
	s.in.mu.Unlock()
	if !fits {
		i, err := s.BeginInstall(meta)
		if err == nil {
			i.id = id
		}
		return i, err
	}
	i, err := s.resume(r)
	if err != nil {
		s.in.mu.Lock()
		s.in.held, s.in.busy = nil, false
		s.in.mu.Unlock()
		err = fmt.Errorf("go on with the install of snapshot %d at %d: %w", r.meta.Index, r.written, err)
		return nil, errors.Join(err, s.removeInstall(r.db))
	}
	return i, nil
}

// resume rebuilds an install from its record. The part of a file that is there is read
// again, so that its checksum covers what the disk holds.
func (s *Store) resume(r *incoming) (*Install, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	i := &Install{s: s, id: r.id, meta: r.meta, name: r.db, path: s.fs.PathJoin(s.cfg.Dir, r.db), recorded: true}
	i.begin()
	i.all.Write(streamHead(r.files, r.length))
	i.count, i.files, i.length = r.files, r.files-uint32(len(r.have)), r.length
	i.written, i.synced = r.written, r.written
	i.have = append(i.have, r.have...)
	for k := range r.have {
		f := &r.have[k]
		i.names[f.name] = true
		i.all.Write(fileHead(f.name, f.size))
		if f.done {
			i.all.Write(f.sum[:])
		}
	}
	i.step, i.need, i.buf, i.left = r.step, r.need, append(i.buf[:0], r.buf...), r.left
	switch r.step {
	case stepFileName:
		i.all.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(nil, uint16(r.need)), r.left))
	case stepFileData, stepFileSum:
		i.files++ // it is one of those still to come
		if err := i.reopen(&r.have[len(r.have)-1]); err != nil {
			return nil, err
		}
	default:
	}
	return i, nil
}

// reopen opens the file that was being written and reads what is there.
func (i *Install) reopen(f *heldFile) error {
	path := i.s.fs.PathJoin(i.path, f.name)
	file, err := i.s.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	i.file, i.sum, i.at = file, sha256.New(), int64(f.size-i.left)
	n, err := io.Copy(i.sum, io.NewSectionReader(file, 0, i.at))
	if err == nil && n != i.at {
		err = record.Damaged(path, "has %d bytes, %d were there", n, i.at)
	}
	if err != nil {
		i.file = nil
		return errors.Join(err, file.Close())
	}
	return nil
}

// save makes durable what was received so far, and then the record that says so.
func (i *Install) save() error {
	if i.id == (CheckpointID{}) || i.step <= stepHead || i.step >= stepEnd || i.written == i.synced {
		return nil
	}
	if i.file != nil {
		if err := i.file.Sync(); err != nil {
			return fmt.Errorf("sync a file of %s: %w", i.path, err)
		}
	}
	if err := syncDir(i.s.fs, i.path); err != nil {
		return err
	}
	r := &incoming{
		id: i.id, meta: i.meta, db: i.name, files: i.count, length: i.length, written: i.written,
		step: i.step, need: i.need, buf: append([]byte(nil), i.buf...), left: i.left,
		have: append([]heldFile(nil), i.have...),
	}
	if i.step == stepFileHead || i.step == stepTrailer {
		r.left = 0
	}
	if err := replaceFile(i.s.fs, i.s.cfg.Dir, incomingFile, r.marshal()); err != nil {
		return err
	}
	i.recorded, i.synced = true, i.written
	i.s.in.mu.Lock()
	i.s.in.held = r
	i.s.in.mu.Unlock()
	return nil
}

// Suspend ends an install whose stream was cut, and keeps what came of it: Held says how
// much that is. One that failed by itself, or that has no id, is aborted.
func (i *Install) Suspend() error {
	if i.done {
		return nil
	}
	if i.err != nil {
		return i.Abort()
	}
	err := i.save()
	if err != nil || !i.recorded {
		return errors.Join(err, i.Abort())
	}
	i.done = true
	if i.file != nil {
		err = i.file.Close()
		i.file = nil
	}
	i.leave(true)
	return err
}

// leave makes room for another install; held says that this one is to be gone on with.
func (i *Install) leave(held bool) { //nolint:revive // what becomes of the record
	i.s.in.mu.Lock()
	defer i.s.in.mu.Unlock()
	i.s.in.busy = false
	if !held {
		i.s.in.held = nil
	}
}
