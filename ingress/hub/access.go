package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// maxInfoLine bounds the first line of a leafnode listener.
const maxInfoLine = 64 << 10

// leafHandshakeTimeout bounds the INFO line and the TLS handshake of a link, if the dialer's context has no
// deadline.
const leafHandshakeTimeout = 5 * time.Second

// LeafAccess is how a link connects in one account.
type LeafAccess struct {
	// Dial opens a connection to the leafnode listener. TLS, where the user's listener wants it, is done by
	// it: the caller speaks the leafnode protocol from the INFO line on.
	Dial func(ctx context.Context) (net.Conn, error)
	// User and Password are for the CONNECT; empty where no credentials are needed.
	User, Password string
	// MaxPayload is the largest message in bytes, header included: the smaller of server's and account's
	// limit.
	MaxPayload int
	// MaxControlLine is the longest protocol line the listener takes, in bytes.
	MaxControlLine int
}

// ConnectClient returns the URL and the options with which our service connects as a client in the account.
// It is TCP over loopback, or an in-process connection if the listener has TLS (a certificate for the
// outside name need not fit the loopback one).
func (h *Hub) ConnectClient(account string) (string, []nats.Option, error) {
	l, ok := h.plan.clients[account]
	if !ok {
		return "", nil, fmt.Errorf("%w: %q", ErrNoAccount, account)
	}
	var opts []nats.Option
	if l.user != "" {
		opts = append(opts, nats.UserInfo(l.user, l.password))
	}
	if h.opts.TLSConfig != nil {
		opts = append(opts, nats.InProcessServer(h.srv))
	}
	return "nats://" + h.ClientAddr(), opts, nil
}

// ClientAccess is how our own client connection connects in one account.
type ClientAccess struct {
	// Dial opens a connection: TCP over loopback, or in-process if the listener has TLS. The INFO line is the
	// first thing to read.
	Dial func(ctx context.Context) (net.Conn, error)
	// User and Password are for the CONNECT; empty where no credentials are needed.
	User, Password string
}

// Client returns how our own client connection connects in the account, for a speaker of the client protocol.
func (h *Hub) Client(account string) (ClientAccess, error) {
	l, ok := h.plan.clients[account]
	if !ok {
		return ClientAccess{}, fmt.Errorf("%w: %q", ErrNoAccount, account)
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		if h.opts.TLSConfig != nil {
			return h.srv.InProcessConn()
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", h.ClientAddr())
	}
	return ClientAccess{Dial: dial, User: l.user, Password: l.password}, nil
}

// Leaf returns how a link connects in the account.
func (h *Hub) Leaf(account string) (LeafAccess, error) {
	l, ok := h.plan.leafs[account]
	if !ok {
		return LeafAccess{}, fmt.Errorf("%w: %q", ErrNoAccount, account)
	}
	limit := h.MaxPayload()
	for _, a := range h.plan.accounts {
		if a.Name == account && a.MaxPayload > 0 {
			limit = min(limit, a.MaxPayload)
		}
	}
	return LeafAccess{
		Dial: h.dialLeaf, User: l.user, Password: l.password,
		MaxPayload: limit, MaxControlLine: h.MaxControlLine(),
	}, nil
}

func (h *Hub) dialLeaf(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", h.leafAddr())
	if err != nil {
		return nil, fmt.Errorf("hub: dial leafnode listener: %w", err)
	}
	h.mu.Lock()
	listener := h.leafTLS
	h.mu.Unlock()
	if listener == nil {
		return conn, nil
	}
	secure, err := leafTLS(ctx, conn, listener, h.opts.LeafNode.TLSHandshakeFirst)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("hub: TLS to leafnode listener: %w", err)
	}
	return secure, nil
}

// leafTLS does the TLS handshake of a leafnode connection, which comes after the INFO line unless the
// listener says otherwise. The line is read here and given again to the reader of the result.
//
//nolint:revive // first is a setting of the listener, not a choice of the caller.
func leafTLS(ctx context.Context, conn net.Conn, listener *tls.Config, first bool) (net.Conn, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(leafHandshakeTimeout)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	var line []byte
	if !first {
		var err error
		if line, err = readLine(conn); err != nil {
			return nil, err
		}
	}
	tc := tls.Client(conn, ownServer(listener))
	if err := tc.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return &replayConn{Conn: tc, first: bytes.NewReader(line)}, nil
}

// ownServer is a client configuration that trusts nothing but the certificates of the listener's own
// configuration, and presents them, in case the listener wants a certificate from everybody.
func ownServer(listener *tls.Config) *tls.Config {
	certs := slices.Clone(listener.Certificates)
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: certs,
		//nolint:gosec // VerifyConnection below is stricter: this very certificate and no other.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			for _, c := range certs {
				if len(cs.PeerCertificates) > 0 && len(c.Certificate) > 0 &&
					bytes.Equal(c.Certificate[0], cs.PeerCertificates[0].Raw) {
					return nil
				}
			}
			return errors.New("the certificate is not the one of our own leafnode listener")
		},
	}
}

// readLine reads byte by byte up to a newline: what follows belongs to the TLS handshake.
func readLine(r io.Reader) ([]byte, error) {
	var line []byte
	var b [1]byte
	for len(line) < maxInfoLine {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return nil, err
		}
		line = append(line, b[0])
		if b[0] == '\n' {
			return line, nil
		}
	}
	return nil, fmt.Errorf("INFO line is longer than %d bytes", maxInfoLine)
}

// replayConn gives the bytes read before the handshake to the first reader.
type replayConn struct {
	net.Conn
	first *bytes.Reader
}

// Read implements net.Conn.
func (c *replayConn) Read(p []byte) (int, error) {
	if c.first.Len() > 0 {
		return c.first.Read(p)
	}
	return c.Conn.Read(p)
}
