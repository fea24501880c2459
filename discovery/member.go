package discovery

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/serf/serf"
)

// A Status says what is known about whether a member is there.
type Status uint8

const (
	// Alive means that the member answers.
	Alive Status = iota + 1
	// Failed means that the member stopped answering without leaving; it may come back.
	Failed
	// Left means that the member said goodbye, or was declared gone with Forget.
	Left
)

// String returns the status as operators read it.
func (s Status) String() string {
	switch s {
	case Alive:
		return "alive"
	case Failed:
		return "failed"
	case Left:
		return "left"
	}
	return "unknown"
}

// A Member is a node as this node sees it.
type Member struct {
	NodeID string
	Addr   netip.AddrPort // gossip address
	Status Status
	Tags   Tags
	Since  time.Time // when this node saw Status begin
}

// statusOf translates Serf's status. A leaving member has said goodbye already.
func statusOf(s serf.MemberStatus) Status {
	switch s {
	case serf.StatusAlive:
		return Alive
	case serf.StatusLeaving, serf.StatusLeft:
		return Left
	case serf.StatusNone, serf.StatusFailed:
		return Failed
	default:
		return Failed
	}
}

// roster turns what Serf reports into member lists. The loop owns it.
type roster struct {
	seen map[string]sighting // by node id
}

// A sighting is the last change of a member's status.
type sighting struct {
	status Status
	since  time.Time
}

func newRoster() *roster {
	return &roster{seen: make(map[string]sighting)}
}

// observe takes an event that happened at the given time. Only joins, failures and leaves change a status.
func (r *roster) observe(e serf.Event, at time.Time) {
	me, ok := e.(serf.MemberEvent)
	if !ok {
		return
	}
	for i := range me.Members {
		name := me.Members[i].Name
		switch me.Type {
		case serf.EventMemberJoin:
			r.seen[name] = sighting{Alive, at}
		case serf.EventMemberFailed:
			r.seen[name] = sighting{Failed, at}
		case serf.EventMemberLeave:
			r.seen[name] = sighting{Left, at}
		case serf.EventMemberReap:
			delete(r.seen, name)
		case serf.EventMemberUpdate, serf.EventUser, serf.EventQuery:
		}
	}
}

// list returns the members that Serf knows now, sorted by node id. Strangers are left out and returned with
// the reason: the gate keeps them out, but this node may have had no cluster id yet when it met one.
func (r *roster) list(now time.Time, all []serf.Member, cluster string) ([]Member, map[nodeAt]error) {
	var members []Member
	strangers := make(map[nodeAt]error)
	known := make(map[string]bool, len(all))
	for i := range all {
		m := &all[i]
		known[m.Name] = true
		status := statusOf(m.Status)
		s, ok := r.seen[m.Name]
		if !ok || s.status != status {
			// An event was lost on the way, or is still on it.
			s = sighting{status, now}
			r.seen[m.Name] = s
		}
		at := nodeAt{m.Name, addrPort(m.Addr, m.Port)}
		tags, err := decodeTags(m.Name, m.Tags)
		if err == nil {
			err = sameCluster(m.Name, tags.ClusterID, cluster)
		}
		if err != nil {
			strangers[at] = err
			continue
		}
		members = append(members, Member{
			NodeID: m.Name, Addr: at.addr, Status: status, Tags: tags, Since: s.since,
		})
	}
	for name := range r.seen {
		if !known[name] {
			delete(r.seen, name)
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return members, strangers
}

// addrPort makes one comparable value of the library's two. An address it cannot read is the zero value.
func addrPort(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
