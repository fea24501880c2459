package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress"
	"github.com/holdfast-mq/holdfast/ingress/conn"
	"github.com/holdfast-mq/holdfast/ingress/hub"
	"github.com/holdfast-mq/holdfast/ingress/link"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// rows shows a group's store as ingress reads it.
type rows struct{ *storage.Store }

func (r rows) StreamState(id record.StreamID) (record.StreamState, error) {
	row, err := r.Store.Stream(id)
	return row.State, err
}

func (r rows) Stream(id record.StreamID) ([]byte, record.StreamState, error) {
	row, err := r.Store.Stream(id)
	return row.Description, row.State, err
}

func (r rows) All(
	stream func(record.StreamID, []byte, *record.StreamState), consumer func(record.StreamID, []byte),
) error {
	err := r.Streams(func(row storage.StreamRow) bool {
		stream(row.ID, row.Description, &row.State)
		return true
	})
	if err != nil {
		return err
	}
	return r.AllConsumers(func(row storage.ConsumerRow) bool {
		consumer(row.Stream, row.Description)
		return true
	})
}

// Dedup implements plan.Index.
//
//nolint:revive // the fourth result is the error.
func (r rows) Dedup(id record.StreamID, msgID string) (seq uint64, at int64, ok bool, err error) {
	row, ok, err := r.Store.Dedup(id, msgID)
	return row.Seq, row.Time, ok, err
}

func (r rows) DedupUntil(id record.StreamID, from, until int64, f func(int64, string) bool) error {
	return r.Store.DedupUntil(id, from, until, func(d storage.DedupRow) bool { return f(d.Time, d.ID) })
}

func (r rows) Consumers(
	id record.StreamID, f func(record.ConsumerID, []byte, record.ConsumerState) bool,
) error {
	return r.Store.Consumers(id, func(c storage.ConsumerRow) bool { return f(c.ID, c.Description, c.State) })
}

func (r rows) Pendings(id record.StreamID, c record.ConsumerID, f func(record.Pending) bool) error {
	return r.Store.Pendings(id, c, 0, f)
}

func (r rows) Sweeps(f func(ingress.SweepRow) bool) error {
	return r.Store.Sweeps(func(w storage.SweepRow) bool { return f(ingress.SweepRow(w)) })
}

func (r rows) Due(until int64, f func(ingress.DueRow) bool) error {
	return r.Store.Due(0, func(d storage.DueRow) bool {
		if int64(d.Bucket) > until {
			return false
		}
		return f(ingress.DueRow{Bucket: int64(d.Bucket), Stream: d.Stream, Ticket: d.Ticket, Kind: d.Kind})
	})
}

// meta shows group 0 as ingress reads and writes it.
type meta struct {
	host *replication.Host
	log  *zap.Logger

	mu   sync.Mutex
	next chan struct{} // closed at the next change; guarded by mu
}

// newMeta starts to watch group 0 until ctx ends.
func newMeta(ctx context.Context, wg *sync.WaitGroup, host *replication.Host, log *zap.Logger) *meta {
	m := &meta{host: host, log: log}
	m.next = make(chan struct{})
	changes, stop := host.Meta().Watch()
	wg.Go(func() {
		defer stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-changes:
			}
			m.mu.Lock()
			close(m.next)
			m.next = make(chan struct{})
			m.mu.Unlock()
		}
	})
	return m
}

// Changed implements ingress.Meta.
func (m *meta) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

// Get implements ingress.Meta.
func (m *meta) Get(key string) (record.MetaRow, bool) {
	row, err := m.host.Meta().Get(key)
	m.unread(key, err)
	return row, err == nil && row.Version != 0
}

// Scan implements ingress.Meta.
func (m *meta) Scan(prefix string, f func(record.MetaRow) bool) {
	m.unread(prefix, m.host.Meta().Scan(prefix, f))
}

// unread tells of rows that could not be read; that group 0 is damaged was told already.
func (m *meta) unread(key string, err error) {
	if err != nil && !errors.Is(err, record.ErrDamaged) {
		m.log.Error("reading group 0", zap.String("key", key), zap.Error(err))
	}
}

