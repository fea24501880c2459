package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// join starts what makes this node a member: gossip, and, where there is no state
// anywhere, the first configuration. It does not wait for the others.
func (n *Node) join(ctx context.Context) error {
	n.host.Transport().Handle(callIdentity, n.onIdentity)
	n.host.Transport().Handle(callMember, n.isMember)
	n.host.Transport().Handle(callGivenUp, n.onGivenUp)
	n.host.Transport().Handle(callBegun, n.onBegun)
	n.host.Transport().Handle(callGroups, n.onGroups)
	n.host.Transport().Handle(callMoved, n.onMoved)
	n.host.Transport().Handle(callAcceptClock, n.onAcceptClock)
	n.host.Transport().Handle(callCluster, func(context.Context, string, uint32, []byte) ([]byte, error) {
		return []byte(n.host.ClusterID()), nil
	})
	if len(n.cfg.Peers) == 0 && n.cfg.SerfListen != "" {
		if err := n.startGossip(); err != nil {
			return err
		}
	}
	switch {
	case n.host.ClusterID() != "":
	case n.host.Lost(): // the others say to which cluster it belongs
		n.log.Warn("the file that says who this node is was damaged: it waits for the other nodes, and founds nothing")
	case len(n.cfg.Peers) > 0:
		n.wg.Go(func() { n.found(n.ctx, n.fixedFounders) })
	case n.cfg.BootstrapExpect > 1 || n.cfg.BootstrapExpect == 1 && len(n.cfg.Join) > 0:
		n.wg.Go(func() { n.found(n.ctx, n.gossipFounders) })
	case len(n.cfg.Join) > 0: // the cluster's leader adds this node
	default:
		if err := n.host.BootstrapSingle(ctx); err != nil {
			return err
		}
	}
	n.wg.Go(func() { n.refuseForeign(n.ctx) })
	n.wg.Go(func() { n.refuseTwin(n.ctx) })
	n.wg.Go(func() { n.meet(n.ctx) })
	n.wg.Go(func() { n.refuseRemoved(n.ctx) })
	n.wg.Go(func() { n.tellGivenUp(n.ctx) })
	n.wg.Go(func() { n.watchLevel(n.ctx) })
	n.wg.Go(func() { n.tellAddress(n.ctx) })
	n.wg.Go(func() { n.register(n.ctx) })
	n.wg.Go(func() { n.control(n.ctx) })
	n.wg.Go(func() { n.watchLink(n.ctx) })
	return nil
}

func (n *Node) startGossip() error {
	profile := discovery.LAN
	if n.cfg.Profile == "local" {
		profile = discovery.Local
	}
	seeds := slices.Clone(n.cfg.Join)
	n.meta.Scan(replication.NodePrefix, func(r record.MetaRow) bool {
		var row replication.NodeRow
		if json.Unmarshal(r.Value, &row) == nil && row.ID != n.cfg.NodeID && row.Serf != "" && len(seeds) < maxSeeds {
			seeds = append(seeds, row.Serf)
		}
		return true
	})
	slices.Sort(seeds)
	g, err := discovery.Start(n.ctx, discovery.Config{
		NodeID: n.cfg.NodeID, BindAddr: n.cfg.SerfListen, AdvertiseAddr: n.cfg.SerfAdvertise,
		Join: slices.Compact(seeds), SnapshotPath: filepath.Join(n.cfg.DataDir, "gossip"), Profile: profile,
		Tags: discovery.Tags{
			ClusterID: n.host.ClusterID(), NodeID: n.cfg.NodeID, Expect: n.expect(),
			RaftAddr: n.raftAddr(), RouteAddr: n.hub.RouteAddr(), AdminAddr: n.cfg.AdminListen,
			ClientAddr: n.hub.ClientAddr(), Version: Version, Incarnations: n.host.Incarnation(),
			Feature: n.feature(), Level: n.level(),
		},
		Logger: n.log.Named("gossip"),
	})
	if err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	n.gossip = g
	n.wg.Go(n.observe)
	return nil
}

// expect is how many founders this node waits for: none if it is of a cluster, whichever that is.
func (n *Node) expect() int {
	if n.host.Lost() {
		return 0
	}
	return n.cfg.BootstrapExpect
}

