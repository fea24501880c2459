package replication

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage"
)

// offers are the snapshots that this replica sends as a leader, and the followers that
// are being brought up by them. A snapshot that is being installed, or whose install was
// cut a moment ago, is kept and offered again, and the log from its index on is not cut:
// so a follower that gets it needs no other one. Doc.go has the rule.
type offers struct {
	store *storage.Store
	log   *logStore
	keep  time.Duration // for how long without progress
	bytes int64         // of log at which nothing is kept any more
	// caughtUp is how many entries behind the end of the log a follower is on its own.
	caughtUp uint64
	logger   *zap.Logger
	// damaged is told of damaged local files, which take this replica alone out of service;
	// fatal of a disk that cannot be read.
	damaged, fatal func(error)

	checks  sync.WaitGroup
	ended   atomic.Bool   // nothing more is checked
	opening chan struct{} // holds one while a checkpoint is taken; before mu

	mu      sync.Mutex // guards what follows
	current *offer     // what the next Open returns, nil for a new one
	all     map[*offer]bool
	behind  map[raft.ServerAddress]*catchUp
	checked time.Time // when an offer that was refused was last looked at
}

// offer is one checkpoint. Its fields are guarded by offers.mu.
type offer struct {
	c     *storage.Checkpoint // nil while it is being taken
	meta  *raft.SnapshotMeta
	index uint64
	users int // streams being sent
}

// catchUp is a follower that a snapshot is brought to, or that has it and needs the
// entries behind it.
type catchUp struct {
	offer     *offer // nil once it is installed
	index     uint64 // what it has, or will have with the offer
	reached   int64  // bytes of the stream
	progress  time.Time
	installed bool
}

func newOffers(store *storage.Store, log *logStore, r Retention, logger *zap.Logger) *offers {
	return &offers{
		store: store, log: log, keep: r.InstallKeep, bytes: r.InstallLogBytes, caughtUp: r.MinTrailing / 2,
		logger: logger, damaged: func(error) {}, fatal: func(error) {},
		opening: make(chan struct{}, 1),
		all:     make(map[*offer]bool), behind: make(map[raft.ServerAddress]*catchUp),
	}
}

// open returns the snapshot that is on offer, or a new one of the newest state.
func (o *offers) open() (*raft.SnapshotMeta, *offerReader, error) {
	o.opening <- struct{}{}
	defer func() { <-o.opening }()
	if meta, r := o.again(); r != nil {
		return meta, r, nil
	}
	// The log is not cut behind it from before it exists.
	f := &offer{index: o.store.Pointer().Snapshot.Index, users: 1}
	o.mu.Lock()
	o.all[f] = true
	o.mu.Unlock()
	c, err := o.store.Checkpoint()
	if err != nil {
		o.mu.Lock()
		delete(o.all, f)
		o.mu.Unlock()
		o.unread(err)
		return nil, nil, err
	}
	m := c.Meta()
	meta := raftMeta(&m)
	meta.Size = c.Size() // the receiver insists on it
	o.mu.Lock()
	f.c, f.meta, f.index = c, meta, meta.Index
	o.current = f
	o.mu.Unlock()
	return meta, newOfferReader(o, f), nil
}

// again returns the snapshot that is on offer, if the log still begins where it ends.
func (o *offers) again() (*raft.SnapshotMeta, *offerReader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.current
	if f == nil {
		return nil, nil
	}
	first := o.log.log.FirstIndex()
	if o.store.Pointer().Snapshot.Index > f.index && (first == 0 || first > f.index) {
		return nil, nil
	}
	f.users++
	return f.meta, newOfferReader(o, f)
}

// offerReader streams an offer to one follower.
type offerReader struct {
	*io.SectionReader
	o    *offers
	f    *offer
	once sync.Once
}

func newOfferReader(o *offers, f *offer) *offerReader {
	return &offerReader{SectionReader: io.NewSectionReader(offerSource{o, f.c}, 0, f.c.Size()), o: o, f: f}
}

// offerSource reads a checkpoint, and notes when it cannot be read.
type offerSource struct {
	o *offers
	c *storage.Checkpoint
}

// ReadAt implements io.ReaderAt.
func (s offerSource) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.c.ReadAt(p, off)
	s.o.unread(err)
	return n, err
}

// unread ends the leadership of a replica that cannot read its own state: a follower that
// needs a snapshot of it would wait for ever, and Raft tries again for as long.
func (o *offers) unread(err error) {
	switch {
	case isDamage(err):
		o.damaged(err)
	case errors.Is(err, syscall.EIO):
		o.fatal(fmt.Errorf("read a snapshot for a follower: %w", err))
	}
}

// check reads an offer that a follower has refused, beside the caller: it verifies what it
// receives, and what it finds wrong may be rot of this replica's files, which are sent as they
// are. Not more often than offers are kept, since a follower may refuse for reasons of its own.
func (o *offers) check(f *offer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended.Load() || (!o.checked.IsZero() && time.Since(o.checked) < o.keep) {
		return
	}
	o.checked = time.Now()
	f.users++
	o.checks.Go(func() {
		o.unread(f.c.Verify(func() bool { return !o.ended.Load() }))
		o.mu.Lock()
		f.users--
		o.mu.Unlock()
		if err := o.sweep(); err != nil {
			o.logger.Warn("remove an offered snapshot", zap.Error(err))
		}
	})
}

