package storage

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	chunks "github.com/cockroachdb/pebble/v2/record"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Format of a checkpoint stream; see the package comment.
const (
	streamMagic   = "HFCK"
	streamVersion = 1

	streamHeadSize = 4 + 4 + 4 + 8
	fileHeadSize   = 2 + 8

	// maxStreamFiles and maxFileName bound what a receiver believes.
	maxStreamFiles = 1 << 20
	maxFileName    = 255

	lockFile = "LOCK"
)

// CheckpointFile is one file of a checkpoint.
type CheckpointFile struct {
	Name string
	Size int64
}

// Checkpoint is a copy of a state at one moment, to be sent to another replica.
// Its files are hard links: it costs no space until the store compacts them away.
// It does not change and outlives the store's database; Close removes it.
type Checkpoint struct {
	s       *Store
	id      CheckpointID
	name    string
	origin  string // the database it was taken of
	applied Applied
	meta    SnapshotMeta
	files   []CheckpointFile

	segments []segment // in stream order
	size     int64

	mu   sync.Mutex
	sums []fileSum // guarded by mu
}

// segment is a part of the stream: either bytes, a file, or a checksum that is
// computed when it is first read.
type segment struct {
	off, size int64
	kind      segmentKind
	bytes     []byte
	file      int
}

type segmentKind int

const (
	segmentBytes segmentKind = iota
	segmentFile
	segmentSum
	segmentTrailer
)

type fileSum struct {
	known bool
	sum   [sha256.Size]byte
}

// Checkpoint flushes and takes a checkpoint of the newest state. ErrOvertaken
// between the publication of an installed snapshot and Activate.
func (s *Store) Checkpoint() (*Checkpoint, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	h, ptr, err := s.acquirePointer()
	if err != nil {
		return nil, err
	}
	defer s.release(h)
	if ptr.DB != h.name {
		return nil, fmt.Errorf("checkpoint: %w", ErrOvertaken)
	}
	if err := s.flush(h); err != nil {
		return nil, err
	}
	c := &Checkpoint{s: s, name: dirName(outPrefix, s.newGeneration())}
	if _, err := rand.Read(c.id[:]); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	path := s.fs.PathJoin(s.cfg.Dir, c.name)
	c.origin = h.path
	if err := h.db.Checkpoint(path); err != nil {
		return nil, h.unread(fmt.Errorf("checkpoint %s: %w", path, err))
	}
	if err := c.describe(&ptr); err != nil {
		return nil, errors.Join(c.ofOrigin(err), c.Close())
	}
	return c, nil
}

// unread marks files that a checkpoint could not be made of as damage, as wrap does, and also
// those that are gone and a manifest that does not verify: the database in force needs them.
func (h *handle) unread(err error) error {
	bad := []error{fs.ErrNotExist, chunks.ErrInvalidChunk, chunks.ErrZeroedChunk, chunks.ErrUnexpectedEOF}
	if !slices.ContainsFunc(bad, func(e error) bool { return errors.Is(err, e) }) {
		return h.wrap(err)
	}
	file := h.path
	if p, ok := errors.AsType[*os.PathError](err); ok {
		file = p.Path
	} else if l, ok := errors.AsType[*os.LinkError](err); ok {
		file = l.Old
	}
	return record.Damaged(file, "%w", err)
}

// ofOrigin makes damage of the checkpoint's files that of the files they are links to, or
// copies of, in the database that it was taken of.
func (c *Checkpoint) ofOrigin(err error) error {
	file := record.DamagedFile(err)
	if file == "" {
		return err
	}
	origin := c.origin
	if c.s.fs.PathBase(file) != c.name {
		origin = c.s.fs.PathJoin(c.origin, c.s.fs.PathBase(file))
	}
	return &record.FileError{File: origin, Cause: err}
}

// Verify reads every row of the checkpoint, and with them the checksum of every block, from
// the disk. What does not verify is damage of the database that the checkpoint was taken of, and is named
// as that. It ends early when it is not wanted any more.
func (c *Checkpoint) Verify(wanted func() bool) error {
	h, err := c.s.openDB(c.name, modeVerify)
	if err == nil {
		err = errors.Join(h.readAll(wanted), c.s.closeHandle(h))
	}
	return c.ofOrigin(err)
}

// readAll reads every row, as long as that is wanted.
func (h *handle) readAll(wanted func() bool) error {
	rows := 0
	return h.scan([]byte{0}, []byte{0xff}, func(it *pebble.Iterator) (bool, error) {
		if rows++; rows%hashCheck == 0 && !wanted() {
			return false, nil
		}
		_, err := it.ValueAndErr()
		return true, err
	})
}

// describe reads what the checkpoint holds. Applies went on since the flush and
// some of them may be in it, so its own rows say how far it has come.
func (c *Checkpoint) describe(ptr *Pointer) error {
	h, err := c.s.openDB(c.name, modeVerify)
	if err != nil {
		return err
	}
	applied, err := h.load()
	if err := errors.Join(err, c.s.closeHandle(h)); err != nil {
		return err
	}
	c.applied = applied
	a := &c.applied
	c.meta = ptr.Snapshot
	if a.Index >= c.meta.Index {
		c.meta.Index, c.meta.Term = a.Index, a.Term
	}
	if a.ConfIndex > c.meta.ConfIndex {
		c.meta.ConfIndex, c.meta.Conf = a.ConfIndex, a.Conf
	}
	fsys, dir := c.s.fs, c.s.fs.PathJoin(c.s.cfg.Dir, c.name)
	names, err := fsys.List(dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if name == lockFile {
			continue
		}
		st, err := fsys.Stat(fsys.PathJoin(dir, name))
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		c.files = append(c.files, CheckpointFile{Name: name, Size: st.Size()})
	}
	c.layout()
	return nil
}