// onIdentity answers callIdentity. One whose replicas have other ids than its directory founds nothing.
func (n *Node) onIdentity(context.Context, string, uint32, []byte) ([]byte, error) {
	if n.host.Lost() {
		return nil, fmt.Errorf("%w: the file that says who node %s is", record.ErrDamaged, n.cfg.NodeID)
	}
	return []byte(n.host.Incarnation()), nil
}

// others says whether the settings name other nodes, or expect some.
func (c *Config) others() bool { return len(c.Peers) > 1 || len(c.Join) > 0 || c.BootstrapExpect > 1 }

// maxSeeds bounds the gossip addresses that are tried.
const maxSeeds = 16

// raftAddr is where other nodes reach this node's replicas.
func (n *Node) raftAddr() string {
	if n.cfg.RaftAdvertise != "" {
		return n.cfg.RaftAdvertise
	}
	if a := n.host.Transport().Addr(); a != nil {
		if _, ok := a.(*net.TCPAddr); ok {
			return a.String()
		}
	}
	return n.cfg.RaftListen
}

func (n *Node) serfAddr() string {
	if n.gossip == nil {
		return ""
	}
	return n.gossip.Addr().String()
}

// found makes the first configuration of every group when the founders are known:
// the lowest node id does, and it alone, so that there is one configuration and
// not as many as there are views of the cluster. The others receive it. What was
// begun and interrupted is finished by it, or by whoever leads group 0 then: the
// one that began it may be back without its files, and is no founder then.
func (n *Node) found(ctx context.Context, founders func(context.Context) []replication.Founder) {
	n.every(ctx, membershipTick, func() bool {
		if n.host.ClusterID() != "" {
			return false
		}
		list := n.begun()
		if list == nil && n.comesBack(ctx) {
			return true
		}
		begun := list != nil
		if agreed := n.agree(n.founderGroups(ctx)); !begun {
			if !agreed {
				return true
			}
			list = founders(ctx)
		}
		mine := len(list) > 0 && list[0].Node == n.cfg.NodeID
		if !mine && (!begun || !n.meta.Leading()) || !begun && n.othersBegan(ctx, list) {
			return true
		}
		if err := n.establish(ctx, list); err != nil && ctx.Err() == nil {
			n.log.Warn("bootstrap", zap.Error(err))
			return true
		}
		return false
	})
}

// comesBack says whether the peers of a fixed membership have a cluster already: then
// this node has lost its data directory, founds nothing, and asks for its place.
func (n *Node) comesBack(ctx context.Context) bool {
	for id := range n.fixed {
		if id == n.cfg.NodeID {
			continue
		}
		call, cancel := context.WithTimeout(ctx, foreignCall)
		b, err := n.host.Transport().Call(call, id, replication.Metadata, callCluster, nil)
		cancel()
		if err != nil || len(b) == 0 {
			continue
		}
		if err := n.host.Announce(ctx); err != nil && ctx.Err() == nil {
			n.log.Info("a member without its old data is not known to the cluster yet", zap.Error(err))
		}
		return true
	}
	return false
}

