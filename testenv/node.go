package testenv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

// ErrRunning and ErrStopped say that a Node is not in the state that a call needs.
var (
	ErrRunning = errors.New("testenv: node is running")
	ErrStopped = errors.New("testenv: node is stopped")
)

// readyPoll is the pause between two looks at a node that is not ready.
const readyPoll = 20 * time.Millisecond

// segmentSize of the logs holds the largest message that a hub takes by default eight times.
const segmentSize = 8 << 20

// Node is a node in this process that can be stopped and started again, on the same ports and the same data.
// Its methods may be called from any goroutine.
type Node struct {
	cfg   node.Config
	ports *Ports // whose blocks are its own as long as it is there

	mu struct {
		sync.Mutex
		n *node.Node // nil while it is stopped
	}
}

// NewNode returns a stopped node of a configuration. What cfg leaves empty is filled in: a silent logger,
// small log files, the default number of groups and voters, ports of ports for clients (unless
// cfg.NATSConfig decides) and Raft. It has no gossip and no admin listener unless cfg says so.
func NewNode(cfg node.Config, ports *Ports) (*Node, error) {
	def := node.DefaultConfig()
	fill := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	fill(&cfg.NodeID, "n1")
	fill(&cfg.MinAck, def.MinAck)
	fill(&cfg.Profile, def.Profile)
	if cfg.Groups == 0 {
		cfg.Groups = def.Groups
	}
	if cfg.MaxVoters == 0 {
		cfg.MaxVoters = def.MaxVoters
	}
	if cfg.SegmentSize == 0 {
		cfg.SegmentSize = segmentSize
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	for _, p := range []*string{&cfg.Listen, &cfg.RaftListen} {
		if *p != "" || p == &cfg.Listen && cfg.NATSConfig != "" {
			continue
		}
		addr, err := ports.Address()
		if err != nil {
			return nil, err
		}
		*p = addr
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Node{cfg: cfg, ports: ports}, nil
}

// ID is the node id.
func (n *Node) ID() string { return n.cfg.NodeID }

// Start starts the node; it does not wait until it is ready. It returns ErrRunning if it runs.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.n != nil {
		return fmt.Errorf("%w: %s", ErrRunning, n.cfg.NodeID)
	}
	started, err := node.Start(ctx, n.cfg)
	if err != nil {
		return err
	}
	n.mu.n = started
	return nil
}

// Stop stops the node as SIGTERM does: drained, leadership handed over. It is a no-op on a stopped one.
func (n *Node) Stop(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.n == nil {
		return nil
	}
	err := n.mu.n.Stop(ctx)
	n.mu.n = nil
	return err
}

// Kill stops the node without handing leadership over: the others notice by its silence. What only a real
// kill does (writes cut short, memory gone) needs a process of its own.
func (n *Node) Kill(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return n.Stop(ctx)
}

// Restart stops the node, starts it and waits until it is ready.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Stop(ctx); err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		return err
	}
	return n.WaitReady(ctx)
}

// Running returns the node, or ErrStopped.
func (n *Node) Running() (*node.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.n == nil {
		return nil, fmt.Errorf("%w: %s", ErrStopped, n.cfg.NodeID)
	}
	return n.mu.n, nil
}

// URL is where clients connect, or "" while the node is stopped.
func (n *Node) URL() string {
	running, err := n.Running()
	if err != nil {
		return ""
	}
	return running.ClientURL()
}

// WaitReady returns when the node serves, or says why it does not when ctx ends.
func (n *Node) WaitReady(ctx context.Context) error {
	return n.wait(ctx, func(running *node.Node) []string { return running.Readiness() })
}

// wait returns when f finds nothing missing.
func (n *Node) wait(ctx context.Context, f func(*node.Node) []string) error {
	t := time.NewTicker(readyPoll)
	defer t.Stop()
	for {
		running, err := n.Running()
		if err != nil {
			return err
		}
		missing := f(running)
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-t.C:
		case err := <-running.Failed():
			return fmt.Errorf("node %s failed: %w", n.cfg.NodeID, err)
		case <-ctx.Done():
			why := strings.Join(missing, "; ")
			return fmt.Errorf("node %s is not ready (%s): %w", n.cfg.NodeID, why, ctx.Err())
		}
	}
}
