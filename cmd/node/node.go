package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/ingress"
	"github.com/holdfast-mq/holdfast/ingress/hub"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/disk"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// Version is what infos and status show.
const Version = "0.1.0"

// Node is a running node.
type Node struct {
	cfg    Config
	log    *zap.Logger
	host   *replication.Host
	disk   *disk.Guard
	hub    *hub.Hub
	server *ingress.Server
	meta   *meta
	admin  *admin
	lock   *DirLock
	fatal  chan error
	ctx    context.Context //nolint:containedctx // the node's scope; ended by Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ready  chan struct{} // closed when server is set
	once   sync.Once
	failed error

	gossip  *discovery.Discovery // nil with fixed membership
	members atomic.Pointer[[]discovery.Member]
	fixed   map[string]string // Raft addresses of a fixed membership
	started time.Time
	// Of the goroutine of control alone.
	sightings    map[string]*sighting
	leadingSince time.Time
	reasons      map[uint32]string
	balance      *balance

	told    sync.Map               // node id to the Raft address that it told, for members without a leader
	heard   sync.Map               // node id to the Raft address that gossip heard last
	parting atomic.Bool            // the node is leaving its cluster by itself
	discord atomic.Pointer[string] // how the founders differ, empty if they do not; see agree
}

// Start builds and starts a node. ctx bounds the start only. What was started is
// stopped again if it fails.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &Node{
		cfg: cfg, log: cfg.Logger, fatal: make(chan error, 1), ctx: run, cancel: cancel, ready: make(chan struct{}),
		fixed: parsePeers(cfg.Peers), started: time.Now(),
		sightings: make(map[string]*sighting), reasons: make(map[uint32]string),
		balance: newBalance(),
	}
	for _, step := range []func(context.Context) error{
		n.claim, n.watchDisk, n.startGroups, n.startHub, n.startIngress, n.join, n.startAdmin,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, n.Stop(ctx))
		}
	}
	return n, nil
}

// Failed is told when the node can not go on; it must be stopped then.
func (n *Node) Failed() <-chan error { return n.fatal }

