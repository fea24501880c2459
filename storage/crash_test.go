package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// script is the applies of a run: entry i is the same batch wherever and whenever
// it is applied, and history[i] is the state after it.
type script struct {
	seed    uint64
	history []StateHash
}

func newScript(tb testing.TB, seed uint64, entries int) *script {
	tb.Helper()
	sc := &script{seed: seed}
	s := openStore(tb, testConfig(vfs.NewMem()))
	sc.history = append(sc.history, hashOf(tb, s))
	for i := 1; i <= entries; i++ {
		must(tb, sc.apply(s, uint64(i)))
		sc.history = append(sc.history, hashOf(tb, s))
	}
	return sc
}

// apply commits the entries up to upTo that the store does not have yet.
func (sc *script) apply(s *Store, upTo uint64) error {
	for i := s.Applied().Index + 1; i <= upTo; i++ {
		r := newRNG(sc.seed<<32 + i)
		b, m := s.NewBatch(), model{}
		for n := range r.IntN(40) {
			step(r, b, m, n+1)
		}
		if err := b.PutMessage(9, i, noise(r, r.IntN(4000))); err != nil {
			return err
		}
		b.SetApplied(i, 1, record.Fence{Term: 1, Epoch: 1, Ordinal: i}, int64(i))
		if i%7 == 0 {
			b.SetConf(i, fmt.Append(nil, "conf ", i))
		}
		if err := b.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// noise is a message that does not compress, so that tables and memtables fill.
func noise(r *rand.Rand, size int) []byte {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return record.AppendMessage(nil, &record.Message{Subject: "noise", Payload: p})
}

// explorer takes the power away before every step that changes the file system:
// a clone of what is durable then is opened and checked on the spot.
type explorer struct {
	tb  testing.TB
	sc  *script
	mem *vfs.MemFS
	fs  FS

	// Shared as in a node: Pebble's private caches end with a failed open, under
	// the feet of what it started in the background.
	shared *Shared

	mu     sync.Mutex
	rng    *rand.Rand // guarded by mu
	points int        // guarded by mu
	failed error      // the first violation; guarded by mu

	// fail is the number of the step that fails instead of power cuts, 0 = cuts.
	fail   int64
	steps  atomic.Int64
	failOp errorfs.Op   // the step that failed
	fatal  atomic.Int64 // calls of Config.Fatal

	// What the run knows at the moment.
	off       atomic.Bool
	submitted atomic.Uint64 // entries that commits were begun for
	installed atomic.Uint64 // reach of an install that may be in force, else 0
	durable   atomic.Uint64 // reported by DurableApplied
	published atomic.Uint64 // snapshot index that a publication has returned for
}

func newExplorer(tb testing.TB, sc *script, seed uint64) *explorer {
	tb.Helper()
	x := &explorer{tb: tb, sc: sc, mem: vfs.NewCrashableMem(), rng: newRNG(seed)}
	x.shared = NewShared(1<<20, 100)
	tb.Cleanup(x.shared.Close)
	x.fs = errorfs.Wrap(x.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose || x.off.Load() {
			return nil
		}
		// Pebble cannot go on without its manifest (that is fatal), and panics itself when
		// a directory of its own cannot be synced.
		base := path.Base(op.Path)
		own := strings.HasPrefix(base, dbPrefix) || strings.HasPrefix(base, outPrefix)
		manifest := strings.HasPrefix(base, "MANIFEST-") || strings.HasPrefix(base, markerPrefix)
		if x.fail != 0 && (manifest || own && op.Kind == errorfs.OpFileSync) {
			return nil
		}
		if n := x.steps.Add(1); n == x.fail {
			x.failOp = op
			return &os.PathError{Op: fmt.Sprint("step ", n), Path: op.Path, Err: syscall.EIO}
		}
		if x.fail == 0 {
			x.crash(op)
		}
		return nil
	}))
	return x
}

