package netcut

import (
	"errors"
	"net"
	"time"
)

// datagramSize is the largest datagram there is.
const datagramSize = 64 << 10

// forward carries datagrams to the port that node owns.
func (n *Net) forward(pc net.PacketConn, node string, to *net.UDPAddr) {
	for {
		buf := make([]byte, datagramSize)
		k, from, err := pc.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an earlier datagram could not be delivered
		}
		sender := n.sender(from)
		if sender == "" {
			n.unknown.Add(1)
			continue
		}
		if sender == node {
			continue
		}
		l := n.link(sender, node)
		s, _ := l.get()
		if s.Mode != Open {
			continue
		}
		if s.Delay == 0 {
			l.deliver(n.ctx.Done(), pc, buf[:k], s, to)
			continue
		}
		n.routines.Go(func() { l.deliver(n.ctx.Done(), pc, buf[:k], s, to) })
	}
}

func (n *Net) sender(from net.Addr) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bound[from.String()]
}

// deliver passes a datagram on, unless the link was cut while it was on its way.
func (l *link) deliver(done <-chan struct{}, pc net.PacketConn, b []byte, s State, to *net.UDPAddr) {
	if s.Delay > 0 && !wait(s.delay(), done) {
		return
	}
	if now, _ := l.get(); now.Mode != Open {
		return
	}
	_ = pc.SetWriteDeadline(time.Now().Add(dialTimeout))
	if _, err := pc.WriteTo(b, to); err == nil {
		l.bytes.Add(uint64(len(b)))
	}
}
