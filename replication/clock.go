package replication

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/clock"
	"github.com/holdfast-mq/holdfast/replication/transport"
)

const (
	// clockTick is how often a leader looks whether its clock is to be corrected.
	clockTick = time.Second
	// clockDrift is by how much a clock may differ from its persisted line before it
	// is persisted again.
	clockDrift = 100 * time.Millisecond
	// clockYield is for how long a leader's wall clock may be off the others' before
	// it hands the leadership over.
	clockYield = 30 * time.Second
	// clockYieldAgain is how long it waits between two tries.
	clockYieldAgain = 3 * time.Second
)

func (c *Config) clockDefaults() error {
	if c.Clock.Boottime == nil {
		c.Clock.Boottime = clock.Boottime
	}
	if c.Clock.Wall == nil {
		c.Clock.Wall = time.Now
	}
	if c.Clock.BootID == "" {
		id, err := clock.BootID()
		if err != nil {
			return err
		}
		c.Clock.BootID = id
	}
	return nil
}

// groupClock is a replica's cluster clock with what it is fed from and kept in.
type groupClock struct {
	*clock.Clock

	cfg  clock.Config
	kept *sealed // nil for a replica without files

	mu      sync.Mutex // guards what follows
	running bool
	line    int64         // cluster time minus BOOTTIME, as persisted last
	hold    time.Duration // BOOTTIME at which deleting by age may begin, as persisted last
}

// newGroupClock continues the clock that was kept with the log's seals. stored is the
// highest cluster time of what was applied.
func newGroupClock(cfg clock.Config, kept *sealed, stored int64) (*groupClock, error) {
	c, err := clock.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.Restore(kept.clock); err != nil {
		return nil, damaged("clock in the log: %v", err)
	}
	c.Stored(stored)
	return &groupClock{Clock: c, cfg: cfg, kept: kept}, nil
}

// persist hands the clock to the log, which keeps it with its next seal, if it is
// no longer the one that was handed over last.
func (c *groupClock) persist() error {
	now, running := c.Now()
	boot, wait := c.cfg.Boottime(), c.AgeWait()
	line, hold := now-int64(boot), boot+wait
	c.mu.Lock()
	defer c.mu.Unlock()
	moved := time.Duration(line - c.line).Abs()
	held := (hold - c.hold).Abs()
	if running == c.running && moved < clockDrift && (held < clockDrift || wait == 0) {
		return nil
	}
	c.running, c.line, c.hold = running, line, hold
	return c.kept.keepClock(c.Persist())
}

func (c *groupClock) time() int64 {
	t, _ := c.Now()
	return t
}

// beat is what this replica tells others of its clocks.
func (c *groupClock) beat() transport.Beat {
	b := transport.Beat{AgeWait: int64(c.AgeWait()), Wall: c.cfg.Wall().UnixNano()}
	if t, running := c.Now(); running {
		b.Clock = t
	}
	return b
}

// hello takes over the clock of a peer where none runs here.
func (c *groupClock) hello(peer raft.ServerAddress, b transport.Beat) {
	c.ObserveWall(string(peer), b.Wall)
	c.Adopt(b.Clock, time.Duration(b.AgeWait))
}

// follow takes over the leader's clock.
func (c *groupClock) follow(b transport.Beat) { c.Observe(b.Clock, time.Duration(b.AgeWait)) }

// Clock is the cluster clock of this replica: its health, and an operator's word on it.
func (g *Group) Clock() *clock.Clock { return g.rep.Load().clock.Clock }

// tendClock corrects the leader's clock, keeps every replica's, and hands the
// leadership over if this node's wall clock stays off the others'.
func (g *Group) tendClock(off *time.Duration) {
	in := g.inst.Load()
	if in == nil {
		return
	}
	if by := g.leaderTick(in); by != 0 {
		g.log.Warn("cluster clock corrected", zap.Duration("by", by))
	}
	if err := in.rep.clock.persist(); err != nil {
		g.log.Warn("cluster clock not kept", zap.Error(err))
	}
	if in.term.Load() == nil || !in.rep.clock.Health().WallOff {
		*off = 0
		return
	}
	if *off += clockTick; *off < clockYield {
		return
	}
	// Again and again until the term is over: a successor must have caught up at that very moment.
	if (*off-clockYield)%clockYieldAgain == 0 {
		g.log.Warn("the wall clock is off the median of the voters: handing the leadership over")
		in.yield()
	}
}

func (g *Group) leaderTick(in *instance) time.Duration {
	if in.term.Load() == nil {
		return 0
	}
	return in.rep.clock.Tick()
}
