package transport

import (
	"slices"
	"time"
)

// embargo decides whether a replica may ask for votes and give them. It is pure
// and not safe for concurrent use. From the creation of a Raft instance nothing
// is asked or given until
//
//  1. one heartbeat timeout of CLOCK_BOOTTIME has passed: an instance has forgotten
//     when it last heard the leader, whose lease may rest on it; and
//  2. hellos were exchanged with the current leader, or with so many voters of the
//     latest configuration that they are a majority together with this replica:
//     then a restored old disk has been noticed.
//
// With one voter or without a configuration only (1) is asked. A sole voter's own
// vote asks nobody, so it never comes here. Appends lift nothing by themselves:
// a heartbeat succeeds against any log. Once lifted, it stays lifted.
type embargo struct {
	created time.Duration
	wait    time.Duration
	self    string
	voters  []string
	hellos  map[string]bool // peers with whom checked hellos were exchanged since created
	leader  string          // sender of the last append that Raft accepted
	lifted  bool
}

func newEmbargo(now, wait time.Duration, self string) *embargo {
	return &embargo{created: now, wait: wait, self: self, hellos: map[string]bool{}}
}

// setVoters replaces the voters of the latest configuration.
func (e *embargo) setVoters(voters []string) { e.voters = slices.Clone(voters) }

// hello records that hellos were exchanged with peer and accepted.
func (e *embargo) hello(peer string) { e.hellos[peer] = true }

// refused records that a hello of peer, or ours by it, was not accepted.
func (e *embargo) refused(peer string) { delete(e.hellos, peer) }

// leads records that Raft accepted peer as the leader of the current term; an
// empty peer that there is none.
func (e *embargo) leads(peer string) { e.leader = peer }

// heard says whether condition 2 holds.
func (e *embargo) heard() bool {
	if len(e.voters) <= 1 {
		return true
	}
	if e.leader != "" && e.hellos[e.leader] {
		return true
	}
	n := 0
	for _, v := range e.voters {
		if v == e.self || e.hellos[v] {
			n++
		}
	}
	return n > len(e.voters)/2
}

// over says whether votes may be asked for and given at now.
func (e *embargo) over(now time.Duration) bool {
	if !e.lifted && now-e.created >= e.wait && e.heard() {
		e.lifted = true
	}
	return e.lifted
}
