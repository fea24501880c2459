package conn

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTimeout = 10 * time.Second

// startServer runs a real server until the test ends.
func startServer(t *testing.T, opts server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.NoLog, opts.NoSigs = "127.0.0.1", true, true
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(testTimeout) {
		t.Fatal("the server does not start")
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

func dial(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}

// open opens a Conn to a server; it is closed with the test.
func open(t *testing.T, s *server.Server, change func(*Config)) *Conn {
	t.Helper()
	cfg := Config{Dial: dial(s.Addr().String()), Name: t.Name(), Wait: 5 * time.Millisecond, Logger: zap.NewNop()}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func flush(t *testing.T, c *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(testTimeout), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", testTimeout, what)
		case <-tick.C:
		}
	}
}

type received struct{ Subject, Reply, Header, Data string }

// inbox gathers messages in the order of their handlers' calls.
type inbox struct {
	mu   sync.Mutex
	msgs []received
}

func (i *inbox) handler(subject, reply string, header, data []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.msgs = append(i.msgs, received{subject, reply, string(header), string(data)})
}

func (i *inbox) all() []received {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]received(nil), i.msgs...)
}

func (i *inbox) wait(t *testing.T, n int) []received {
	t.Helper()
	eventually(t, fmt.Sprintf("%d messages", n), func() bool { return len(i.all()) >= n })
	return i.all()
}

// rawClient speaks the protocol by hand, so that every byte is the test's.
type rawClient struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

func rawDial(t *testing.T, s *server.Server) *rawClient {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	c := &rawClient{t, nc, bufio.NewReader(nc)}
	c.line("INFO ")
	c.write(`CONNECT {"verbose":false,"headers":true,"protocol":1}` + "\r\nPING\r\n")
	c.line("PONG")
	return c
}

func (c *rawClient) write(s string) {
	c.t.Helper()
	if _, err := c.nc.Write([]byte(s)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawClient) line(prefix string) string {
	c.t.Helper()
	l, err := c.r.ReadString('\n')
	if err != nil || !strings.HasPrefix(l, prefix) {
		c.t.Fatalf("server says %q, %v; want %q", l, err, prefix)
	}
	return l
}
