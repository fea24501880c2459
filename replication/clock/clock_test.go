package clock

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	acceptAfter = DefaultAcceptAfter
	slack       = DefaultTolerance
	year        = 365 * 24 * time.Hour
	day         = 24 * time.Hour
)

// t0 is a Friday.
var t0 = time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)

// machine is a machine whose clocks a test moves.
type machine struct {
	boot time.Duration
	wall time.Time
	id   string
}

func newMachine() *machine { return &machine{boot: time.Hour, wall: t0, id: "boot-1"} }

func (m *machine) pass(d time.Duration) {
	m.boot += d
	m.wall = m.wall.Add(d)
}

// reboot takes the machine down for d.
func (m *machine) reboot(id string, d time.Duration) {
	m.id, m.boot, m.wall = id, time.Minute, m.wall.Add(d)
}

func (m *machine) clock(t *testing.T) *Clock {
	t.Helper()
	c, err := New(Config{
		Boottime: func() time.Duration { return m.boot },
		Wall:     func() time.Time { return m.wall },
		BootID:   m.id,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.SetVoters("a", []string{"a", "b", "c"})
	return c
}

// hear tells c the wall clocks of b and c.
func hear(c *Clock, walls ...time.Time) {
	for i, w := range walls {
		c.ObserveWall([]string{"b", "c"}[i], w.UnixNano())
	}
}

// offset is the cluster time relative to t0.
func offset(t *testing.T, c *Clock) time.Duration {
	t.Helper()
	now, ok := c.Now()
	if !ok {
		t.Fatal("the clock does not run")
	}
	return time.Duration(now - t0.UnixNano())
}

func wantOffset(t *testing.T, c *Clock, want time.Duration, when string) {
	t.Helper()
	if got := offset(t, c); got != want {
		t.Errorf("%s: cluster time is t0%+v, want t0%+v", when, got, want)
	}
}

// tickFor lets d pass in seconds, with ticks and fresh walls, and returns the
// corrections that were made.
func tickFor(c *Clock, m *machine, d time.Duration, walls ...time.Duration) time.Duration {
	var sum time.Duration
	for end := m.boot + d; m.boot < end; {
		m.pass(time.Second)
		for i, w := range walls {
			c.ObserveWall([]string{"b", "c"}[i], m.wall.Add(w).UnixNano())
		}
		sum += c.Tick()
	}
	return sum
}

func TestFirstStartTakesTheLowerMedian(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		others []time.Duration // walls of b and c relative to the own
		want   time.Duration
	}{
		{"alone", nil, 0},
		{"two an hour apart: the lower", []time.Duration{time.Hour}, 0},
		{"two an hour apart, the other lower", []time.Duration{-time.Hour}, -time.Hour},
		{"three: the middle", []time.Duration{time.Hour, year}, time.Hour},
		{"three: own a year ahead", []time.Duration{-year, -year}, -year},
		{"three: own a year behind", []time.Duration{year, year}, year},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			c := m.clock(t)
			if _, ok := c.Now(); ok || c.AgeTrusted() {
				t.Fatal("a clock that was never started runs or is trusted")
			}
			for i, o := range tc.others {
				c.ObserveWall([]string{"b", "c"}[i], m.wall.Add(o).UnixNano())
			}
			c.Lead(true)
			wantOffset(t, c, tc.want, "at the start")
			m.pass(time.Minute)
			wantOffset(t, c, tc.want+time.Minute, "a minute later")
			if !c.AgeTrusted() {
				t.Error("an empty store needs no wait")
			}
		})
	}
}

func TestStaleAndForeignWallsDoNotCount(t *testing.T) {
	t.Parallel()
	m := newMachine()
	c := m.clock(t)
	hear(c, m.wall.Add(year), m.wall.Add(year))
	c.ObserveWall("stranger", m.wall.Add(year).UnixNano())
	c.ObserveWall("b", 0)
	m.pass(Fresh)
	if h := c.Health(); h.Heard != 3 || !h.WallOff {
		t.Errorf("at the edge: %+v, want three heard", h)
	}
	m.pass(1)
	if h := c.Health(); h.Heard != 1 || h.WallOff {
		t.Errorf("past the edge: %+v, want the own only", h)
	}
}

