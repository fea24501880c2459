package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/membership"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Every node says in gossip and in its row which feature level it can do; group 0 holds that of the cluster. It
// rises when every member has registered that it can do more, and never falls. A node that cannot do it does not
// start, is not taken in, and says why.

// feature is the highest level that this node can do.
func (n *Node) feature() int { return cmp.Or(n.cfg.Feature, replication.FeatureLevel) }

// FeatureLevel is the feature level of the cluster, as far as this node has heard; 0 before it belongs to one.
func (n *Node) FeatureLevel() int { return n.level() }

// level is the cluster's feature level, as far as this node's replica of group 0 has it; 0 without one.
func (n *Node) level() int { return n.clusterRow().Feature }

// clusterRow is what this node's replica of group 0 says of the cluster; empty without one.
func (n *Node) clusterRow() replication.ClusterRow {
	row, _, err := replication.Row[replication.ClusterRow](n.host.Meta(), replication.ClusterKey)
	if err != nil {
		return replication.ClusterRow{}
	}
	return row
}

// checkGroups refuses a cluster that has another number of event groups than this node: with fewer it would be a
// member that lacks some of them, and with more it would wait for ever for those that nobody has.
func (n *Node) checkGroups() error {
	groups := n.clusterRow().Groups
	if groups == 0 || groups == n.cfg.Groups {
		return nil
	}
	return &ConfigError{
		"--groups", fmt.Sprintf("is %d, and the cluster of %s has %d", n.cfg.Groups, n.cfg.DataDir, groups),
		fmt.Sprintf("give %d: it is the same on all nodes, and never changes", groups),
	}
}

// checkLevel refuses a cluster whose level this node cannot do.
func (n *Node) checkLevel(level int) error {
	if level <= n.feature() {
		return nil
	}
	return &ConfigError{
		"--data-dir", fmt.Sprintf("%s: its cluster is at feature level %d, and version %s can do %d at most",
			n.cfg.DataDir, level, Version, n.feature()),
		"start the version that the other nodes run, or a newer one",
	}
}

// canDo is what a member says that it can do; a version that says nothing can do the first level.
func canDo(m *discovery.Member) int { return max(1, m.Tags.Feature) }

// watchLevel ends this node when its cluster, or the one that it wants to join, is beyond it, or has another number
// of groups, and tells the others in gossip what the level is.
func (n *Node) watchLevel(ctx context.Context) {
	told := 0
	n.every(ctx, membershipTick, func() bool {
		level := n.level()
		if n.gossip != nil && level > told {
			if err := n.gossip.SetTags(func(t *discovery.Tags) { t.Level = level }); err == nil {
				told = level
			}
		}
		for _, m := range n.peers() {
			if m.Status == discovery.Alive {
				level = max(level, m.Tags.Level)
			}
		}
		if err := cmp.Or(n.checkLevel(level), n.checkGroups()); err != nil {
			n.onFatal(err)
			return false
		}
		return true
	})
}

// admissible leaves out nodes that are not in the cluster and could not do its level.
func (n *Node) admissible(nodes []membership.Node, in membership.Desired) []membership.Node {
	level := n.level()
	for _, m := range n.peers() {
		if m.Status != discovery.Alive || canDo(&m) >= level || in.Has(m.NodeID) {
			continue
		}
		n.log.Warn("a node is not taken in: it cannot do the cluster's feature level",
			zap.String("node", m.NodeID), zap.Int("can", canDo(&m)), zap.Int("level", level))
		nodes = slices.DeleteFunc(nodes, func(o membership.Node) bool { return o.ID == m.NodeID })
	}
	return nodes
}

// raise raises the cluster's level to what every member can do.
func (n *Node) raise(ctx context.Context, in membership.Desired) error {
	row, at, err := replication.Row[replication.ClusterRow](n.host.Meta(), replication.ClusterKey)
	if err != nil || at.Version == 0 {
		return err
	}
	lowest := n.feature()
	for _, id := range slices.Concat(in.Voters, in.Followers) {
		node, found, err := replication.Row[replication.NodeRow](n.host.Meta(), replication.NodeKey(id))
		if err != nil || found.Version == 0 {
			return err // it has not said what it can do
		}
		lowest = min(lowest, max(1, node.Feature))
	}
	if lowest <= row.Feature {
		return nil
	}
	row.Feature = lowest
	value, err := json.Marshal(row)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	err = n.meta.Write(ctx, []record.MetaCond{{Key: replication.ClusterKey, Version: at.Version}},
		[]record.MetaWrite{{Key: replication.ClusterKey, Value: value}})
	if err == nil {
		n.log.Info("the cluster's feature level rises: every member can do it", zap.Int("level", lowest))
	}
	if errors.Is(err, record.ErrConflict) {
		return nil // somebody else did
	}
	return err
}
