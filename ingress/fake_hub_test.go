package ingress

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// sent is a message that left over a link.
type sent struct {
	to, reply, subject string // subject: of a delivery
	header, body       string
	fenced             bool
	checks             int // of the term, before it was sent
	at                 time.Time
}

// fakeHub is the server that a node is connected to: its account A.
type fakeHub struct {
	conn *fakeConn
	link *fakeLink
}

func newFakeHub() *fakeHub {
	return &fakeHub{conn: &fakeConn{subs: make(map[int]fakeSub)}, link: &fakeLink{}}
}

func (h *fakeHub) Accounts() []Account       { return []Account{{Name: "A", JetStream: true}} }
func (h *fakeHub) Conn(string) (Conn, error) { return h.conn, nil }
func (h *fakeHub) Link(string) (Link, error) { return h.link, nil }

type fakeSub struct {
	subject string
	h       func(*Msg)
}

// fakeConn is a CLIENT connection whose messages are injected by the test.
type fakeConn struct {
	running sync.WaitGroup // calls of handlers

	mu     sync.Mutex
	n      int
	subs   map[int]fakeSub
	closed bool
	// flushErr is what the next calls of Flush return.
	flushErr error
	flushes  int
}

func (c *fakeConn) Subscribe(subject string, h func(*Msg)) (func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("closed")
	}
	c.n++
	id := c.n
	c.subs[id] = fakeSub{subject, h}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subs, id)
	}, nil
}

func (c *fakeConn) Flush(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushes++
	return errors.Join(c.flushErr, ctx.Err())
}

// failFlush makes Flush fail from now on, or not.
func (c *fakeConn) failFlush(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushErr = err
}

func (c *fakeConn) flushed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flushes
}

func (c *fakeConn) Publish(string, string, []byte, []byte) error { return nil }

// Close returns when no handler runs any more, as that of a real connection does.
func (c *fakeConn) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}

// inject hands a message to everybody who subscribed its subject; it returns how many did.
func (c *fakeConn) inject(m Msg) int {
	c.mu.Lock()
	var to []func(*Msg)
	for _, s := range c.subs {
		if !c.closed && jsapi.SubjectMatches(s.subject, m.Subject) {
			to = append(to, s.h)
		}
	}
	c.running.Add(1)
	defer c.running.Done()
	c.mu.Unlock()
	for _, h := range to {
		got := Msg{
			Subject: m.Subject, Reply: m.Reply, Header: bytes.Clone(m.Header), Data: bytes.Clone(m.Data),
		}
		h(&got)
	}
	return len(to)
}

// subjects lists what is subscribed, but for the API.
func (c *fakeConn) subjects() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, s := range c.subs {
		if !strings.HasPrefix(s.subject, jsapi.DefaultPrefix) && !strings.HasPrefix(s.subject, "$JS.ACK.") {
			out = append(out, s.subject)
		}
	}
	slices.Sort(out)
	return out
}

// fakeLink keeps what is sent.
type fakeLink struct {
	mu    sync.Mutex
	sent  []sent
	gone  map[string]bool // subjects that nobody listens on
	down  bool            // for what is fenced: the rest is kept
	bad   error           // what Deliver returns, if not nil
	count func() int      // of checks; may be nil
}

func (l *fakeLink) add(m *sent) {
	if l.count != nil {
		m.checks = l.count()
	}
	m.at = time.Now()
	l.sent = append(l.sent, *m)
}

func (l *fakeLink) Send(m *Outgoing) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down && m.Fenced {
		return errors.New("the link is down")
	}
	l.add(&sent{to: m.Subject, header: string(m.Header), body: string(m.Body), fenced: m.Fenced})
	return nil
}

// refuse makes Deliver fail from now on, or not.
func (l *fakeLink) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad = err
}

func (l *fakeLink) setDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
}

func (l *fakeLink) Deliver(inbox string, ack []byte, subject string, header, body []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bad != nil {
		return l.bad
	}
	l.add(&sent{
		to: inbox, reply: string(ack), subject: subject, header: string(header), body: string(body), fenced: true,
	})
	return nil
}

func (l *fakeLink) Interest(subject string, _ time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.gone[subject]
}

func (l *fakeLink) Down() (time.Time, bool) { return time.Time{}, false }
func (l *fakeLink) MaxPayload() int         { return 1 << 20 }
func (l *fakeLink) Close()                  {}

// to returns what was sent to a subject.
func (l *fakeLink) to(subject string) []sent {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []sent
	for _, m := range l.sent {
		if m.to == subject {
			out = append(out, m)
		}
	}
	return out
}

// fakeMeta is group 0 as all nodes of a test hold it.
type fakeMeta struct {
	mu      sync.Mutex
	rows    map[string]record.MetaRow
	version uint64
	changed chan struct{}
	leader  string            // of group 0
	leaders map[uint32]string // of the others
	// dead: since when nobody heard of the leader of a group.
	dead map[uint32]time.Time
	// asked: how often Leading was true; it is limit times, 0 = for ever.
	asked, limit int
	// fail, if set, is asked before every write.
	fail func(writes []record.MetaWrite) error
	// gate, if set, is what every write waits for.
	gate chan struct{}
	// gets and scans count reads of stream rows.
	gets, scanned int
}

func newFakeMeta() *fakeMeta {
	return &fakeMeta{
		rows: make(map[string]record.MetaRow), changed: make(chan struct{}), leaders: make(map[uint32]string),
		dead: make(map[uint32]time.Time),
	}
}

// metaView is fakeMeta on one node.
type metaView struct {
	*fakeMeta
	node string
}

func (m *fakeMeta) Get(key string) (record.MetaRow, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if strings.HasPrefix(key, streamPrefix) {
		m.gets++
	}
	r, ok := m.rows[key]
	return r, ok
}

func (m *fakeMeta) Scan(prefix string, f func(record.MetaRow) bool) {
	m.mu.Lock()
	var rows []record.MetaRow
	for k, r := range m.rows {
		if strings.HasPrefix(k, prefix) {
			rows = append(rows, r)
		}
	}
	if strings.HasPrefix(prefix, streamPrefix) {
		m.scanned += len(rows)
	}
	m.mu.Unlock()
	slices.SortFunc(rows, func(a, b record.MetaRow) int { return cmp.Compare(a.Key, b.Key) })
	for _, r := range rows {
		if !f(r) {
			return
		}
	}
}

func (m *fakeMeta) block(gate chan struct{}) { m.set(func() { m.gate = gate }) }

func (m *fakeMeta) Write(ctx context.Context, conds []record.MetaCond, writes []record.MetaWrite) error {
	m.mu.Lock()
	gate := m.gate
	m.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.fail != nil {
		if err := m.fail(writes); err != nil {
			return err
		}
	}
	for _, c := range conds {
		if m.rows[c.Key].Version != c.Version {
			return record.ErrConflict
		}
	}
	m.version++
	for _, w := range writes {
		if w.Value == nil {
			delete(m.rows, w.Key)
			continue
		}
		m.rows[w.Key] = record.MetaRow{Key: w.Key, Value: w.Value, Version: m.version}
	}
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

func (m *fakeMeta) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *fakeMeta) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (v metaView) Leading() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.leader != v.node || v.limit > 0 && v.asked >= v.limit {
		return false
	}
	v.asked++
	return true
}

func (v metaView) GroupLeader(group uint32) (string, time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	heard := time.Now()
	if at, ok := v.dead[group]; ok {
		heard = at
	}
	if group == 0 {
		return v.leader, heard
	}
	return v.leaders[group], heard
}
