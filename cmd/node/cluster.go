package node

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/membership"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Keys of group 0 that belong to the membership of the cluster.
const (
	membershipKey = "membership"
	foundersKey   = "founders"
	leavePrefix   = "leave/" // node id follows; the value is the incarnation that is to go
)

// Kinds of transport calls between nodes.
const (
	// callIdentity answers with the node's incarnation: what founders without gossip tell each other.
	callIdentity = replication.FirstFreeKind + iota
	// callMember answers, at the leader of group 0, whether a replica is in any group; see isMember.
	callMember
	// callCluster answers with the id of the cluster that the node belongs to, empty without one.
	callCluster
	// callBegun answers whether the node holds the first configuration of a cluster; see onBegun.
	callBegun
	// callMoved tells a node the Raft address of the caller, who hears no leader; see onMoved.
	callMoved
	// callAcceptClock tells a group's leader that the wall clocks are right; see onAcceptClock.
	callAcceptClock
	// callGivenUp tells a node that its replica was given up by the caller; see onGivenUp.
	callGivenUp
	// callGroups answers with the number of groups that the node was given; see agree.
	callGroups
)

// membershipTick is how often decisions are taken and steps are made.
const membershipTick = 500 * time.Millisecond

// changeTimeout bounds one change of a group's configuration.
const changeTimeout = 10 * time.Second

// sighting is what this node remembers of another one.
type sighting struct {
	alive bool
	since time.Time
	fails []time.Time // lately
}

// flapWindow is how long a failure counts against a node.
const flapWindow = 10 * time.Minute

// observe keeps what gossip says, and gives the hub the routes to the others.
func (n *Node) observe() {
	for members := range n.gossip.Changes() {
		n.members.Store(&members)
		var routes []string
		for _, m := range members {
			if m.NodeID == n.cfg.NodeID || m.Status != discovery.Alive {
				continue
			}
			n.heard.Store(m.NodeID, m.Tags.RaftAddr)
			if m.Tags.RouteAddr != "" {
				routes = append(routes, "nats://"+m.Tags.RouteAddr)
			}
		}
		slices.Sort(routes)
		if err := n.hub.SetRoutes(routes); err != nil {
			n.log.Warn("setting the routes of the hub", zap.Strings("routes", routes), zap.Error(err))
		}
	}
}

// peers returns the members that gossip knows.
func (n *Node) peers() []discovery.Member {
	if p := n.members.Load(); p != nil {
		return *p
	}
	return nil
}

// known are the ids of the nodes that gossip or the configuration names.
func (n *Node) known() []string {
	var out []string
	for _, m := range n.peers() {
		if m.Status == discovery.Alive {
			out = append(out, m.NodeID)
		}
	}
	for id := range n.fixed {
		out = append(out, id)
	}
	return out
}

// resolve finds the Raft address of a node that gossip or the configuration names, or that told it: one that
// moved is let in by gossip only when its old address has been dead for long. What a node said whom gossip does
// not hear any more counts no more; the registry is asked then, and lastHeard.
func (n *Node) resolve(id string) (string, bool) {
	for _, m := range n.peers() {
		if m.NodeID == id && m.Status == discovery.Alive && m.Tags.RaftAddr != "" {
			return m.Tags.RaftAddr, true
		}
	}
	if addr, ok := n.fixed[id]; ok {
		return addr, true
	}
	return addressIn(&n.told, id)
}

// lastHeard is the Raft address that gossip heard of a node last. It is for one that has just started, so that its
// registry is empty, and that gossip shuts out for a second process of its id: without an address of anybody it
// would never be told that it is one too many.
func (n *Node) lastHeard(id string) (string, bool) { return addressIn(&n.heard, id) }

func addressIn(m *sync.Map, id string) (string, bool) {
	addr, _ := m.Load(id)
	text, _ := addr.(string)
	return text, text != ""
}

