package replication

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"
)

// Limits and defaults of a group.
const (
	// MaxAppendEntries bounds the entries of one append, of one fsync and of one apply.
	MaxAppendEntries = 512
	// MaxInFlight bounds the proposals of a group that wait for their Done. Below
	// MaxAppendEntries, the capacity of Raft's queue, so that Propose never blocks.
	MaxInFlight = 480
	// MinTrailing and MaxTrailing bound the entries that stay in the log behind a
	// snapshot; between them TrailingBytes decides.
	MinTrailing = 1024
	MaxTrailing = 65536
	// TrailingBytes is what stays in the log behind a snapshot, so that a replica
	// that was away for a moment needs no snapshot.
	TrailingBytes = 256 << 20
	// LogMaxBytes is the size of a log at which the group is snapshotted.
	LogMaxBytes = 1 << 30
	// MetaLogMaxBytes is LogMaxBytes of the metadata group.
	MetaLogMaxBytes = 16 << 20
	// SnapshotAge is the age of the oldest entry a restart must replay at which the group is snapshotted.
	SnapshotAge = 5 * time.Minute
	// InstallKeep is for how long a leader keeps a snapshot, and the log behind it, for a
	// follower whose install was cut, or that has it and does not come on.
	InstallKeep = 2 * time.Minute
	// InstallLogBytes is the size of the log, or that of the snapshot if it is larger, from
	// which on nothing of it is kept for followers that are being brought up.
	InstallLogBytes = 4 << 30
	// SnapshotCheck is how often size and age are looked at.
	SnapshotCheck = time.Second

	// transferFresh is how recently a peer must have acknowledged everything to be handed the leadership.
	transferFresh = 200 * time.Millisecond
	// stuckTransfer, in election timeouts, is how long transfers may refuse everything
	// before the Raft instance is created anew.
	stuckTransfer = 3
	// stuckWrite is how long a write of the log may hang before the process must stop:
	// the transport gave up the leadership long before.
	stuckWrite = 30 * time.Second
	// fewGroups is up to how many event groups an idle leader tells its commit index
	// as often as LAN says; idleCommit is how often with more.
	fewGroups  = 4
	idleCommit = 500 * time.Millisecond
	// noRaftSnapshots keeps Raft from snapshotting by its own rules (entry counts).
	noRaftSnapshots = time.Hour
)

// Timeouts of a group. All nodes must use the same.
type Timeouts struct {
	Heartbeat time.Duration // a follower without contact for this long campaigns
	Election  time.Duration // a candidate without a result for this long tries again; at least Heartbeat
	Lease     time.Duration // a leader without a majority for this long steps down; at most Heartbeat
	Commit    time.Duration // an idle follower hears of the commit index after at most twice this
}

// LAN are the default timeouts: measured median fail-over 2.5 s.
func LAN() Timeouts {
	return Timeouts{
		Heartbeat: time.Second,
		Election:  time.Second,
		Lease:     500 * time.Millisecond,
		Commit:    50 * time.Millisecond,
	}
}

// Fast are timeouts for disks whose fsync never takes 100 ms: measured median fail-over 1.1 s.
func Fast() Timeouts {
	return Timeouts{
		Heartbeat: 500 * time.Millisecond, Election: 500 * time.Millisecond, Lease: 250 * time.Millisecond,
		Commit: 50 * time.Millisecond,
	}
}

// Local are timeouts for virtual time only; on a loaded machine they flap.
func Local() Timeouts {
	return Timeouts{
		Heartbeat: 250 * time.Millisecond, Election: 250 * time.Millisecond, Lease: 150 * time.Millisecond,
		Commit: 20 * time.Millisecond,
	}
}

func (t Timeouts) validate() error {
	switch {
	case t.Heartbeat < 50*time.Millisecond:
		return fmt.Errorf("heartbeat timeout is %v, want at least 50ms", t.Heartbeat)
	case t.Election < t.Heartbeat:
		return fmt.Errorf(
			"election timeout is %v, want at least the heartbeat timeout %v",
			t.Election,
			t.Heartbeat,
		)
	case t.Lease < 10*time.Millisecond || t.Lease > t.Heartbeat:
		return fmt.Errorf(
			"leader lease timeout is %v, want 10ms to the heartbeat timeout %v",
			t.Lease,
			t.Heartbeat,
		)
	case t.Commit < time.Millisecond || t.Commit > t.Heartbeat:
		return fmt.Errorf("commit timeout is %v, want 1ms to the heartbeat timeout %v", t.Commit, t.Heartbeat)
	}
	return nil
}

