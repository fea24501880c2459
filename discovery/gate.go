package discovery

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/zap"
)

// maxConflicts bounds what the gate remembers of refusals and disputes; beyond it new ones are only logged.
const maxConflicts = 64

// A Conflict is something an operator must settle: two live nodes with one id, or a stranger at the door.
type Conflict struct {
	// NodeID is the disputed name, or the name of the node that was refused.
	NodeID string
	// Addr is the gossip address that this node holds for NodeID; the zero value for a stranger.
	Addr netip.AddrPort
	// Other is the address of the other claimant or of the stranger.
	Other netip.AddrPort
	// Reason says in a sentence what is wrong.
	Reason string
	// First and Last are when this node noticed it first and last.
	First, Last time.Time
}

// A gate decides which nodes memberlist may know. It is called by memberlist, partly under memberlist's
// lock, so that it must neither call back nor wait there; it works on what the loop told it last.
type gate struct {
	self nodeAt
	log  *libraryLog
	// answers asks an address whether a live node of this name is there. It waits for up to a probe
	// timeout, so NotifyAlive must not use it.
	answers func(name string, at netip.AddrPort) bool
	// changed is called, without a lock, when conflicts may have changed.
	changed func()
	// keep is how long a refusal is remembered after it last happened.
	keep time.Duration

	mu       sync.Mutex
	cluster  string               // own cluster id; guarded by mu, as all below
	live     map[string]liveNode  // others that the loop saw alive last
	refusals map[nodeAt]*Conflict // strangers
	disputes map[nodeAt]*dispute  // second addresses of a name
	moved    bool                 // peers hold another address for our own name
	letIn    bool                 // a merge with a live node that held our name for nobody else was not refused
}

// A nodeAt is a claim: this name lives there.
type nodeAt struct {
	name string
	addr netip.AddrPort
}

// A liveNode is what the gate needs of a member.
type liveNode struct {
	addr    netip.AddrPort
	cluster string
}

// A dispute is a claim against an address that is held for the same name. It is a conflict once both answer.
type dispute struct {
	holder   netip.AddrPort
	first    time.Time
	last     time.Time // of the latest claim
	verified bool      // both answered at the latest check
}