func (c *Checkpoint) layout() {
	add := func(s segment) {
		s.off = c.size
		c.segments = append(c.segments, s)
		c.size += s.size
	}
	total := int64(streamHeadSize + sha256.Size)
	for _, f := range c.files {
		total += fileHeadSize + int64(len(f.Name)) + f.Size + sha256.Size
	}
	head := streamHead(uint32(len(c.files)), uint64(total))
	add(segment{size: int64(len(head)), bytes: head})
	for i, f := range c.files {
		head := fileHead(f.Name, uint64(f.Size))
		add(segment{size: int64(len(head)), bytes: head})
		add(segment{size: f.Size, kind: segmentFile, file: i})
		add(segment{size: sha256.Size, kind: segmentSum, file: i})
	}
	add(segment{size: sha256.Size, kind: segmentTrailer})
	c.sums = make([]fileSum, len(c.files))
}

// streamHead starts a stream.
func streamHead(files uint32, length uint64) []byte {
	b := binary.BigEndian.AppendUint32([]byte(streamMagic), streamVersion)
	b = binary.BigEndian.AppendUint32(b, files)
	return binary.BigEndian.AppendUint64(b, length)
}

// fileHead stands before the data of a file.
func fileHead(name string, size uint64) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(name)))
	return append(binary.BigEndian.AppendUint64(b, size), name...)
}

// ID names the stream.
func (c *Checkpoint) ID() CheckpointID { return c.id }

// Applied returns how far the state in the checkpoint has come.
func (c *Checkpoint) Applied() Applied { return c.applied }

// Meta returns the snapshot that the checkpoint is: its index is at least that of
// the snapshot in force when it was taken.
func (c *Checkpoint) Meta() SnapshotMeta { return c.meta }

// Size returns the exact length of the stream.
func (c *Checkpoint) Size() int64 { return c.size }

// Files returns the files of the checkpoint.
func (c *Checkpoint) Files() []CheckpointFile { return slices.Clone(c.files) }

// WriteTo writes the whole stream.
func (c *Checkpoint) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, io.NewSectionReader(c, 0, c.size))
}

// ReadAt reads the stream at an offset, so that a transfer can go on where it
// was cut. Safe for concurrent use.
func (c *Checkpoint) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("storage: checkpoint read at %d", off)
	}
	n := 0
	i := sort.Search(len(c.segments), func(i int) bool { return c.segments[i].off+c.segments[i].size > off })
	for ; i < len(c.segments) && n < len(p); i++ {
		seg := &c.segments[i]
		at := off + int64(n) - seg.off
		k, err := c.readSegment(seg, p[n:min(len(p), n+int(seg.size-at))], at)
		n += k
		if err != nil {
			return n, fmt.Errorf("checkpoint %s: %w", c.name, err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (c *Checkpoint) readSegment(seg *segment, p []byte, at int64) (int, error) {
	switch seg.kind {
	case segmentFile:
		return c.readFile(seg.file, p, at)
	case segmentSum:
		sum, err := c.sum(seg.file)
		if err != nil {
			return 0, err
		}
		return copy(p, sum[at:]), nil
	case segmentTrailer:
		sum, err := c.trailer()
		if err != nil {
			return 0, err
		}
		return copy(p, sum[at:]), nil
	case segmentBytes:
	}
	return copy(p, seg.bytes[at:]), nil
}

func (c *Checkpoint) path(file int) string {
	return c.s.fs.PathJoin(c.s.cfg.Dir, c.name, c.files[file].Name)
}

func (c *Checkpoint) readFile(file int, p []byte, at int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	f, err := c.s.fs.Open(c.path(file))
	if err != nil {
		return 0, err
	}
	n, err := f.ReadAt(p, at)
	if n == len(p) {
		err = nil // a full read that ends at the end of the file may say so
	} else if err == nil || errors.Is(err, io.EOF) {
		err = record.Damaged(c.path(file), "ends at %d", at+int64(n))
	}
	return n, errors.Join(err, f.Close())
}

func (c *Checkpoint) sum(file int) ([sha256.Size]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sumLocked(file)
}

func (c *Checkpoint) sumLocked(file int) (out [sha256.Size]byte, err error) {
	if c.sums[file].known {
		return c.sums[file].sum, nil
	}
	f, err := c.s.fs.Open(c.path(file))
	if err != nil {
		return out, err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return out, err
	}
	sum.Sum(out[:0])
	c.sums[file] = fileSum{known: true, sum: out}
	return out, nil
}

// trailer covers every part of the stream that is not file data.
func (c *Checkpoint) trailer() (out [sha256.Size]byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := sha256.New()
	for i := range c.segments {
		switch seg := &c.segments[i]; seg.kind {
		case segmentBytes:
			sum.Write(seg.bytes)
		case segmentSum:
			s, err := c.sumLocked(seg.file)
			if err != nil {
				return out, err
			}
			sum.Write(s[:])
		case segmentFile, segmentTrailer:
		}
	}
	sum.Sum(out[:0])
	return out, nil
}

// Close removes the checkpoint's files.
func (c *Checkpoint) Close() error { return removeTree(c.s.fs, c.s.cfg.Dir, c.name) }
