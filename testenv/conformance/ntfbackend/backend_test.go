package ntfbackend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/ntf/backend"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/hub"
)

// config is what ntf renders, in short.
const config = `server_name: "n1"
port: %d
%s
accounts {
  A { users = [ { user: "a", pass: "p" } ], jetstream: %v }
  $SYS { users = [ { user: "s", pass: "p" } ] }
}
no_auth_user: a
system_account: "$SYS"
`

func newBackend(t *testing.T) *nodes {
	t.Helper()
	opts := backend.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	b, err := New(Options{Profile: "fast"})(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return b.(*nodes)
}

// place reserves an instance of one server with JetStream or without.
func place(t *testing.T, b *nodes, id string, jetStream bool) *backend.InstancePlan {
	t.Helper()
	p, err := b.Placement(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.ListenerAddress("n1", "client")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Teardown(context.WithoutCancel(t.Context()), id); err != nil {
			t.Error(err)
		}
	})
	block := ""
	if jetStream {
		block = `jetstream { enabled: true, store_dir: "/nowhere", domain: "d" }`
	}
	text := fmt.Sprintf(config, l.Endpoint.Port, block, jetStream)
	return &backend.InstancePlan{ID: id, Nodes: []*backend.NodePlan{{
		Name: "n1", Dir: "n1", Config: []byte(text), Listeners: []backend.Listener{l},
	}}}
}

func info(t *testing.T, port int) error {
	t.Helper()
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer nc.Close()
	if nc.ConnectedServerName() != "n1" {
		t.Errorf("server is named %s", nc.ConnectedServerName())
	}
	_, err = nc.Request("$JS.d.API.INFO", nil, 5*time.Second)
	return err
}

// The API is answered by the node and by nothing else: the same hub without the node answers nothing.
func TestOnlyTheNodeAnswers(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	plan := place(t, b, "one", true)
	port := plan.Nodes[0].Listeners[0].Endpoint.Port
	made, err := b.Provision(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := info(t, port); err != nil {
		t.Errorf("node: %v", err)
	}
	if err := made[0].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	alone := &hubAlone{cfg: hub.Config{ConfigFile: made[0].(*srv).config, Log: zap.NewNop()}}
	if err := alone.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := info(t, port); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("hub alone: %v, want %v", err, nats.ErrNoResponders)
	}
	if err := errors.Join(alone.Stop(t.Context()), made[0].Start(t.Context()), info(t, port)); err != nil {
		t.Errorf("node started again: %v", err)
	}
}

func TestServerWithoutJetStream(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	plan := place(t, b, "off", false)
	if _, err := b.Provision(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if err := info(t, plan.Nodes[0].Listeners[0].Endpoint.Port); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("%v, want %v", err, nats.ErrNoResponders)
	}
}

// A port that somebody took makes ntf plan anew; nothing is left of the try.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	for _, jetStream := range []bool{true, false} {
		plan := place(t, b, fmt.Sprint(jetStream), jetStream)
		l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", plan.Nodes[0].Listeners[0].Endpoint.Port))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Provision(t.Context(), plan); !errors.Is(err, backend.ErrListen) {
			t.Errorf("JetStream %v: %v, want %v", jetStream, err, backend.ErrListen)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTeardown(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	plan := place(t, b, "gone", true)
	made, err := b.Provision(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Teardown(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory of the instance: %v", err)
	}
	_, status := made[0].Status(t.Context())
	for _, err := range []error{made[0].Start(t.Context()), made[0].Stop(t.Context()), status} {
		if !errors.Is(err, errTornDown) {
			t.Errorf("%v, want %v", err, errTornDown)
		}
	}
	if _, err := b.Provision(t.Context(), plan); !errors.Is(err, errTornDown) {
		t.Errorf("provision of what is gone: %v, want %v", err, errTornDown)
	}
}
