package node

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// MemberStatus is what a node knows of one node of the cluster: an element of /members.
type MemberStatus struct {
	ID      string `json:"id"`
	NATS    string `json:"nats,omitempty"` // addresses
	Admin   string `json:"admin,omitempty"`
	Raft    string `json:"raft,omitempty"`
	Version string `json:"version,omitempty"`
	// Gossip is what gossip says of it; empty without gossip.
	Gossip string `json:"gossip,omitempty"`
	// Votes, Follows and Leads are the groups in which it has a vote, has none, and leads.
	Votes   []uint32 `json:"votes"`
	Follows []uint32 `json:"follows"`
	Leads   []uint32 `json:"leads"`
}

// memberStatus joins the registry, gossip and the groups as this node sees them, ordered by id.
func (n *Node) memberStatus() []MemberStatus {
	byID := make(map[string]*MemberStatus)
	of := func(id string) *MemberStatus {
		if byID[id] == nil {
			byID[id] = &MemberStatus{ID: id, Votes: []uint32{}, Follows: []uint32{}, Leads: []uint32{}}
		}
		return byID[id]
	}
	n.meta.Scan(replication.NodePrefix, func(r record.MetaRow) bool {
		m := of(strings.TrimPrefix(r.Key, replication.NodePrefix))
		var row replication.NodeRow
		if json.Unmarshal(r.Value, &row) == nil {
			m.NATS, m.Admin, m.Raft, m.Version = row.NATS, row.Admin, row.Raft, row.Version
		}
		return true
	})
	for _, p := range n.peers() {
		of(p.NodeID).Gossip = p.Status.String()
	}
	for _, st := range n.raftStatus() {
		for _, member := range st.Members {
			m := of(member.Node)
			if member.Voter {
				m.Votes = append(m.Votes, st.Group)
			} else {
				m.Follows = append(m.Follows, st.Group)
			}
		}
		if st.Leader != "" {
			m := of(st.Leader)
			m.Leads = append(m.Leads, st.Group)
		}
	}
	out := make([]MemberStatus, 0, len(byID))
	for id, m := range byID {
		if n.leaving(id) && len(m.Votes)+len(m.Follows) == 0 && m.Gossip != discovery.Alive.String() {
			continue // it was taken out, and is out; its row stays for the list of founders
		}
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b MemberStatus) int { return strings.Compare(a.ID, b.ID) })
	return out
}
