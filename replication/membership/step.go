package membership

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Kind is a change of a group's configuration.
type Kind int

// The kinds of changes; None with a reason.
const (
	None Kind = iota
	AddFollower
	Promote
	Demote
	Remove
)

// String names the kind as logs show it.
func (k Kind) String() string {
	return [...]string{"none", "add as non-voter", "make voter", "make non-voter", "remove"}[k]
}

// Member is a replica in a group's configuration.
type Member struct {
	Server string // nodeID/incarnation
	Node   string
	Voter  bool
	// Behind is how many entries it lacks, Contact how long ago it answered (negative:
	// never), OutOfService that its node has refused to serve it since, Installing that it is receiving a snapshot. Of
	// the leader itself all zero.
	Behind       uint64
	Contact      time.Duration
	OutOfService bool
	Installing   bool
}

// View is a group as its leader sees it.
type View struct {
	Leader string // node id
	// Leads is for how long it has led; what was missed before is counted from then.
	Leads   time.Duration
	Members []Member
	// Replicas are the replicas that the nodes have now, by node id.
	Replicas map[string]string
	Desired  Desired
	// Elsewhere are, for the metadata group, the nodes that other groups hold, with one of these: see leave.
	Elsewhere map[string]uint32
}

// Change is the next change of a group's configuration, or why there is none.
type Change struct {
	Kind   Kind
	Server string
	Reason string
}

// Step returns the next change that brings a group towards what is desired.
// Adding comes before removing, but for a replica whose node has another one now; only
// one voter changes at a time.
func Step(s Settings, v View) Change {
	for _, f := range []func(Settings, *View) Change{enter, promote, shrink} {
		if c := f(s, &v); c.Kind != None || c.Reason != "" {
			return c
		}
	}
	return Change{}
}

func (v *View) member(server string) *Member {
	for i := range v.Members {
		if v.Members[i].Server == server {
			return &v.Members[i]
		}
	}
	return nil
}

// enter adds the replicas of desired nodes that are not in the group.
func enter(_ Settings, v *View) Change {
	for _, id := range slices.Concat(v.Desired.Voters, v.Desired.Followers) {
		server := v.Replicas[id]
		if server != "" && v.member(server) == nil {
			return Change{AddFollower, server, "node " + id + " joined"}
		}
	}
	return Change{}
}

// promote makes voters of those that have caught up. A node's new replica waits until the old one is out: that never
// answers again, so as a fourth voter of three nodes the new one would be one that the others cannot do without.
func promote(s Settings, v *View) Change {
	waiting := ""
	for _, id := range v.Desired.Voters {
		m := v.member(v.Replicas[id])
		if m == nil || m.Voter || v.votes(id) {
			continue
		}
		if why := behind(s, m); why != "" {
			waiting = fmt.Sprintf("%s is not a voter yet: %s", m.Server, why)
			continue
		}
		return Change{Promote, m.Server, "node " + id + " has caught up"}
	}
	if waiting != "" && v.wantsOnlyPromotion() {
		return Change{Reason: waiting}
	}
	return Change{}
}

// votes says whether any replica of a node has a vote.
func (v *View) votes(node string) bool {
	return slices.ContainsFunc(v.Members, func(m Member) bool { return m.Node == node && m.Voter })
}

// wantsOnlyPromotion says that nothing but waiting promotions keeps the group
// from what is desired, so that their reason is worth saying.
func (v *View) wantsOnlyPromotion() bool {
	for i := range v.Members {
		m := &v.Members[i]
		if v.Replicas[m.Node] != m.Server && v.Replicas[m.Node] != "" || !v.Desired.Has(m.Node) {
			return false
		}
	}
	return true
}

// behind says why a replica has not caught up.
func behind(s Settings, m *Member) string {
	switch {
	case m.Installing:
		return "it is receiving a snapshot"
	case m.OutOfService:
		return "its node does not serve it"
	case m.Contact < 0:
		return "it never answered"
	case m.Contact > s.Contact:
		return fmt.Sprintf("it last answered %v ago", m.Contact.Round(time.Millisecond))
	case m.Behind > s.Lag:
		return fmt.Sprintf("it is %d entries behind, at most %d are allowed", m.Behind, s.Lag)
	}
	return ""
}

