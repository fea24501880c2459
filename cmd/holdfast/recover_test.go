package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	want := publish(ctx, t, c.nodes[0], "before", messages)
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
	want = append(want, publish(ctx, t, survivor, "after", 1)...)
	if diff := cmp.Diff(want, holds(ctx, t, survivor)); diff != "" {
		t.Errorf("the survivor holds (-want +got):\n%s", diff)
	}
}

// queueOf is the stream Q, for a client of a node.
func queueOf(ctx context.Context, t *testing.T, n *process) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	nc, err := nats.Connect("nats://" + n.client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "Q", Subjects: []string{"q.>"}})
	if err != nil {
		t.Fatal(err)
	}
	return js, s
}

// publish publishes some messages through a node and returns them.
func publish(ctx context.Context, t *testing.T, n *process, name string, messages int) (sent []string) {
	t.Helper()
	js, _ := queueOf(ctx, t, n)
	for i := range messages {
		text := fmt.Sprintf("%s %d", name, i)
		if _, err := js.Publish(ctx, "q.a", []byte(text)); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, text)
	}
	return sent
}

// holds reads everything that the stream holds, through a node.
func holds(ctx context.Context, t *testing.T, n *process) (got []string) {
	t.Helper()
	_, s := queueOf(ctx, t, n)
	info, err := s.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(m.Data))
	}
	return got
}
