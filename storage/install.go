package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Install receives the stream of a checkpoint into a database directory of its
// own. Nothing of the state in force changes before Commit. Not safe for
// concurrent use.
type Install struct {
	s          *Store
	id         CheckpointID // zero: nothing is kept of one that is cut
	meta       SnapshotMeta
	name, path string

	step    installStep
	buf     []byte // of a part that is gathered before it is read
	need    int
	files   uint32 // still to come
	count   uint32 // all of them
	length  uint64 // of the stream, as it says
	written uint64
	names   map[string]bool
	have    []heldFile // those that came, the one being written included

	synced   uint64 // what of written the record says
	recorded bool   // there is a record

	file vfs.File // being written
	at   int64    // where in it
	left uint64   // bytes of it still to come
	sum  hash.Hash
	all  hash.Hash

	err  error // the first failure; everything but Abort returns it
	done bool  // committed or aborted
}

type installStep int

const (
	stepHead installStep = iota
	stepFileHead
	stepFileName
	stepFileData
	stepFileSum
	stepTrailer
	stepEnd
)

// BeginInstall starts to receive a snapshot of another replica. meta is what the
// sender says of it (Checkpoint.Meta). One of Commit, Abort and Suspend ends it. There
// is one at a time; what an interrupted one has left is removed.
func (s *Store) BeginInstall(meta SnapshotMeta) (*Install, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	if meta.Index == 0 {
		return nil, errors.New("storage: install of a snapshot without index")
	}
	h, ptr, err := s.acquirePointer()
	if err != nil {
		return nil, err
	}
	defer s.release(h)
	if ptr.Snapshot.Index > meta.Index {
		return nil, fmt.Errorf("install snapshot %d: %w (%d)", meta.Index, ErrOvertaken, ptr.Snapshot.Index)
	}
	if err := s.dropHeld(func(*incoming) bool { return false }); err != nil {
		return nil, err
	}
	i := &Install{s: s, meta: meta, name: dirName(dbPrefix, s.newGeneration())}
	i.path = s.fs.PathJoin(s.cfg.Dir, i.name)
	i.begin()
	if err := makeDir(s.fs, i.path); err != nil {
		return nil, err
	}
	s.in.mu.Lock()
	s.in.busy = true
	s.in.mu.Unlock()
	return i, nil
}

func (i *Install) begin() {
	i.all, i.names = sha256.New(), make(map[string]bool)
	i.expect(stepHead, streamHeadSize)
}

// Written returns how many bytes of the stream were taken: where the next Write goes on.
func (i *Install) Written() int64 { return int64(i.written) }

// Write takes the next bytes of the stream. After an error only Abort is left.
func (i *Install) Write(p []byte) (int, error) {
	if i.done {
		return 0, fmt.Errorf("storage: install %w", record.ErrClosed)
	}
	n := 0
	for n < len(p) && i.err == nil {
		var k int
		k, i.err = i.take(p[n:])
		n += k
	}
	i.written += uint64(n)
	if i.err == nil && i.written-i.synced >= i.s.cfg.InstallSync {
		i.err = i.save()
	}
	return n, i.err
}

func (i *Install) expect(step installStep, need int) {
	i.step, i.need, i.buf = step, need, i.buf[:0]
}

// take consumes some bytes: data of a file as it comes, other parts when they are complete.
func (i *Install) take(p []byte) (int, error) {
	switch i.step {
	case stepFileData:
		return i.takeData(p)
	case stepEnd:
		return 0, fmt.Errorf("%w: bytes after the end of a checkpoint", record.ErrFormat)
	default:
	}
	n := min(len(p), i.need-len(i.buf))
	i.buf = append(i.buf, p[:n]...)
	if len(i.buf) < i.need {
		return n, nil
	}
	return n, i.part()
}

func (i *Install) takeData(p []byte) (int, error) {
	n := len(p)
	if uint64(n) > i.left {
		n = int(i.left)
	}
	i.sum.Write(p[:n])
	if _, err := i.file.WriteAt(p[:n], i.at); err != nil {
		return 0, fmt.Errorf("write to %s: %w", i.path, err)
	}
	i.at += int64(n)
	if i.left -= uint64(n); i.left == 0 {
		i.expect(stepFileSum, sha256.Size)
	}
	return n, nil
}

// part reads a complete part.
func (i *Install) part() error {
	if i.step != stepTrailer {
		i.all.Write(i.buf)
	}
	switch i.step {
	case stepHead:
		return i.head()
	case stepFileHead:
		size := int(binary.BigEndian.Uint16(i.buf))
		if size == 0 || size > maxFileName {
			return fmt.Errorf("%w: file name of %d bytes in a checkpoint", record.ErrFormat, size)
		}
		i.left = binary.BigEndian.Uint64(i.buf[2:])
		i.expect(stepFileName, size)
		return nil
	case stepFileName:
		return i.create(string(i.buf))
	case stepFileSum:
		return i.endFile()
	case stepTrailer:
		return i.end()
	case stepFileData, stepEnd:
	}
	return fmt.Errorf("%w: step %d has no part", record.ErrFormat, i.step)
}

