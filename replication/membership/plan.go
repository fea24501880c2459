package membership

import (
	"cmp"
	"slices"
	"time"
)

// Settings bound the decisions. All nodes use the same.
type Settings struct {
	// MaxVoters is the most voters a group has, odd. Default 5.
	MaxVoters int
	// MinVoters is what the number of voters never falls below by itself. Default 3.
	MinVoters int
	// ReapAfter is how long a node is missed before it is replaced. Default 60 s.
	ReapAfter time.Duration
	// Stable is how long a node must be alive before it becomes a voter. Default 5 s.
	Stable time.Duration
	// MaxStable bounds the longer time that a flapping node must be alive. Default 10 min.
	MaxStable time.Duration
	// Lag is how many entries behind a replica may be and count as caught up. Default 512.
	Lag uint64
	// Contact is how long ago a replica may have answered and count as caught up, and as a vote that a group has when
	// another one is taken away. Default 2 s.
	Contact time.Duration
	// Silence is for how long a node that leaves must not have answered the leader of the metadata group until it is
	// taken out of that group without waiting for the others. Default 10 s.
	Silence time.Duration
	// Balance is how long a node must have led a group before it gives it to a node that leads fewer; see
	// Balance. Default 10 s.
	Balance time.Duration
}

// WithDefaults returns s with its zero fields set.
func (s Settings) WithDefaults() Settings {
	s.MaxVoters = cmp.Or(s.MaxVoters, 5)
	s.MinVoters = cmp.Or(s.MinVoters, 3)
	s.ReapAfter = cmp.Or(s.ReapAfter, 60*time.Second)
	s.Stable = cmp.Or(s.Stable, 5*time.Second)
	s.MaxStable = cmp.Or(s.MaxStable, 10*time.Minute)
	s.Lag = cmp.Or(s.Lag, 512)
	s.Contact = cmp.Or(s.Contact, 2*time.Second)
	s.Silence = cmp.Or(s.Silence, 10*time.Second)
	s.Balance = cmp.Or(s.Balance, 10*time.Second)
	return s
}

// Node is what is known of a node.
type Node struct {
	ID    string
	Alive bool
	// For is how long it has been alive, or missed.
	For time.Duration
	// Flaps counts how often it failed lately.
	Flaps int
	// Leaving: an operator or the node itself wants it out.
	Leaving bool
	// Draining: it is about to stop and will be back; it gets no new duties.
	Draining bool
}

// Desired is who is to be in the groups, by node id, sorted.
type Desired struct {
	Voters    []string `json:"voters"`
	Followers []string `json:"followers,omitempty"`
	// Floor is the number of voters below which an operator has allowed to go; 0 = Settings.MinVoters.
	Floor int `json:"floor,omitempty"`
}

// Equal says whether two are the same.
func (d Desired) Equal(o Desired) bool {
	return slices.Equal(d.Voters, o.Voters) && slices.Equal(d.Followers, o.Followers) && d.Floor == o.Floor
}

// Has says whether a node is desired at all.
func (d Desired) Has(id string) bool {
	return slices.Contains(d.Voters, id) || slices.Contains(d.Followers, id)
}

// stable is how long a node must have been alive to become a voter.
func (s Settings) stable(n *Node) time.Duration {
	d := s.Stable
	for range n.Flaps {
		if d *= 2; d >= s.MaxStable {
			return s.MaxStable
		}
	}
	return d
}

// odd returns the largest odd number up to n, at least 1.
func odd(n int) int { return max(1, n-(n+1)%2) }

// sorted are the nodes by what may become of them.
type sorted struct {
	keep    []string // voters that are alive, or missed for a moment only
	lost    []string // voters that are gone for longer
	spare   []string // others that may become voters, by id
	healthy int
	missed  []string // of keep, those that are missed for a moment
}

// Plan returns who is to be in the groups from now on. There is always a voter, even if all of them want to leave.
func Plan(s Settings, before Desired, nodes []Node) Desired {
	sort := s.sort(before, nodes)
	out := Desired{Voters: s.choose(before, &sort), Floor: before.Floor}
	if len(out.Voters) == 0 {
		return before
	}
	for i := range nodes {
		n := &nodes[i]
		follows := n.Alive || before.Has(n.ID) && n.For < s.ReapAfter
		if follows && !n.Leaving && !slices.Contains(out.Voters, n.ID) {
			out.Followers = append(out.Followers, n.ID)
		}
	}
	slices.Sort(out.Voters)
	slices.Sort(out.Followers)
	return out
}

func (s Settings) sort(before Desired, nodes []Node) sorted {
	var out sorted
	byID := make(map[string]*Node, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		byID[n.ID] = n
		if n.Alive && !n.Leaving {
			out.healthy++
		}
		if s.mayVote(n) && !slices.Contains(before.Voters, n.ID) {
			out.spare = append(out.spare, n.ID)
		}
	}
	slices.Sort(out.spare)
	for _, id := range before.Voters {
		switch n := byID[id]; {
		case n != nil && n.Leaving:
		case n == nil || !n.Alive && n.For >= s.ReapAfter:
			out.lost = append(out.lost, id)
		default:
			out.keep = append(out.keep, id)
			if !n.Alive {
				out.missed = append(out.missed, id)
			}
		}
	}
	return out
}

// mayVote says whether a node may become a voter.
func (s Settings) mayVote(n *Node) bool {
	return n.Alive && !n.Leaving && !n.Draining && n.For >= s.stable(n)
}

// last is the place of the voter that is the first to lose its vote: one that is missed, else the last.
func (n *sorted) last(voters []string) int {
	for i, id := range slices.Backward(voters) {
		if slices.Contains(n.missed, id) {
			return i
		}
	}
	return len(voters) - 1
}

// choose picks the voters: those to keep, then spares, then, rather than fall
// below the floor, those that are lost.
func (s Settings) choose(before Desired, nodes *sorted) []string {
	floor := cmp.Or(before.Floor, s.MinVoters)
	target := odd(min(s.MaxVoters, nodes.healthy))
	most := odd(min(s.MaxVoters, nodes.healthy+len(nodes.missed))) // who is missed may be back in a moment
	voters := slices.Clone(nodes.keep)
	for len(voters) > max(most, floor) {
		voters = slices.Delete(voters, nodes.last(voters), nodes.last(voters)+1)
	}
	for _, id := range nodes.spare {
		if len(voters) >= target {
			break
		}
		voters = append(voters, id)
	}
	// The floor counts what the cluster had: one that never had three does not need three.
	for _, id := range nodes.lost {
		if len(voters) >= min(floor, len(before.Voters)) {
			break
		}
		voters = append(voters, id)
	}
	if len(voters)%2 == 0 && len(voters) > floor && len(voters) > len(nodes.keep) {
		voters = voters[:len(voters)-1] // an even number tolerates no more than the odd one below it
	}
	return voters
}