func TestFullStop(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		reboot bool
		down   time.Duration
		jump   time.Duration // of the wall clock while it was down
		want   time.Duration // relative to t0, right after
		wait   time.Duration
	}{
		{"restart within the boot", false, time.Minute, 0, time.Minute, 0},
		{"restart within the boot, wall a year ahead", false, time.Minute, year, time.Minute, 0},
		{"restart within the boot, wall an hour behind", false, time.Minute, -time.Hour, time.Minute, 0},
		{"Friday to Monday over a reboot: today's time", true, 3 * day, 0, 3 * day, acceptAfter},
		{"reboot, wall an hour ahead", true, time.Minute, time.Hour, time.Minute + time.Hour, acceptAfter},
		{"over a reboot, wall a year ahead", true, time.Minute, year, time.Minute + year, acceptAfter},
		{"over a reboot, wall an hour behind: no lower", true, time.Minute, -time.Hour, 0, acceptAfter},
		{"over a reboot, wall a year behind: no lower", true, time.Minute, -year, 0, acceptAfter},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			c := m.clock(t)
			c.Lead(true)
			saved := c.Persist()
			if tc.reboot {
				m.reboot("boot-2", tc.down)
			} else {
				m.pass(tc.down)
			}
			m.wall = m.wall.Add(tc.jump)
			c = m.clock(t)
			if err := c.Restore(saved); err != nil {
				t.Fatal(err)
			}
			if c.Running() == tc.reboot {
				t.Fatalf("runs: %v, rebooted: %v", c.Running(), tc.reboot)
			}
			c.Lead(false)
			wantOffset(t, c, tc.want, "after the stop")
			if got := c.AgeWait(); got != tc.wait {
				t.Errorf("age wait %v, want %v", got, tc.wait)
			}
		})
	}
}

func TestWaitAfterAFullStop(t *testing.T) {
	t.Parallel()
	m := newMachine()
	c := m.clock(t)
	c.Lead(false)
	m.pass(acceptAfter - 1)
	if c.AgeTrusted() {
		t.Error("trusted before the wait is over")
	}
	m.pass(1)
	if !c.AgeTrusted() {
		t.Error("not trusted when the wait is over")
	}
	// The wait survives a restart, and an operator ends it.
	c = m.clock(t)
	c.Lead(false)
	m.pass(time.Minute)
	saved := c.Persist()
	m.pass(time.Minute)
	c = m.clock(t)
	if err := c.Restore(saved); err != nil {
		t.Fatal(err)
	}
	if got := c.AgeWait(); got != acceptAfter-2*time.Minute {
		t.Errorf("after a restart %v are left", got)
	}
	if by := c.Accept(); by != 0 || !c.AgeTrusted() {
		t.Errorf("accepted: corrected by %v, trusted %v", by, c.AgeTrusted())
	}
}

func TestFailover(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{0, time.Hour, -time.Hour, year, -year} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			c := m.clock(t)
			c.Observe(t0.Add(time.Second).UnixNano(), time.Minute)
			m.wall = m.wall.Add(jump) // all wall clocks step
			hear(c, m.wall, m.wall)
			m.pass(2 * time.Second)
			c.Lead(false)
			wantOffset(t, c, 3*time.Second, "the new leader continues the old one's clock")
			if got := c.AgeWait(); got != time.Minute-2*time.Second {
				t.Errorf("age wait %v, want what the old leader had left", got)
			}
		})
	}
}

func TestNeverBelowWhatWasStored(t *testing.T) {
	t.Parallel()
	m := newMachine()
	c := m.clock(t)
	c.Stored(t0.Add(time.Hour).UnixNano())
	c.Lead(false) // no clock runs, the wall clock is an hour behind
	wantOffset(t, c, time.Hour, "where no clock runs")
	m.pass(time.Second)
	wantOffset(t, c, time.Hour+time.Second, "it advances from there")

	c.Observe(t0.UnixNano(), 0) // a leader that is behind
	wantOffset(t, c, time.Hour, "following")
	c.Lead(false)
	m.pass(time.Second)
	wantOffset(t, c, time.Hour+time.Second, "leading again")
}

