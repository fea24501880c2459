package ntfbackend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/synadia-io/orbit.go/ntf/backend"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/testenv"
)

// readyTimeout is how long a new instance may take until it serves; the client of ntf waits 30 s.
const readyTimeout = 25 * time.Second

// Options says how the nodes run.
type Options struct {
	// Profile is the Raft timeouts.
	Profile string
	// Logger receives what the nodes say; nil: nothing.
	Logger *zap.Logger
}

// New returns the factory to register with ntf.
func New(o Options) backend.Factory {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return func(_ context.Context, bo backend.Options) (backend.Backend, error) {
		return &nodes{
			opts: o, dir: bo.Dir, preserve: bo.Preserve, log: bo.Logger,
			ports: &testenv.Ports{}, instances: make(map[string]*instance),
		}, nil
	}
}

// errTornDown is what every call on a node of an instance that is gone returns.
var errTornDown = errors.New("instance torn down")

// nodes is the backend.
type nodes struct {
	opts     Options
	dir      string
	preserve bool
	log      *slog.Logger
	ports    *testenv.Ports

	mu        sync.Mutex
	instances map[string]*instance
}

// instance is what is held for one instance, from Placement to Teardown.
type instance struct {
	dir string
	// provisioning is held by Provision; Teardown cancels and then waits for it.
	provisioning sync.Mutex
	ctx          context.Context //nolint:containedctx // the life of the instance
	cancel       context.CancelFunc

	mu    sync.Mutex
	ports []int
	nodes []*srv
}

// Capabilities implements backend.Backend.
func (b *nodes) Capabilities() []backend.Capability { return nil }

// DefaultVersion implements backend.Backend.
func (b *nodes) DefaultVersion() string { return server.VERSION }

// Close implements backend.Backend.
func (b *nodes) Close() error { return nil }

// Placement implements backend.Backend.
func (b *nodes) Placement(_ context.Context, id string) (backend.Placement, error) {
	ctx, cancel := context.WithCancel(context.Background())
	in := &instance{dir: filepath.Join(b.dir, id), ctx: ctx, cancel: cancel}
	b.mu.Lock()
	b.instances[id] = in
	b.mu.Unlock()
	return &placement{b.ports, in}, nil
}

// placement gives an instance loopback ports.
type placement struct {
	ports *testenv.Ports
	in    *instance
}

func (p *placement) endpoint() (backend.Endpoint, error) {
	port, err := p.ports.Reserve()
	if err != nil {
		return backend.Endpoint{}, err
	}
	p.in.mu.Lock()
	p.in.ports = append(p.in.ports, port)
	p.in.mu.Unlock()
	return backend.Endpoint{Host: "localhost", Port: port}, nil
}

// ListenerAddress implements backend.Placement.
func (p *placement) ListenerAddress(_, name string) (backend.Listener, error) {
	e, err := p.endpoint()
	return backend.Listener{Name: name, Endpoint: e}, err
}

// ProxyAddress implements backend.Placement.
func (p *placement) ProxyAddress(string, string) (backend.Endpoint, error) { return p.endpoint() }

// InstanceDir implements backend.Placement.
func (p *placement) InstanceDir() string { return p.in.dir }

// StoreDir implements backend.Placement.
func (p *placement) StoreDir(dir string) string { return filepath.Join(p.in.dir, dir) }

// Provision implements backend.Backend.
func (b *nodes) Provision(ctx context.Context, plan *backend.InstancePlan) ([]backend.Node, error) {
	b.mu.Lock()
	in := b.instances[plan.ID]
	b.mu.Unlock()
	if in == nil {
		return nil, errTornDown
	}
	in.provisioning.Lock()
	defer in.provisioning.Unlock()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	defer context.AfterFunc(in.ctx, cancel)()
	made, err := b.provision(ctx, in, plan)
	if err != nil {
		b.halt(in)
		b.log.Error("instance not provisioned", "instance", plan.ID, "test", plan.Description, "err", err)
		if errors.Is(err, syscall.EADDRINUSE) || strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			err = fmt.Errorf("%w: %w", backend.ErrListen, err)
		}
		return nil, err
	}
	b.log.Info("instance provisioned", "instance", plan.ID, "test", plan.Description, "nodes", len(made),
		"took", time.Since(began).Round(time.Millisecond))
	return made, nil
}

func (b *nodes) provision(
	ctx context.Context, in *instance, plan *backend.InstancePlan,
) ([]backend.Node, error) {
	for _, f := range plan.Files {
		if err := write(filepath.Join(in.dir, f.Path), f.Data, f.Mode); err != nil {
			return nil, err
		}
	}
	made, err := b.plan(in, plan)
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	in.nodes = made
	in.mu.Unlock()
	out := make([]backend.Node, 0, len(made))
	for _, n := range made {
		if err := in.ctx.Err(); err != nil {
			return nil, errTornDown
		}
		if err := n.run.Start(ctx); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	for _, n := range made {
		if err := n.run.WaitReady(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func write(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, data, mode)
}

// stopTimeout bounds the stop of a node.
const stopTimeout = 10 * time.Second

// halt stops the nodes of an instance, all at once.
func (b *nodes) halt(in *instance) {
	in.mu.Lock()
	list := in.nodes
	in.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range list {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
			defer cancel()
			if err := n.run.Kill(ctx); err != nil {
				b.log.Error("stopping a node", "node", n.name, "err", err)
			}
		})
	}
	wg.Wait()
}

// Teardown implements backend.Backend.
func (b *nodes) Teardown(_ context.Context, id string) error {
	b.mu.Lock()
	in := b.instances[id]
	delete(b.instances, id)
	b.mu.Unlock()
	if in == nil {
		return nil
	}
	in.cancel()
	in.provisioning.Lock()
	defer in.provisioning.Unlock()
	b.halt(in)
	in.mu.Lock()
	defer in.mu.Unlock()
	b.ports.Release(in.ports...)
	if b.preserve {
		return nil
	}
	return os.RemoveAll(in.dir)
}