// shrink takes away a replica or a vote: first that of one that does not answer, and none without which those that
// answer are no majority. Nobody could undo that: the group would have no leader.
func shrink(s Settings, v *View) Change {
	changes, waiting := leave(s, v)
	changes = slices.Concat(replaced(v), demote(v), changes)
	slices.SortStableFunc(changes, func(a, b Change) int {
		_, withoutA := v.without(s, a.Server)
		_, withoutB := v.without(s, b.Server)
		return cmp.Compare(withoutB, withoutA)
	})
	kept := ""
	for _, c := range changes {
		voters, answer := v.without(s, c.Server)
		if !v.member(c.Server).Voter || answer > voters/2 {
			return c
		}
		kept = cmp.Or(kept, fmt.Sprintf("%s keeps its vote, though %s: of the %d other voters only %d answer",
			c.Server, c.Reason, voters, answer))
	}
	return Change{Reason: cmp.Or(kept, waiting)}
}

// without counts the voters other than one replica, and those of them that answered a moment ago.
func (v *View) without(s Settings, server string) (voters, answer int) {
	for i := range v.Members {
		m := &v.Members[i]
		if !m.Voter || m.Server == server {
			continue
		}
		voters++
		if !m.OutOfService && m.Contact >= 0 && m.Contact <= s.Contact {
			answer++
		}
	}
	return voters, answer
}

// replaced removes the old replica of a node that has a new one in the group. Nobody is worse off without it, although
// there is a voter less until the new one has caught up: what is left of it never answers again.
func replaced(v *View) (out []Change) {
	for i := range v.Members {
		m := &v.Members[i]
		now := v.Replicas[m.Node]
		if now != "" && now != m.Server && v.member(now) != nil {
			out = append(out, Change{Remove, m.Server, "node " + m.Node + " has a new replica, " + now})
		}
	}
	return out
}

// demote makes non-voters of voters that are to follow, once those that are to
// vote do.
func demote(v *View) (out []Change) {
	for i := range v.Members {
		m := &v.Members[i]
		if m.Voter && slices.Contains(v.Desired.Followers, m.Node) && v.settled() && m.Node != v.Leader {
			out = append(out, Change{Demote, m.Server, "node " + m.Node + " is to follow"})
		}
	}
	return out
}

// settled says that every desired voter is one.
func (v *View) settled() bool {
	for _, id := range v.Desired.Voters {
		if m := v.member(v.Replicas[id]); m == nil || !m.Voter {
			return false
		}
	}
	return len(v.Desired.Voters) > 0
}

// leave removes replicas of nodes that are not desired, voters only once those
// that are to vote do. The leader removes itself last. A node leaves the metadata
// group after all others: what it leads elsewhere it gives away because of what it
// reads there, and out of it it would lead on and never hear that it was removed. One
// that is silent reads nothing there, and is a vote that is missing: it goes at once,
// for the others may take long until the one in its place has caught up.
func leave(s Settings, v *View) (out []Change, waiting string) {
	leads := false
	for i := range v.Members {
		m := &v.Members[i]
		switch {
		case v.Desired.Has(m.Node) || len(v.Desired.Voters) == 0, m.Voter && !v.settled():
		case m.Node == v.Leader:
			leads = true
		default:
			if group, ok := v.Elsewhere[m.Node]; ok && !v.silent(s, m) {
				waiting = fmt.Sprintf("node %s leaves; it is still in group %d", m.Node, group)
				continue
			}
			out = append(out, Change{Remove, m.Server, "node " + m.Node + " is not in the cluster any more"})
		}
	}
	if leads {
		waiting = "the leader leaves; it hands over first"
	}
	return out, waiting
}

// silent says that a replica has not answered for long.
func (v *View) silent(s Settings, m *Member) bool {
	missed := v.Leads
	if m.Contact >= 0 {
		missed = min(missed, m.Contact)
	}
	return missed >= s.Silence
}
