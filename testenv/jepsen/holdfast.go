package jepsen

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Groups of Raft: that of the directory, and the one that holds the streams, of which there is one by default.
const (
	metaGroup  = 0
	eventGroup = 1
)

// holdfast is the flavor of Holdfast.
type holdfast struct{}

func (*holdfast) args(c *Cluster, n *Node) ([]string, error) {
	var seeds []string
	for _, o := range c.Nodes {
		if o != n {
			seeds = append(seeds, o.serfAdv)
		}
	}
	return []string{
		"serve", "--node-id", n.ID, "--data-dir", n.data(), "--listen", n.Client, "--admin-listen", n.Admin,
		"--raft-listen", n.raft, "--raft-advertise", n.raftAdv,
		"--serf-listen", n.serf, "--serf-advertise", n.serfAdv,
		"--route-listen", n.route, "--route-advertise", n.routeAdv,
		"--bootstrap-expect", strconv.Itoa(len(c.Nodes)), "--join", strings.Join(seeds, ","),
		"--max-voters", strconv.Itoa(len(c.Nodes) + grownBy),
	}, nil
}

func (*holdfast) readyPath() string { return "/readyz" }

// moveLeader asks every node, for only the leader can hand over.
func (*holdfast) moveLeader(ctx context.Context, c *Cluster, to *Node) error {
	path := "/transfer?group=" + strconv.Itoa(eventGroup) + "&to=" + url.QueryEscape(to.ID)
	return c.any(ctx, to, path)
}

func (*holdfast) remove(ctx context.Context, c *Cluster, id string) error {
	c.left(id) // also if the answer is lost
	return c.any(ctx, nil, "/remove?node="+url.QueryEscape(id))
}

// any posts to the nodes, the excluded one left out, until one agrees.
func (c *Cluster) any(ctx context.Context, but *Node, path string) error {
	var errs []error
	for _, n := range c.Nodes {
		if n == but || !n.Running() {
			continue
		}
		_, err := n.request(ctx, http.MethodPost, path)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// snapshots are what says which state is there, and what it consists of.
func (*holdfast) snapshots() []string { return []string{"pointer", "manifest"} }

func (*holdfast) kinds() map[string][]string {
	return map[string][]string{
		"log":      {"*.seg", "SEGMENTS"},
		"table":    {"*.sst"},
		"manifest": {"MANIFEST-*", "OPTIONS-*", "marker.*"},
		"pointer":  {"POINTER*"},
		"identity": {"NODE", "INCARNATION"},
		"gossip":   {gossipFile},
	}
}
