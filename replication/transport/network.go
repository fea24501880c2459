package transport

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Network makes connections: TCP in production, memnet in tests of virtual time.
type Network interface {
	Listen(addr string) (net.Listener, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// tcpKeepAlive finds peers that vanished while nothing is written; the transport's
// own pings do the rest.
const tcpKeepAlive = 15 * time.Second

// TCP is the Network of the operating system's TCP, with its defaults (TCP_NODELAY is on).
type TCP struct{}

// Listen opens a listener on host:port.
func (TCP) Listen(addr string) (net.Listener, error) {
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", addr, err)
	}
	l, err := net.ListenTCP("tcp", tcp)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", addr, err)
	}
	return l, nil
}

// Dial connects to host:port.
func (TCP) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAlive: tcpKeepAlive}
	return d.DialContext(ctx, "tcp", addr)
}
