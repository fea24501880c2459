package jepsen

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// A client that gives up after some seconds never hears what a leader says that was paused for longer: the stale
// answer, or the copy of a message that somebody else has acked, comes when nobody listens. Patient clients listen
// for a minute, to every answer to a request and not to the first one only.
const (
	// patience is how long answers to a request are taken, and a pull lives.
	patience = 60 * time.Second
	// lookEach is the pause between two reads of a patient reader.
	lookEach = 100 * time.Millisecond
	// patientBatch is the batch of a patient pull, and pullEvery after how long there is a next one, though this
	// one is not used up: the leader that got it may be gone.
	patientBatch = 16
	pullEvery    = 20 * time.Second
	// answersAhead is how many answers may wait to be looked at.
	answersAhead = 4096
)

// asker keeps what was asked until nobody listens any more. One goroutine uses it.
type asker struct {
	inbox string
	keep  time.Duration // how long answers are taken
	n     int
	open  map[string]question // by the last token of their reply subjects
}

type question struct {
	subject string
	at      Moment
	sub     *nats.Subscription // to its answers alone, if it has one
}

func newAsker(keep time.Duration) asker {
	return asker{inbox: nats.NewInbox(), keep: keep, open: make(map[string]question)}
}

// ask notes a question and returns the reply subject of its answers.
func (a *asker) ask(subject string, now Moment) string {
	for token, q := range a.open {
		if now-q.at > a.keep {
			delete(a.open, token)
			if q.sub != nil {
				_ = q.sub.Unsubscribe() // its connection has ended, else
			}
		}
	}
	a.n++
	a.open[strconv.Itoa(a.n)] = question{subject: subject, at: now}
	return a.inbox + "." + strconv.Itoa(a.n)
}

// asked is what was sent to a reply subject; false if that was too long ago. newest: nothing was asked since.
func (a *asker) asked(reply string, now Moment) (q question, newest, ok bool) {
	token := reply[strings.LastIndexByte(reply, '.')+1:]
	q, ok = a.open[token]
	return q, token == strconv.Itoa(a.n), ok && now-q.at <= a.keep
}

// lookups reads registers through one node, and waits for none of the answers.
type lookups struct {
	asker

	h     *History
	node  string
	count int
}

// next is the request of one read, of a register that is in use.
func (r *lookups) next(now Moment) *nats.Msg {
	subject := fmt.Sprintf("reg.%d.%d", now/registerWindow, r.count%registers)
	r.count++
	m := nats.NewMsg(getRegister)
	m.Reply, m.Data = r.ask(subject, now), lastRequest(subject)
	return m
}

// heard takes an answer, be it the first one to its request or not. One that is an error says nothing.
func (r *lookups) heard(m *nats.Msg) {
	now := r.h.now()
	q, _, ok := r.asked(m.Subject, now)
	if !ok {
		return
	}
	seq, err := lastIn(m.Data)
	if err != nil {
		return
	}
	r.h.lookup(Lookup{Subject: q.subject, Node: r.node, Invoke: q.at, Return: now, Seq: seq})
}

// lookUp reads until ctx ends.
func (l *load) lookUp(ctx context.Context, nc *nats.Conn, node string) error {
	r := &lookups{h: l.h, node: node, asker: newAsker(patience)}
	in := make(chan *nats.Msg, answersAhead)
	if _, err := nc.ChanSubscribe(r.inbox+".*", in); err != nil {
		return err
	}
	l.wg.Go(func() {
		t := time.NewTicker(lookEach)
		defer t.Stop()
		for {
			select {
			case m := <-in:
				r.heard(m)
			case <-t.C:
				_ = nc.PublishMsg(r.next(l.h.now())) // while there is no connection it waits for one
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

// pulls has messages of the work queue delivered through one node, to pulls that live for long.
type pulls struct {
	asker

	h    *History
	node string
	left int // that the newest pull may still get
}

// send sends one pull, whose answers go to a channel.
func (p *pulls) send(nc *nats.Conn, now Moment, in chan *nats.Msg) error {
	m := p.next(now)
	sub, err := nc.ChanSubscribe(m.Reply, in)
	if err != nil {
		return err
	}
	q := p.open[strconv.Itoa(p.n)]
	q.sub = sub
	p.open[strconv.Itoa(p.n)] = q
	return nc.PublishMsg(m)
}

// next is the request of one pull.
func (p *pulls) next(now Moment) *nats.Msg {
	p.left = patientBatch
	m := nats.NewMsg("$JS.API.CONSUMER.MSG.NEXT." + streamWork + "." + durable)
	m.Reply = p.ask("", now)
	m.Data = fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, patientBatch, patience)
	return m
}

// heard takes a message, of whichever pull it is an answer to, or the end of one. It returns the settlement that is
// to be made, if any, and whether the newest pull is over.
func (p *pulls) heard(m *nats.Msg) (s *Settle, over bool) {
	now := p.h.now()
	q, newest, ok := p.asked(m.Sub.Subject, now) // the subject of a delivery is that of the message
	if !ok {
		return nil, false
	}
	if m.Header.Get("Status") != "" { // no pull here asks for heartbeats
		return nil, newest
	}
	d := Delivery{ID: string(m.Data), Node: p.node, Asked: q.at, At: now}
	if meta, err := m.Metadata(); err == nil {
		d.Seq, d.Count = meta.Sequence.Stream, meta.NumDelivered
	}
	p.h.delivery(d)
	if newest {
		p.left--
	}
	return &Settle{ID: d.ID, Seq: d.Seq}, newest && p.left == 0
}

// stay pulls until ctx ends.
func (l *load) stay(ctx context.Context, nc *nats.Conn, node string) {
	p := &pulls{h: l.h, node: node, asker: newAsker(2 * patience)} // a pull may have lain with a node that was held
	in := make(chan *nats.Msg, answersAhead)
	l.workers.Go(func() {
		due := time.NewTimer(0)
		defer due.Stop()
		for {
			select {
			case m := <-in:
				s, over := p.heard(m)
				if s != nil {
					l.workers.Go(func() { l.settlePatiently(ctx, nc, m, *s) })
				}
				if over { // one that is refused is not asked again at once
					due.Reset(retryPause)
				}
			case <-due.C:
				_ = p.send(nc, l.h.now(), in) // while there is no connection it waits for one
				due.Reset(pullEvery)
			case <-ctx.Done():
				return
			}
		}
	})
}

// settlePatiently acks a message, and waits for the confirmation as long as anybody waits here.
func (l *load) settlePatiently(ctx context.Context, nc *nats.Conn, m *nats.Msg, s Settle) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.Invoke = l.h.now()
	_, err := nc.RequestWithContext(ctx, m.Reply, []byte("+ACK"))
	s.Return, s.Confirmed = l.h.now(), err == nil
	l.h.settle(s)
}
