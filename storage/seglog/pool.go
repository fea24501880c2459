package seglog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// zeroChunk is how much of a fresh segment is zeroed between two syncs, so that the zeroing does not
	// build a queue in front of the running log's syncs.
	zeroChunk = 4 << 20
	// prepareRetry is how long the preparation ahead rests after it failed.
	prepareRetry = time.Second
)

// pool makes segments ready for use: from spares if it has any, else from scratch. A ready segment has its
// full size, a header with a new use id and a durable name, and holds no batch of that use.
type pool struct {
	fs   vfs.FS
	dir  string
	size int64
	keep int
	// dirFile is the pool's own handle: a vfs.File wants one sync at a time and the writer has another.
	dirFile vfs.File

	own struct {
		mu sync.Mutex
		// number is the newest segment number ever used.
		number uint64
		// spares are dropped segments, by number; nobody reads or lists them.
		spares []uint64
		// ready are prepared segments in the order of their numbers.
		ready []*segment
		// busy is closed when the running preparation ends; nil if none runs.
		busy chan struct{}
		// failed is when the last preparation failed.
		failed time.Time
	}
}

func newPool(cfg *Config) (*pool, error) {
	d, err := cfg.FS.OpenDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("seglog: open %s: %w", cfg.Dir, err)
	}
	return &pool{fs: cfg.FS, dir: cfg.Dir, size: cfg.SegmentSize, keep: cfg.Recycle, dirFile: d}, nil
}

func (p *pool) close() {
	p.own.mu.Lock()
	defer p.own.mu.Unlock()
	for _, seg := range p.own.ready {
		seg.release()
	}
	p.own.ready = nil
	_ = p.dirFile.Close()
}

// take returns a ready segment, which it prepares here and now if none is.
func (p *pool) take() (*segment, error) {
	for {
		seg, busy := p.claim()
		switch {
		case seg != nil:
			return seg, nil
		case busy != nil:
			<-busy
		default:
			seg, err := p.build()
			p.done(nil, err)
			return seg, err
		}
	}
}

// claim returns a ready segment, or the running preparation to wait for, or neither: then the caller prepares
// and must call done.
func (p *pool) claim() (*segment, <-chan struct{}) {
	p.own.mu.Lock()
	defer p.own.mu.Unlock()
	if len(p.own.ready) > 0 {
		seg := p.own.ready[0]
		p.own.ready = p.own.ready[1:]
		return seg, nil
	}
	if p.own.busy != nil {
		return nil, p.own.busy
	}
	p.own.busy = make(chan struct{})
	return nil, nil
}

// wants tells whether prepareAhead would do something.
func (p *pool) wants() bool {
	p.own.mu.Lock()
	defer p.own.mu.Unlock()
	return p.wantsLocked()
}

func (p *pool) wantsLocked() bool {
	return len(p.own.ready) == 0 && p.own.busy == nil &&
		(p.own.failed.IsZero() || time.Since(p.own.failed) >= prepareRetry)
}

// prepareAhead makes one segment ready unless there is one, or a preparation runs or has just failed.
func (p *pool) prepareAhead() error {
	p.own.mu.Lock()
	wanted := p.wantsLocked()
	if wanted {
		p.own.busy = make(chan struct{})
	}
	p.own.mu.Unlock()
	if !wanted {
		return nil
	}
	seg, err := p.build()
	p.done(seg, err)
	return err
}

func (p *pool) done(ready *segment, err error) {
	p.own.mu.Lock()
	defer p.own.mu.Unlock()
	close(p.own.busy)
	p.own.busy = nil
	p.own.failed = time.Time{}
	if err != nil {
		p.own.failed = time.Now()
	}
	if ready != nil {
		p.own.ready = append(p.own.ready, ready)
	}
}

// giveBack returns a taken segment that was not used. Segments are given back newest first.
func (p *pool) giveBack(seg *segment) {
	p.own.mu.Lock()
	defer p.own.mu.Unlock()
	p.own.ready = append([]*segment{seg}, p.own.ready...)
}

