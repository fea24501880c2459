package transport

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/clock"
)

// Defaults of Config.
const (
	DefaultHeartbeatTimeout = time.Second
	DefaultAppendTimeout    = 10 * time.Second
	DefaultSnapshotIdle     = 10 * time.Second
	DefaultRestoreTimeout   = 10 * time.Minute
	DefaultHandshakeTimeout = 5 * time.Second
	DefaultIdleTimeout      = 10 * time.Second
	DefaultTwinPatience     = 10 * time.Second
	DefaultAppendBytes      = 4 << 20
	DefaultMaxFrameBytes    = 72 << 20
	DefaultGroupQueue       = 64
	DefaultMaxCalls         = 128
	DefaultMaxInbound       = 256
	DefaultSnapshotChunk    = 256 << 10
	DefaultSnapshotWindow   = 2 << 20
)

// maxID is the longest node id, incarnation-carrying address or cluster id, in
// bytes: what the one-byte length of the wire can hold.
const maxID = 255

// Config is the node's side of the transport. A zero value of a duration or
// limit means its default.
type Config struct {
	// NodeID is this node's id: 1 to 127 bytes without '/'.
	NodeID string
	// ClusterID returns the cluster's id, or "" while this node does not know it
	// yet. nil means never known. It must not block.
	ClusterID func() string
	// Network makes connections; nil means TCP.
	Network Network
	// Listen is the address to listen on.
	Listen string
	// Resolve returns the current address of a node. It must not block.
	Resolve func(nodeID string) (addr string, ok bool)
	// Secure wraps a fresh connection before the first frame, as TLS does. It may
	// block until the connection's deadline, which is set. nil means none.
	Secure func(conn net.Conn, client bool) (net.Conn, error)
	// Admit judges the node id that a peer stated against what Secure knows about
	// the connection and against the membership. nil admits all.
	Admit func(nodeID string, conn net.Conn) error

	// HeartbeatTimeout is Raft's, the same on all nodes: the deadline of
	// heartbeats and votes and the length of the embargo.
	HeartbeatTimeout time.Duration
	// AppendTimeout is the deadline of an append that is not a heartbeat, and of one write.
	AppendTimeout time.Duration
	// SnapshotIdle ends an install that made no progress for so long.
	SnapshotIdle time.Duration
	// RestoreTimeout is how long a receiver may work on a snapshot after its last byte.
	RestoreTimeout time.Duration
	// HandshakeTimeout covers dial, Secure and the handshake of one connection.
	HandshakeTimeout time.Duration
	// IdleTimeout closes a connection on which nothing was received for so long;
	// idle connections are pinged ten times as often.
	IdleTimeout time.Duration
	// ProcessSilence is how long a peer's process counts as live after its last frame, while a connection of it is
	// open: so long another process with its node id is refused. Longer than the pause between two pings, which
	// is up to 3/20 of IdleTimeout; 0 means twice that, 3 s with the default.
	ProcessSilence time.Duration
	// TwinPatience is how long a peer must have refused this process, for one that it hears, until Twin says so.
	// Well above ProcessSilence of the peers: after a loss of power the connections of the process before count as
	// live for that long.
	TwinPatience time.Duration

	// AppendBytes is the size at which the entries of one append frame are cut; a
	// single larger entry still travels alone.
	AppendBytes int
	// MaxFrameBytes is the largest frame that is read.
	MaxFrameBytes int
	// GroupQueue is how many frames of one group may wait on one connection; more are refused.
	GroupQueue int
	// MaxCalls is how many calls of one peer may run at the same time; more are refused.
	MaxCalls int
	// MaxInbound is how many inbound connections may be open; more are closed at once.
	MaxInbound int
	// SnapshotChunk is the size of one snapshot frame, SnapshotWindow how many bytes
	// may be sent and not acknowledged.
	SnapshotChunk, SnapshotWindow int

	// Logger gets connection events; nil logs nothing.
	Logger *zap.Logger
}

