package replication

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	good := func() Config {
		return Config{NodeID: "a", Dir: "d", FS: vfs.NewMem(), Fatal: func(error) {}}
	}
	for _, tc := range []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"no node", func(c *Config) { c.NodeID = "" }, "NodeID"},
		{"no directory", func(c *Config) { c.Dir = "" }, "Dir"},
		{"no fatal", func(c *Config) { c.Fatal = nil }, "Fatal"},
		{"too few groups", func(c *Config) { c.Groups = -1 }, "-1 groups"},
		{"too many groups", func(c *Config) { c.Groups = MaxGroups + 1 }, "65 groups"},
		{
			"heartbeat",
			func(c *Config) { c.Timeouts = LAN(); c.Timeouts.Heartbeat = 49 * time.Millisecond }, "heartbeat",
		},
		{
			"election",
			func(c *Config) { c.Timeouts = LAN(); c.Timeouts.Election = 999 * time.Millisecond }, "election",
		},
		{
			"lease",
			func(c *Config) { c.Timeouts = LAN(); c.Timeouts.Lease = 1001 * time.Millisecond }, "lease",
		},
		{"commit", func(c *Config) { c.Timeouts = LAN(); c.Timeouts.Commit = 0 }, "commit"},
		{
			"trailing",
			func(c *Config) { c.Retention = DefaultRetention(); c.Retention.MinTrailing = 3 }, "trailing",
		},
		{
			"trailing order",
			func(c *Config) { c.MetaRetention = MetaRetention(); c.MetaRetention.MaxTrailing = 1 },
			"trailing",
		},
		{"bytes", func(c *Config) { c.Retention = DefaultRetention(); c.Retention.LogMaxBytes = 0 }, "bytes"},
		{"age", func(c *Config) { c.Retention = DefaultRetention(); c.Retention.SnapshotAge = 0 }, "age"},
	} {
		c := good()
		tc.edit(&c)
		_, err := Open(t.Context(), c)
		if !errors.Is(err, errConfig) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want one that names %q", tc.name, err, tc.want)
		}
	}
	for name, timeouts := range map[string]Timeouts{"LAN": LAN(), "Fast": Fast(), "Local": Local()} {
		if err := timeouts.validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for groups, want := range map[int]time.Duration{fewGroups: LAN().Commit, fewGroups + 1: idleCommit} {
		c := good()
		c.Groups = groups
		if err := c.defaults(); err != nil || c.Timeouts.Commit != want {
			t.Errorf("%d groups: commit timeout %v, %v, want %v", groups, c.Timeouts.Commit, err, want)
		}
	}
	c := good()
	c.Groups = MaxGroups
	if err := errors.Join(c.defaults(), c.validate()); err != nil {
		t.Error(err)
	}
}

func TestTrailing(t *testing.T) {
	t.Parallel()
	r := DefaultRetention()
	for _, tc := range []struct {
		entries uint64
		bytes   int64
		want    uint64
	}{
		{0, 0, MaxTrailing},
		{1000, 1000, MaxTrailing},                     // bytes each
		{1000, 1000 * (32 << 10), 8192},               // 32 KiB each
		{1000, 1000 * (256 << 10), MinTrailing},       // 256 KiB each
		{1000, 1000 * (1 << 20), MinTrailing},         // 1 MiB each
		{1000, 1000*(4<<10) + 1, MaxTrailing},         // at the upper bound
		{1000, 1000 * (8 << 10), TrailingBytes >> 13}, // between
	} {
		if got := r.trailing(tc.entries, tc.bytes); got != tc.want {
			t.Errorf("%d entries of %d bytes: %d stay, want %d", tc.entries, tc.bytes, got, tc.want)
		}
	}
	if got := r.inFlight(); got != MaxInFlight {
		t.Errorf("in flight %d, want %d", got, MaxInFlight)
	}
}

func TestIncarnation(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	first, err := incarnation(fs, "data/groups/1", "0011223344556677")
	if err != nil || first != "0011223344556677" {
		t.Fatal(first, err)
	}
	other, err := incarnation(fs, "data/groups/2", "")
	if err != nil || len(other) != 2*incarnationSize || other == first {
		t.Fatal(other, err)
	}
	fs = fs.CrashClone(vfs.CrashCloneCfg{})
	if again, err := incarnation(fs, "data/groups/1", "ffffffffffffffff"); err != nil || again != first {
		t.Errorf("after a power cut %q, %v", again, err)
	}
	if err := replaceFile(fs, "data/groups/1/INCARNATION", []byte("what\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := incarnation(fs, "data/groups/1", ""); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a file that holds no incarnation: %v", err)
	}
	if err := makeDirs(fs, "data/groups/3/log"); err != nil {
		t.Fatal(err)
	}
	if _, err := incarnation(
		fs,
		"data/groups/3",
		"",
	); !errors.Is(err, record.ErrDamaged) ||
		!strings.Contains(err.Error(), "INCARNATION") {
		t.Errorf("data without an incarnation: %v", err)
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	open := func(fs vfs.FS, node string) (identity, error) {
		return openIdentity(&Config{FS: fs, Dir: "data", NodeID: node, Logger: zap.NewNop()})
	}
	id, err := open(fs, "a")
	if err != nil || id.first(1) == "" {
		t.Fatal(id, err)
	}
	// A crash between the first replica and the last: the same incarnation goes on.
	if _, err := incarnation(fs, "data/groups/0", id.first(1)); err != nil {
		t.Fatal(err)
	}
	again, err := open(fs.CrashClone(vfs.CrashCloneCfg{}), "a")
	if err != nil || again.first(1) != id.Incarnation {
		t.Errorf("incarnation %q after a crash, want %q (%v)", again.first(1), id.Incarnation, err)
	}
	if err := id.settle(1); err != nil {
		t.Fatal(err)
	}
	if id.first(1) != "" {
		t.Error("a settled directory gives its incarnation to a new replica")
	}
	if id.first(2) != id.Incarnation {
		t.Error("the first replica of a group that was never here has another incarnation")
	}
	if err := id.join("c1"); err != nil {
		t.Fatal(err)
	}
	if err := id.join("c2"); !errors.Is(err, errConfig) {
		t.Errorf("joined a second cluster: %v", err)
	}
	fs = fs.CrashClone(vfs.CrashCloneCfg{})
	again, err = open(fs, "a")
	if err != nil || again.Cluster != "c1" || again.Incarnation != id.Incarnation || again.first(1) != "" {
		t.Errorf("after a power cut: %+v, %v", again, err)
	}
	if _, err := open(fs, "b"); !errors.Is(err, errConfig) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("another node's directory: %v", err)
	}
	if err := replaceFile(fs, "data/NODE", sealJSON([]byte(`{"version":2`))); err != nil {
		t.Fatal(err)
	}
	if _, err := open(fs, "a"); !errors.Is(err, record.ErrFormat) {
		t.Errorf("another version: %v", err)
	}
	if err := replaceFile(fs, "data/NODE", []byte("what")); err != nil {
		t.Fatal(err)
	}
	if _, err := open(fs, "a"); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("nonsense: %v", err)
	}
}

