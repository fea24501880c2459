package testenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/testenv/faultfs"
)

const (
	testMinFree = 64 << 20
	testBallast = 12 << 20 // a segment of a log and a bit
	plenty      = 1 << 40
)

// fullDisks is a cluster each of whose nodes has a disk of its own.
type fullDisks struct {
	*Cluster

	t     *testing.T
	disks []*faultfs.Quota
	nc    *nats.Conn
	js    jetstream.JetStream
	cons  jetstream.Consumer
	sent  int
}

func newFullDisks(t *testing.T, size, minFree int) *fullDisks {
	t.Helper()
	d := &fullDisks{t: t}
	var ports Ports
	c, err := StartCluster(bounded(t), size, t.TempDir(), &ports, func(cfg *node.Config) {
		q, err := faultfs.NewQuota(vfs.Default, cfg.DataDir, plenty)
		if err != nil {
			t.Fatal(err)
		}
		d.disks = append(d.disks, q)
		cfg.FS, cfg.DiskMinFree, cfg.DiskBallast, cfg.Profile = q, minFree, testBallast, "lan"
		if cfg.AdminListen, err = ports.Address(); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Cluster = c
	t.Cleanup(func() { stop(t, c.Stop) })
	d.nc, d.cons = queue(t, c.Nodes[0], size)
	if d.js, err = jetstream.New(d.nc); err != nil {
		t.Fatal(err)
	}
	return d
}

// leader returns the number of the node that leads the queue.
func (d *fullDisks) leader() int {
	d.t.Helper()
	info, err := d.cons.Info(bounded(d.t))
	if err != nil {
		d.t.Fatal(err)
	}
	for i, n := range d.Nodes {
		if n.ID() == info.Cluster.Leader {
			return i
		}
	}
	d.t.Fatalf("no node is %s", info.Cluster.Leader)
	return 0
}

// publish stores one message of a size; it is counted if that is acknowledged.
func (d *fullDisks) publish(size int) error {
	d.t.Helper()
	text := fmt.Sprintf("%d ", d.sent+1)
	body := append([]byte(text), bytes.Repeat([]byte{'x'}, max(size-len(text), 0))...)
	_, err := d.js.Publish(bounded(d.t), "q.x", body, jetstream.WithRetryAttempts(0))
	if err == nil {
		d.sent++
	}
	return err
}

func (d *fullDisks) mustPublish(n, size int) {
	d.t.Helper()
	for range n {
		d.eventually("a publish", func() error { return d.publish(size) })
	}
}

// refused says whether an error is the one of a full disk.
func refused(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == 10023 && api.Code == 503 &&
		api.Description == "insufficient resources"
}

// eventually tries f until it succeeds.
func (d *fullDisks) eventually(what string, f func() error) {
	d.t.Helper()
	ctx := bounded(d.t)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			d.t.Fatalf("%s: %v", what, err)
		case <-time.After(readyPoll):
		}
	}
}

// untilRefused publishes until that is refused.
func (d *fullDisks) untilRefused(size int) {
	d.t.Helper()
	d.eventually("a refusal", func() error {
		err := d.publish(size)
		if refused(err) {
			return nil
		}
		return fmt.Errorf("publish: %w, want 10023", err)
	})
}

// take consumes and confirms n messages, in order.
func (d *fullDisks) take(from, n int) {
	d.t.Helper()
	for i := range n {
		m, err := d.cons.Next(jetstream.FetchMaxWait(soon))
		if err != nil {
			d.t.Fatalf("message %d: %v", from+i, err)
		}
		if want := fmt.Sprintf("%d ", from+i); !strings.HasPrefix(string(m.Data()), want) {
			d.t.Fatalf("message %d is %.10q", from+i, m.Data())
		}
		if err := m.DoubleAck(bounded(d.t)); err != nil {
			d.t.Fatalf("ack of message %d: %v", from+i, err)
		}
	}
}

