package replication

import (
	"sync"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/transport"
)

// Role is what a replica is in its group.
type Role string

// Roles. A replica without a Raft instance (it is being created anew) is Stopped.
const (
	RoleFollower  Role = "follower"
	RoleCandidate Role = "candidate"
	RoleLeader    Role = "leader"
	RoleStopped   Role = "stopped"
	// RoleDamaged: nothing runs, see Group.Damage.
	RoleDamaged Role = "damaged"
)

// Member is one replica in the configuration of a group.
type Member struct {
	Server string `json:"server"` // nodeID/incarnation
	Node   string `json:"node"`
	Voter  bool   `json:"voter"`
}

// Status is how a replica stands.
type Status struct {
	Group  uint32 `json:"group"`
	Server string `json:"server"`
	Role   Role   `json:"role"`
	Term   uint64 `json:"term"`
	// Leader is the node id of the leader this replica knows, empty without one.
	Leader string `json:"leader"`
	// Commit is the highest index known to be committed, LastLog the last one in the log.
	Commit  uint64 `json:"commit"`
	LastLog uint64 `json:"last_log"`
	// Applied is the last command or configuration applied; no-ops and barriers do not
	// move it, so it may stay below Commit.
	Applied uint64 `json:"applied"`
	// Members is the latest configuration this replica has, committed or not;
	// Configured is the entry that holds the last one applied.
	Members    []Member `json:"members"`
	Configured uint64   `json:"configured"`
	// Replicating: as the leader, a majority matched its last index at the start of the
	// term; as a follower, it knows the leader.
	Replicating bool `json:"replicating"`
	// Instances counts the Raft instances this process created for the replica.
	Instances uint64 `json:"instances"`
	// Damage is what Group.Damage says; nil for a sound replica.
	Damage *Damage `json:"damage,omitempty"`
}

// Status returns how the replica stands. It takes no locks of Raft's main loop.
func (g *Group) Status() Status {
	r := g.rep.Load()
	p := r.applied()
	s := Status{
		Group: g.id, Server: string(r.server), Role: RoleStopped, Applied: p.index, Configured: p.confIndex,
		LastLog: r.position().LastIndex, Instances: g.created.Load(), Damage: g.hurt.Load(), Members: []Member{},
	}
	in := g.inst.Load()
	if in == nil {
		if s.Damage != nil {
			s.Role = RoleDamaged
		}
		return s
	}
	s.Term, s.Commit = in.raft.CurrentTerm(), in.raft.CommitIndex()
	if leader, _ := in.raft.LeaderWithID(); leader != "" {
		s.Leader, _ = transport.NodeOf(leader)
	}
	s.Members = members(in.raft.GetConfiguration().Configuration())
	switch in.raft.State() {
	case raft.Leader:
		t := in.term.Load()
		s.Role, s.Replicating = RoleLeader, t != nil && t.ready.Load()
	case raft.Candidate:
		s.Role = RoleCandidate
	case raft.Follower:
		s.Role, s.Replicating = RoleFollower, s.Leader != ""
	case raft.Shutdown:
	}
	return s
}

func members(c raft.Configuration) []Member {
	out := make([]Member, 0, len(c.Servers))
	for _, s := range c.Servers {
		node, _ := transport.NodeOf(s.Address)
		out = append(out, Member{Server: string(s.ID), Node: node, Voter: s.Suffrage == raft.Voter})
	}
	return out
}

// Watch returns a channel on which something arrives after Status, or the rows of
// group 0, may have changed; several changes may arrive as one. stop ends it.
func (g *Group) Watch() (changes <-chan struct{}, stop func()) { return g.watchers.watch() }

// notifier tells any number of watchers that something changed, never blocking.
type notifier struct {
	mu       sync.Mutex // guards what follows
	watchers map[chan struct{}]struct{}
}

func (n *notifier) watch() (changes <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watchers == nil {
		n.watchers = make(map[chan struct{}]struct{})
	}
	n.watchers[ch] = struct{}{}
	return ch, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.watchers, ch)
	}
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ch := range n.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