// update tells the gate what the loop knows. The own cluster id is in this node's tags.
func (g *gate) update(members []Member) {
	live := make(map[string]liveNode, len(members))
	for i := range members {
		if m := &members[i]; m.Status == Alive && m.NodeID != g.self.name {
			live[m.NodeID] = liveNode{addr: m.Addr, cluster: m.Tags.ClusterID}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live = live
}

// setCluster tells the gate this node's own cluster id.
func (g *gate) setCluster(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cluster = id
}

// belongs returns the cluster that a newcomer must belong to, "" if any will do. Caller holds mu.
func (g *gate) belongs() string {
	if g.cluster != "" {
		return g.cluster
	}
	for _, n := range g.live {
		if n.cluster != "" {
			return n.cluster
		}
	}
	return ""
}

// NotifyAlive implements memberlist.AliveDelegate: an error keeps the node out. It is called with
// memberlist's lock held, for every claim that a node is alive, our own first of all.
func (g *gate) NotifyAlive(n *memberlist.Node) error {
	at := nodeAt{n.Name, addrPort(n.Addr, n.Port)}
	if at.name == g.self.name {
		if at.addr != g.self.addr {
			g.claim(at, g.self.addr)
		}
		return nil // memberlist refutes what is wrong about us
	}
	if err := checkIdentity(n, at.addr); err != nil {
		return g.refuse(at, err)
	}
	tags, err := decodeMeta(n.Name, n.Meta)
	if err != nil {
		return g.refuse(at, err)
	}
	g.mu.Lock()
	want := g.belongs()
	holder, known := g.live[at.name]
	g.mu.Unlock()
	if err := sameCluster(at.name, tags.ClusterID, want); err != nil {
		return g.refuse(at, err)
	}
	if known && holder.addr != at.addr {
		g.claim(at, holder.addr) // memberlist keeps the holder while it lives
	}
	return nil
}

// NotifyMerge implements memberlist.MergeDelegate: an error cancels a join, ours or a peer's. nodes are all
// that the other side knows. No lock is held.
func (g *gate) NotifyMerge(nodes []*memberlist.Node) error {
	g.mu.Lock()
	want := g.belongs()
	live := g.live
	g.mu.Unlock()
	others, elsewhere := false, false
	for _, n := range nodes {
		at := nodeAt{n.Name, addrPort(n.Addr, n.Port)}
		if at.name == g.self.name {
			elsewhere = at.addr != g.self.addr
			g.setMoved(elsewhere)
		}
		if n.State != memberlist.StateAlive && n.State != memberlist.StateSuspect {
			continue // whoever is gone may have been anyone
		}
		tags, err := decodeMeta(n.Name, n.Meta)
		if err == nil && at.name != g.self.name {
			err = sameCluster(at.name, tags.ClusterID, want)
		}
		if err != nil {
			return g.refuse(at, err)
		}
		if want == "" {
			want = tags.ClusterID
		}
		if err := g.checkName(at, live); err != nil {
			return err
		}
		others = others || at.name != g.self.name
	}
	if others && !elsewhere { // who lives there may only have been too slow to say so
		g.mu.Lock()
		g.letIn = true
		g.mu.Unlock()
	}
	return nil
}

// checkName refuses a merge with a side that holds a live node under a name that lives elsewhere on this
// side.
func (g *gate) checkName(at nodeAt, live map[string]liveNode) error {
	holder := g.self.addr
	if at.name != g.self.name {
		n, known := live[at.name]
		if !known {
			return nil
		}
		holder = n.addr
	}
	if holder == at.addr {
		return nil
	}
	g.claim(at, holder)
	if !g.verify(at) {
		return nil
	}
	return fmt.Errorf("%w: two live nodes call themselves %q, at %s and at %s: give one another node id",
		ErrNodeIDInUse, at.name, holder, at.addr)
}

// checkIdentity checks what memberlist itself does not.
func checkIdentity(n *memberlist.Node, addr netip.AddrPort) error {
	if !nodeIDPattern.MatchString(n.Name) || len(n.Name) > MaxNodeID || !addr.IsValid() {
		return fmt.Errorf("%w: %q at %s is no node id and address", ErrOtherCluster, n.Name, addr)
	}
	return nil
}

// sameCluster compares cluster ids; one that is missing fits any.
func sameCluster(name, got, want string) error {
	if got == "" || want == "" || got == want {
		return nil
	}
	return fmt.Errorf("%w: node %q belongs to cluster %q, this node to %q", ErrOtherCluster, name, got, want)
}

// refuse notes a stranger and returns why.
func (g *gate) refuse(at nodeAt, why error) error {
	now := time.Now()
	g.mu.Lock()
	c, known := g.refusals[at]
	if !known && len(g.refusals) < maxConflicts {
		c = &Conflict{NodeID: at.name, Other: at.addr, First: now}
		g.refusals[at] = c
	}
	if c != nil {
		c.Reason, c.Last = why.Error(), now
	}
	g.mu.Unlock()
	if !known {
		g.log.entry(zap.WarnLevel, "refused a node",
			zap.String("node", at.name), zap.Stringer("addr", at.addr), zap.Error(why))
		g.changed()
	}
	return why
}

// claim notes that somebody says a name lives at another address than its holder's.
func (g *gate) claim(at nodeAt, holder netip.AddrPort) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	d, known := g.disputes[at]
	if !known {
		if len(g.disputes) >= maxConflicts {
			return
		}
		d = &dispute{first: now}
		g.disputes[at] = d
	}
	d.holder, d.last = holder, now
}

// verify asks both addresses of a dispute, keeps the answer and returns whether both live.
func (g *gate) verify(at nodeAt) bool {
	g.mu.Lock()
	d, ok := g.disputes[at]
	var holder netip.AddrPort
	if ok {
		holder = d.holder
	}
	g.mu.Unlock()
	if !ok {
		return false
	}
	both := g.answers(at.name, at.addr) && (at.name == g.self.name || g.answers(at.name, holder))

	g.mu.Lock()
	news := d.verified != both
	d.verified = both
	if both {
		d.last = time.Now()
	}
	g.mu.Unlock()
	if news && both {
		g.log.entry(zap.ErrorLevel, "two live nodes have one node id", zap.String("node", at.name),
			zap.Stringer("addr", holder), zap.Stringer("other", at.addr))
	}
	if news {
		g.changed()
	}
	return both
}

// audit checks every dispute again and forgets what is over.
func (g *gate) audit(ctx context.Context) {
	g.mu.Lock()
	var open []nodeAt
	for at := range g.disputes {
		open = append(open, at)
	}
	g.mu.Unlock()
	for _, at := range open {
		if ctx.Err() != nil {
			return
		}
		g.verify(at)
	}
	if g.forget(time.Now()) {
		g.changed()
	}
}

// forget drops refusals and unproven claims that did not happen again, and reports whether any was a
// conflict.
func (g *gate) forget(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.refusals)
	for at, c := range g.refusals {
		if now.Sub(c.Last) > g.keep {
			delete(g.refusals, at)
		}
	}
	for at, d := range g.disputes {
		if !d.verified && now.Sub(d.last) > g.keep {
			delete(g.disputes, at)
		}
	}
	return len(g.refusals) != before
}

// conflicts returns what is to be settled, sorted by node id and address.
func (g *gate) conflicts() []Conflict {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Conflict
	for _, c := range g.refusals {
		out = append(out, *c)
	}
	for at, d := range g.disputes {
		if d.verified {
			out = append(out, Conflict{
				NodeID: at.name, Addr: d.holder, Other: at.addr, First: d.first, Last: d.last,
				Reason: fmt.Sprintf("two live nodes call themselves %q", at.name),
			})
		}
	}
	slices.SortFunc(out, func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), a.Other.Compare(b.Other))
	})
	return out
}

// hasMoved reports whether peers hold another address for our name than ours, as they do for a while after we
// moved. The latest merge with a side that lists us decides.
func (g *gate) hasMoved() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moved
}

func (g *gate) setMoved(moved bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.moved = moved
}

// displaced reports whether another live node holds our own name. One that was let in holds it itself: the other
// one may have come to its own door.
func (g *gate) displaced() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.letIn {
		return false
	}
	for at, d := range g.disputes {
		if at.name == g.self.name && d.verified {
			return true
		}
	}
	return false
}

// twin returns the conflict about this node's own name, if there is one and nobody ever let this node in.
func (g *gate) twin() (Conflict, bool) {
	g.mu.Lock()
	letIn := g.letIn
	g.mu.Unlock()
	for _, c := range g.conflicts() {
		if !letIn && c.NodeID == g.self.name && c.Addr.IsValid() {
			return c, true
		}
	}
	return Conflict{}, false
}