func (n *Node) onFatal(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

func (n *Node) startGroups(context.Context) error {
	host, err := replication.Open(n.ctx, replication.Config{
		NodeID: n.cfg.NodeID, Dir: n.cfg.DataDir, FS: n.disk.FS(), Groups: n.cfg.Groups, Timeouts: n.cfg.timeouts(),
		Transport: transport.Config{Listen: n.cfg.RaftListen, Resolve: n.resolve}, LastAddress: n.lastHeard,
		Log:       seglog.Config{SegmentSize: n.cfg.SegmentSize, SealAfter: seglog.DefaultSealAfter},
		Retention: n.cfg.Retention,
		Handler:   n.handler, Nodes: n.known, Others: n.cfg.others(), Logger: n.log.Named("raft"), Fatal: n.onFatal,
	})
	if err != nil {
		return fmt.Errorf("data directory %s: %w", n.cfg.DataDir, err)
	}
	n.host = host
	if err := cmp.Or(n.checkLevel(n.level()), n.checkGroups()); err != nil {
		return err
	}
	n.meta = newMeta(n.ctx, &n.wg, host, n.log)
	return nil
}

// handler leads a group through ingress.
func (n *Node) handler(group uint32) replication.Handler { //nolint:ireturn // as the port wants it
	if group == replication.Metadata {
		return nil
	}
	return leader{n, group}
}

type leader struct {
	n     *Node
	group uint32
}

// Lead implements replication.Handler.
func (l leader) Lead(ctx context.Context, t *replication.Term) {
	select {
	case <-l.n.ready:
	case <-ctx.Done():
		return
	}
	l.n.server.Lead(ctx, l.group, t, rows{l.n.host.Group(l.group).Reader()})
}

func (n *Node) startHub(ctx context.Context) error {
	h, err := hub.Start(ctx, hub.Config{
		ServerName: n.cfg.NodeID, Listen: n.cfg.Listen, ConfigFile: n.cfg.NATSConfig,
		ClusterName: n.clusterName(), RouteListen: n.routeListen(), RouteAdvertise: n.cfg.RouteAdvertise,
		Log: n.log.Named("nats"), OnFatal: n.onFatal,
	})
	if err != nil {
		return err
	}
	n.hub = h
	return nil
}

// clusterName names the route cluster: all nodes of one use the same.
func (n *Node) clusterName() string {
	if n.routeListen() == "" {
		return ""
	}
	return "holdfast"
}

// routeListen is the route address, if this node may have peers.
func (n *Node) routeListen() string { return n.cfg.RouteListen }

func (n *Node) startIngress(context.Context) error {
	minAck, err := jsapi.ParseAckLevel(n.cfg.MinAck)
	if err != nil {
		return fmt.Errorf("min-ack: %w", err)
	}
	n.server, err = ingress.New(ingress.Config{
		Node: n.cfg.NodeID, Domain: n.hub.Domain(), Version: Version, MinAck: minAck, Groups: uint32(n.cfg.Groups),
		Voters: n.voters, Resign: n.resign, Cluster: n.cluster, ReadIndex: n.readIndex,
		Open:        n.open,
		Full:        n.disk.Refusing,
		AgesTrusted: n.agesTrusted, Now: n.clusterTime,
		Logger: n.log.Named("ingress"),
	}, natsHub{n.hub, n.cfg.NodeID, n.log}, n.meta, func(group uint32) ingress.Store {
		return rows{n.host.Group(group).Reader()}
	})
	if err != nil {
		return err
	}
	close(n.ready)
	return nil
}

func (n *Node) voters(group uint32) int {
	voters := 0
	if g := n.host.Group(group); g != nil {
		for _, m := range g.Status().Members {
			if m.Voter {
				voters++
			}
		}
	}
	return voters
}

// cluster describes a group by node ids; a node alone shows only its name.
func (n *Node) cluster(group uint32) *jsapi.ClusterInfo {
	g := n.host.Group(group)
	if g == nil {
		return nil
	}
	st := g.Status()
	info := &jsapi.ClusterInfo{Leader: st.Leader}
	if len(st.Members) < 2 {
		return info
	}
	info.Name = "holdfast"
	progress := make(map[string]replication.Progress)
	for _, p := range g.Progress() {
		progress[p.Server] = p
	}
	for _, m := range st.Members {
		if m.Node == st.Leader {
			continue
		}
		p := progress[m.Server]
		peer := jsapi.PeerInfo{Name: m.Node, Peer: m.Node, Active: max(p.Contact, 0)}
		peer.Lag = st.LastLog - min(p.Match, st.LastLog)
		peer.Current = peer.Lag == 0
		info.Replicas = append(info.Replicas, peer)
	}
	return info
}

// resignTimeout bounds one try to hand a group over.
const resignTimeout = 5 * time.Second

// resign gives the leadership of a group away.
func (n *Node) resign(group uint32) {
	n.wg.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, resignTimeout)
		defer cancel()
		if err := n.host.Group(group).Transfer(ctx, ""); err != nil {
			n.log.Warn("handing a group over", zap.Uint32("group", group), zap.Error(err))
		}
	})
}

func (n *Node) readIndex(ctx context.Context, group uint32) error {
	index, err := n.host.LeaderApplied(ctx, group)
	if err != nil {
		return err
	}
	return n.host.Group(group).WaitApplied(ctx, index)
}

// Stop ends the node; it is idempotent.
func (n *Node) Stop(ctx context.Context) error {
	n.once.Do(func() { n.failed = n.stop(ctx) })
	return n.failed
}

const (
	// settleTimeout bounds the answering of publishes that are on their way, before a stop.
	settleTimeout = 2 * time.Second
	// handOverTimeout bounds the handing over of all groups before a stop.
	handOverTimeout = 5 * time.Second
)

func (n *Node) stop(ctx context.Context) error {
	var errs []error
	if n.gossip != nil {
		// Nobody shall count on this node from here on.
		_ = n.gossip.SetTags(func(t *discovery.Tags) { t.Draining = true })
	}
	if n.server != nil {
		n.server.Drain() // what ends from here on ends with "Server Shutdown"
		settle, cancel := context.WithTimeout(ctx, settleTimeout)
		n.server.Settle(settle)
		cancel()
	}
	if n.host != nil {
		over, cancel := context.WithTimeout(ctx, handOverTimeout)
		n.handOverAll(over) // a planned change of leader takes milliseconds, an unplanned one seconds
		cancel()
		errs = append(errs, n.host.Shutdown()) // ends the terms: every publish is answered
	}
	n.cancel()
	if n.gossip != nil {
		n.gossip.Shutdown()
	}
	if n.server != nil {
		n.server.Close()
	}
	if n.hub != nil {
		n.hub.Stop() // after the answers above could leave
	}
	n.wg.Wait()
	if n.admin != nil {
		errs = append(errs, n.admin.close()) // late: it tells of the stop while it goes on
	}
	errs = append(errs, n.lock.Release()) // last: a successor may use the directory
	return errors.Join(errs...)
}