// get asks the admin listener of a node.
func (d *fullDisks) get(i int, path string) (int, string) {
	d.t.Helper()
	running, err := d.Nodes[i].Running()
	if err != nil {
		d.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(bounded(d.t), http.MethodGet, running.AdminURL()+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// running fails if a node had to give up.
func (d *fullDisks) running() {
	d.t.Helper()
	for _, n := range d.Nodes {
		running, err := n.Running()
		if err != nil {
			d.t.Fatal(err)
		}
		select {
		case err := <-running.Failed():
			d.t.Errorf("%s failed: %v", n.ID(), err)
		default:
		}
	}
}

// TestFullDiskOfASingleNode: below the limit publishes and creates are refused with one
// error, everything else goes on, health and metrics say why, and it ends by itself.
func TestFullDiskOfASingleNode(t *testing.T) {
	t.Parallel()
	d := newFullDisks(t, 1, testMinFree)
	d.mustPublish(5, 100)
	d.disks[0].Fill(testMinFree - 1)
	d.untilRefused(100)
	_, err := d.js.CreateStream(bounded(t), jetstream.StreamConfig{Name: "R", Subjects: []string{"r"}})
	if !refused(err) {
		t.Errorf("create: %v, want 10023", err)
	}
	status, body := d.get(0, "/healthz")
	var health node.Health
	if err := json.Unmarshal([]byte(body), &health); err != nil {
		t.Fatal(err)
	}
	if status != http.StatusServiceUnavailable || len(health.Reasons) != 1 ||
		!strings.Contains(health.Reasons[0], "publishes are refused") {
		t.Errorf("health: %d %s", status, body)
	}
	_, metrics := d.get(0, "/metrics")
	for _, want := range []string{
		fmt.Sprintf("holdfast_disk_free_bytes %g\n", float64(testMinFree-1)), "holdfast_disk_refusing 1\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	d.take(1, 3)
	s, err := d.js.Stream(bounded(t), "Q")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(bounded(t), 4); err != nil {
		t.Errorf("delete: %v", err)
	}
	d.disks[0].SetLimit(plenty)
	d.mustPublish(1, 100)
	if status, body := d.get(0, "/healthz"); status != http.StatusOK {
		t.Errorf("health: %d %s", status, body)
	}
	d.take(5, 2)
	d.running()
}

// TestFullDiskMeetsTheBallast: writes that find the disk full succeed with the room of
// the ballast; then publishes are refused, until there is room for it again.
func TestFullDiskMeetsTheBallast(t *testing.T) {
	t.Parallel()
	d := newFullDisks(t, 1, 0)
	d.mustPublish(5, 100)
	d.eventually("the ballast", func() error {
		if _, metrics := d.get(0, "/metrics"); !strings.Contains(metrics, fmt.Sprintf("holdfast_disk_ballast_bytes %g\n",
			float64(testBallast))) {
			return errors.New("not there")
		}
		return nil
	})
	d.disks[0].Fill(0)
	d.untilRefused(500 << 10) // the log takes another segment at some point
	stored := d.sent
	d.take(1, stored)
	d.running()
	d.disks[0].SetLimit(plenty)
	d.mustPublish(3, 100)
	d.take(stored+1, 3)
	d.running()
}

// TestFullDiskOfAFollower: the others go on, beyond what the follower can store, and it
// is up to date again when it has room.
func TestFullDiskOfAFollower(t *testing.T) {
	t.Parallel()
	d := newFullDisks(t, 3, 0)
	follower := (d.leader() + 1) % 3
	d.disks[follower].Fill(0)
	const size = 500 << 10
	d.mustPublish(100, size) // 50 MB; segments of 8 MiB and a ballast of 12 are there
	if _, fails := d.disks[follower].Used(); fails == 0 {
		t.Error("the follower never met its full disk")
	}
	d.running()
	d.disks[follower].SetLimit(plenty)
	d.eventually("the follower is up to date", func() error {
		applied := make([]uint64, len(d.Nodes))
		for i := range d.Nodes {
			_, body := d.get(i, "/raft")
			var groups []struct{ Applied uint64 }
			if err := json.Unmarshal([]byte(body), &groups); err != nil {
				t.Fatal(err)
			}
			applied[i] = groups[1].Applied
		}
		if applied[0] != applied[1] || applied[1] != applied[2] {
			return fmt.Errorf("applied %v", applied)
		}
		return nil
	})
	d.take(1, d.sent)
	d.running()
}

// TestFullDisksOfAll: all refuse, leadership can still be handed over, what was
// acknowledged is there, and all accept again.
func TestFullDisksOfAll(t *testing.T) {
	t.Parallel()
	d := newFullDisks(t, 3, testMinFree)
	d.mustPublish(10, 1000)
	for _, q := range d.disks {
		q.Fill(testMinFree / 2)
	}
	d.untilRefused(1000)
	old := d.leader()
	running, err := d.Nodes[old].Running()
	if err != nil {
		t.Fatal(err)
	}
	d.eventually("another leader", func() error { // one that a slow machine keeps from leading gives it back
		info, err := d.cons.Info(bounded(t))
		if err != nil || info.Cluster.Leader != d.Nodes[old].ID() {
			return err
		}
		req, err := http.NewRequestWithContext(bounded(t), http.MethodPost, running.AdminURL()+"/transfer?group=1", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return errors.Join(fmt.Errorf("the same leader; transfer: %s", resp.Status), resp.Body.Close())
	})
	d.untilRefused(1000)
	d.take(1, 5)
	for _, q := range d.disks {
		q.SetLimit(plenty)
	}
	d.mustPublish(1, 1000)
	d.take(6, 6)
	d.running()
}