func TestFollowerFollowsExactly(t *testing.T) {
	t.Parallel()
	m := newMachine()
	c := m.clock(t)
	for _, d := range []time.Duration{time.Hour, time.Hour + 3, time.Hour - 5*time.Millisecond} {
		c.Observe(t0.Add(d).UnixNano(), 0)
		wantOffset(t, c, d, "set by the leader")
	}
	c.Observe(0, time.Hour)
	wantOffset(t, c, time.Hour-5*time.Millisecond, "a leader without a clock says nothing")
	c.Adopt(t0.UnixNano(), 0)
	wantOffset(t, c, time.Hour-5*time.Millisecond, "a running clock is not set by a peer")
	fresh := m.clock(t)
	fresh.Adopt(t0.Add(time.Second).UnixNano(), time.Minute)
	wantOffset(t, fresh, time.Second, "one that does not run is")
	if fresh.AgeWait() != time.Minute {
		t.Errorf("age wait %v, want the peer's", fresh.AgeWait())
	}
}

func TestCorrection(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		jump  time.Duration // of all wall clocks while the clock runs
		for_  time.Duration
		moved time.Duration
		ahead bool
	}{
		{"at the tolerance", slack, time.Hour, 0, false},
		{"past it, not yet", slack + 1, acceptAfter, 0, false},
		{"past it, believed", slack + 1, acceptAfter + time.Second, slack + 1, false},
		{"an hour ahead, not yet", time.Hour, acceptAfter, 0, false},
		{"an hour ahead, believed", time.Hour, acceptAfter + time.Second, time.Hour, false},
		{"a year ahead, not yet", year, acceptAfter, 0, false},
		{"a year ahead, believed", year, acceptAfter + time.Second, year, false},
		{"an hour behind: never", -time.Hour, day, 0, true},
		{"a year behind: never", -year, day, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			c := m.clock(t)
			c.Lead(true)
			m.wall = m.wall.Add(tc.jump)
			if got := tickFor(c, m, tc.for_, 0, 0); got != tc.moved {
				t.Errorf("corrected by %v, want %v", got, tc.moved)
			}
			wantOffset(t, c, tc.for_+tc.moved, "after it")
			if c.AgeTrusted() != (tc.moved == 0) {
				t.Errorf("trusted: %v", c.AgeTrusted())
			}
			h := c.Health()
			if h.Ahead != tc.ahead || h.Behind != (tc.jump > DefaultTolerance && tc.moved == 0) || h.WallOff {
				t.Errorf("health %+v", h)
			}
		})
	}
}

func TestCorrectionNeedsAnUnbrokenDifference(t *testing.T) {
	t.Parallel()
	m := newMachine()
	c := m.clock(t)
	c.Lead(true)
	m.wall = m.wall.Add(time.Hour)
	tickFor(c, m, acceptAfter-time.Second, 0, 0)
	m.wall = m.wall.Add(-time.Hour) // mended for a moment
	tickFor(c, m, time.Second, 0, 0)
	m.wall = m.wall.Add(time.Hour)
	if got := tickFor(c, m, acceptAfter, 0, 0); got != 0 {
		t.Errorf("corrected by %v although the difference was broken", got)
	}
	if got := tickFor(c, m, time.Second, 0, 0); got != time.Hour {
		t.Errorf("corrected by %v, want an hour", got)
	}
}

func TestOneWrongWallMovesNothing(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{time.Hour, -time.Hour, year, -year} {
		m := newMachine()
		c := m.clock(t)
		c.Lead(true)
		m.wall = m.wall.Add(off) // the own one
		if got := tickFor(c, m, 2*acceptAfter, -off, -off); got != 0 {
			t.Errorf("own wall off by %v: corrected by %v", off, got)
		}
		if h := c.Health(); !h.WallOff || h.Ahead || h.Behind {
			t.Errorf("own wall off by %v: health %+v", off, h)
		}
	}
}

