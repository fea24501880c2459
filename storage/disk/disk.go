package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

const (
	// DefaultMinFree is the default of Config.MinFree, bytes.
	DefaultMinFree = 256 << 20
	// DefaultBallast is the default of Config.Ballast, bytes: a segment of a log, or a memtable.
	DefaultBallast = 64 << 20
	// BallastFile is the name of the ballast in the data directory.
	BallastFile = "BALLAST"
	// MinMargin is the least room beyond MinFree at which a node accepts again, so that it does not flap.
	MinMargin = 16 << 20
	// PollEvery is how often Run looks.
	PollEvery = time.Second
	// RetryAfter is how long after a table could not be written the next one may be created.
	RetryAfter = time.Second

	// marginShare: the margin is this part of MinFree.
	marginShare = 8
	// chunk is how much of the ballast is written between two syncs.
	chunk = 4 << 20
)

// Config describes a Guard.
type Config struct {
	// FS is the file system of Dir. Required.
	FS vfs.FS
	// Dir is the data directory, which exists. Required.
	Dir string
	// MinFree is the room in bytes below which the node refuses; 0 = only when a write met a full disk.
	MinFree int64
	// Ballast is the size of the ballast in bytes; 0 = none.
	Ballast int64
	// Free returns the bytes that the disk of Dir has left for this process; nil asks FS.
	Free func() (int64, error)
	// Logger; nil = silent.
	Logger *zap.Logger
}

// Status is what a Guard knows.
type Status struct {
	// Free is the room in bytes at the last look, -1 if it could not be told.
	Free int64
	// MinFree is Config.MinFree, Ballast the size of the ballast at present.
	MinFree, Ballast int64
	// Refusing says that what makes the data grow has to be refused; Reason says why, for people.
	Refusing bool
	Reason   string
	// Full is how often a write met a full disk.
	Full uint64
}

// Guard watches one data directory. Safe for concurrent use. Make it with New.
type Guard struct {
	cfg Config
	log *zap.Logger
	fs  vfs.FS

	file    sync.Mutex // guards the file of the ballast; taken before mu
	growing vfs.File   // the ballast while it is being made

	// mu guards what follows. It is never held while the disk is waited for: every publish asks what it guards, and
	// one that hangs there would be stuck where nobody looks for a disk that hangs.
	mu       sync.Mutex
	free     int64
	have     int64 // bytes of ballast; changed by who holds file, too
	refusing bool
	full     uint64
	tableAt  time.Time // when a table could not be written
	blind    bool      // the last look failed
}

// New looks at the disk once. It changes nothing: Run makes the ballast.
func New(cfg Config) (*Guard, error) {
	switch {
	case cfg.FS == nil:
		return nil, errors.New("disk: Config.FS is missing")
	case cfg.Dir == "":
		return nil, errors.New("disk: Config.Dir is empty")
	case cfg.MinFree < 0:
		return nil, fmt.Errorf("disk: Config.MinFree is %d, want 0 or more bytes", cfg.MinFree)
	case cfg.Ballast < 0:
		return nil, fmt.Errorf("disk: Config.Ballast is %d, want 0 or more bytes", cfg.Ballast)
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if cfg.Free == nil {
		disk, dir := cfg.FS, cfg.Dir
		cfg.Free = func() (int64, error) {
			u, err := disk.GetDiskUsage(dir)
			return int64(min(u.AvailBytes, 1<<62)), err
		}
	}
	g := &Guard{cfg: cfg, log: cfg.Logger, free: -1}
	g.fs = guardedFS{FS: vfs.OnDiskFull(quotaFS{cfg.FS}, g.onFull), g: g}
	if st, err := cfg.FS.Stat(g.ballast()); err == nil {
		g.have = st.Size()
	}
	g.Poll()
	return g, nil
}

func (g *Guard) ballast() string { return g.cfg.FS.PathJoin(g.cfg.Dir, BallastFile) }

// FS is Config.FS for everything in the data directory: writes that meet a full disk get the ballast.
func (g *Guard) FS() vfs.FS { return g.fs }

// Refusing says whether what makes the data grow has to be refused now.
func (g *Guard) Refusing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refusing
}

// Status returns what is known now.
func (g *Guard) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Status{Free: g.free, MinFree: g.cfg.MinFree, Ballast: g.have, Refusing: g.refusing, Full: g.full}
	if g.refusing {
		s.Reason = fmt.Sprintf("disk of %s: %s free, publishes are refused until %s are", g.cfg.Dir,
			mib(g.free), mib(g.cfg.MinFree+g.margin()+g.lacks()))
	}
	return s
}