// config is that of the run itself.
func (x *explorer) config() Config {
	cfg := testConfig(x.fs)
	cfg.Shared = x.shared
	cfg.Fatal = func(err error) {
		x.fatal.Add(1)
		if x.fail == 0 {
			x.tb.Errorf("fatal: %v", err)
		}
	}
	return cfg
}

func (x *explorer) crash(op errorfs.Op) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed != nil {
		return
	}
	x.points++
	// Read before the clone: what was promised by now must be in it.
	durable, published := x.durable.Load(), x.published.Load()
	percents := []int{0, 20 + x.rng.IntN(80)}
	if x.points%2 == 0 {
		percents = percents[1:]
	}
	if raceEnabled && x.points%3 != 0 {
		return
	}
	for _, percent := range percents {
		clone := x.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: x.rng})
		if err := x.check(clone, durable, published); err != nil {
			x.failed = fmt.Errorf("power cut %d, with %d%% of the unsynced data, before %v of %s: %w",
				x.points, percent, op.Kind, op.Path, err)
			return
		}
	}
}

// check opens what a power cut left and compares it with what was promised and with the model.
func (x *explorer) check(fs *vfs.MemFS, durable, published uint64) (err error) {
	cfg := testConfig(fs)
	cfg.Fatal = func(e error) { err = errors.Join(err, fmt.Errorf("fatal: %w", e)) }
	s, err := Open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	a, p := s.Applied(), s.Pointer()
	highest := max(x.submitted.Load(), x.installed.Load())
	switch {
	case a.Index > highest:
		return fmt.Errorf("state of entry %d, only %d were applied", a.Index, highest)
	case a.Reach() < durable:
		return fmt.Errorf("state reaches %d, %d was durable", a.Reach(), durable)
	case p.Snapshot.Index < published:
		return fmt.Errorf("snapshot %d in force, %d was published", p.Snapshot.Index, published)
	case p.Snapshot.Index > a.Reach():
		return fmt.Errorf("snapshot %d in force, the state reaches %d", p.Snapshot.Index, a.Reach())
	}
	h, err := s.StateHash(x.tb.Context())
	if err != nil {
		return err
	}
	if want := x.sc.history[a.Index]; h != want {
		return fmt.Errorf("state %v, want %v", h, want)
	}
	names, err := fs.List(testDir)
	if err != nil || len(names) != 2 {
		return fmt.Errorf("files after the start: %v, %w", names, err)
	}
	// Now and then it has to go on from there.
	if x.points%5 != 0 {
		return nil
	}
	upTo := min(a.Index+3, uint64(len(x.sc.history)-1))
	if err := x.sc.apply(s, upTo); err != nil {
		return err
	}
	if err := s.PublishLocal(SnapshotMeta{Index: max(upTo, a.Reach()), Term: 1}); err != nil {
		return err
	}
	if h, err = s.StateHash(x.tb.Context()); err == nil && h != x.sc.history[upTo] {
		err = fmt.Errorf("after going on: state %v, want %v", h, x.sc.history[upTo])
	}
	return err
}

