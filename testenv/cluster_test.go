package testenv

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/ingress/plan"
)

// A cluster with a fixed membership: its hubs find each other, whoever is asked answers, and it goes on
// without the node that led.
func TestClusterOfThree(t *testing.T) {
	t.Parallel()
	fast := func(cfg *node.Config) { cfg.Profile = "fast" }
	c, err := StartCluster(bounded(t), 3, t.TempDir(), &Ports{}, fast)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c.Stop) })
	nc, consumer := queue(t, c.Nodes[1], 3)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(text string) {
		t.Helper()
		publishOnce(t, js, "q.x", text)
	}
	publish("1")
	info, err := consumer.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	leader, err := c.Node(info.Cluster.Leader)
	if err != nil {
		t.Fatal(err)
	}
	if leader == c.Nodes[1] {
		leader = c.Nodes[0] // the client stays connected; the group has one replica less all the same
	}
	stop(t, leader.Kill)
	publish("2")
	if err := leader.Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(bounded(t)); err != nil {
		t.Fatal(err)
	}
	publish("3")
	got := []string{}
	for range 3 {
		m, err := consumer.Next(jetstream.FetchMaxWait(soon))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.DoubleAck(bounded(t)); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(m.Data()))
	}
	if !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("consumed %q", got)
	}
	if _, err := c.Node("n9"); err == nil {
		t.Error("there is no n9")
	}
}

// attempt bounds one publish: longer than a leader takes to say that it does not know.
const attempt = plan.DefaultTimeout + time.Second

// publishOnce publishes a message as a client does that knows of failures: what was on its way to a server
// that died is lost by NATS together with its answer, and a leader that lost its term may not know what became
// of it, so it is published again with the same id.
func publishOnce(t *testing.T, js jetstream.JetStream, subject, text string) {
	t.Helper()
	for until := bounded(t); ; {
		ctx, cancel := context.WithTimeout(until, attempt)
		// A publish without a leader has no responder; the client tries again by itself.
		_, err := js.Publish(ctx, subject, []byte(text), jetstream.WithMsgID(text), jetstream.WithRetryAttempts(20))
		cancel()
		api, said := errors.AsType[*jetstream.APIError](err)
		switch {
		case err == nil:
			return
		case until.Err() != nil, said && api.ErrorCode != 10008:
			t.Fatalf("%s was never stored: %v", text, err)
		}
		t.Logf("%s is published again: %v", text, err)
	}
}

func TestClusterStartFailsWhole(t *testing.T) {
	t.Parallel()
	_, err := NewCluster(3, t.TempDir(), &Ports{}, func(cfg *node.Config) { cfg.NodeID = "same" })
	var setting *node.ConfigError
	if !errors.As(err, &setting) || setting.Setting != "--peers" {
		t.Errorf("three nodes of one name: %v", err)
	}
}
