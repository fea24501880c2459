package transport

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// PeerStats is what this node knows of another, for people.
type PeerStats struct {
	NodeID string
	// Connected: the control connection that this node dialled is open.
	Connected bool
	// Accepted: the peer's control connection to this node is open.
	Accepted bool
	// Error is why the last dial failed; empty after one that did not.
	Error string
	// Heard is when the last frame came on either connection; zero = none is open.
	Heard  time.Time
	Groups []GroupPeerStats
}

// GroupPeerStats is the leader's view of one replica on a peer; see Progress.
type GroupPeerStats struct {
	Group   uint32
	Address raft.ServerAddress
	Match   uint64
	Contact time.Time
}

// Peers returns the statistics of every node that was dialled or is connected, by id.
func (t *Transport) Peers() []PeerStats {
	t.mu.Lock()
	links := make([]*link, 0, len(t.st.links))
	for _, l := range t.st.links {
		links = append(links, l)
	}
	inbound := map[string]*conn{}
	for key, c := range t.st.inbound {
		if key.kind == kindControl {
			inbound[key.node] = c
		}
	}
	groups := make([]*GroupTransport, 0, len(t.st.groups))
	for _, g := range t.st.groups {
		groups = append(groups, g)
	}
	t.mu.Unlock()

	peers := map[string]*PeerStats{}
	get := func(node string) *PeerStats {
		p := peers[node]
		if p == nil {
			p = &PeerStats{NodeID: node}
			peers[node] = p
		}
		return p
	}
	for _, l := range links {
		l.stats(get(l.node))
	}
	for node, c := range inbound {
		p := get(node)
		p.Accepted = true
		p.heard(c)
	}
	for _, g := range groups {
		for _, pr := range g.Progress() {
			if node, err := NodeOf(pr.Address); err == nil {
				p := get(node)
				p.Groups = append(p.Groups, GroupPeerStats{
					Group: g.cfg.ID, Address: pr.Address, Match: pr.Match, Contact: pr.Contact,
				})
			}
		}
	}
	out := make([]PeerStats, 0, len(peers))
	for _, p := range peers {
		slices.SortFunc(p.Groups, func(a, b GroupPeerStats) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Address, b.Address))
		})
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b PeerStats) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return out
}

func (l *link) stats(p *PeerStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.st.err != nil {
		p.Error = l.st.err.Error()
	}
	if l.st.cur != nil && l.st.cur.alive() {
		p.Connected = true
		p.heard(l.st.cur)
	}
}

func (p *PeerStats) heard(c *conn) {
	at := c.t.start.Add(time.Duration(c.received.Load()))
	if at.After(p.Heard) {
		p.Heard = at
	}
}