// Write implements ingress.Meta.
func (m *meta) Write(ctx context.Context, conds []record.MetaCond, writes []record.MetaWrite) error {
	return m.host.Meta().Write(ctx, conds, writes)
}

// Leading implements ingress.Meta.
func (m *meta) Leading() bool {
	t := m.host.Group(replication.Metadata).Term()
	return t != nil && t.Check() == nil
}

// GroupLeader implements ingress.Meta.
func (m *meta) GroupLeader(group uint32) (leader string, heard time.Time) {
	g := m.host.Group(group)
	if g == nil {
		return "", time.Time{}
	}
	return g.Leader()
}

// natsHub opens the connections of ingress to the embedded server.
type natsHub struct {
	hub  *hub.Hub
	node string
	log  *zap.Logger
}

// Accounts implements ingress.Hub.
func (h natsHub) Accounts() []ingress.Account {
	var out []ingress.Account
	for _, a := range h.hub.Accounts() {
		out = append(out, ingress.Account{Name: a.Name, JetStream: a.JetStream, Silent: len(a.Imports) > 0})
	}
	return out
}

// connectTimeout bounds the first connection of an account.
const connectTimeout = 10 * time.Second

// Conn implements ingress.Hub.
func (h natsHub) Conn(account string) (ingress.Conn, error) { //nolint:ireturn // as the port wants it
	access, err := h.hub.Client(account)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout) //nolint:forbidigo // bounded here
	defer cancel()
	c, err := conn.Open(ctx, conn.Config{
		Dial: access.Dial, User: access.User, Password: access.Password,
		Name: "holdfast/" + h.node + "/" + account, Logger: h.log,
	})
	if err != nil {
		return nil, err
	}
	return clientConn{c}, nil
}

type clientConn struct{ *conn.Conn }

// Subscribe implements ingress.Conn.
func (c clientConn) Subscribe(subject string, f func(*ingress.Msg)) (func(), error) {
	return c.Conn.Subscribe(subject, func(subject, reply string, header, data []byte) {
		f(&ingress.Msg{Subject: subject, Reply: reply, Header: header, Data: data})
	})
}

// Link implements ingress.Hub.
func (h natsHub) Link(account string) (ingress.Link, error) { //nolint:ireturn // as the port wants it
	access, err := h.hub.Leaf(account)
	if err != nil {
		return nil, err
	}
	l, err := link.New(link.Config{
		Dial: access.Dial, Name: "holdfast-" + h.node + "-" + account, User: access.User, Password: access.Password,
		MaxPayload: access.MaxPayload, MaxControlLine: access.MaxControlLine,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ended by Close
	out := &leafLink{Link: l, cancel: cancel, max: access.MaxPayload}
	out.wg.Go(func() {
		if err := l.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			h.log.Error("link ended", zap.String("account", account), zap.Error(err))
		}
	})
	return out, nil
}

type leafLink struct {
	*link.Link
	cancel context.CancelFunc
	wg     sync.WaitGroup
	max    int
}

// Send implements ingress.Link.
func (l *leafLink) Send(m *ingress.Outgoing) error {
	return l.Link.Send(link.Msg{Subject: m.Subject, Header: m.Header, Body: m.Body, Fenced: m.Fenced})
}

// Interest implements ingress.Link.
func (l *leafLink) Interest(subject string, since time.Time) bool {
	return l.InterestYoung(subject, since)
}

// Down implements ingress.Link.
func (l *leafLink) Down() (time.Time, bool) {
	st := l.Status()
	return st.Since, !st.Up
}

// MaxPayload implements ingress.Link.
func (l *leafLink) MaxPayload() int { return l.max }

// lastWords bounds how long a link that ends waits until the hub has what was sent over it.
const lastWords = 500 * time.Millisecond

// Close implements ingress.Link.
func (l *leafLink) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords) //nolint:forbidigo // bounded here
	defer cancel()
	_ = l.Flush(ctx) // without it the answers of the stop, "Server Shutdown" among them, would be lost
	l.cancel()
	l.wg.Wait()
}
