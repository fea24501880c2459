package testenv

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

// Cluster is some nodes in this process that replicate to each other, with a fixed membership.
type Cluster struct {
	// Nodes in order of their ids.
	Nodes []*Node
}

// NewCluster returns stopped nodes n1, n2 … whose data lies in folders of dir. configure, which may be nil,
// is given the configuration of each before it is used; it may set everything but the membership.
func NewCluster(size int, dir string, ports *Ports, configure func(*node.Config)) (*Cluster, error) {
	configs, peers := make([]node.Config, size), make([]string, size)
	for i := range configs {
		id := "n" + strconv.Itoa(i+1)
		raft, err := ports.Address()
		if err != nil {
			return nil, err
		}
		route, err := ports.Address()
		if err != nil {
			return nil, err
		}
		configs[i] = node.Config{
			NodeID: id, DataDir: filepath.Join(dir, id), RaftListen: raft, RouteListen: route,
		}
		if configure != nil {
			configure(&configs[i])
		}
		peers[i] = configs[i].NodeID + "=" + configs[i].RaftListen
	}
	c := &Cluster{}
	for i := range configs {
		cfg := &configs[i]
		if size > 1 {
			cfg.Peers = peers
		} else {
			cfg.RouteListen = ""
		}
		n, err := NewNode(*cfg, ports)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c, nil
}

// StartCluster is NewCluster and Start.
func StartCluster(
	ctx context.Context, size int, dir string, ports *Ports, configure func(*node.Config),
) (*Cluster, error) {
	c, err := NewCluster(size, dir, ports, configure)
	if err != nil {
		return nil, err
	}
	err = c.Start(ctx)
	return c, err
}

// Start starts the nodes that are stopped and waits until all are ready. If it fails it stops all of them.
func (c *Cluster) Start(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := n.Start(ctx); err != nil && !errors.Is(err, ErrRunning) {
			return errors.Join(err, c.Stop(ctx))
		}
	}
	if err := c.WaitReady(ctx); err != nil {
		return errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

// Stop stops all nodes at once, leadership not handed over: there is nobody to take it.
func (c *Cluster) Stop(ctx context.Context) error {
	var g errgroup.Group
	for _, n := range c.Nodes {
		g.Go(func() error { return n.Kill(ctx) })
	}
	return g.Wait()
}

// WaitReady returns when every running node serves and its hub has a route to every other one.
func (c *Cluster) WaitReady(ctx context.Context) error {
	var running []*Node
	for _, n := range c.Nodes {
		if _, err := n.Running(); err == nil {
			running = append(running, n)
		}
	}
	for _, n := range running {
		err := n.wait(ctx, func(r *node.Node) []string {
			missing := r.Readiness()
			routes, err := r.Routes()
			if err != nil {
				return append(missing, err.Error())
			}
			for _, other := range running {
				if other != n && !slices.Contains(routes, other.ID()) {
					missing = append(missing, "no route to the hub of "+other.ID())
				}
			}
			return missing
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Node returns the node of an id.
func (c *Cluster) Node(id string) (*Node, error) {
	for _, n := range c.Nodes {
		if n.ID() == id {
			return n, nil
		}
	}
	return nil, fmt.Errorf("testenv: no node %q in the cluster", id)
}
