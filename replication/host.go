package replication

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/clock"
	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// Metadata is the number of the metadata group; event groups are 1 to Config.Groups.
const Metadata = 0

// MaxGroups bounds the event groups of a node: each costs goroutines, files and heartbeats.
const MaxGroups = 64

// Segment size of the metadata group's log.
const metaSegmentSize = 4 << 20

// Config describes the replicas of one node. The zero value of a field without
// "required" means its default.
type Config struct {
	// NodeID is this node's id: required, 1 to 127 bytes without '/'.
	NodeID string
	// Dir is the data directory: required. FS is its file system, default the operating system's.
	Dir string
	FS  storage.FS
	// Groups is the number of event groups, default 1, at most MaxGroups. The same on all nodes.
	Groups int
	// Timeouts, default LAN. The same on all nodes.
	Timeouts Timeouts
	// Retention of event groups and of the metadata group.
	Retention, MetaRetention Retention
	// Log and Store are templates: directory, file system and logger are filled in.
	// Log.SegmentSize is that of event groups.
	Log   seglog.Config
	Store storage.Config
	// MetaSegmentSize is the segment size of the metadata group's log, default 4 MiB.
	MetaSegmentSize int64
	// Transport is a template: NodeID, ClusterID, HeartbeatTimeout and Logger are
	// filled in; a node that Resolve does not know is looked up in the node rows.
	Transport transport.Config
	// LastAddress returns where a node was last, for one that neither Transport.Resolve nor the node rows know; nil
	// knows none.
	LastAddress func(nodeID string) (addr string, ok bool)
	// Handler returns what leads a group; nil, or a nil result, leads it with nothing.
	Handler func(group uint32) Handler
	// Nodes returns the ids of nodes that the node rows need not name: who may be asked
	// when this node cannot read them. nil, or a nil result, names none.
	Nodes func() []string
	// Others says that the node's settings name other nodes, or expect some: then there may
	// be another copy of what it holds. It matters where the data directory cannot say.
	Others bool
	// Clock of every group; Boottime, Wall and BootID default to the system's.
	Clock clock.Config
	// Logger, default silent.
	Logger *zap.Logger
	// Fatal is told of failures after which the process must not go on; called from any
	// goroutine, perhaps more than once; it must not call the Host. Required.
	Fatal func(error)

	// refuse refuses proposals of event groups, as Raft may at any time; for tests.
	refuse func(*record.Proposal) bool
}

func (c *Config) defaults() error {
	if c.FS == nil {
		c.FS = storage.DefaultFS()
	}
	if c.Groups == 0 {
		c.Groups = 1
	}
	if c.Timeouts == (Timeouts{}) {
		c.Timeouts = LAN()
		if c.Groups > fewGroups {
			c.Timeouts.Commit = idleCommit
		}
	}
	if c.Retention == (Retention{}) {
		c.Retention = DefaultRetention()
	}
	if c.MetaRetention == (Retention{}) {
		c.MetaRetention = MetaRetention()
	}
	if c.MetaSegmentSize == 0 {
		c.MetaSegmentSize = metaSegmentSize
	}
	if c.Handler == nil {
		c.Handler = func(uint32) Handler { return nil }
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c.clockDefaults()
}

func (c *Config) validate() error {
	switch {
	case c.NodeID == "":
		return fmt.Errorf("%w: NodeID is empty", errConfig)
	case c.Dir == "":
		return fmt.Errorf("%w: Dir is empty", errConfig)
	case c.Fatal == nil:
		return fmt.Errorf("%w: Fatal is missing", errConfig)
	case c.Groups < 1 || c.Groups > MaxGroups:
		return fmt.Errorf("%w: %d groups, want 1 to %d", errConfig, c.Groups, MaxGroups)
	}
	for _, err := range []error{c.Timeouts.validate(), c.Retention.validate(), c.MetaRetention.validate()} {
		if err != nil {
			return fmt.Errorf("%w: %w", errConfig, err)
		}
	}
	return nil
}

// Host holds this node's replicas of all groups. Make it with Open.
type Host struct {
	cfg   Config
	log   *zap.Logger
	ids   *idSource
	trans *transport.Transport

	groups   []*Group                 // by number
	opened   atomic.Pointer[[]*Group] // groups, once all are open
	meta     *Meta
	identity identity
	cluster  atomic.Pointer[string] // the cluster's id, once known
	lost     atomic.Bool            // identity.Lost
	failed   atomic.Pointer[error]

	dirty    chan struct{} // a Status may have changed; cap 1
	routines sync.WaitGroup
	cancel   context.CancelFunc
	stopRun  context.CancelFunc // of the transport

	mu     sync.Mutex // guards what follows
	closed bool
}

// Open opens or makes the replicas of every group and starts them. A data directory of
// another node is an error, and so is a damaged file NODE if no other node is known (see
// Host.Lost); nothing runs then. A group whose local data fails its checks
// is out of service here (Group.Damage); the others run. A full disk on which something has to
// be made is an error that wraps ENOSPC. ctx bounds nothing but is passed
// to what the Host starts; Shutdown ends it.
func Open(ctx context.Context, cfg Config) (*Host, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, log: cfg.Logger, ids: newIDSource(), dirty: make(chan struct{}, 1)}
	if err := h.start(ctx); err != nil {
		return nil, cfg.noRoom(err)
	}
	return h, nil
}

