package node_test

import (
	"context"
	"encoding/json"
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

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/testenv"
)

// segment is the oldest segment of a group's log.
func segment(t *testing.T, dir string, group int) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "groups", fmt.Sprint(group), "log", "*.seg"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no segments: %v", err)
	}
	slices.Sort(names)
	return names[0]
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x20
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, n *node.Node, path string) string {
	t.Helper()
	return ask(t, n, http.MethodGet, path)
}

func post(t *testing.T, n *node.Node, path string) string {
	t.Helper()
	return ask(t, n, http.MethodPost, path)
}

func ask(t *testing.T, n *node.Node, method, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.AdminURL()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func members(t *testing.T, n *node.Node) []node.MemberStatus {
	t.Helper()
	var out []node.MemberStatus
	if err := json.Unmarshal([]byte(get(t, n, "/members")), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func within(t *testing.T, what string, d time.Duration, f func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(d)
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

// TestDamagedGroupOfASingleNode: the node goes on without the group, says which file it
// is and what to do, and replaces nothing.
func TestDamagedGroupOfASingleNode(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	dir := t.TempDir()
	c, err := testenv.StartCluster(t.Context(), 1, dir, &testenv.Ports{}, func(c *node.Config) {
		c.Groups, c.AdminListen = 2, "127.0.0.1:0"
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Stop(context.Background()) }()
	data := filepath.Join(dir, "n1")
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	bad := segment(t, data, 1)
	flip(t, bad, 64+40)
	if err := c.Nodes[0].Start(t.Context()); err != nil {
		t.Fatalf("one damaged group of three keeps the node from starting: %v", err)
	}
	n, err := c.Nodes[0].Running()
	if err != nil {
		t.Fatal(err)
	}
	var status []replication.Status
	within(t, "the other groups to be led", 20*time.Second, func() bool {
		status = nil
		return json.Unmarshal([]byte(get(t, n, "/raft")), &status) == nil && len(status) == 3 &&
			status[0].Role == replication.RoleLeader && status[2].Role == replication.RoleLeader
	})
	if st := status[1]; st.Role != replication.RoleDamaged || st.Damage == nil || st.Damage.File != bad {
		t.Errorf("group 1: %+v, %+v, want it damaged, file %s", st, st.Damage, bad)
	}
	within(t, "health to say what to do", 20*time.Second, func() bool {
		return strings.Contains(get(t, n, "/healthz"), "salvage")
	})
	var health node.Health
	if err := json.Unmarshal([]byte(get(t, n, "/healthz")), &health); err != nil {
		t.Fatal(err)
	}
	if health.OK || health.Status != "degraded" || len(health.Reasons) != 1 ||
		!strings.Contains(health.Reasons[0], "group 1") || !strings.Contains(health.Reasons[0], bad) {
		t.Errorf("health %+v", health)
	}
	metrics := strings.Split(get(t, n, "/metrics"), "\n")
	for _, line := range []string{
		`holdfast_group_damaged{group="0"} 0`, `holdfast_group_damaged{group="1"} 1`,
		`holdfast_damage_info{file="` + bad + `",group="1"} 1`,
	} {
		if !slices.Contains(metrics, line) {
			t.Errorf("no line %q", line)
		}
	}
	if _, err := os.Stat(bad); err != nil {
		t.Errorf("the damaged file was touched: %v", err)
	}
}

// TestDamagedNodeIsReseeded: with real nodes, a damaged event group and a damaged group 0
// of one of three come back by themselves, with everything that was acknowledged.
func TestDamagedNodeIsReseeded(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	c, err := testenv.StartCluster(t.Context(), 3, dir, &testenv.Ports{}, func(c *node.Config) {
		c.AdminListen = "127.0.0.1:0"
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Stop(context.Background()) }()
	js := stream(t, c.Nodes[0].URL())
	stored := 0
	publish := func(n int) { t.Helper(); stored = publishMore(t, js, stored, n) }
	publish(50)
	victim := c.Nodes[2]
	for _, group := range []int{1, 0} {
		if err := victim.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		flip(t, segment(t, filepath.Join(dir, "n3"), group), 64+40)
		if err := victim.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, err := victim.Running()
		if err != nil {
			t.Fatal(err)
		}
		if h := n.Health(); h.Status != "degraded" {
			t.Errorf("health right after the start: %+v", h)
		}
		publish(10)
		within(t, "a new replica to have taken its place", time.Minute, func() bool { return n.Health().OK })
		aside, err := filepath.Glob(filepath.Join(dir, "n3", "groups", fmt.Sprint(group), "damaged-*", "log"))
		if err != nil || len(aside) != 1 {
			t.Errorf("set aside: %v, %v", aside, err)
		}
		publish(10)
	}
	servesAll(t, c, victim, stored)
}

// servesAll checks that a node, as the leader, serves every message that was stored, and that no replica holds
// anything else.
func servesAll(t *testing.T, c *testenv.Cluster, leader *testenv.Node, stored int) {
	t.Helper()
	js := client(t, leader.URL())
	leads := func() bool {
		info, err := js.StreamInfo("DAMAGE")
		return err == nil && info.Cluster.Leader == leader.ID() && info.State.Msgs == uint64(stored)
	}
	within(t, leader.ID()+" to lead", time.Minute, func() bool {
		if leads() {
			return true
		}
		for _, n := range c.Nodes { // one of them leads and can hand over
			if r, err := n.Running(); err == nil && n != leader {
				post(t, r, "/transfer?group=1&to="+leader.ID())
			}
		}
		return false
	})
	for i := range stored {
		m, err := js.GetMsg("DAMAGE", uint64(i+1))
		if err != nil || string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("message %d: %v, %v", i+1, m, err)
		}
	}
	if !leads() {
		t.Errorf("another node than %s served some of the reads", leader.ID())
	}
	within(t, "all replicas to hold the same", time.Minute, func() bool {
		var all []string
		for _, n := range c.Nodes {
			r, err := n.Running()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, get(t, r, "/hash"))
		}
		return len(slices.Compact(all)) == 1
	})
}

func client(t *testing.T, url string) nats.JetStreamContext {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := nc.JetStream(nats.MaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func stream(t *testing.T, url string) nats.JetStreamContext {
	t.Helper()
	js := client(t, url)
	if _, err := js.AddStream(&nats.StreamConfig{Name: "DAMAGE", Subjects: []string{"damage.>"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	return js
}

// TestLostDisk: a node whose whole data directory is gone comes back as another replica,
// the one that founded the cluster, too. It serves what was stored before and meanwhile.
func TestLostDisk(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	dir := t.TempDir()
	c, err := testenv.StartCluster(t.Context(), 3, dir, &testenv.Ports{}, func(c *node.Config) {
		c.AdminListen = "127.0.0.1:0"
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Stop(context.Background()) }()
	js := stream(t, c.Nodes[2].URL())
	const messages = 200
	stored := publishMore(t, js, 0, messages)
	victim := c.Nodes[0]
	if err := victim.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "n1")); err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	n, err := victim.Running()
	if err != nil {
		t.Fatal(err)
	}
	for stored < 2*messages {
		stored = publishMore(t, js, stored, 1)
	}
	within(t, "the node to be a voter again", time.Minute, func() bool {
		stored = publishMore(t, js, stored, 1)
		votes := slices.ContainsFunc(members(t, n), func(m node.MemberStatus) bool {
			return m.ID == "n1" && len(m.Votes) == 2
		})
		return votes && len(n.Readiness()) == 0
	})
	stored = publishMore(t, js, stored, 1)
	servesAll(t, c, victim, stored)
	if id := clusterIDOf(t, dir, "n1"); id != clusterID(t, dir) {
		t.Errorf("it belongs to cluster %s, the others to %s", id, clusterID(t, dir))
	}
}

// TestDirectoryOfAnotherCluster: a node that is given the data of another cluster ends,
// and says which two clusters those are; the others go on.
func TestDirectoryOfAnotherCluster(t *testing.T) {
	var dirs [2]string
	var clusters [2]*testenv.Cluster
	for i := range clusters {
		dirs[i] = t.TempDir()
		c, err := testenv.StartCluster(t.Context(), 3, dirs[i], &testenv.Ports{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Stop(context.Background()) })
		clusters[i] = c
	}
	ids := [2]string{clusterID(t, dirs[0]), clusterID(t, dirs[1])}
	if err := clusters[0].Nodes[2].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := clusters[1].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dirs[0], "n3")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dirs[1], "n3"), filepath.Join(dirs[0], "n3")); err != nil {
		t.Fatal(err)
	}
	if err := clusters[0].Nodes[2].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	n, err := clusters[0].Nodes[2].Running()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.Failed():
		for _, want := range append(ids[:], "--data-dir") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not name %q", err, want)
			}
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the node runs among the nodes of another cluster")
	}
	for _, o := range clusters[0].Nodes[:2] {
		r, err := o.Running()
		if err != nil {
			t.Fatal(err)
		}
		within(t, "the others to serve", 20*time.Second, func() bool { return len(r.Readiness()) == 0 })
		select {
		case err := <-r.Failed():
			t.Errorf("%s ended: %v", o.ID(), err)
		default:
		}
	}
}

func clusterID(t *testing.T, dir string) string {
	t.Helper()
	return clusterIDOf(t, dir, "n3")
}

func clusterIDOf(t *testing.T, dir, id string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, id, "NODE"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Cluster string }
	if err := json.Unmarshal(b, &v); err != nil || v.Cluster == "" {
		t.Fatalf("no cluster id: %v", err)
	}
	return v.Cluster
}

// publishMore publishes n messages, numbered on from those that are stored, and returns how many are then. A leader
// may change meanwhile: what has no answer is sent again under its id, and must not be stored twice.
func publishMore(t *testing.T, js nats.JetStreamContext, stored, n int) int {
	t.Helper()
	for range n {
		var ack *nats.PubAck
		within(t, "a publish to be acknowledged", time.Minute, func() bool {
			id := fmt.Sprint(stored)
			var err error
			ack, err = js.Publish("damage.x", []byte(id), nats.MsgId(id))
			return err == nil
		})
		if stored++; ack.Sequence != uint64(stored) {
			t.Fatalf("message %d got sequence %d", stored, ack.Sequence)
		}
	}
	return stored
}