// Retention says how much log stays behind snapshots and when they are taken.
type Retention struct {
	MinTrailing, MaxTrailing uint64 // entries
	TrailingBytes            int64
	LogMaxBytes              int64
	SnapshotAge              time.Duration
	SnapshotCheck            time.Duration
	InstallKeep              time.Duration
	InstallLogBytes          int64
}

// DefaultRetention is that of an event group.
func DefaultRetention() Retention {
	return Retention{
		MinTrailing: MinTrailing, MaxTrailing: MaxTrailing, TrailingBytes: TrailingBytes,
		LogMaxBytes: LogMaxBytes, SnapshotAge: SnapshotAge, SnapshotCheck: SnapshotCheck,
		InstallKeep: InstallKeep, InstallLogBytes: InstallLogBytes,
	}
}

// MetaRetention is that of the metadata group: tiny, snapshotted often.
func MetaRetention() Retention {
	r := DefaultRetention()
	r.LogMaxBytes, r.TrailingBytes = MetaLogMaxBytes, MetaLogMaxBytes/4
	return r
}

func (r Retention) validate() error {
	switch {
	// Half of it must hold what is in flight: a follower's tail that reaches past a
	// snapshot it is sent can wedge hashicorp/raft v1.8.0 (issue 697).
	case r.MinTrailing < 4 || r.MaxTrailing < r.MinTrailing:
		return fmt.Errorf(
			"trailing entries are %d to %d, want at least 4 and an order",
			r.MinTrailing,
			r.MaxTrailing,
		)
	case r.TrailingBytes < 0 || r.LogMaxBytes <= 0:
		return fmt.Errorf(
			"trailing bytes are %d, log bytes %d, want positive ones",
			r.TrailingBytes,
			r.LogMaxBytes,
		)
	case r.SnapshotAge <= 0 || r.SnapshotCheck <= 0:
		return fmt.Errorf("snapshot age is %v, check %v, want positive ones", r.SnapshotAge, r.SnapshotCheck)
	case r.InstallKeep <= 0 || r.InstallLogBytes < r.LogMaxBytes:
		return fmt.Errorf("snapshots are kept for %v and %d bytes of log, want a positive time and at least %d",
			r.InstallKeep, r.InstallLogBytes, r.LogMaxBytes)
	}
	return nil
}

// trailing is how many entries of a log of this size stay behind a snapshot.
func (r Retention) trailing(entries uint64, bytes int64) uint64 {
	if entries == 0 || bytes <= 0 {
		return r.MaxTrailing
	}
	mean := max(1, bytes/int64(entries))
	return min(max(uint64(r.TrailingBytes/mean), r.MinTrailing), r.MaxTrailing)
}

func (r Retention) inFlight() int64 { return int64(min(MaxInFlight, r.MinTrailing/2)) }

func raftConfig(id raft.ServerID, t Timeouts, r Retention, log *zap.Logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = id
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = t.Heartbeat, t.Election, t.Lease
	c.CommitTimeout = t.Commit
	c.MaxAppendEntries = MaxAppendEntries
	// Without it one proposer's entries are never gathered into one fsync.
	c.BatchApplyCh = true
	// Demotion of the leader counts as removal there.
	c.ShutdownOnRemove = false
	c.TrailingLogs = r.MaxTrailing
	c.SnapshotInterval, c.SnapshotThreshold = noRaftSnapshots, math.MaxUint64
	// The state database is its own snapshot.
	c.NoSnapshotRestoreOnStart = true
	c.RestoreCommittedLogs = false
	c.NoLegacyTelemetry = true
	c.Logger = newRaftLogger(log)
	return c
}

var errConfig = errors.New("replication: bad configuration")