func (h *Host) start(ctx context.Context) error {
	var err error
	if h.identity, err = openIdentity(&h.cfg); err != nil {
		return err
	}
	h.lost.Store(h.identity.Lost)
	if h.identity.Cluster != "" {
		h.cluster.Store(&h.identity.Cluster)
	}
	h.meta = newMeta(h)
	if err := h.listen(ctx); err != nil {
		return err
	}
	ctx, h.cancel = context.WithCancel(ctx)
	for id := range uint32(h.cfg.Groups + 1) {
		g, err := openGroup(ctx, h, id, h.groupConfig(id), h.handler(id))
		if err != nil {
			return errors.Join(err, h.Shutdown())
		}
		h.groups = append(h.groups, g)
		if id == Metadata {
			h.meta.group.Store(g)
		}
	}
	h.opened.Store(&h.groups)
	if err := h.identity.settle(h.cfg.Groups); err != nil {
		return errors.Join(err, h.Shutdown())
	}
	h.meta.serve()
	h.routines.Go(func() { h.publishGroups(ctx) })
	h.routines.Go(func() { h.keepPlaces(ctx) })
	return nil
}

// address finds a node; it does not block.
func (h *Host) address(node string) (string, bool) {
	if h.cfg.Transport.Resolve != nil {
		if addr, ok := h.cfg.Transport.Resolve(node); ok {
			return addr, true
		}
	}
	if addr, ok := h.meta.raftAddress(node); ok || h.cfg.LastAddress == nil {
		return addr, ok
	}
	return h.cfg.LastAddress(node)
}

// listen opens the port. The transport outlives the groups: their last words go through it.
func (h *Host) listen(ctx context.Context) error {
	tc := h.cfg.Transport
	tc.NodeID, tc.ClusterID, tc.HeartbeatTimeout = h.cfg.NodeID, h.ClusterID, h.cfg.Timeouts.Heartbeat
	tc.Logger = h.log
	tc.Resolve = h.address
	var err error
	if h.trans, err = transport.New(tc); err != nil {
		return err
	}
	ctx, h.stopRun = context.WithCancel(context.WithoutCancel(ctx))
	h.routines.Go(func() {
		if err := h.trans.Run(ctx); err != nil {
			h.fatal(fmt.Errorf("transport: %w", err))
		}
	})
	return nil
}

func (h *Host) groupConfig(id uint32) groupConfig {
	c := groupConfig{
		Timeouts: h.cfg.Timeouts, Retention: h.cfg.Retention, FS: h.cfg.FS,
		Dir: h.cfg.FS.PathJoin(h.cfg.Dir, groupsDir, strconv.FormatUint(uint64(id), 10)),
		Log: h.cfg.Log, Store: h.cfg.Store, Incarnation: h.identity.first(id),
	}
	if id == Metadata {
		c.Retention, c.Log.SegmentSize = h.cfg.MetaRetention, h.cfg.MetaSegmentSize
	}
	return c
}

