package ntfbackend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/synadia-io/orbit.go/ntf/backend"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/ingress/hub"
	"github.com/holdfast-mq/holdfast/testenv"
)

// A runner is what a server of an instance is in truth: a node, or a hub alone.
type runner interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Kill(ctx context.Context) error
	WaitReady(ctx context.Context) error
}

// srv is one server of an instance.
type srv struct {
	name, cluster string
	in            *instance
	config        string // path of the configuration
	listeners     []backend.Listener
	run           runner

	mu      sync.Mutex
	stopped bool
}

// plan makes the servers of a plan, stopped.
func (b *nodes) plan(in *instance, plan *backend.InstancePlan) ([]*srv, error) {
	raft, err := b.raftAddresses(in, plan)
	if err != nil {
		return nil, err
	}
	var made []*srv
	for i, np := range plan.Nodes {
		for _, f := range np.Files {
			if err := write(filepath.Join(in.dir, f.Path), f.Data, f.Mode); err != nil {
				return nil, err
			}
		}
		n := &srv{
			name: np.Name, cluster: np.Cluster, in: in,
			config:    filepath.Join(in.dir, np.Dir, "server.conf"),
			listeners: slices.Clone(np.Listeners),
		}
		jetStream, err := n.writeConfig(np.Config)
		if err != nil {
			return nil, err
		}
		log := b.opts.Logger.With(zap.String("test", plan.Description), zap.String("node", np.Name))
		if !jetStream {
			n.run = &hubAlone{cfg: hub.Config{ConfigFile: n.config, Log: log}}
			made = append(made, n)
			continue
		}
		cfg := node.Config{
			NodeID: np.Name, DataDir: filepath.Join(in.dir, np.Dir, "data"), NATSConfig: n.config,
			Logger: log, Profile: b.opts.Profile, RaftListen: raft[i],
		}
		if np.Cluster != "" {
			cfg.RouteListen = n.listener("cluster")
			for j, other := range plan.Nodes {
				cfg.Peers = append(cfg.Peers, other.Name+"="+raft[j])
			}
		}
		if n.run, err = testenv.NewNode(cfg, b.ports); err != nil {
			return nil, err
		}
		made = append(made, n)
	}
	return made, nil
}

// raftAddresses reserves an address for each node.
func (b *nodes) raftAddresses(in *instance, plan *backend.InstancePlan) ([]string, error) {
	var out []string
	p := &placement{b.ports, in}
	for range plan.Nodes {
		e, err := p.endpoint()
		if err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprintf("127.0.0.1:%d", e.Port))
	}
	return out, nil
}

// writeConfig writes the configuration of the server and says whether it has JetStream on.
func (n *srv) writeConfig(text []byte) (jetStream bool, err error) {
	if err := write(n.config, text, 0o600); err != nil {
		return false, err
	}
	m, err := conf.ParseFile(n.config)
	if err != nil {
		return false, err
	}
	for key := range m {
		switch strings.ToLower(key) {
		case "jetstream":
			jetStream = true
		case "cluster":
			delete(m, key)
		}
	}
	if n.cluster == "" {
		return jetStream, nil
	}
	// JSON is a configuration, too, but for escapes such as \u003e.
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return false, err
	}
	return jetStream, write(n.config, buf.Bytes(), 0o600)
}

// listener is the address of a listener, on loopback.
func (n *srv) listener(name string) string {
	for _, l := range n.listeners {
		if l.Name == name {
			return fmt.Sprintf("127.0.0.1:%d", l.Endpoint.Port)
		}
	}
	return ""
}

// Name implements backend.Node.
func (n *srv) Name() string { return n.name }

// Addresses implements backend.Node.
func (n *srv) Addresses() []backend.Address {
	var out []backend.Address
	for _, l := range n.listeners {
		inside := backend.Endpoint{Host: "127.0.0.1", Port: l.Endpoint.Port}
		out = append(out, backend.Address{Name: l.Name, Internal: inside, External: l.Endpoint})
	}
	return out
}

// Status implements backend.Node.
func (n *srv) Status(context.Context) (backend.NodeStatus, error) {
	if n.in.ctx.Err() != nil {
		return backend.NodeStatus{}, errTornDown
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	st := backend.NodeStatus{
		ServerName: n.name, Cluster: n.cluster, Running: !n.stopped, Version: server.VERSION,
	}
	for _, l := range n.listeners {
		if l.Name == "cluster" && st.Running {
			st.ClusterPort = l.Endpoint.Port
		}
	}
	return st, nil
}

// Start implements backend.Node. It returns when the node serves, unless the majority of its cluster is down.
func (n *srv) Start(ctx context.Context) error {
	if n.in.ctx.Err() != nil {
		return errTornDown
	}
	if err := n.run.Start(ctx); err != nil {
		return err
	}
	n.set(false)
	if n.cluster != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return n.run.WaitReady(ctx)
}

// Stop implements backend.Node.
func (n *srv) Stop(ctx context.Context) error {
	if n.in.ctx.Err() != nil {
		return errTornDown
	}
	n.set(true)
	return n.run.Stop(ctx)
}

func (n *srv) set(stopped bool) {
	n.mu.Lock()
	n.stopped = stopped
	n.mu.Unlock()
}

// Reload implements backend.Node; no suite in scope asks for it.
func (n *srv) Reload(context.Context) error { return backend.ErrUnsupported }

// Apply implements backend.Node; no suite in scope asks for it.
func (n *srv) Apply(context.Context, *backend.NodePlan) error { return backend.ErrUnsupported }

// Kill implements backend.Node.
func (n *srv) Kill(context.Context) error { return backend.ErrUnsupported }

// Pause implements backend.Node.
func (n *srv) Pause(context.Context) error { return backend.ErrUnsupported }

// Resume implements backend.Node.
func (n *srv) Resume(context.Context) error { return backend.ErrUnsupported }

// hubAlone is the hub of a node without the node.
type hubAlone struct {
	cfg hub.Config
	mu  sync.Mutex
	hub *hub.Hub
}

// Start implements runner.
func (h *hubAlone) Start(ctx context.Context) error {
	started, err := hub.Start(ctx, h.cfg)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hub = started
	return nil
}

// Stop implements runner.
func (h *hubAlone) Stop(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hub != nil {
		h.hub.Stop()
	}
	h.hub = nil
	return nil
}

// Kill implements runner.
func (h *hubAlone) Kill(ctx context.Context) error { return h.Stop(ctx) }

// WaitReady implements runner: Start has waited.
func (h *hubAlone) WaitReady(context.Context) error { return nil }