// life is the run: everything that a store does, in an order that the seed decides.
func (x *explorer) life(seed uint64) (err error) {
	r := newRNG(seed)
	last := uint64(len(x.sc.history) - 1)
	s, err := Open(x.config())
	if err != nil {
		return err
	}
	defer func() {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	source := openStore(x.tb, testConfig(vfs.NewMem()))
	for err == nil && s.Applied().Index < last {
		upTo := min(s.Applied().Index+1+r.Uint64N(6), last)
		x.submitted.Store(max(x.submitted.Load(), upTo))
		if err := x.sc.apply(s, upTo); err != nil {
			return err
		}
		x.durable.Store(s.DurableApplied())
		switch r.IntN(8) {
		case 0:
			err = s.Flush()
		case 1, 2, 3:
			meta := SnapshotMeta{Index: s.Applied().Index + r.Uint64N(2), Term: 1, Conf: []byte("c")}
			if err = s.PublishLocal(meta); err == nil {
				x.published.Store(meta.Index)
			} else if errors.Is(err, ErrOvertaken) {
				err = nil
			}
		case 4:
			err = x.checkpoint(s)
		case 5, 6:
			err = x.install(s, source, min(s.Applied().Index+1+r.Uint64N(9), last), r.IntN(4) == 0)
		case 7:
			if err = s.Close(); err == nil {
				s, err = Open(x.config())
			}
		}
	}
	return err
}

func (x *explorer) checkpoint(s *Store) error {
	c, err := s.Checkpoint()
	if err != nil {
		return err
	}
	if want := s.Applied().Index; c.Applied().Index != want {
		err = fmt.Errorf("checkpoint of entry %d, applied are %d", c.Applied().Index, want)
	}
	return errors.Join(err, c.Close())
}

func (x *explorer) install(s, source *Store, upTo uint64, abort bool) error {
	if err := x.sc.apply(source, upTo); err != nil {
		return err
	}
	c, err := source.Checkpoint()
	if err != nil {
		return err
	}
	in, err := s.BeginInstall(c.Meta())
	if err != nil {
		return errors.Join(err, c.Close())
	}
	if abort {
		_, err = in.Write(make([]byte, 3))
		return errors.Join(err, in.Abort(), c.Close())
	}
	if _, err = c.WriteTo(in); err == nil {
		x.installed.Store(c.Meta().Index)
		err = in.Commit()
	}
	if err == nil {
		// The state in force may now be the other one: what the old one had is no promise any more.
		x.published.Store(c.Meta().Index)
		err = s.Activate()
	}
	return errors.Join(err, c.Close())
}

func explore(t *testing.T, seed uint64) *explorer {
	t.Helper()
	x := newExplorer(t, newScript(t, seed, 50), seed)
	must(t, x.life(seed))
	x.off.Store(true)
	x.mu.Lock()
	defer x.mu.Unlock()
	return x
}

// TestCrashAtEachStep cuts the power before every change of the file system.
func TestCrashAtEachStep(t *testing.T) {
	t.Parallel()
	if plantedNoFlush {
		t.Skip("a bug is planted")
	}
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			x := explore(t, seed)
			t.Logf("%d power cuts", x.points)
			if x.failed != nil {
				t.Error(x.failed)
			}
			if x.points < 250 {
				t.Errorf("only %d power cuts: the run does too little", x.points)
			}
		})
	}
}

// TestErrorAtEachStep fails one step of a run with an I/O error. The run says so,
// by an error or as fatal, and what is on disk then holds everything promised.
func TestErrorAtEachStep(t *testing.T) {
	t.Parallel()
	if plantedNoFlush {
		t.Skip("a bug is planted")
	}
	sc := newScript(t, 1, 50)
	quiet := newExplorer(t, sc, 1)
	quiet.fail = -1
	must(t, quiet.life(1))
	total := quiet.steps.Load()
	for step := int64(1); step <= total; step += 1 + total/int64(thinned(60)) {
		x := newExplorer(t, sc, 1)
		x.fail = step
		err := x.life(1)
		if x.steps.Load() >= step && err == nil && x.fatal.Load() == 0 {
			t.Logf("step %d of %d: the error did not matter", step, total)
		}
		clone := x.mem.CrashClone(vfs.CrashCloneCfg{})
		x.points = 1
		if err := x.check(clone, x.durable.Load(), x.published.Load()); err != nil {
			t.Errorf("after an error in step %d of %d (%v of %s): %v",
				step, total, x.failOp.Kind, x.failOp.Path, err)
		}
	}
}

// TestPlantedNoFlush: a snapshot that is published without a flush is caught.
func TestPlantedNoFlush(t *testing.T) {
	t.Parallel()
	if !plantedNoFlush {
		t.Skip("needs the build tag planted_noflush")
	}
	x := explore(t, 0)
	if !errors.Is(x.failed, record.ErrDamaged) ||
		!strings.Contains(fmt.Sprint(x.failed), "its snapshot stands for") {
		t.Errorf("the planted bug was not caught by the right check: %v", x.failed)
	}
}