// has says whether this node must have a replica of a group: it belongs to a cluster
// that has the group, as far as is known, and made one before.
func (h *Host) has(group uint32) bool {
	if h.identity.without(group) {
		return false
	}
	if h.identity.Cluster == "" || group == Metadata {
		return h.identity.Cluster != ""
	}
	row, at, err := Row[ClusterRow](h.meta, ClusterKey)
	// A row that has not come yet cannot say that the group is a new one.
	return err != nil || at.Version == 0 || int(group) <= row.Groups
}

func (h *Host) handler(id uint32) Handler { //nolint:ireturn // what Config.Handler returns
	handler := h.cfg.Handler(id)
	if handler == nil {
		return idleHandler{}
	}
	return handler
}

// idleHandler leads a group that proposes nothing by itself.
type idleHandler struct{}

// Lead implements Handler.
func (idleHandler) Lead(ctx context.Context, _ *Term) { <-ctx.Done() }

func (h *Host) fatal(err error) {
	if h.failed.CompareAndSwap(nil, &err) {
		h.log.Error("replication failed, the process must stop", zap.Error(err))
	}
	h.cfg.Fatal(err)
}

// Failed returns the first failure that Config.Fatal was told, or nil.
func (h *Host) Failed() error {
	if err := h.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Group returns this node's replica of a group, or nil if there is no such group.
func (h *Host) Group(id uint32) *Group {
	if int(id) >= len(h.groups) {
		return nil
	}
	return h.groups[id]
}

// Groups returns all groups, the metadata group first.
func (h *Host) Groups() []*Group { return h.groups }

// Meta is the metadata group's row store.
func (h *Host) Meta() *Meta { return h.meta }

// Transport is the node's port; other parts of the node may add handlers to it. Kinds below
// FirstFreeKind are taken.
func (h *Host) Transport() *transport.Transport { return h.trans }

// Incarnation is the id that the first replicas on this data directory have in
// every group: what founders tell each other before a bootstrap. It is empty while
// Lost: the replicas have other ids then, which the node's row names.
func (h *Host) Incarnation() string {
	if h.Lost() {
		return ""
	}
	return h.identity.Incarnation
}

// GivenUp are the replicas, by server id, that Recover left out of their groups. With their
// old data they may still be a majority of what they know of: a higher term of theirs must not
// make this node drop what it acknowledged without them.
func (h *Host) GivenUp() []string { return h.identity.GivenUp }

// ClusterID is the cluster's id, or "" while this node belongs to none.
func (h *Host) ClusterID() string {
	if id := h.cluster.Load(); id != nil {
		return *id
	}
	return ""
}

// open makes the transport of a group's new Raft instance.
func (h *Host) open(g *Group, r *replica) (*transport.GroupTransport, error) {
	return h.trans.Group(transport.GroupConfig{
		ID:       g.id,
		Local:    r.server,
		Source:   source{g, r},
		Holder:   r.snaps,
		Stall:    r.logs.log.InFlightSince,
		Boottime: h.cfg.Clock.Boottime,
	})
}

// changed tells publishGroups and the rows' watchers that some Status may read differently.
func (h *Host) changed() {
	select {
	case h.dirty <- struct{}{}:
	default:
	}
}

// Shutdown ends everything, in this order: the leaders' terms and the replicas,
// event groups before the metadata group, then the port, then what is left. It does not
// wait for room on a full disk. Idempotent. It does not hand leadership over; see Group.Transfer.
func (h *Host) Shutdown() error {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.mu.Unlock()
	if closed {
		return nil
	}
	h.cancel() // writes of rows that wait for a leader give up
	h.meta.close()
	err := h.closeGroups()
	h.stopRun()
	err = errors.Join(err, h.trans.Close())
	h.routines.Wait()
	return err
}

// closeGroups closes the event groups side by side, since each may be held up by a full disk for a while.
func (h *Host) closeGroups() error {
	if len(h.groups) == 0 {
		return nil
	}
	errs := make([]error, len(h.groups))
	var events sync.WaitGroup
	for i, g := range h.groups[Metadata+1:] {
		events.Go(func() { errs[i+1] = g.close() })
	}
	events.Wait()
	errs[Metadata] = h.groups[Metadata].close()
	return errors.Join(errs...)
}
