package node

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/clock"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// clock returns the cluster clock of a group, nil if there is no such group.
func (n *Node) clock(group uint32) *clock.Clock {
	if g := n.host.Group(group); g != nil {
		return g.Clock()
	}
	return nil
}

// agesTrusted says whether messages of a group may be deleted by age now.
func (n *Node) agesTrusted(group uint32) bool {
	c := n.clock(group)
	return c != nil && c.AgeTrusted()
}

// clusterTime is the cluster time of group 0; before there is one, that of the wall clock.
func (n *Node) clusterTime() int64 {
	if c := n.clock(replication.Metadata); c != nil {
		if t, runs := c.Now(); runs {
			return t
		}
	}
	return time.Now().UnixNano()
}

// AcceptedClock is what an operator's word on the wall clocks did to one group.
type AcceptedClock struct {
	Group uint32 `json:"group"`
	// CorrectedNS is by how much the group's clock went forward, in nanoseconds; mostly 0.
	CorrectedNS int64 `json:"corrected_ns"`
}

// acceptClock tells the leader of every group that the wall clocks are right: a clock that is behind is corrected
// forward at once, and a wait before messages are deleted by age ends. It stops at the first group whose leader
// does not answer; those before it have accepted.
func (n *Node) acceptClock(ctx context.Context) ([]AcceptedClock, error) {
	out := make([]AcceptedClock, 0, len(n.host.Groups()))
	for _, g := range n.host.Groups() {
		var b []byte
		var err error
		switch leader := g.Status().Leader; leader {
		case "":
			err = fmt.Errorf("%w: there is none at the moment", record.ErrNotLeader)
		case n.cfg.NodeID:
			b, err = n.onAcceptClock(ctx, leader, g.ID(), nil)
		default:
			b, err = n.host.Transport().Call(ctx, leader, g.ID(), callAcceptClock, nil)
		}
		if err == nil && len(b) != 8 {
			err = fmt.Errorf("%w: an answer of %d bytes", record.ErrFormat, len(b))
		}
		if err != nil {
			return out, fmt.Errorf("leader of group %d: %w", g.ID(), err)
		}
		by := int64(binary.BigEndian.Uint64(b))
		out = append(out, AcceptedClock{Group: g.ID(), CorrectedNS: by})
	}
	return out, nil
}

// onAcceptClock answers callAcceptClock: by how much the clock of a group led here went forward, in nanoseconds.
func (n *Node) onAcceptClock(_ context.Context, _ string, group uint32, _ []byte) ([]byte, error) {
	g := n.host.Group(group)
	if g == nil {
		return nil, fmt.Errorf("group %d: %w", group, record.ErrNotFound)
	}
	t := g.Term()
	if t == nil {
		return nil, fmt.Errorf("%w: of group %d", record.ErrNotLeader, group)
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	by := g.Clock().Accept()
	return binary.BigEndian.AppendUint64(nil, uint64(by)), nil
}

// clockNotes say what somebody should know of the clocks, though nothing is broken by it.
func (n *Node) clockNotes() []string {
	var notes []string
	round := func(d time.Duration) time.Duration { return d.Abs().Round(time.Second) }
	for _, g := range n.host.Groups() {
		h := g.Clock().Health()
		note := func(format string, args ...any) {
			notes = append(notes, fmt.Sprintf("group %d: ", g.ID())+fmt.Sprintf(format, args...))
		}
		lag := time.Duration(h.Median - h.Now)
		switch {
		case h.Behind:
			note("its clock is %v behind the wall clocks; it is corrected in %v, or by cluster accept-clock",
				round(lag), round(h.AcceptIn))
		case h.Ahead:
			note("its clock is %v ahead of the wall clocks, and stays so until they are there", round(lag))
		}
		if h.AgeWait > 0 {
			note("nothing is deleted by age for %v, or until cluster accept-clock says that the wall clocks are right",
				round(h.AgeWait))
		}
		if h.WallOff && g.ID() == replication.Metadata {
			notes = append(notes, "the wall clock of this node is off those of the others")
		}
	}
	return notes
}

// collectClock sends how a group's clock stands.
func collectClock(e emitter, g *replication.Group) {
	h := g.Clock().Health()
	if h.Running {
		e.gauge("clock_behind_seconds", "By how much the median of the wall clocks is ahead of the group's clock.",
			time.Duration(h.Median-h.Now).Seconds())
	}
	e.gauge("clock_age_wait_seconds", "For how much longer nothing is deleted by age.", h.AgeWait.Seconds())
}
