package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/replication"
)

const (
	// localNodes is how many nodes a local cluster has.
	localNodes = 3
	// streamsGroup is the group of a local cluster that holds streams: there is one.
	streamsGroup = 1
	// localPoll is the pause between two questions to nodes that start.
	localPoll = 100 * time.Millisecond
	// localAnswer bounds one answer of an admin listener.
	localAnswer = 2 * time.Second
	// localReady bounds the start of a local cluster, and a return of one of its nodes.
	localReady = 60 * time.Second
	// localStop bounds a stop in order.
	localStop = 20 * time.Second
)

// ports are those of one node.
type ports struct{ client, raft, serf, route, admin int }

// fixedPorts are those of cluster local: the defaults for the first node.
func fixedPorts(i int) ports {
	return ports{client: 4222 + i, raft: 7222 + 10*i, serf: 7223 + 10*i, route: 6222 + i, admin: 8222 + i}
}

// Free ports are looked for below the range from which systems take those of outgoing connections.
const (
	firstFreePort = 20000
	lastFreePort  = 32000
	freePortTries = 1000
)

// freePorts finds ports that nobody listens on right now.
func freePorts(ctx context.Context) (ports, error) {
	var p ports
	taken := make(map[int]bool)
	for _, port := range []*int{&p.client, &p.raft, &p.serf, &p.route, &p.admin} {
		for try := 0; *port == 0; try++ {
			if try == freePortTries {
				return p, fmt.Errorf("no free port between %d and %d", firstFreePort, lastFreePort)
			}
			candidate := firstFreePort + rand.IntN(lastFreePort-firstFreePort) //nolint:gosec // no secret
			if !taken[candidate] && free(ctx, candidate) {
				*port = candidate
				taken[candidate] = true
			}
		}
	}
	return p, nil
}

func free(ctx context.Context, port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// localCluster is three nodes on this machine, each in a process of its own.
type localCluster struct {
	program string
	nodes   []*process
	ask     operatorFlags
}

// newLocalCluster describes nodes n1 to n3 with their files below dir. The first is the seed of the others.
func newLocalCluster(dir, profile string, each []ports) (*localCluster, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	c := &localCluster{program: program, ask: operatorFlags{Timeout: localAnswer}}
	for i, p := range each {
		id := "n" + strconv.Itoa(i+1)
		n := &process{id: id, dir: filepath.Join(dir, id)}
		n.client, n.admin = loopback(p.client), loopback(p.admin)
		n.args = []string{
			"serve", "--node-id", id, "--data-dir", filepath.Join(n.dir, "data"), "--listen", n.client,
			"--raft-listen", loopback(p.raft), "--serf-listen", loopback(p.serf),
			"--route-listen", loopback(p.route),
			"--admin-listen", n.admin, "--bootstrap-expect", strconv.Itoa(len(each)), "--profile", profile,
			"--log-format", "json",
		}
		if i > 0 {
			n.args = append(n.args, "--join", loopback(each[0].serf))
		}
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

// start starts every node and returns when all of them serve.
func (c *localCluster) start(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := n.start(ctx, c.program); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := c.awaitReady(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// awaitReady returns when a node serves.
func (c *localCluster) awaitReady(ctx context.Context, n *process) error {
	ctx, cancel := context.WithTimeout(ctx, localReady)
	defer cancel()
	tick := time.NewTicker(localPoll)
	defer tick.Stop()
	why := "no answer"
	run := n.now.Load()
	for {
		var h node.Health
		if err := c.ask.call(ctx, http.MethodGet, n.admin, "/readyz", &h); err == nil {
			if h.OK {
				return nil
			}
			why = strings.Join(h.Reasons, "; ")
		}
		select {
		case <-tick.C:
		case <-run.exited:
			return fmt.Errorf("%s ended (%w); its log is %s", n.id, run.err, n.logFile())
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve (%s): %w; its log is %s", n.id, why, ctx.Err(), n.logFile())
		}
	}
}

// leader finds who leads the group that holds the streams, by what the nodes say of themselves; nil if nobody
// does.
func (c *localCluster) leader(ctx context.Context) *process {
	var best *process
	var term uint64
	for _, n := range c.nodes {
		var groups []replication.Status
		if n.alive() == nil || c.ask.call(ctx, http.MethodGet, n.admin, "/raft", &groups) != nil {
			continue
		}
		for i := range groups {
			g := &groups[i]
			if g.Group == streamsGroup && g.Role == replication.RoleLeader && g.Term >= term {
				best, term = n, g.Term
			}
		}
	}
	return best
}

// urls are where clients connect.
func (c *localCluster) urls() []string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, "nats://"+n.client)
	}
	return out
}

// stop stops every node in order, all at the same time.
func (c *localCluster) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, localStop)
	defer cancel()
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = n.stop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// untilSignal returns a context that ends with the first signal.
func untilSignal(env *environment) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(env.ctx)
	go func() {
		select {
		case <-env.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Run runs three nodes until a signal.
func (c *localCmd) Run(env *environment) (err error) {
	ctx, cancel := untilSignal(env)
	defer cancel()
	each := make([]ports, localNodes)
	for i := range each {
		each[i] = fixedPorts(i)
	}
	cluster, err := newLocalCluster(c.Dir, "lan", each)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.stop(env.ctx)) }()
	env.say("Starting three nodes below %s …", c.Dir)
	if err := cluster.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	env.say("\nThree nodes serve; they found each other by gossip from one seed.\n")
	for _, n := range cluster.nodes {
		env.say("  %s  clients nats://%s  admin http://%s  log %s", n.id, n.client, n.admin, n.logFile())
	}
	env.say("\nNext, in another terminal:\n")
	for _, line := range firstSteps(strings.Join(cluster.urls(), ",")) {
		env.say("  %s", line)
	}
	env.say("  holdfast cluster status --admin %s", cluster.nodes[0].admin)
	env.say("\nCtrl-C stops all three.")
	ended := make(chan *process, len(cluster.nodes))
	for _, n := range cluster.nodes {
		exited := n.now.Load().exited
		go func() { <-exited; ended <- n }()
	}
	for {
		select {
		case <-ctx.Done():
			env.say("Stopping …")
			return nil
		case n := <-ended:
			how := "stopped in order"
			if err := n.now.Load().err; err != nil {
				how = err.Error()
			}
			env.say("%s has ended: %s; its log is %s", n.id, how, n.logFile())
		}
	}
}
