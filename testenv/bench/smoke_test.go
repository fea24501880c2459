package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// smoke skips tests that build and start real systems, unless make bench-smoke asks for them.
func smoke(t *testing.T) {
	t.Helper()
	if os.Getenv("BENCH_SMOKE") == "" {
		t.Skip("builds and starts every system; make bench-smoke runs it")
	}
}

// TestSmoke makes a whole comparison with measurements of a few milliseconds.
func TestSmoke(t *testing.T) {
	smoke(t)
	dir := t.TempDir()
	c, err := parse(t, "--rounds=1", "--scale=0.005", "--root=../..", "--dir="+dir,
		"--out="+filepath.Join(dir, "out.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	if err := compare(t.Context(), c, &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for _, w := range works() {
		if got := strings.Count(out.String(), "| "+w.title+" | "); got != 4 {
			t.Errorf("%d rows of %q, want 4\n%s", got, w.title, out.String())
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 || left[0] != c.Out {
		t.Errorf("%v, %v are left, want %s", left, err, c.Out)
	}
}

// TestLeaderIsKnown checks that a client can find the node that leads a stream by its server name: only then
// does the load go to the leader of every system.
func TestLeaderIsKnown(t *testing.T) {
	smoke(t)
	dir := t.TempDir()
	bin, err := build(t.Context(), "../..", dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &launcher{bin: bin}
	for _, k := range []kind{holdfast, streamDefault} {
		s, err := l.launch(t.Context(), k, 3, filepath.Join(dir, "files-"+string(k)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		})
		names := map[string]bool{}
		var leader string
		for url := range strings.SplitSeq(s.urls, ",") {
			nc, err := nats.Connect(url, nats.Timeout(10*time.Second), nats.IgnoreDiscoveredServers())
			if err != nil {
				t.Fatal(err)
			}
			names[nc.ConnectedServerName()] = true
			if leader == "" {
				leader = leaderOf(t, nc)
			}
			nc.Close()
		}
		if !names[leader] || len(names) != 3 {
			t.Errorf("%s: leader %q is none of %v", k, leader, names)
		}
	}
}

// leaderOf makes a stream and returns the server name of its leader.
func leaderOf(t *testing.T, nc *nats.Conn) string {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	info, err := st.Info(t.Context())
	if err != nil || info.Cluster == nil {
		t.Fatalf("%+v, %v; want a stream with its leader", info, err)
	}
	return info.Cluster.Leader
}