// register keeps this node's row true while it is a member of every group, and says its
// cluster in gossip; what its incarnation is if that was lost, too, once its row says it.
func (n *Node) register(ctx context.Context) {
	tagged, named := false, !n.host.Lost()
	n.every(ctx, membershipTick, func() bool {
		if !tagged && n.gossip != nil && n.host.ClusterID() != "" {
			err := n.gossip.SetTags(func(t *discovery.Tags) { t.ClusterID = n.host.ClusterID() })
			tagged = err == nil
		}
		ctx, cancel := context.WithTimeout(ctx, changeTimeout)
		defer cancel()
		row := replication.NodeRow{
			Raft: n.raftAddr(), Serf: n.serfAddr(), NATS: n.hub.ClientAddr(), Route: n.hub.RouteAddr(),
			Admin: n.cfg.AdminListen, Version: Version, Feature: n.feature(),
		}
		if err := n.host.Register(ctx, row); err != nil {
			n.log.Debug("not registered yet", zap.Error(err))
			return true
		}
		if !named {
			named = !n.host.Lost() && (n.gossip == nil ||
				n.gossip.SetTags(func(t *discovery.Tags) { t.Incarnations = n.host.Incarnation() }) == nil)
		}
		return true
	})
}

// every calls f at once and then at an interval, until it returns false or ctx ends.
func (n *Node) every(ctx context.Context, d time.Duration, f func() bool) {
	t := time.NewTicker(d)
	defer t.Stop()
	for f() {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// holds says whether a replica is in the configuration that it has.
func holds(st replication.Status, server string) bool {
	return slices.ContainsFunc(st.Members, func(m replication.Member) bool { return m.Server == server })
}

// control decides, as leader of group 0, who is to be in the groups, and brings
// the groups that this node leads there.
func (n *Node) control(ctx context.Context) {
	n.every(ctx, membershipTick, func() bool {
		n.fixedRoutes()
		nodes := n.gather()
		if n.meta.Leading() {
			if err := n.decide(ctx, nodes); err != nil && ctx.Err() == nil {
				n.log.Warn("deciding the membership", zap.Error(err))
			}
		} else {
			n.leadingSince = time.Time{}
		}
		for _, g := range n.host.Groups() {
			n.step(ctx, g)
		}
		n.spread(ctx)
		return true
	})
}

// gather joins what gossip and the registry know of the nodes.
func (n *Node) gather() []membership.Node {
	now := time.Now()
	seen := make(map[string]bool)
	note := func(id string, alive bool, since time.Time) {
		s := n.sightings[id]
		if s == nil {
			s = &sighting{alive: alive, since: since}
			n.sightings[id] = s
		}
		if s.alive != alive {
			if !alive {
				s.fails = append(s.fails, now)
			}
			s.alive, s.since = alive, since
		}
		s.fails = slices.DeleteFunc(s.fails, func(t time.Time) bool { return now.Sub(t) > flapWindow })
		seen[id] = true
	}
	draining := make(map[string]bool)
	for _, m := range n.peers() {
		note(m.NodeID, m.Status == discovery.Alive, m.Since)
		draining[m.NodeID] = m.Tags.Draining
	}
	for id := range n.fixed {
		note(id, true, n.started)
	}
	desired, _ := n.desired()
	for _, id := range desired.Voters { // of a founder that never registered nothing else may tell
		if !seen[id] {
			note(id, id == n.cfg.NodeID, now)
		}
	}
	n.meta.Scan(replication.NodePrefix, func(r record.MetaRow) bool {
		if id := strings.TrimPrefix(r.Key, replication.NodePrefix); !seen[id] {
			note(id, id == n.cfg.NodeID, now) // known, and not heard of since this node began to look
		}
		return true
	})
	var out []membership.Node
	for id := range seen {
		s := n.sightings[id]
		if id == n.cfg.NodeID {
			s.alive = true
		}
		leaving := n.leaving(id)
		out = append(out, membership.Node{
			ID: id, Alive: s.alive, For: now.Sub(s.since), Flaps: len(s.fails), Draining: draining[id], Leaving: leaving,
		})
	}
	return out
}

// leaving says whether the present incarnation of a node is to leave.
func (n *Node) leaving(id string) bool {
	row, ok := n.meta.Get(leavePrefix + id)
	if !ok || len(row.Value) == 0 {
		return ok
	}
	present := n.replica(id, replication.Metadata)
	return present == "" || present == string(row.Value) // nobody knows of another one
}

// replica returns the replica that a node has now in a group, "" if nobody knows, or if that
// one was given up: the node must come back with another one.
func (n *Node) replica(id string, group uint32) string {
	server := n.newestReplica(id, group)
	if slices.Contains(n.host.GivenUp(), server) {
		return ""
	}
	return server
}

// newestReplica is the replica that was heard of last, "" if nobody knows. The registry knows those that replaced
// damaged ones; gossip knows of a data directory that is a new one as a whole, of a node that is alive: what it
// remembers of another one may be older than the registry. A founder that died before it registered may be known
// from the first configuration alone.
func (n *Node) newestReplica(id string, group uint32) string {
	if id == n.cfg.NodeID {
		return n.host.Group(group).Server()
	}
	row, at, err := replication.Row[replication.NodeRow](n.host.Meta(), replication.NodeKey(id))
	registered := ""
	if err == nil && at.Version != 0 {
		registered = row.Servers[group]
	}
	for _, m := range n.peers() {
		if m.NodeID == id && m.Tags.Incarnations != "" &&
			(registered == "" || m.Status == discovery.Alive && m.Tags.Incarnations != row.Incarnation) {
			return id + "/" + m.Tags.Incarnations
		}
	}
	for _, m := range n.host.Group(group).Status().Members {
		if registered == "" && m.Node == id {
			return m.Server
		}
	}
	return registered
}

// desired returns the row of the membership; without one, what group 0 has.
func (n *Node) desired() (membership.Desired, uint64) {
	var d membership.Desired
	row, ok := n.meta.Get(membershipKey)
	if ok && json.Unmarshal(row.Value, &d) == nil {
		return d, row.Version
	}
	for _, m := range n.host.Group(replication.Metadata).Status().Members {
		if m.Voter {
			d.Voters = append(d.Voters, m.Node)
		}
	}
	slices.Sort(d.Voters)
	return d, row.Version
}

// handOver gives a group to another node, to the best one if to is empty, if it can take it.
func (n *Node) handOver(ctx context.Context, g *replication.Group, to string) {
	ctx, cancel := context.WithTimeout(ctx, resignTimeout)
	defer cancel()
	if err := g.Transfer(ctx, to); err != nil && !errors.Is(err, record.ErrNotLeader) {
		n.log.Info("group not handed over", zap.Uint32("group", g.ID()), zap.Error(err))
	}
}

// handOverAll gives away every group that this node leads.
func (n *Node) handOverAll(ctx context.Context) {
	for _, g := range slices.Backward(n.host.Groups()) { // group 0 last: it knows where the others went
		if g.Term() != nil && len(g.Status().Members) > 1 {
			n.handOver(ctx, g, "")
		}
	}
}

// linkPatience is how long a leader may be without its hub link before it gives
// leadership to a node whose link lives.
const linkPatience = time.Second

// watchLink gives leadership away while the hub link is down, that of group 0 too: its leader answers clients as well,
// over the link. Nobody knows whose link lives, so any other voter will do, another one each time: one without a link
// gives the group on at once.
func (n *Node) watchLink(ctx context.Context) {
	n.every(ctx, linkPatience/4, func() bool {
		since, down := n.server.LinkDown()
		if !down || time.Since(since) <= linkPatience {
			return true
		}
		for _, g := range slices.Backward(n.host.Groups()) {
			if to := n.anyOther(g); g.Term() != nil && to != "" {
				n.handOver(ctx, g, to)
			}
		}
		return true
	})
}

// anyOther returns a voter of a group by chance, this node left out; "" if there is no other.
func (n *Node) anyOther(g *replication.Group) string {
	var others []string
	for _, m := range g.Status().Members {
		if m.Voter && m.Node != n.cfg.NodeID {
			others = append(others, m.Node)
		}
	}
	if len(others) == 0 {
		return ""
	}
	return others[rand.IntN(len(others))] //nolint:gosec // no secret
}
