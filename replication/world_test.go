package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"github.com/holdfast-mq/holdfast/replication/clock"
	"github.com/holdfast-mq/holdfast/replication/membership"
	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/replication/transport/memnet"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a cluster in one bubble of virtual time: the product's hosts, their
// transport on a network in memory, a crashable disk each.
type world struct {
	t      *testing.T
	fabric *memnet.Fabric
	nodes  []*node
	start  time.Time
	log    *zap.Logger
	// transport edits the configuration of the nodes' ports.
	transport func(*transport.Config)
	// tune edits the configuration of the nodes.
	tune func(*Config)
	// desired is what control brings the groups to; nil: every node a voter.
	desired atomic.Pointer[membership.Desired]
}

type node struct {
	w     *world
	name  string
	fatal chan error
	boot  int // counts starts
	hook  func(*record.Proposal) bool
	wall  func() time.Time
	wrap  func(vfs.FS) vfs.FS // of its disk

	mu struct {
		lock sync.Mutex

		fs      *vfs.MemFS
		host    *Host // nil while down
		planner *planner
	}
}

func (n *node) host() *Host {
	n.mu.lock.Lock()
	defer n.mu.lock.Unlock()
	return n.mu.host
}

func (n *node) planner() *planner {
	n.mu.lock.Lock()
	defer n.mu.lock.Unlock()
	return n.mu.planner
}

func (n *node) group() *Group { return n.host().Group(1) }

// worldAppendTimeout is how long an append may wait in a world, in virtual time.
const worldAppendTimeout = 2 * time.Second

func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	w := &world{t: t, fabric: memnet.New(), start: time.Now(), log: zap.NewNop()}
	if testing.Verbose() {
		w.log = zaptest.NewLogger(t, zaptest.Level(zapcore.DebugLevel))
	}
	for i := range nodes {
		n := &node{w: w, name: string(rune('a' + i)), fatal: make(chan error, 16)}
		n.mu.fs = vfs.NewCrashableMem()
		w.nodes = append(w.nodes, n)
	}
	return w
}

func testRetention() Retention {
	return Retention{
		MinTrailing: 32, MaxTrailing: 64, TrailingBytes: 32 << 10, LogMaxBytes: 48 << 10,
		SnapshotAge: 5 * time.Second, SnapshotCheck: 500 * time.Millisecond,
		InstallKeep: 20 * time.Second, InstallLogBytes: 16 << 20,
	}
}

func (n *node) disk() vfs.FS {
	if n.wrap == nil {
		return n.mu.fs
	}
	return n.wrap(n.mu.fs)
}

func (n *node) config() Config {
	w := n.w
	c := w.config(n)
	if w.transport != nil {
		w.transport(&c.Transport)
	}
	if w.tune != nil {
		w.tune(&c)
	}
	return c
}

func (w *world) config(n *node) Config {
	return Config{
		NodeID: n.name, Dir: "data", FS: n.disk(), Groups: 1, Timeouts: Local(),
		Retention: testRetention(), MetaRetention: testRetention(),
		Log:             seglog.Config{SegmentSize: 64 << 10, SyncPrepare: true, Recycle: 1},
		Store:           storage.Config{MemTableSize: 64 << 10},
		MetaSegmentSize: 64 << 10,
		Transport: transport.Config{
			Network: w.fabric.Host(n.name), Listen: n.name + ":1",
			Resolve:       func(node string) (string, bool) { return node + ":1", true },
			AppendTimeout: worldAppendTimeout, SnapshotIdle: 2 * time.Second, RestoreTimeout: 5 * time.Second,
			HandshakeTimeout: time.Second, IdleTimeout: 2 * time.Second,
		},
		Handler: func(group uint32) Handler {
			if group == 1 {
				return n.mu.planner
			}
			return nil
		},
		Nodes:  func() []string { return w.others(n) },
		Others: len(w.nodes) > 1,
		refuse: n.hook,
		Clock: clock.Config{
			Boottime: func() time.Duration { return time.Hour + time.Since(w.start) },
			BootID:   "boot",
			Wall:     n.wall,
		},
		Logger: w.log.Named(n.name),
		Fatal: func(err error) {
			select {
			case n.fatal <- err:
			default:
			}
		},
	}
}

// up starts a node that is down.
func (n *node) up() {
	n.w.t.Helper()
	n.mu.lock.Lock()
	defer n.mu.lock.Unlock()
	if n.mu.host != nil {
		return
	}
	n.boot++
	n.mu.planner = newPlanner(fmt.Sprintf("%s%d", n.name, n.boot))
	h, err := Open(n.w.t.Context(), n.config())
	if err != nil {
		n.w.t.Fatalf("start of %s: %v", n.name, err)
	}
	n.mu.host = h
}

// down stops a node cleanly.
func (n *node) down() {
	n.w.t.Helper()
	n.mu.lock.Lock()
	h := n.mu.host
	n.mu.host = nil
	n.mu.lock.Unlock()
	if h == nil {
		return
	}
	if err := h.Shutdown(); err != nil {
		n.w.t.Errorf("shutdown of %s: %v", n.name, err)
	}
	n.check()
}

// check reports what must not have happened on a node.
func (n *node) check() {
	n.w.t.Helper()
	select {
	case err := <-n.fatal:
		n.w.t.Errorf("%s: fatal: %v", n.name, err)
	default:
	}
	p := n.planner()
	p.mu.lock.Lock()
	defer p.mu.lock.Unlock()
	for _, v := range p.mu.violations {
		n.w.t.Error(v)
	}
}