// SnapshotID implements transport.Resumable.
func (r *offerReader) SnapshotID() transport.SnapshotID { return transport.SnapshotID(r.f.c.ID()) }

// Reached implements transport.Resumable: the follower is there and takes the snapshot.
func (r *offerReader) Reached(to raft.ServerAddress, offset int64) {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	b := r.o.behind[to]
	if b == nil || b.offer != r.f {
		r.o.behind[to] = &catchUp{offer: r.f, index: r.f.index, reached: offset, progress: time.Now()}
	} else if offset > b.reached {
		b.reached, b.progress = offset, time.Now()
	}
}

// Settled implements transport.Resumable.
func (r *offerReader) Settled(to raft.ServerAddress, success bool) { //nolint:revive // the interface's flag
	if !success {
		r.o.check(r.f)
	}
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	b := r.o.behind[to]
	if b == nil || b.offer != r.f {
		return
	}
	if !success {
		delete(r.o.behind, to) // its next one is new
		if r.o.current == r.f && !r.o.wanted(r.f) {
			r.o.current = nil
		}
		return
	}
	b.offer, b.installed, b.progress = nil, true, time.Now()
}

// Close implements io.Closer. What nobody is to go on with is removed.
func (r *offerReader) Close() error {
	var err error
	r.once.Do(func() {
		r.o.mu.Lock()
		r.f.users--
		r.o.mu.Unlock()
		err = r.o.sweep()
	})
	return err
}

// wanted says that a follower may go on with an offer; o.mu is held.
func (o *offers) wanted(f *offer) bool {
	for _, b := range o.behind {
		if b.offer == f {
			return true
		}
	}
	return false
}

// sweep removes the checkpoints that nobody is sent or may go on with.
func (o *offers) sweep() error {
	var gone []*storage.Checkpoint
	o.mu.Lock()
	for f := range o.all {
		if f.users > 0 || o.wanted(f) {
			continue
		}
		delete(o.all, f)
		if o.current == f {
			o.current = nil
		}
		gone = append(gone, f.c)
	}
	o.mu.Unlock()
	var err error
	for _, c := range gone {
		err = errors.Join(err, c.Close())
	}
	return err
}

// floor is the first entry that the log must keep for followers that are being brought
// up; MaxUint64 if there are none.
func (o *offers) floor() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	limit, first := o.bytes, o.log.log.FirstIndex()
	low := uint64(math.MaxUint64)
	hold := func(index uint64) {
		if index = max(1, index); index >= first { // else it came too late
			low = min(low, index)
		}
	}
	for f := range o.all {
		if f.users > 0 {
			hold(f.index)
		}
		if f.c != nil {
			// A follower that takes a snapshot as fast as entries are written needs no more.
			limit = max(limit, f.c.Size())
		}
	}
	for _, b := range o.behind {
		hold(b.index)
	}
	if low < math.MaxUint64 && o.log.log.Bytes() > limit {
		o.logger.Warn("the log is too long to be kept for followers that get a snapshot",
			zap.Int64("bytes", o.log.log.Bytes()), zap.Int64("limit", limit))
		clear(o.behind)
		o.current = nil
		return math.MaxUint64
	}
	return low
}

// tend looks how far the followers have come, forgets those that have caught up or make
// no progress, and cuts the log that was kept for them.
func (o *offers) tend(progress []transport.Progress, last uint64) {
	match := make(map[raft.ServerAddress]uint64, len(progress))
	for _, p := range progress {
		match[p.Address] = p.Match
	}
	o.mu.Lock()
	before := len(o.behind)
	for addr, b := range o.behind {
		if m := match[addr]; b.installed && m > b.index {
			b.index, b.progress = m, time.Now()
		}
		switch {
		case b.installed && b.index+o.caughtUp >= last:
			delete(o.behind, addr)
		case time.Since(b.progress) > o.keep:
			o.logger.Info("a follower that gets a snapshot makes no progress; nothing is kept for it any more",
				zap.String("follower", string(addr)), zap.Int64("bytes", b.reached))
			delete(o.behind, addr)
		}
	}
	after := len(o.behind)
	o.mu.Unlock()
	if after == before {
		return
	}
	if err := errors.Join(o.sweep(), o.log.cutAgain()); err != nil {
		o.logger.Warn("log and snapshot kept for a follower", zap.Error(err))
	}
}

// close removes every checkpoint; no stream is being sent.
func (o *offers) close() error {
	o.mu.Lock()
	o.ended.Store(true)
	clear(o.behind)
	o.mu.Unlock()
	o.checks.Wait()
	if err := o.sweep(); err != nil {
		return fmt.Errorf("remove offered snapshots: %w", err)
	}
	return nil
}

var _ transport.Resumable = (*offerReader)(nil)
