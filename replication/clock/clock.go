package clock

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Defaults of Config.
const (
	DefaultAcceptAfter = 10 * time.Minute
	DefaultTolerance   = 5 * time.Second
)

// Fresh is for how long a voter's wall clock counts after it was heard.
const Fresh = time.Minute

// Config is what a clock runs on. A zero duration means its default.
type Config struct {
	// Boottime reads CLOCK_BOOTTIME; nil means Boottime of this package.
	Boottime func() time.Duration
	// Wall reads the wall clock; nil means time.Now.
	Wall func() time.Time
	// BootID identifies this boot of the machine; empty: a persisted clock is never continued.
	BootID string
	// AcceptAfter is how long the median must be ahead to be believed, and how long
	// nothing is deleted by age after a wall clock was believed.
	AcceptAfter time.Duration
	// Tolerance is how far clocks may be apart without anyone caring.
	Tolerance time.Duration
}

// maxBootID is what the one-byte length of the persisted form can hold.
const maxBootID = 255

// reading is a voter's wall clock as it was heard.
type reading struct {
	wall int64
	at   time.Duration
}

// Clock is the cluster clock of one replica. It is safe for concurrent use.
type Clock struct {
	cfg Config

	mu      sync.Mutex
	running bool
	base    int64         // cluster time at baseAt
	baseAt  time.Duration // BOOTTIME
	stored  int64         // no time below was ever given to something stored
	hold    time.Duration // BOOTTIME until which nothing may be deleted by age
	self    string
	voters  []string
	walls   map[string]reading
	ahead   time.Duration // BOOTTIME since when the median is ahead beyond Tolerance
	waiting bool          // ahead is set
}

// New returns a clock that does not run yet.
func New(cfg Config) (*Clock, error) {
	if cfg.Boottime == nil {
		cfg.Boottime = Boottime
	}
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.AcceptAfter == 0 {
		cfg.AcceptAfter = DefaultAcceptAfter
	}
	if cfg.Tolerance == 0 {
		cfg.Tolerance = DefaultTolerance
	}
	if cfg.AcceptAfter < 0 || cfg.Tolerance < 0 {
		return nil, errors.New("clock: AcceptAfter and Tolerance must be positive")
	}
	if len(cfg.BootID) > maxBootID {
		return nil, fmt.Errorf("clock: boot id of %d bytes, the limit is %d", len(cfg.BootID), maxBootID)
	}
	return &Clock{cfg: cfg, walls: map[string]reading{}}, nil
}

// SetVoters names the voters whose wall clocks count; self is this replica.
func (c *Clock) SetVoters(self string, voters []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.self, c.voters = self, slices.Clone(voters)
}

// ObserveWall records a voter's wall clock as its hello or answer stated it. 0 says nothing.
func (c *Clock) ObserveWall(voter string, wall int64) {
	if wall == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.walls[voter] = reading{wall: wall, at: c.cfg.Boottime()}
}

// Observe sets the clock by its leader's: the running cluster clock and for how much
// longer nothing may be deleted by age. Time 0 (the leader's does not run) changes nothing.
func (c *Clock) Observe(leader int64, ageWait time.Duration) {
	if leader == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Boottime()
	c.running, c.base, c.baseAt = true, leader, now
	c.hold = now + max(ageWait, 0)
	c.waiting = false
}

// Adopt sets the clock by that of a peer which is not known to lead, as its hello
// stated it, if none runs here.
func (c *Clock) Adopt(peer int64, ageWait time.Duration) {
	if !c.Running() {
		c.Observe(peer, ageWait)
	}
}

// Stored tells that something with this cluster time was stored: Now is never below it again.
func (c *Clock) Stored(t int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored = max(c.stored, t)
}

// Running says whether the clock runs.
func (c *Clock) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// Lead starts a term of this replica. Where no clock runs it starts one from the
// wall clocks; with a store that is not empty nothing is deleted by age from then
// on for AcceptAfter.
func (c *Clock) Lead(storeEmpty bool) { //nolint:revive // a fact about the store, not a mode
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Boottime()
	c.waiting = false
	if c.running {
		c.step(c.now(now), now)
		return
	}
	median, _ := c.median(now)
	c.running = true
	c.step(max(median, c.stored), now)
	if !storeEmpty {
		c.hold = now + c.cfg.AcceptAfter
	}
}