func (i *Install) head() error {
	if string(i.buf[:4]) != streamMagic {
		return fmt.Errorf("%w: no checkpoint stream", record.ErrFormat)
	}
	if v := binary.BigEndian.Uint32(i.buf[4:]); v != streamVersion {
		return fmt.Errorf("%w: checkpoint version %d, this build knows %d",
			record.ErrFormat, v, streamVersion)
	}
	i.files, i.length = binary.BigEndian.Uint32(i.buf[8:]), binary.BigEndian.Uint64(i.buf[12:])
	if i.files == 0 || i.files > maxStreamFiles {
		return fmt.Errorf("%w: checkpoint of %d files, at most %d", record.ErrFormat, i.files, maxStreamFiles)
	}
	i.count = i.files
	i.expect(stepFileHead, fileHeadSize)
	return nil
}

func (i *Install) create(name string) error {
	if !plainName(name) || i.names[name] {
		return fmt.Errorf("%w: file name %q in a checkpoint", record.ErrFormat, name)
	}
	i.names[name] = true
	f, err := i.s.fs.Create(i.s.fs.PathJoin(i.path, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	i.file, i.sum, i.at = f, sha256.New(), 0
	i.have = append(i.have, heldFile{name: name, size: i.left})
	i.expect(stepFileData, 0)
	if i.left == 0 {
		i.expect(stepFileSum, sha256.Size)
	}
	return nil
}

// plainName says that a name stays within its directory on every system.
func plainName(name string) bool {
	for _, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return name != "." && name != ".." && name != lockFile
}

func (i *Install) endFile() error {
	if !bytes.Equal(i.sum.Sum(nil), i.buf) {
		return fmt.Errorf("%w: checksum of a file in a checkpoint", record.ErrFormat)
	}
	err := i.file.Sync()
	err = errors.Join(err, i.file.Close())
	i.file = nil
	if err != nil {
		return fmt.Errorf("sync a file of %s: %w", i.path, err)
	}
	f := &i.have[len(i.have)-1]
	f.done = true
	copy(f.sum[:], i.buf)
	if i.files--; i.files > 0 {
		i.expect(stepFileHead, fileHeadSize)
	} else {
		i.expect(stepTrailer, sha256.Size)
	}
	return nil
}

func (i *Install) end() error {
	if !bytes.Equal(i.all.Sum(nil), i.buf) {
		return fmt.Errorf("%w: checksum of a checkpoint", record.ErrFormat)
	}
	i.expect(stepEnd, 0)
	return nil
}

// Commit checks the received state (complete, every row readable, reaching
// meta.Index) and publishes it: from then on the pointer names it, also after a
// crash. Activate puts it in use. After an error the install is aborted and the
// state in force is as before.
func (i *Install) Commit() error {
	if i.done {
		return fmt.Errorf("storage: install %w", record.ErrClosed)
	}
	err := i.complete()
	if err == nil {
		err = i.verify()
	}
	if err != nil {
		return errors.Join(err, i.Abort())
	}
	s := i.s
	s.pointerMu.Lock()
	defer s.pointerMu.Unlock()
	h, ptr, err := s.acquirePointer()
	if err != nil {
		return errors.Join(err, i.Abort())
	}
	defer s.release(h)
	if ptr.Snapshot.Index > i.meta.Index {
		err = fmt.Errorf("install snapshot %d: %w (%d)", i.meta.Index, ErrOvertaken, ptr.Snapshot.Index)
		return errors.Join(err, i.Abort())
	}
	err = s.publish(Pointer{DB: i.name, Snapshot: i.meta, Installed: true})
	if notPublished(err) && !i.recorded {
		return errors.Join(err, i.Abort()) // nothing can go on with it
	}
	// From here on the directory may be the group's state, or be gone on with: it is not removed on an error.
	i.done = true
	i.leave(err != nil)
	if err != nil {
		return err
	}
	if i.recorded {
		if err := s.removeRecord(); err != nil {
			return err
		}
	}
	if ptr.DB != h.name {
		// An earlier install was never put in use.
		return removeTree(s.fs, s.cfg.Dir, ptr.DB)
	}
	return nil
}

func (i *Install) complete() error {
	switch {
	case i.err != nil:
		return i.err
	case i.step != stepEnd || i.written != i.length:
		return fmt.Errorf("%w: checkpoint ends after %d bytes of %d", record.ErrFormat, i.written, i.length)
	}
	if err := syncDir(i.s.fs, i.path); err != nil {
		return err
	}
	return syncDir(i.s.fs, i.s.cfg.Dir)
}

// verify reads every row, and with them the checksum of every block: a damaged
// sender must not pass its damage on.
func (i *Install) verify() error {
	h, err := i.s.openDB(i.name, modeVerify)
	if err != nil {
		return err
	}
	applied, err := h.load()
	if err == nil && applied.Reach() < i.meta.Index {
		err = fmt.Errorf("%w: received state reaches entry %d, not %d",
			record.ErrFormat, applied.Reach(), i.meta.Index)
	}
	if err == nil {
		err = h.readAll(func() bool { return true })
	}
	return errors.Join(err, i.s.closeHandle(h))
}

// Abort drops what was received. It does nothing after Commit.
func (i *Install) Abort() error {
	if i.done {
		return nil
	}
	i.done = true
	var err error
	if i.file != nil {
		err = i.file.Close()
		i.file = nil
	}
	if i.recorded {
		err = errors.Join(err, i.s.removeInstall(i.name))
	} else {
		err = errors.Join(err, removeTree(i.s.fs, i.s.cfg.Dir, i.name))
	}
	i.leave(false)
	return err
}
