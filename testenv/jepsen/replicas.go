package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

const (
	// hashTimeout is how long replicas may take to be at one index.
	hashTimeout = 60 * time.Second
	// readRows is how long one node may take to read all its rows.
	readRows = 20 * time.Second
)

// replicas are those that a cluster must have at its end. nats-server tells no states.
func (c *Cluster) replicas() []Replica {
	if !c.Kind.Ours() {
		return nil
	}
	var out []Replica
	for _, n := range c.Nodes {
		for _, group := range []int{metaGroup, eventGroup} {
			out = append(out, Replica{Node: n.Slot, Group: group})
		}
	}
	return out
}

// hashes asks each replica of each group for its state, until all are there and at the same index. What differs
// is the check's business, and who is missing; the error says why somebody is.
func hashes(ctx context.Context, c *Cluster) ([]Hash, error) {
	wanted := c.replicas()
	if len(wanted) == 0 {
		return nil, nil
	}
	var out []Hash
	var missing error
	err := process.Until(ctx, func() error {
		list, err := c.askHashes(ctx)
		if ctx.Err() != nil && out != nil {
			return ctx.Err() // a round that the end cut short says less than the one before it
		}
		out, missing = list, err
		var f Finding
		checkHashes(out, &f)
		checkAbsent(out, wanted, &f)
		if f.Count > 0 {
			return errors.Join(missing, fmt.Errorf("%v", f.Examples))
		}
		return nil
	})
	if missing == nil && out == nil {
		missing = err
	}
	return out, missing
}

// askHashes asks every node once; one that does not answer does not keep the others.
func (c *Cluster) askHashes(ctx context.Context) ([]Hash, error) {
	var out []Hash
	var errs []error
	for _, n := range c.Nodes {
		list, err := n.hashes(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("states of %s: %w", n.ID, err))
		}
		out = append(out, list...)
	}
	return out, errors.Join(errs...)
}

func (n *Node) hashes(ctx context.Context) ([]Hash, error) {
	ctx, cancel := context.WithTimeout(ctx, readRows)
	defer cancel()
	b, err := n.ask(ctx, http.MethodGet, "/hash")
	if err != nil {
		return nil, err
	}
	var list []Hash
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Node = n.Slot
	}
	return list, nil
}

// checkHashes compares replicas at the same applied index.
func checkHashes(hashes []Hash, f *Finding) {
	groups := make(map[int]Hash)
	for _, h := range hashes {
		first, ok := groups[h.Group]
		switch {
		case !ok:
			groups[h.Group] = h
		case first.Index != h.Index:
			f.add("group %d: %s has applied %d, %s %d", h.Group, first.Node, first.Index, h.Node, h.Index)
		case first.Sum != h.Sum || first.Rows != h.Rows:
			f.add("group %d at %d: %s has %d rows, %s; %s has %d rows, %s", h.Group, h.Index, first.Node, first.Rows,
				first.Sum, h.Node, h.Rows, h.Sum)
		}
	}
}

// checkAbsent finds replicas that must be there and gave no state: those wanted, and those of a group that
// another node has.
func checkAbsent(hashes []Hash, wanted []Replica, f *Finding) {
	if len(wanted) == 0 {
		return // nothing is compared
	}
	have, groups, holders := make(map[Replica]bool), make(map[int]bool), make(map[string]bool)
	for _, r := range wanted {
		groups[r.Group], holders[r.Node] = true, true
	}
	for _, h := range hashes {
		have[Replica{h.Node, h.Group}], groups[h.Group] = true, true
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		for _, node := range slices.Sorted(maps.Keys(holders)) {
			if !have[Replica{node, group}] {
				f.add("group %d of %s", group, node)
			}
		}
	}
}