// recycle takes over a segment that is no longer listed. readers says that somebody still reads the file.
func (p *pool) recycle(seg *segment) error {
	unread := seg.release()
	p.own.mu.Lock()
	keep := unread && seg.size == p.size && len(p.own.spares) < p.keep
	if keep {
		p.own.spares = append(p.own.spares, seg.number)
	}
	p.own.mu.Unlock()
	if keep {
		return nil
	}
	return p.fs.Remove(seg.name)
}

// adopt sorts a file found at start-up: a whole segment file that bears its own number becomes a spare, as
// far as spares are wanted; the rest is removed. A file whose header bears another number may be a second
// name of a live segment, left by a crash between rename and directory sync; only the name goes.
func (p *pool) adopt(name string) (kept bool, err error) {
	number, ok := segmentNumber(name)
	full := p.fs.PathJoin(p.dir, name)
	p.own.number = max(p.own.number, number)
	if ok && len(p.own.spares) < p.keep && p.reusable(full, number) {
		p.own.spares = append(p.own.spares, number)
		return true, nil
	}
	return false, p.fs.Remove(full)
}

func (p *pool) reusable(name string, number uint64) bool {
	f, err := p.fs.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	h, err := readSegmentHeader(f, name)
	if err != nil || h.number != number || h.size != p.size {
		return false
	}
	size, err := fileSize(f, name)
	return err == nil && size == p.size
}

func (p *pool) build() (*segment, error) {
	p.own.mu.Lock()
	p.own.number++
	h := segmentHeader{number: p.own.number, use: newUse(), size: p.size}
	var spare uint64
	if n := len(p.own.spares); n > 0 {
		spare = p.own.spares[n-1]
		p.own.spares = p.own.spares[:n-1]
	}
	p.own.mu.Unlock()
	seg, err := p.make(h, spare)
	if err != nil && isNoSpace(err) {
		return nil, noSpace("prepare "+segmentName(h.number), err)
	}
	if err != nil {
		return nil, fmt.Errorf("seglog: prepare %s: %w", segmentName(h.number), err)
	}
	return seg, nil
}

// newUse returns a use id; 0 is what zeroed bytes say.
func newUse() uint64 {
	for {
		// Unique is all it has to be; nobody gains from guessing it.
		if use := rand.Uint64(); use != 0 { //nolint:gosec // no secret
			return use
		}
	}
}

func (p *pool) make(h segmentHeader, spare uint64) (*segment, error) {
	name := p.fs.PathJoin(p.dir, segmentName(h.number))
	source := name + tempSuffix
	if spare != 0 {
		source = p.fs.PathJoin(p.dir, segmentName(spare))
	} else if err := p.zero(source, h); err != nil {
		_ = p.fs.Remove(source)
		return nil, err
	}
	if err := p.fs.Rename(source, name); err != nil {
		return nil, err
	}
	f, err := p.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if spare != 0 {
		err = writeHeader(f, h)
	}
	if err == nil {
		err = p.dirFile.Sync()
	}
	if err != nil {
		_ = f.Close()
		_ = p.fs.Remove(name)
		return nil, err
	}
	return newSegment(h, name, f), nil
}

// writeHeader gives an old segment its new number and use id. What it held cannot be read again: records are
// chained from the use id.
func writeHeader(f vfs.File, h segmentHeader) error {
	if _, err := f.WriteAt(h.encode(), 0); err != nil {
		return err
	}
	return f.SyncData()
}

// zero creates a file of the segment's size. All blocks are written, since a block that is only reserved
// costs its first sync a journal commit.
func (p *pool) zero(name string, h segmentHeader) error {
	f, err := p.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := fillZero(f, h); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

func fillZero(f vfs.File, h segmentHeader) error {
	if err := f.Preallocate(0, h.size); err != nil && !isUnsupported(err) {
		return err
	}
	b := make([]byte, min(h.size, zeroChunk))
	for off := int64(0); off < h.size; off += int64(len(b)) {
		b = b[:min(int64(len(b)), h.size-off)]
		clear(b) // Write may have scribbled on it
		if off == 0 {
			copy(b, h.encode())
		} else if err := f.SyncData(); err != nil {
			return err
		}
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	return f.Sync()
}

// isUnsupported tells a file system that cannot reserve space from one that has none.
func isUnsupported(err error) bool {
	for _, e := range []error{syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINVAL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
