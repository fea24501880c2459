package hub

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTimeout = 10 * time.Second

// start runs a hub until the test ends. Unset addresses are loopback with an ephemeral port, unless the
// file at cfg.ConfigFile decides.
func start(t *testing.T, cfg Config) *Hub {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.Log == nil {
		cfg.Log = quietLog(t)
	}
	h, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(h.Stop)
	return h
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// fixedAddr returns a loopback address that stays free while nobody listens on it: its port is below the
// range that the system takes ephemeral ports from.
func fixedAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000))))
		if err == nil {
			ln.Close()
			return ln.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// writeBeside writes a file into the directory of another one.
func writeBeside(path, name, text string) error {
	return os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(text), 0o600)
}

func connect(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{nats.Timeout(testTimeout)}, opts...)...)
	if err != nil {
		t.Fatalf("connect %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// service connects as our service does.
func service(t *testing.T, h *Hub, account string) *nats.Conn {
	t.Helper()
	url, opts, err := h.ConnectClient(account)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, url, opts...)
}

// answer subscribes nc to subject and replies text to each request.
func answer(t *testing.T, nc *nats.Conn, subject, text string) {
	t.Helper()
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(text)) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(testTimeout); err != nil {
		t.Fatal(err)
	}
}

// request asks and returns the answer, or the error's text.
func request(nc *nats.Conn, subject string) string {
	m, err := nc.Request(subject, nil, testTimeout)
	if err != nil {
		return err.Error()
	}
	return string(m.Data)
}

// eventually waits for want, checking it every few milliseconds.
func eventually(t *testing.T, what string, want func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !want() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// leafHello connects a leafnode and returns the account the hub bound it to, or the hub's refusal.
func leafHello(t *testing.T, a LeafAccess) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	conn, err := a.Dial(ctx)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	return leafHelloOn(t, conn, a.User, a.Password)
}

func leafHelloOn(t *testing.T, conn net.Conn, user, password string) string {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	hello, err := json.Marshal(map[string]any{
		"version": "2.15.3", "name": "test", "server_id": "test", "headers": true, "protocol": 1,
		"user": user, "pass": password,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "INFO ") {
		return fmt.Sprintf("no INFO: %q %v", line, err)
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s\r\nPING\r\n", hello); err != nil {
		return err.Error()
	}
	account := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		op, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch op {
		case "INFO":
			var info struct {
				RemoteAccount string `json:"remote_account"`
			}
			if err := json.Unmarshal([]byte(arg), &info); err != nil {
				t.Fatal(err)
			}
			if info.RemoteAccount != "" { // later ones, of changed routes, do not name it
				account = info.RemoteAccount
			}
		case "PONG":
			return account
		case "-ERR":
			return arg
		}
	}
}

func leafAccount(t *testing.T, h *Hub, account string) string {
	t.Helper()
	a, err := h.Leaf(account)
	if err != nil {
		t.Fatal(err)
	}
	return leafHello(t, a)
}

func startError(t *testing.T, cfg Config) error {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = zaptest.NewLogger(t)
	}
	h, err := Start(t.Context(), cfg)
	if err == nil {
		h.Stop()
		t.Fatal("Start succeeded")
	}
	if !errors.Is(err, ErrConfig) && !errors.Is(err, ErrStart) {
		t.Errorf("error is neither ErrConfig nor ErrStart: %v", err)
	}
	return err
}
