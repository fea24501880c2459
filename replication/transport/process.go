package transport

import (
	"errors"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"
)

// process is the one process of a peer that this node talks to. Another one with the same node id is refused
// while this one is heard: each could give a vote in one term, to different candidates.
type process struct {
	boot uint64
	// conns are its connections, dialled and accepted; closed ones until somebody looks.
	conns map[*conn]struct{}
	rival rival
}

// rival is another process of the same node id that wants to take the place of the current one.
type rival struct {
	boot        uint64
	first, last time.Duration // when it came, without a pause, and came last; uptimes
}

// twinError is ErrTwin with the node id and where the process that is heard was found.
type twinError struct{ node, at string }

// Error names both.
func (e *twinError) Error() string {
	return fmt.Sprintf("%v: %s is heard at %s", ErrTwin, e.node, e.at)
}

// Unwrap makes it ErrTwin.
func (*twinError) Unwrap() error { return ErrTwin }

var errReplacedProcess = errors.New("another process of this node has taken its place")

// heard returns when a whole frame last came on an open connection of the process, and where it is; false if none
// is open.
func (p *process) heard() (at time.Duration, where net.Addr, ok bool) {
	for c := range p.conns {
		if !c.alive() {
			delete(p.conns, c)
			continue
		}
		at = max(at, time.Duration(c.received.Load()))
		if where == nil || c.dialer { // a dialled address is where it listens
			where = c.nc.RemoteAddr()
		}
		ok = true
	}
	return at, where, ok
}

// yields notes that another process came, and says whether it may take the place of one heard last at a time. The
// other must have come for some while: after a pause of this node it may be the first to be seen, although frames
// of the current one wait to be read.
func (p *process) yields(boot uint64, now, heard, silence time.Duration) bool {
	r := &p.rival
	if r.boot != boot || now-r.last > silence/2 {
		*r = rival{boot: boot, first: now}
	}
	r.last = now
	return now-heard > silence && now-r.first > silence/2
}

// claim makes c a connection of its peer's current process, and its process the current one if there is none, or
// none that is heard: then it returns the connections of the one before, which the caller must close. It returns
// ErrTwin if another process is heard. t.mu is held.
func (t *Transport) claim(c *conn) (old []*conn, err error) {
	p := t.st.processes[c.peer]
	if p != nil && p.boot != c.boot {
		now := t.uptime()
		if at, where, ok := p.heard(); ok && !p.yields(c.boot, now, at, t.cfg.ProcessSilence) {
			t.count.TwinsRefused.Add(1)
			return nil, &twinError{node: c.peer, at: where.String()}
		}
		for o := range p.conns {
			old = append(old, o)
		}
		if len(old) > 0 {
			t.count.TwinsReplaced.Add(1)
		}
		p = nil
	}
	if p == nil {
		t.forgetProcesses()
		p = &process{boot: c.boot, conns: make(map[*conn]struct{})}
		t.st.processes[c.peer] = p
	}
	p.heard() // drops what is closed
	p.conns[c] = struct{}{}
	return old, nil
}

// forgetProcesses drops the processes that have no connection any more. t.mu is held.
func (t *Transport) forgetProcesses() {
	for node, p := range t.st.processes {
		if _, _, ok := p.heard(); !ok {
			delete(t.st.processes, node)
		}
	}
}

// claimed is claim for a connection that was dialled.
func (t *Transport) claimed(c *conn) error {
	t.mu.Lock()
	old, err := t.claim(c)
	t.mu.Unlock()
	t.replaced(old)
	return err
}

// replaced closes the connections of a process whose place another one took.
func (t *Transport) replaced(old []*conn) {
	for _, c := range old {
		t.log.Warn("another process of a node takes the place of one that is silent",
			zap.String("peer", c.peer), zap.Stringer("silent", c.nc.RemoteAddr()))
		c.close(errReplacedProcess)
	}
}

const (
	// twinRefusals is how many times a peer must have refused this process before it counts.
	twinRefusals = 5
	// twinGap is the longest pause between two refusals that count together: after a longer one somebody may have
	// been restarted meanwhile, or this process was stopped.
	twinGap = 5 * time.Second
)

// refusals are those by one peer that hears another process of this node's id.
type refusals struct {
	count       int
	first, last time.Duration // uptimes
	other       string
}

// Twin describes the other of two live processes with this node's id.
type Twin struct {
	// Peer is the node that hears the other one and refuses this one.
	Peer string
	// Other is where it hears that one.
	Other string
}

// Twin returns true if a peer has refused this process for Config.TwinPatience because it hears another one of
// this node's id. Whoever is still heard by the rest of the cluster may go on; the caller knows. The transport
// goes on trying, and it becomes false again once that peer lets this process in.
func (t *Transport) Twin() (Twin, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for peer, r := range t.st.refusals {
		if t.uptime()-r.last <= twinGap && r.count >= twinRefusals && r.last-r.first >= t.cfg.TwinPatience {
			return Twin{Peer: peer, Other: r.other}, true
		}
	}
	return Twin{}, false
}

// refusedAsTwin notes a refusal by a peer.
func (t *Transport) refusedAsTwin(peer, other string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.uptime()
	r := t.st.refusals[peer]
	if r == nil || now-r.last > twinGap {
		r = &refusals{first: now}
		t.st.refusals[peer] = r
	}
	r.count++
	r.last, r.other = now, other
}

// letIn notes that a peer takes this process for the one of its id.
func (t *Transport) letIn(peer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.st.refusals, peer)
}

// Meet dials a node to which no connection is open, and does not wait for it: two processes with one node id are
// told apart by the nodes that hear one of them. It does nothing while the last failure is fresh.
func (t *Transport) Meet(node string) { t.link(node).meet() }

func (l *link) meet() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.st.cur != nil && l.st.cur.alive() || l.st.dialing != nil ||
		l.st.err != nil && l.t.uptime() < l.st.retry {
		return
	}
	l.begin()
}