func TestRaftLogger(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	l := newRaftLogger(zap.New(core)).With("group", 1).Named("raft")
	l.Debug("not seen")
	l.Info("hello", "n", 3, "err", errors.New("bad"), "list", hclog.Fmt("%d-%d", 1, 2), "odd")
	l.Warn("careful")
	l.Error("worse")
	if l.IsDebug() || !l.IsInfo() || !l.IsWarn() || !l.IsError() || l.IsTrace() ||
		l.GetLevel() != hclog.Info {
		t.Error("levels are not those of zap")
	}
	if l.Name() != "raft" || len(l.ImpliedArgs()) != 2 || l.Named("x").Name() != "raft.x" {
		t.Errorf("name %q, implied %v", l.Name(), l.ImpliedArgs())
	}
	l.StandardLogger(nil).Print("std")
	all := logs.All()
	if len(all) != 4 || all[0].Level != zapcore.InfoLevel || all[1].Level != zapcore.WarnLevel ||
		all[2].Level != zapcore.ErrorLevel {
		t.Fatalf("logged %+v", all)
	}
	got := all[0].ContextMap()
	want := map[string]any{"group": int64(1), "n": int64(3), "err": "bad", "list": "1-2", "extra": "odd"}
	for key, want := range want {
		if got[key] != want {
			t.Errorf("%s is %v (%T), want %v", key, got[key], got[key], want)
		}
	}
}

func TestClockOfAGroup(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		walls := map[string]time.Duration{"b": time.Hour, "c": -time.Hour}
		for _, n := range w.nodes {
			n.wall = func() time.Time { return time.Now().Add(walls[n.name]) }
		}
		w.found()
		w.put("one")
		last := w.leader().group().Now()
		// The wall clocks disagree by hours; the cluster clock never jumps.
		for range 6 {
			leader := w.leader()
			w.pause(3 * time.Second)
			now := leader.group().Now()
			if d := time.Duration(now - last); d < 0 || d > 10*time.Second {
				t.Errorf("the cluster clock moved by %v in some seconds", d)
			}
			last = now
			w.powerCut(nil, 0, leader)
			w.put("another")
			leader.up()
			w.eventually("replicas to be back", func() bool { return leader.group().Status().Replicating })
		}
		for _, n := range w.nodes {
			if d := time.Duration(
				n.group().Now() - w.leader().group().Now(),
			); d.Abs() > 100*time.Millisecond {
				t.Errorf("%s is off the leader by %v", n.name, d)
			}
		}
		// A full stop within one boot goes on where it was.
		w.powerCut(nil, 0, w.nodes...)
		w.pause(time.Minute)
		for _, n := range w.nodes {
			n.up()
		}
		w.put("after")
		if d := time.Duration(w.leader().group().Now() - last); d < time.Minute || d > 2*time.Minute {
			t.Errorf("the cluster clock moved by %v over a minute without power", d)
		}
	})
}

func TestLeaderWithAWrongWallClockYields(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		var off atomic.Int64
		bad := w.nodes[0]
		bad.wall = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		w.found()
		w.put("one")
		w.eventually("the node to lead", func() bool {
			leader := w.leader()
			return leader == bad || leader.group().Transfer(t.Context(), bad.name) != nil || w.leader() == bad
		})
		off.Store(int64(time.Hour))
		w.pause(2 * clockYield)
		if w.leader() == bad {
			t.Error("a node whose wall clock is an hour off still leads")
		}
		if !bad.group().Clock().Health().WallOff {
			t.Error("its clock's health says nothing")
		}
	})
}

func TestServersAreAddresses(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		n := w.nodes[0]
		n.up()
		h := n.host()
		for _, g := range h.Groups() {
			if want := string(transport.Address("a", h.Incarnation())); g.Server() != want {
				t.Errorf("group %d: %q, want %q", g.ID(), g.Server(), want)
			}
		}
		if h.Group(2) != nil {
			t.Error("there is a group 2")
		}
		if err := h.Bootstrap([]Founder{{Node: "a/b", Incarnation: "1"}}); !errors.Is(err, errConfig) {
			t.Errorf("a bad founder: %v", err)
		}
	})
}
