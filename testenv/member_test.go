package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/membership"
)

// gang is some nodes in this process that find each other by gossip.
type gang struct {
	t      *testing.T
	dir    string
	ports  Ports
	change func(*node.Config)
	nodes  map[string]*Node
}

// newGang prepares a cluster whose membership changes within seconds; change may be nil.
func newGang(t *testing.T, change func(*node.Config)) *gang {
	t.Helper()
	g := &gang{t: t, dir: t.TempDir(), change: change, nodes: make(map[string]*Node)}
	t.Cleanup(func() {
		for _, n := range g.nodes {
			stop(t, n.Kill)
		}
	})
	return g
}

func (g *gang) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// config is that of a node with ports of its own that knows the gossip addresses of those prepared before it.
func (g *gang) config(id string, expect int) node.Config {
	g.t.Helper()
	cfg := node.Config{
		NodeID: id, DataDir: filepath.Join(g.dir, id), Profile: "fast", BootstrapExpect: expect,
		Membership: membership.Settings{Stable: time.Second, ReapAfter: time.Second, Balance: time.Second},
	}
	for _, p := range []*string{&cfg.Listen, &cfg.RaftListen, &cfg.SerfListen, &cfg.RouteListen, &cfg.AdminListen} {
		var err error
		*p, err = g.ports.Address()
		g.must(err)
	}
	for _, n := range g.nodes {
		if n.ID() != id {
			cfg.Join = append(cfg.Join, n.cfg.SerfListen)
		}
	}
	if g.change != nil {
		g.change(&cfg)
	}
	return cfg
}

// add prepares a node, in the place of the one before it of that id.
func (g *gang) add(cfg *node.Config) *Node {
	g.t.Helper()
	n, err := NewNode(*cfg, &g.ports)
	g.must(err)
	g.nodes[cfg.NodeID] = n
	return n
}

// found starts n1 to nSIZE as founders, in the order given, and waits until all serve.
func (g *gang) found(order ...string) {
	g.t.Helper()
	for _, id := range order {
		cfg := g.config(id, len(order))
		g.must(g.add(&cfg).Start(bounded(g.t)))
	}
	g.ready(order...)
}

func (g *gang) ready(ids ...string) {
	g.t.Helper()
	for _, id := range ids {
		g.must(g.nodes[id].WaitReady(patiently(g.t)))
	}
}

// patiently bounds what takes some seconds: gossip finds a death, a replica catches up, groups change one by one.
func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*soon)
	t.Cleanup(cancel)
	return ctx
}

// until waits until f finds nothing missing.
func (g *gang) until(what string, f func() string) {
	g.t.Helper()
	ctx := patiently(g.t)
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		missing := f()
		if missing == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			g.t.Fatalf("%s: %s", what, missing)
		}
	}
}

// ask sends a request to the admin listener of a node and decodes the answer.
func (g *gang) ask(id, method, path string, into any) error {
	req, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.nodes[id].cfg.AdminListen+path, http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, b)
	}
	return json.Unmarshal(b, into)
}

// groups are the groups as a node sees them.
func (g *gang) groups(id string) ([]replication.Status, error) {
	var out []replication.Status
	err := g.ask(id, http.MethodGet, "/raft", &out)
	return out, err
}

// members waits until every running node of ids sees, in every group, exactly these voters and followers; a
// follower is written with a '-' behind it.
func (g *gang) members(want string, ids ...string) {
	g.t.Helper()
	for _, id := range ids {
		g.until("members as "+id+" sees them", func() string {
			groups, err := g.groups(id)
			if err != nil {
				return err.Error()
			}
			for i := range groups {
				if got := roll(groups[i].Members); got != want {
					return fmt.Sprintf("group %d has %s, want %s", groups[i].Group, got, want)
				}
			}
			return ""
		})
	}
}