func TestTwoVotersAnHourApart(t *testing.T) {
	t.Parallel()
	m := newMachine()
	c := m.clock(t)
	c.SetVoters("a", []string{"a", "b"})
	c.ObserveWall("b", m.wall.Add(-time.Hour).UnixNano())
	if h := c.Health(); !h.WallOff {
		t.Error("the later one is not off the lower median")
	}
	c.ObserveWall("b", m.wall.Add(time.Hour).UnixNano())
	if h := c.Health(); h.WallOff {
		t.Error("the earlier one is off the lower median")
	}
}

func TestAccept(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ jump, want time.Duration }{
		{time.Hour, time.Hour}, {year, year}, {time.Second, time.Second}, {0, 0}, {-time.Hour, 0}, {-year, 0},
	} {
		m := newMachine()
		c := m.clock(t)
		c.Lead(false)
		m.wall = m.wall.Add(tc.jump)
		if got := c.Accept(); got != tc.want {
			t.Errorf("wall %v: corrected by %v, want %v", tc.jump, got, tc.want)
		}
		wantOffset(t, c, tc.want, "accepted")
		if !c.AgeTrusted() {
			t.Errorf("wall %v: the wait did not end", tc.jump)
		}
	}
}

func TestAcceptIn(t *testing.T) {
	t.Parallel()
	m := newMachine()
	c := m.clock(t)
	c.Lead(true)
	m.wall = m.wall.Add(time.Hour)
	c.Tick()
	m.pass(time.Minute)
	got := c.Health()
	want := Health{
		Running: true, Now: t0.Add(time.Minute).UnixNano(), Median: m.wall.UnixNano(), Heard: 1,
		Behind: true, AcceptIn: acceptAfter - time.Minute,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	m := newMachine()
	c := m.clock(t)
	c.Lead(true)
	good := c.Persist()
	for _, b := range [][]byte{
		{0},
		{2},
		good[:len(good)-1], append(append([]byte(nil), good...), 0),
		append(append([]byte(nil), good[:len(good)-1]...), 2),
	} {
		fresh := m.clock(t)
		if err := fresh.Restore(b); !errors.Is(err, ErrFormat) || fresh.Running() {
			t.Errorf("%x: %v, runs %v", b, err, fresh.Running())
		}
	}
	fresh := m.clock(t)
	if err := fresh.Restore(nil); err != nil || fresh.Running() {
		t.Errorf("never persisted: %v, runs %v", err, fresh.Running())
	}
	m.id = ""
	anon := m.clock(t)
	if err := anon.Restore(good); err != nil || anon.Running() {
		t.Errorf("unknown boot: %v, runs %v", err, anon.Running())
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{AcceptAfter: -1}, {Tolerance: -1}, {BootID: string(make([]byte, maxBootID+1))},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	if _, err := New(Config{BootID: string(make([]byte, maxBootID))}); err != nil {
		t.Error(err)
	}
}

func TestMachine(t *testing.T) {
	t.Parallel()
	a := Boottime()
	if b := Boottime(); a <= 0 || b < a {
		t.Errorf("BOOTTIME %v, then %v", a, b)
	}
	id, err := BootID()
	if err != nil || len(id) != 36 {
		t.Errorf("boot id %q, %v", id, err)
	}
}

func FuzzRestore(f *testing.F) {
	m := newMachine()
	c, err := New(
		Config{
			Boottime: func() time.Duration { return m.boot },
			Wall:     func() time.Time { return m.wall },
			BootID:   m.id,
		},
	)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(c.Persist())
	c.Lead(false)
	f.Add(c.Persist())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parse(b)
		if err != nil {
			return
		}
		fresh := newMachine().clock(t)
		if err := fresh.Restore(b); err != nil {
			t.Fatal(err)
		}
		if now, ok := fresh.Now(); ok && now < p.time {
			t.Fatalf("restored to %d, persisted %d", now, p.time)
		}
	})
}