// begun returns the founders of a bootstrap that has begun: this node's own, which
// a stop interrupted, or another's, whose cluster id is on its way.
func (n *Node) begun() []replication.Founder {
	var out []replication.Founder
	for _, m := range n.host.Group(replication.Metadata).Status().Members {
		_, incarnation, _ := strings.Cut(m.Server, "/")
		out = append(out, replication.Founder{Node: m.Node, Incarnation: incarnation})
	}
	slices.SortFunc(out, func(a, b replication.Founder) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// othersBegan says whether one of the other founders holds a first configuration already, or does not answer:
// a second one beside it would make two clusters.
func (n *Node) othersBegan(ctx context.Context, founders []replication.Founder) bool {
	for _, f := range founders {
		if f.Node == n.cfg.NodeID {
			continue
		}
		call, cancel := context.WithTimeout(ctx, foreignCall)
		b, err := n.host.Transport().Call(call, f.Node, replication.Metadata, callBegun, nil)
		cancel()
		if err != nil || string(b) != notBegun {
			n.log.Info("bootstrap waits: a founder has begun one, or does not answer",
				zap.String("node", f.Node), zap.Error(err))
			return true
		}
	}
	return false
}

// Answers to callBegun.
const (
	hasBegun = "begun"
	notBegun = "not begun"
)

func (n *Node) onBegun(context.Context, string, uint32, []byte) ([]byte, error) {
	if n.begun() != nil || n.host.Lost() {
		return []byte(hasBegun), nil
	}
	return []byte(notBegun), nil
}

func (n *Node) establish(ctx context.Context, founders []replication.Founder) error {
	ids := make([]string, 0, len(founders))
	for _, f := range founders {
		ids = append(ids, f.Node)
	}
	n.log.Info("bootstrapping a cluster", zap.Strings("founders", ids))
	if err := n.host.Bootstrap(founders); err != nil {
		return err
	}
	value, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	// Before the cluster has an id, so that nobody is ready before the list is there.
	err = n.meta.Write(ctx, []record.MetaCond{{Key: foundersKey}}, []record.MetaWrite{{Key: foundersKey, Value: value}})
	if _, ok := n.meta.Get(foundersKey); err != nil && !ok {
		return err
	}
	if err := n.formed(ctx); err != nil {
		return err
	}
	return n.host.MintCluster(ctx)
}

// formWait is how long formed waits before the bootstrap is tried again.
const formWait = 5 * time.Second

// formed returns once every event group has had a leader: then a majority holds its first configuration. Before that
// the cluster has no id, so that whoever leads group 0 finishes what was begun: one that began it, gave the cluster an
// id and came back without its files might have been the only one to hold that of a group.
func (n *Node) formed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, formWait)
	defer cancel()
	var err error
	n.every(ctx, membershipTick, func() bool {
		err = nil
		for _, g := range n.host.Groups()[1:] {
			row, _, rerr := replication.Row[replication.GroupRow](n.host.Meta(), replication.GroupKey(g.ID()))
			if rerr != nil || row.Term == 0 {
				err = errors.Join(err, rerr, fmt.Errorf("group %d: no leader yet", g.ID()))
			}
		}
		return err != nil
	})
	return err
}

// founderCount is how many of the nodes found the cluster: odd, at most max_voters.
func (n *Node) founderCount(nodes int) int {
	count := min(nodes, n.settings().MaxVoters)
	return count - (count+1)%2
}

// gossipFounders returns the founders once all expected nodes are seen, agree on
// their number, and none belongs to a cluster.
func (n *Node) gossipFounders(context.Context) []replication.Founder {
	var out []replication.Founder
	for _, m := range n.peers() {
		if m.Status != discovery.Alive || m.Tags.Expect == 0 && m.Tags.ClusterID == "" {
			continue
		}
		if m.Tags.ClusterID != "" || m.Tags.Expect != n.cfg.BootstrapExpect { // whether or not it expected anybody
			n.log.Warn("bootstrap waits: a node expects another number, or is a member already",
				zap.String("node", m.NodeID), zap.Int("expects", m.Tags.Expect), zap.String("cluster", m.Tags.ClusterID))
			return nil
		}
		out = append(out, replication.Founder{Node: m.NodeID, Incarnation: m.Tags.Incarnations})
	}
	if len(out) < n.cfg.BootstrapExpect {
		return nil
	}
	slices.SortFunc(out, func(a, b replication.Founder) int { return cmp.Compare(a.Node, b.Node) })
	return out[:n.founderCount(len(out))]
}

// fixedFounders asks the peers of a fixed membership who they are.
func (n *Node) fixedFounders(ctx context.Context) []replication.Founder {
	ids := make([]string, 0, len(n.fixed))
	for id := range n.fixed {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	ids = ids[:n.founderCount(len(ids))]
	if len(ids) == 0 || ids[0] != n.cfg.NodeID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var out []replication.Founder
	for _, id := range ids {
		b, err := n.host.Transport().Call(ctx, id, replication.Metadata, callIdentity, nil)
		if err != nil {
			n.log.Info("bootstrap waits for a peer", zap.String("node", id), zap.Error(err))
			return nil
		}
		out = append(out, replication.Founder{Node: id, Incarnation: string(b)})
	}
	return out
}

// parsePeers reads "id=addr" entries; Config.Validate has judged them.
func parsePeers(peers []string) map[string]string {
	out := make(map[string]string, len(peers))
	for _, p := range peers {
		if id, addr, ok := strings.Cut(p, "="); ok {
			out[id] = addr
		}
	}
	return out
}
