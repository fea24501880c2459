package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestGoOnWithOneOfThree: two of three real processes are lost for good; the third is
// recovered and has what was acknowledged.
func TestGoOnWithOneOfThree(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	each := make([]ports, localNodes)
	for i := range each {
		var err error
		if each[i], err = freePorts(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c, err := newLocalCluster(t.TempDir(), "lan", each)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := c.start(ctx); err != nil {
		t.Fatal(err)
	}
	const messages = 50
	publish(ctx, t, c.nodes[0], messages)
	survivor := c.leader(ctx)
	if survivor == nil {
		t.Fatal("nobody leads")
	}
	data := filepath.Join(survivor.dir, "data")
	if code, _, errs := try(t, "cluster", "recover", data, "--survivor", survivor.id); code != exitUsage ||
		!strings.Contains(errs, "stop the node first") {
		t.Errorf("recovery of a running node: %d %s", code, errs)
	}
	for _, n := range c.nodes {
		if err := n.kill(); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, errs := try(t, "cluster", "recover", data, "--survivor", "n9"); code != exitUsage ||
		!strings.Contains(errs, `"n9"`) || !strings.Contains(errs, survivor.id) {
		t.Errorf("recovery with another name: %d %s", code, errs)
	}
	code, out, errs := try(t, "cluster", "recover", data, "--survivor", survivor.id)
	if code != exitOK || !strings.Contains(out, survivor.id+" is the only voter now") {
		t.Fatalf("recovery: %d %s %s", code, out, errs)
	}
	if err := survivor.start(ctx, c.program); err != nil {
		t.Fatal(err)
	}
	if err := c.awaitReady(ctx, survivor); err != nil {
		t.Fatal(err)
	}
	if got := publish(ctx, t, survivor, 1); got != messages+1 {
		t.Errorf("the stream holds %d messages after one more, want %d", got, messages+1)
	}
}

// publish publishes some messages through a node and returns how many its stream holds then.
func publish(ctx context.Context, t *testing.T, n *process, messages int) uint64 {
	t.Helper()
	nc, err := nats.Connect("nats://" + n.client)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "Q", Subjects: []string{"q.>"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if _, err := js.Publish(ctx, "q.a", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	info, err := s.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}