func mib(n int64) string {
	if n < 0 {
		return "an unknown number of MiB"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func (g *Guard) margin() int64 { return max(g.cfg.MinFree/marginShare, MinMargin) }

// lacks is what the ballast lacks of its size.
func (g *Guard) lacks() int64 { return max(g.cfg.Ballast-g.have, 0) }

// Run looks at the disk every PollEvery and keeps the ballast, until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	t := time.NewTicker(PollEvery)
	defer t.Stop()
	for {
		g.Poll()
		g.Restore(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Poll looks at the disk and decides. Run calls it.
func (g *Guard) Poll() {
	free, err := g.cfg.Free()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if !g.blind {
			g.log.Warn("the free space of the disk cannot be told", zap.String("dir", g.cfg.Dir), zap.Error(err))
		}
		g.blind, g.free = true, -1
		return // what was decided stays
	}
	g.blind, g.free = false, free
	usable, was := free-g.lacks(), g.refusing
	switch {
	case usable < g.cfg.MinFree:
		g.refusing = true
	case usable >= g.cfg.MinFree+g.margin():
		g.refusing = false
	}
	if g.refusing != was {
		g.tell()
	}
}

func (g *Guard) tell() {
	fields := []zap.Field{
		zap.String("dir", g.cfg.Dir), zap.Int64("free", g.free), zap.Int64("min_free", g.cfg.MinFree),
		zap.Int64("ballast", g.have),
	}
	if g.refusing {
		g.log.Warn("the disk is short of space: publishes are refused", fields...)
	} else {
		g.log.Info("the disk has space again: publishes are accepted", fields...)
	}
}

// onFull gives the ballast back. Every write waits for it.
func (g *Guard) onFull() {
	g.mu.Lock()
	was := g.refusing
	g.full, g.refusing = g.full+1, true // so that the ballast does not grow on
	g.mu.Unlock()
	g.file.Lock()
	defer g.file.Unlock()
	gone, err := g.discard()
	if err != nil {
		g.log.Error("the ballast cannot be removed", zap.String("file", g.ballast()), zap.Error(err))
	}
	if !was || gone > 0 {
		g.log.Error("the disk is full: publishes are refused, the ballast is given back",
			zap.String("dir", g.cfg.Dir), zap.Int64("ballast", gone))
	}
}

// discard removes the ballast, whole or growing, and says how many bytes it had; the caller holds file.
func (g *Guard) discard() (had int64, err error) {
	if g.growing != nil {
		err = g.growing.Close() // else its blocks would stay
		g.growing = nil
	}
	g.mu.Lock()
	had, g.have = g.have, 0
	g.mu.Unlock()
	gone := g.cfg.FS.Remove(g.ballast())
	if errors.Is(gone, fs.ErrNotExist) {
		gone = nil
	}
	return had, errors.Join(err, gone)
}

// Restore makes the ballast if it is not whole and there is room for it. Run calls it.
func (g *Guard) Restore(ctx context.Context) {
	for first := true; ctx.Err() == nil; first = false {
		more, err := g.grow(first)
		if err != nil {
			g.log.Warn("the ballast cannot be made", zap.String("file", g.ballast()), zap.Error(err))
		}
		if !more || err != nil {
			break
		}
	}
	g.file.Lock()
	defer g.file.Unlock()
	if g.growing != nil {
		_ = g.growing.Close() // not made to its end: the next time begins anew
		g.growing = nil
	}
}

// grow writes the next chunk of the ballast; first begins. A ballast of another size is made anew.
func (g *Guard) grow(first bool) (more bool, err error) {
	g.file.Lock()
	defer g.file.Unlock()
	g.mu.Lock()
	refusing, have := g.refusing, g.have
	g.mu.Unlock()
	switch {
	case refusing || have == g.cfg.Ballast || (!first && g.growing == nil):
		return false, nil // given back meanwhile, perhaps
	case g.growing == nil:
		if _, err := g.discard(); err != nil || g.cfg.Ballast == 0 {
			return false, err
		}
		if g.growing, err = g.cfg.FS.Create(g.ballast(), vfs.WriteCategoryUnspecified); err != nil {
			g.growing = nil
			return false, err
		}
		have = 0
	}
	b := make([]byte, min(chunk, g.cfg.Ballast-have))
	random := rand.NewChaCha8([32]byte{byte(have >> 22)})
	_, _ = random.Read(b) // never fails
	if _, err = g.growing.Write(b); err == nil {
		err = g.growing.Sync()
	}
	if err != nil {
		_, failed := g.discard()
		return false, errors.Join(err, failed)
	}
	have += int64(len(b))
	g.mu.Lock()
	g.have = have
	g.mu.Unlock()
	return have < g.cfg.Ballast, nil
}
