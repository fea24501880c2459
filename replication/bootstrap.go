package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Founder is a voter of a cluster's first configurations.
type Founder struct {
	Node        string
	Incarnation string // its Host.Incarnation
}

// Bootstrap makes the founders the voters of the first configuration of every
// group here. Every founder may call it, all with the same list; on a node that
// has state already it does nothing for that group, and one that is Lost refuses. Only one of them calls MintCluster.
func (h *Host) Bootstrap(founders []Founder) error {
	if h.Lost() {
		return fmt.Errorf("%w: %s was damaged: this node is of a cluster already", record.ErrRefused, h.identity.path)
	}
	conf := raft.Configuration{}
	for _, f := range founders {
		addr := transport.Address(f.Node, f.Incarnation)
		if node, err := transport.NodeOf(addr); err != nil || node != f.Node {
			return fmt.Errorf(
				"%w: founder %q with incarnation %q makes the server %q, not \"nodeID/incarnation\"",
				errConfig,
				f.Node,
				f.Incarnation,
				addr,
			)
		}
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(addr), Address: addr})
	}
	for _, g := range h.groups {
		if err := g.bootstrap(conf); err != nil {
			return fmt.Errorf("group %d: bootstrap: %w", g.id, err)
		}
	}
	return nil
}

// bootstrap stores the first configuration of a group without any state.
func (g *Group) bootstrap(c raft.Configuration) error {
	in := g.inst.Load()
	if in == nil {
		if d := g.hurt.Load(); d != nil {
			return d.err()
		}
		return fmt.Errorf("%w: no Raft instance", record.ErrClosed)
	}
	if len(in.raft.GetConfiguration().Configuration().Servers) > 0 {
		return nil // the library looks at the new one first, in which this replica may have another name
	}
	f := in.raft.BootstrapCluster(c)
	releaseOn(f, in.gone)
	if err := f.Error(); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return err
	}
	in.hurry()
	return nil
}

// BootstrapSingle makes a cluster of this node alone and mints its id, unless the
// node belongs to a cluster already. It returns when the id is stored.
func (h *Host) BootstrapSingle(ctx context.Context) error {
	if h.ClusterID() != "" {
		return nil
	}
	if err := h.Bootstrap([]Founder{{Node: h.cfg.NodeID, Incarnation: h.identity.Incarnation}}); err != nil {
		return err
	}
	return h.MintCluster(ctx)
}