func roll(members []replication.Member) string {
	var out []string
	for _, m := range members {
		name := m.Node
		if !m.Voter {
			name += "-"
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// refused waits until a node gives up, and checks the setting and the text of its reason.
func (g *gang) refused(n *Node, setting, text string) {
	g.t.Helper()
	running, err := n.Running()
	g.must(err)
	select {
	case err := <-running.Failed():
		isSetting(g.t, err, setting, text)
	case <-patiently(g.t).Done():
		g.t.Fatalf("node %s goes on: %v", n.ID(), running.Readiness())
	}
	stop(g.t, n.Kill)
}

// startRefused starts a node with data, and wants it to give up: at once, if its state says why, else when it has read
// the log.
func (g *gang) startRefused(cfg *node.Config, setting, text string) {
	g.t.Helper()
	n := g.add(cfg)
	if err := n.Start(bounded(g.t)); err != nil {
		isSetting(g.t, err, setting, text)
		return
	}
	g.refused(n, setting, text)
}

func isSetting(t *testing.T, err error, setting, text string) {
	t.Helper()
	var wrong *node.ConfigError
	if !errors.As(err, &wrong) || wrong.Setting != setting || !strings.Contains(wrong.Problem, text) {
		t.Fatalf("refused with %v; want %s with %q", err, setting, text)
	}
}

// wipe removes the files of a node that does not run.
func (g *gang) wipe(id string) { g.must(os.RemoveAll(g.nodes[id].cfg.DataDir)) }

// traffic publishes numbered messages until end, each of them again until it is acknowledged.
type traffic struct {
	js   jetstream.JetStream
	stop context.CancelFunc
	done chan struct{}
	sent int
	err  error
}

// load makes the stream Q and publishes to it through the nodes given.
func (g *gang) load(replicas int, ids ...string) *traffic {
	g.t.Helper()
	var urls []string
	for _, id := range ids {
		urls = append(urls, g.nodes[id].URL())
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(readyPoll))
	g.must(err)
	g.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	g.must(err)
	g.until("the stream is made", func() string { // a change of leader may lose the answer
		try, cancel := context.WithTimeout(g.t.Context(), attempt)
		defer cancel()
		_, err := js.CreateStream(try, jetstream.StreamConfig{
			Name: "Q", Subjects: []string{"q.>"}, Replicas: replicas, Duplicates: time.Hour,
		})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	ctx, cancel := context.WithCancel(g.t.Context())
	l := &traffic{js: js, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(readyPoll)
		defer tick.Stop()
		for l.err == nil && (ctx.Err() == nil || l.sent == 0) {
			<-tick.C
			l.err = l.publish(ctx)
		}
	}()
	g.t.Cleanup(func() { l.stop(); <-l.done })
	return l
}

func (l *traffic) publish(ctx context.Context) error {
	text := fmt.Sprint(l.sent)
	until, cancel := context.WithTimeout(context.WithoutCancel(ctx), soon)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(until, time.Second)
		_, err := l.js.Publish(try, "q.x", []byte(text), jetstream.WithMsgID(text), jetstream.WithRetryAttempts(0))
		cancel()
		if err == nil {
			l.sent++
			return nil
		}
		if until.Err() != nil {
			return fmt.Errorf("message %s was never acknowledged: %w", text, err)
		}
	}
}

// end ends the load and checks that everything acknowledged is there once, in its order.
func (l *traffic) end(t *testing.T) {
	t.Helper()
	l.stop()
	<-l.done
	if l.err != nil {
		t.Fatal(l.err)
	}
	s, err := l.js.Stream(bounded(t), "Q")
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.OrderedConsumer(bounded(t), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer all.Stop()
	for i := range l.sent {
		m, err := all.Next(jetstream.NextMaxWait(soon))
		if err != nil {
			t.Fatalf("message %d of %d: %v", i, l.sent, err)
		}
		if string(m.Data()) != fmt.Sprint(i) {
			t.Fatalf("%q where %d was published: lost or twice", m.Data(), i)
		}
	}
	if l.sent == 0 {
		t.Error("nothing was published")
	}
	t.Logf("%d messages, all there", l.sent)
}
