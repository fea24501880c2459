package conn

import (
	"fmt"
	"strconv"
)

func appendSub(out []byte, subject string, sid uint64) []byte {
	out = append(out, "SUB "...)
	out = append(out, subject...)
	out = append(out, ' ')
	out = strconv.AppendUint(out, sid, 10)
	return append(out, "\r\n"...)
}

// Subscribe calls h for every message on subject until cancel is called; it outlives
// reconnects. After cancel returned h still gets what the server had sent before it
// knew: whoever published has nobody else to answer.
func (c *Conn) Subscribe(subject string, h Handler) (cancel func(), err error) {
	if !valid(subject) {
		return nil, fmt.Errorf("%w: %q", ErrSubject, subject)
	}
	c.subsMu.Lock()
	defer c.subsMu.Unlock()
	c.mu.Lock()
	c.st.nextSID++
	sid, closed := c.st.nextSID, c.st.closed
	c.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	c.subs[sid] = &subscription{subject: subject, h: h}
	// While it is down, begin subscribes.
	_ = c.queue(func(out []byte) []byte { return appendSub(out, subject, sid) })
	return func() { c.unsubscribe(sid) }, nil
}

func (c *Conn) unsubscribe(sid uint64) {
	c.subsMu.Lock()
	defer c.subsMu.Unlock()
	s := c.subs[sid]
	if s == nil || s.gone {
		return
	}
	s.gone = true
	err := c.queue(func(out []byte) []byte {
		out = append(out, "UNSUB "...)
		out = strconv.AppendUint(out, sid, 10)
		return append(out, "\r\n"...)
	})
	if err != nil {
		delete(c.subs, sid) // nothing comes any more
		return
	}
	c.leave.next = append(c.leave.next, sid)
	c.askLeaving()
}

// askLeaving asks the server to say when it has seen the last UNSUBs, if it is not being
// asked. subsMu is held.
func (c *Conn) askLeaving() {
	if len(c.leave.asked) > 0 || len(c.leave.next) == 0 {
		return
	}
	c.leave.asked, c.leave.next = c.leave.next, nil
	if err := c.ping(c.left); err != nil {
		c.forgetLeaving()
	}
}

// left forgets the subscriptions that the server was asked about: what it sent for them
// was read before its answer. After an error nothing comes for any.
func (c *Conn) left(err error) {
	c.subsMu.Lock()
	defer c.subsMu.Unlock()
	if err != nil {
		c.leave.asked = append(c.leave.asked, c.leave.next...)
		c.leave.next = nil
	}
	c.forgetLeaving()
	c.askLeaving()
}

// forgetLeaving forgets those that were asked about. subsMu is held.
func (c *Conn) forgetLeaving() {
	for _, sid := range c.leave.asked {
		delete(c.subs, sid)
	}
	c.leave.asked = nil
}