// powerCut takes the power of nodes at one moment: what they had not synced is lost,
// except for the share of it that percent says.
func (w *world) powerCut(rng *rand.Rand, percent int, nodes ...*node) {
	w.t.Helper()
	// Nobody hears from them any more before their disks are looked at.
	for _, n := range nodes {
		w.fabric.Isolate(n.name, w.others(n)...)
		if p := n.planner(); p != nil {
			p.dead.Store(true)
		}
	}
	disks := make([]*vfs.MemFS, len(nodes))
	for i, n := range nodes {
		disks[i] = n.mu.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
	}
	for i, n := range nodes {
		w.fabric.Crash(n.name)
		n.down()
		w.fabric.Rejoin(n.name, w.others(n)...)
		n.mu.lock.Lock()
		n.mu.fs = disks[i]
		n.mu.lock.Unlock()
	}
}

func (w *world) others(n *node) []string {
	var out []string
	for _, o := range w.nodes {
		if o != n {
			out = append(out, o.name)
		}
	}
	return out
}

func (w *world) down() {
	for _, n := range w.nodes {
		n.down()
	}
}

// founders starts all nodes and bootstraps a cluster of them.
func (w *world) found() {
	w.t.Helper()
	var founders []Founder
	for _, n := range w.nodes {
		n.up()
		founders = append(founders, Founder{Node: n.name, Incarnation: n.host().Incarnation()})
	}
	for _, n := range w.nodes {
		if err := n.host().Bootstrap(founders); err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := w.nodes[0].host().MintCluster(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// eventually waits for a condition in virtual time.
func (w *world) eventually(what string, cond func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !cond() {
		if time.Now().After(deadline) {
			for _, n := range w.nodes {
				if n.host() != nil {
					w.t.Logf("%s: %+v", n.name, n.group().Status())
					for _, p := range n.group().Progress() {
						w.t.Logf("%s: %+v", n.name, p)
					}
					if d := n.group().Damage(); d != nil {
						w.t.Logf("%s: %+v", n.name, *d)
					}
				}
			}
			w.t.Fatalf("not within a minute: %s", what)
		}
		w.pause(10 * time.Millisecond)
	}
}

// pause lets virtual time pass.
func (w *world) pause(d time.Duration) { <-time.After(d) }

// leader waits for a node that serves group 1.
func (w *world) leader() *node {
	w.t.Helper()
	var leader *node
	w.eventually("a leader of group 1", func() bool {
		for _, n := range w.nodes {
			h := n.host()
			if h == nil {
				continue
			}
			if t := h.Group(1).Term(); t != nil && t.Check() == nil {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// follower returns a node that does not lead group 1.
func (w *world) follower() *node {
	w.t.Helper()
	leader := w.leader()
	return w.nodes[slices.IndexFunc(w.nodes, func(n *node) bool { return n != leader })]
}

// put stores a value, wherever the leader is, until that is acknowledged.
func (w *world) put(value string) uint64 {
	w.t.Helper()
	for {
		r := &request{value: value, answer: make(chan answer, 1)}
		if !w.leader().planner().submit(r) {
			w.pause(10 * time.Millisecond)
			continue
		}
		a := <-r.answer
		if a.err == nil {
			return a.seq
		}
		if errors.Is(a.err, errUnknown) {
			w.t.Fatalf("put %q: %v", value, a.err)
		}
	}
}

// putAtLeastOnce stores value, again if the outcome of a try is unknown.
func (w *world) putAtLeastOnce(value string) {
	w.t.Helper()
	w.eventually("a value to be stored", func() bool {
		r := &request{value: value, answer: make(chan answer, 1)}
		return w.leader().planner().submit(r) && (<-r.answer).err == nil
	})
}

// acks are values that were acknowledged, by their sequences.
type acks map[uint64]string

// publish asks whoever leads to store a value, and notes the acknowledgement if one comes in time.
func (w *world) publish(value string, acked acks) bool {
	seq, ok := w.ask(request{value: value})
	if ok {
		acked[seq] = value
	}
	return ok
}

// ask wants a value stored or a message deleted, by whoever leads; false if that is not
// acknowledged in time.
func (w *world) ask(r request) (seq uint64, ok bool) {
	r.answer = make(chan answer, 1)
	for _, n := range w.nodes {
		if p := n.planner(); p == nil || !p.submit(&r) {
			continue
		}
		select {
		case a := <-r.answer:
			return a.seq, a.err == nil
		case <-time.After(simWait):
			return 0, false
		}
	}
	return 0, false
}

// holds checks that all replicas are even and equal, and hold what was acknowledged.
func (w *world) holds(acked acks) {
	w.t.Helper()
	if len(acked) == 0 {
		w.t.Fatal("nothing was acknowledged")
	}
	w.eventually("all replicas to be even", w.even)
	for _, n := range w.nodes {
		for seq, value := range acked {
			m, err := n.group().Reader().Message(testStream, seq)
			if err != nil || string(m.Payload) != value {
				w.t.Fatalf("%s: message %d of %d that were acknowledged is %.20q, want %.20q, %v",
					n.name, seq, len(acked), m.Payload, value, err)
			}
		}
	}
	w.equalStates()
}

// equalStates compares the states of group 1 of all replicas, which are even.
func (w *world) equalStates() {
	w.t.Helper()
	var first storage.StateHash
	for i, n := range w.nodes {
		h, err := n.group().Reader().StateHash(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if i == 0 {
			first = h
		} else if h != first {
			w.t.Errorf("%s has %v, %s has %v", n.name, h, w.nodes[0].name, first)
		}
	}
}

func bubble(t *testing.T, nodes int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nodes)
		defer w.down()
		f(w)
	})
}