func (c Config) withDefaults() Config {
	if c.Network == nil {
		c.Network = TCP{}
	}
	if c.ClusterID == nil {
		c.ClusterID = func() string { return "" }
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	orDuration(&c.HeartbeatTimeout, DefaultHeartbeatTimeout)
	orDuration(&c.AppendTimeout, DefaultAppendTimeout)
	orDuration(&c.SnapshotIdle, DefaultSnapshotIdle)
	orDuration(&c.RestoreTimeout, DefaultRestoreTimeout)
	orDuration(&c.HandshakeTimeout, DefaultHandshakeTimeout)
	orDuration(&c.IdleTimeout, DefaultIdleTimeout)
	orDuration(&c.ProcessSilence, 2*c.pingGap())
	orDuration(&c.TwinPatience, max(DefaultTwinPatience, 2*c.ProcessSilence))
	orInt(&c.AppendBytes, DefaultAppendBytes)
	orInt(&c.MaxFrameBytes, DefaultMaxFrameBytes)
	orInt(&c.GroupQueue, DefaultGroupQueue)
	orInt(&c.MaxCalls, DefaultMaxCalls)
	orInt(&c.MaxInbound, DefaultMaxInbound)
	orInt(&c.SnapshotChunk, DefaultSnapshotChunk)
	orInt(&c.SnapshotWindow, DefaultSnapshotWindow)
	return c
}

// pingEvery is how often a connection is pinged, at the least; see pingGap.
func (c Config) pingEvery() time.Duration { return c.IdleTimeout / 10 }

// pingGap is the longest pause between two pings: pings are due at ticks, two for each.
func (c Config) pingGap() time.Duration { return c.pingEvery() * 3 / 2 }

func orDuration(v *time.Duration, def time.Duration) {
	if *v == 0 {
		*v = def
	}
}

func orInt(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

// maxNodeID leaves room for '/' and an incarnation in an address.
const maxNodeID = 127

func (c Config) validate() error {
	if err := checkNodeID(c.NodeID); err != nil {
		return err
	}
	if c.Resolve == nil {
		return errors.New("transport: Resolve is missing")
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"HeartbeatTimeout", c.HeartbeatTimeout},
		{"AppendTimeout", c.AppendTimeout},
		{"SnapshotIdle", c.SnapshotIdle},
		{"RestoreTimeout", c.RestoreTimeout},
		{"HandshakeTimeout", c.HandshakeTimeout},
		{"IdleTimeout", c.IdleTimeout},
		{"ProcessSilence", c.ProcessSilence},
		{"TwinPatience", c.TwinPatience},
	} {
		if d.v < 0 {
			return fmt.Errorf("transport: %s is %v, it must be positive", d.name, d.v)
		}
	}
	if c.ProcessSilence <= c.pingGap() {
		return fmt.Errorf("transport: ProcessSilence is %v, it must be longer than the pause between pings, %v",
			c.ProcessSilence, c.pingGap())
	}
	if c.TwinPatience < 2*c.ProcessSilence {
		return fmt.Errorf("transport: TwinPatience is %v, it must be at least twice ProcessSilence, %v",
			c.TwinPatience, c.ProcessSilence)
	}
	for _, n := range []struct {
		name string
		v    int
	}{
		{"AppendBytes", c.AppendBytes},
		{"MaxFrameBytes", c.MaxFrameBytes},
		{"GroupQueue", c.GroupQueue},
		{"MaxCalls", c.MaxCalls},
		{"MaxInbound", c.MaxInbound},
		{"SnapshotChunk", c.SnapshotChunk},
	} {
		if n.v < 0 {
			return fmt.Errorf("transport: %s is %d, it must be positive", n.name, n.v)
		}
	}
	if c.MaxFrameBytes < c.AppendBytes || c.MaxFrameBytes < c.SnapshotChunk+frameSlack {
		return fmt.Errorf(
			"transport: MaxFrameBytes %d is less than an append (%d) or a snapshot chunk (%d) needs",
			c.MaxFrameBytes,
			c.AppendBytes,
			c.SnapshotChunk+frameSlack,
		)
	}
	if c.SnapshotWindow < c.SnapshotChunk {
		return fmt.Errorf(
			"transport: SnapshotWindow %d is less than SnapshotChunk %d",
			c.SnapshotWindow,
			c.SnapshotChunk,
		)
	}
	return nil
}

func checkNodeID(id string) error {
	if id == "" || len(id) > maxNodeID || strings.Contains(id, "/") {
		return fmt.Errorf("transport: node id %q: want 1 to %d bytes without '/'", id, maxNodeID)
	}
	return nil
}

// GroupConfig is one group's side of the transport.
type GroupConfig struct {
	// ID is the group's number, the same on all nodes.
	ID uint32
	// Local is this replica's server id and address: "nodeID/incarnation".
	Local raft.ServerAddress
	// Voters of the latest configuration as the log on disk has it; empty when there
	// is none. SetVoters replaces them.
	Voters []raft.ServerAddress
	// Source supplies and judges hellos and beats; nil sends empty ones and accepts all.
	Source HelloSource
	// Holder says what is held of a snapshot whose install was cut; nil means nothing.
	Holder SnapshotHolder
	// Stall reports the log write in flight, if any. While one has been in flight for
	// more than half the heartbeat timeout, appends fail, so that followers elect
	// another leader. nil means never. It must not block.
	Stall func() (since time.Time, inFlight bool)
	// Boottime reads CLOCK_BOOTTIME; nil means clock.Boottime.
	Boottime func() time.Duration
}

func (c GroupConfig) withDefaults() GroupConfig {
	if c.Source == nil {
		c.Source = noSource{}
	}
	if c.Holder == nil {
		c.Holder = noHolder{}
	}
	if c.Stall == nil {
		c.Stall = func() (time.Time, bool) { return time.Time{}, false }
	}
	if c.Boottime == nil {
		c.Boottime = clock.Boottime
	}
	return c
}

func (c GroupConfig) validate(nodeID string) error {
	node, err := NodeOf(c.Local)
	if err != nil {
		return err
	}
	if node != nodeID {
		return fmt.Errorf("transport: group %d: local address %q is not of node %q", c.ID, c.Local, nodeID)
	}
	for _, v := range c.Voters {
		if _, err := NodeOf(v); err != nil {
			return fmt.Errorf("group %d: voter: %w", c.ID, err)
		}
	}
	return nil
}

// Address makes the server id and address of a replica.
func Address(nodeID, incarnation string) raft.ServerAddress {
	return raft.ServerAddress(nodeID + "/" + incarnation)
}

// NodeOf returns the node id in a server address "nodeID/incarnation".
func NodeOf(addr raft.ServerAddress) (string, error) {
	node, incarnation, ok := strings.Cut(string(addr), "/")
	if !ok || incarnation == "" || len(addr) > maxID || checkNodeID(node) != nil {
		return "", fmt.Errorf(
			"transport: server address %q: want \"nodeID/incarnation\" of at most %d bytes",
			addr,
			maxID,
		)
	}
	return node, nil
}