// step makes t the time at now, so that later times count from it.
func (c *Clock) step(t int64, now time.Duration) { c.base, c.baseAt = t, now }

// Now returns the cluster time, and false while no clock runs.
func (c *Clock) Now() (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now(c.cfg.Boottime()), c.running
}

func (c *Clock) now(boottime time.Duration) int64 {
	if !c.running {
		return c.stored
	}
	return max(c.base+int64(boottime-c.baseAt), c.stored)
}

// Tick lets the leader's clock be corrected forward; call it about every second
// while leading. It returns by how much the clock was corrected, or 0.
func (c *Clock) Tick() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Boottime()
	lag := c.lag(now)
	if !c.running || lag <= c.cfg.Tolerance {
		c.waiting = false
		return 0
	}
	if !c.waiting {
		c.waiting, c.ahead = true, now
	}
	if now-c.ahead < c.cfg.AcceptAfter {
		return 0
	}
	return c.correct(now, lag)
}

// correct moves the clock forward by lag; c.mu is held.
func (c *Clock) correct(now, lag time.Duration) time.Duration {
	c.step(c.now(now)+int64(lag), now)
	c.waiting = false
	c.hold = now + c.cfg.AcceptAfter
	return lag
}

// Accept is an operator's word that the wall clocks are right: the clock is corrected
// forward at once, if it is behind, and a wait before deleting by age ends. It
// returns by how much the clock was corrected. Only the leader's counts.
func (c *Clock) Accept() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Boottime()
	var by time.Duration
	if lag := c.lag(now); c.running && lag > 0 {
		by = c.correct(now, lag)
	}
	c.hold = 0
	return by
}

// lag is by how much the median is ahead of the clock; negative when it is behind.
func (c *Clock) lag(now time.Duration) time.Duration {
	median, _ := c.median(now)
	return time.Duration(median - c.now(now))
}

// median returns the lower median of the wall clocks heard, and how many those are.
// The own one always is.
func (c *Clock) median(now time.Duration) (int64, int) {
	walls := []int64{c.cfg.Wall().UnixNano()}
	for _, v := range c.voters {
		r, ok := c.walls[v]
		if v != c.self && ok && now-r.at <= Fresh {
			walls = append(walls, r.wall+int64(now-r.at))
		}
	}
	slices.Sort(walls)
	return walls[(len(walls)-1)/2], len(walls)
}

// AgeTrusted says whether messages may be deleted by age.
func (c *Clock) AgeTrusted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running && c.wait(c.cfg.Boottime()) == 0
}

// AgeWait returns for how much longer nothing may be deleted by age; 0 = trusted, if the clock runs.
func (c *Clock) AgeWait() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wait(c.cfg.Boottime())
}

func (c *Clock) wait(now time.Duration) time.Duration { return max(c.hold-now, 0) }

// Health is the state of a clock for people.
type Health struct {
	Running bool
	// Now is the cluster time, Median the lower median of the wall clocks heard.
	Now, Median int64
	// Heard is how many wall clocks the median is of.
	Heard int
	// Ahead: the clock is ahead of the median by more than Tolerance. It stays so.
	Ahead bool
	// Behind: the clock is behind by more than Tolerance; see AcceptIn.
	Behind bool
	// AcceptIn is after how much more time a leader believes the median; 0 unless Behind.
	AcceptIn time.Duration
	// WallOff: the own wall clock is off the median by more than Tolerance.
	WallOff bool
	// AgeWait is for how much longer nothing is deleted by age.
	AgeWait time.Duration
}

// Health reports how the clock stands.
func (c *Clock) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Boottime()
	h := Health{Running: c.running, Now: c.now(now), AgeWait: c.wait(now)}
	h.Median, h.Heard = c.median(now)
	own := time.Duration(c.cfg.Wall().UnixNano() - h.Median)
	h.WallOff = own.Abs() > c.cfg.Tolerance
	if lag := time.Duration(h.Median - h.Now); c.running {
		h.Ahead = lag < -c.cfg.Tolerance
		h.Behind = lag > c.cfg.Tolerance
	}
	if h.Behind {
		h.AcceptIn = c.cfg.AcceptAfter
		if c.waiting {
			h.AcceptIn = max(c.cfg.AcceptAfter-(now-c.ahead), 0)
		}
	}
	return h
}
