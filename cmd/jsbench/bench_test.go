package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The client library starts this goroutine with the first PublishAsync; if CleanupPublisher comes before it
	// runs it waits on a nil channel for ever.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(
		"github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect",
	))
}

// startServer runs nats-server with JetStream in this process and returns its URL.
func startServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server did not start")
	}
	return s.ClientURL()
}

// parse is the command line as a user gives it.
func parse(t *testing.T, args ...string) (*Config, error) {
	t.Helper()
	var c Config
	k, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Parse(args)
	return &c, err
}

func mustParse(t *testing.T, args ...string) *Config {
	t.Helper()
	c, err := parse(t, args...)
	if err != nil {
		t.Fatalf("jsbench %s: %v", strings.Join(args, " "), err)
	}
	return c
}

// dial returns a client of the server under test.
func dial(t *testing.T, addr string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestModes(t *testing.T) {
	t.Parallel()
	const n = 1003 // no multiple of anything
	tests := []struct {
		name       string
		args       []string
		hasLatency bool
	}{
		{"pub-sync", []string{"pub-sync", "--publishers=8", "--conns=2"}, true},
		{"pub-async", []string{"pub-async", "--window=64", "--publishers=2"}, true},
		{"light", []string{"pub-async", "--window=64", "--publishers=2", "--light"}, true},
		{"window of one", []string{"pub-async", "--window=1"}, true},
		{"more publishers than messages", []string{"pub-sync", "--publishers=1100"}, true},
		{"compressible, ids, headers, subjects", []string{
			"pub-async", "--payload=compressible", "--msg-id", "--header=A: b,c", "--subjects=7",
			"--storage=memory",
		}, true},
		{"consume", []string{"consume", "--consumers=3", "--batch=50"}, false},
		{"consume, double ack", []string{"consume", "--double-ack"}, true},
		{"fetch", []string{"fetch", "--batch=100", "--consumers=2"}, true},
		{"workq", []string{"workq", "--consumers=2", "--publishers=2", "--window=50"}, true},
		{"workq, light", []string{"workq", "--light", "--double-ack"}, true},
	}
	addr := startServer(t)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("S%d", i)
			c := mustParse(t, append(tt.args, "--url="+addr, "--stream="+name, "--subject="+name)...)
			c.Msgs, c.PIDs = n, []int{os.Getpid()}
			r, err := runOnce(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if r.Msgs != n || r.Errors != 0 || r.Lost != 0 {
				t.Errorf("%d messages, %d errors, %d lost; want %d, 0, 0", r.Msgs, r.Errors, r.Lost, n)
			}
			if r.Rate <= 0 || r.Seconds <= 0 || r.ClientCPU <= 0 {
				t.Errorf("rate %v, %v s, client CPU %v; want more than 0", r.Rate, r.Seconds, r.ClientCPU)
			}
			if got := r.P50 > 0 && r.P99 >= r.P50 && r.Max >= r.P99; got != tt.hasLatency {
				t.Errorf("latencies %v %v %v; want some: %t", r.P50, r.P99, r.Max, tt.hasLatency)
			}
			_, err = dial(t, addr).Stream(t.Context(), name)
			if !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("the stream is still there: %v", err)
			}
		})
	}
}

// freeRoutes returns route addresses that nobody listens on: each server must know all before it starts.
func freeRoutes(t *testing.T, n int) []*url.URL {
	t.Helper()
	var routes []*url.URL
	var held []net.Listener // until all are chosen, so that they differ
	for range n {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
	}
	for _, l := range held {
		l.Close()
	}
	return routes
}

// startCluster runs three servers and returns their URLs once they can make streams.
func startCluster(t *testing.T) []string {
	t.Helper()
	var servers []*server.Server
	var urls []string
	routes := freeRoutes(t, 3)
	for i, route := range routes {
		port, err := strconv.Atoi(route.Port())
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, Routes: routes,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("a server did not start")
		}
		urls = append(urls, s.ClientURL())
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(servers) {
				return urls
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the cluster has no leader")
		}
	}
}

func TestClusterLeaderIsFound(t *testing.T) {
	t.Parallel()
	urls := startCluster(t)
	c := mustParse(t, "pub-async", "--replicas=3", "--msgs=500", "--url="+strings.Join(urls, ", "))
	b := &bench{c: c, url: c.URL, fill: newFiller(c), t: newTally(c, 1)}
	if err := b.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := b.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := b.conns[0].ConnectedServerName(); got != info.Cluster.Leader {
		t.Errorf("publishers are connected to %s; the leader is %s", got, info.Cluster.Leader)
	}
	if err := b.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Mode = modeWorkq
	if r, err := runOnce(t.Context(), c); err != nil || r.Msgs != 500 {
		t.Errorf("%d messages, %v; want 500", r.Msgs, err)
	}
}

// TestLossIsFound runs against a stream that drops what it acknowledged.
func TestLossIsFound(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	js := dial(t, addr)
	for i, mode := range []string{"pub-sync", "pub-async", "consume", "fetch", "workq"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("S%d", i)
			_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: name, Subjects: []string{name}, MaxMsgs: 10, Discard: jetstream.DiscardOld,
			})
			if err != nil {
				t.Fatal(err)
			}
			c := mustParse(t, mode, "--url="+addr, "--keep", "--stream="+name, "--subject="+name,
				"--msgs=2000", "--stall=3s", "--tolerate-errors", "--max-pending=1")
			r, err := runOnce(t.Context(), c)
			if !errors.Is(err, errLost) {
				t.Errorf("got %v; want errLost", err)
			}
			if strings.HasPrefix(mode, "pub") && r.Lost != 1990 {
				t.Errorf("%d lost; want 1990", r.Lost)
			}
		})
	}
}

func TestRefusalsFail(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	js := dial(t, addr)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s"}, MaxMsgs: 10, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"pub-async", "--url=" + addr, "--keep", "--stream=S", "--subject=s", "--msgs=30"}
	for _, extra := range [][]string{nil, {"--light"}} {
		// Purged, not created again: a stream of nats-server that is created right after its
		// deletion sometimes comes up with the old one's messages.
		if s, err := js.Stream(t.Context(), "S"); err != nil {
			t.Fatal(err)
		} else if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := runOnce(t.Context(), mustParse(t, append(args, extra...)...))
		if !errors.Is(err, errRefused) || errors.Is(err, errLost) || r.Errors != 20 || r.Msgs != 10 {
			t.Errorf("%v: %d errors, %d messages, %v; want 20, 10, errRefused", extra, r.Errors, r.Msgs, err)
		}
		if err == nil || !strings.Contains(err.Error(), "maximum messages exceeded") {
			t.Errorf("%v: the reason is %v", extra, err)
		}
	}
	// The stream is full now; all is refused, and that is tolerated.
	r, err := runOnce(t.Context(), mustParse(t, append(args, "--tolerate-errors")...))
	if err != nil || r.Errors != 30 || r.Msgs != 0 {
		t.Errorf("tolerated: %d errors, %d messages, %v; want 30, 0", r.Errors, r.Msgs, err)
	}
}

func TestKeepCountsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	common := []string{"--url=" + addr, "--keep", "--msgs=100"}
	for _, mode := range []string{"pub-sync", "pub-async", "consume", "fetch"} {
		r, err := runOnce(t.Context(), mustParse(t, append([]string{mode}, common...)...))
		if err != nil || r.Msgs != 100 || r.Repeats != 0 {
			t.Errorf("%s: %d messages, %d redelivered, %v; want 100, 0", mode, r.Msgs, r.Repeats, err)
		}
	}
	s, err := dial(t, addr).Stream(t.Context(), "JSBENCH")
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 400 {
		t.Errorf("the stream holds %d; want 400", n)
	}
	if n := s.CachedInfo().State.Consumers; n != 0 {
		t.Errorf("the stream has %d consumers; want 0", n)
	}
}

func TestMaxDurationStopsPublishing(t *testing.T) {
	t.Parallel()
	const n = 50_000_000
	c := mustParse(t, "pub-async", "--url="+startServer(t), "--max-duration=100ms")
	c.Msgs = n
	r, err := runOnce(t.Context(), c)
	if err != nil || r.Msgs == 0 || r.Msgs == n {
		t.Errorf("%d messages, %v; want some of %d", r.Msgs, err, n)
	}
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	js := dial(t, addr)
	nc := js.Conn()
	// There is interest, so that the server does not answer either; but no stream.
	if _, err := nc.Subscribe("silent", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	common := []string{
		"--url=" + addr, "--keep", "--stream=S", "--subject=silent", "--msgs=3", "--timeout=50ms",
	}
	tests := []struct {
		args []string
		want error
	}{
		{[]string{"pub-sync"}, errRefused},
		{[]string{"pub-async"}, errRefused},
		{[]string{"pub-async", "--light"}, errStalled},
	}
	for _, tt := range tests {
		r, err := runOnce(t.Context(), mustParse(t, append(tt.args, common...)...))
		if !errors.Is(err, tt.want) || r.Msgs != 0 {
			t.Errorf("%v: %d messages, %v; want 0, %v", tt.args, r.Msgs, err, tt.want)
		}
	}
	_, err = runOnce(t.Context(), mustParse(t, "pub-sync", "--url=nats://127.0.0.1:1"))
	if err == nil || !strings.Contains(err.Error(), "connect to nats://127.0.0.1:1") {
		t.Errorf("no server: %v", err)
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	addr := startServer(t)
	var out bytes.Buffer
	args := []string{"pub-async", "--url=" + addr, "--msgs=50", "--runs=2", "--label=js-r1"}
	if err := runAll(t.Context(), mustParse(t, args...), &out); err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^BenchmarkJetStream/label=js-r1/mode=pub-async/size=128 50 ` +
		`[\d.]+ ns/op \d+ msg/s ` +
		`[\d.]+ p50-us [\d.]+ p99-us [\d.]+ client-cpu-s/1M 0 errors 0 redelivered$`)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines; want 2: %s", len(lines), out.String())
	}
	for _, l := range lines {
		if !line.MatchString(l) {
			t.Errorf("line %q does not match %s", l, line)
		}
	}

	out.Reset()
	if err := runAll(t.Context(), mustParse(t, append(args, "--json", "--runs=1")...), &out); err != nil {
		t.Fatal(err)
	}
	var r Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Label != "js-r1" || r.Mode != modePubAsync || r.Msgs != 50 || r.Size != 128 {
		t.Errorf("JSON %+v", r)
	}
}

func TestFlagsAreRefusedByName(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args string
		want string
	}{
		{"", `expected "<mode>"`},
		{"pub", "must be one of"},
		{"pub-sync --size=15", "--size is 15: want 16 to"},
		{"pub-sync --msgs=0", "--msgs is 0: want 1 to"},
		{"pub-sync --publishers=0", "--publishers is 0"},
		{"pub-sync --conns=0", "--conns is 0"},
		{"pub-sync --window=0", "--window is 0"},
		{"pub-sync --consumers=0", "--consumers is 0"},
		{"pub-sync --batch=0", "--batch is 0"},
		{"pub-sync --runs=0", "--runs is 0"},
		{"pub-sync --subjects=0", "--subjects is 0"},
		{"pub-sync --replicas=6", "--replicas is 6: want 1 to 5"},
		{"pub-sync --header=x", `--header "x": want NAME:VALUE`},
		{"pub-sync --label=a/b", `--label "a/b"`},
		{"pub-sync --light", "--light is for"},
		{"pub-sync --timeout=0s", "must be positive"},
		{"pub-sync --payload=zeros", "must be one of"},
	}
	for _, tt := range tests {
		_, err := parse(t, strings.Fields(tt.args)...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("jsbench %s: %v; want %q", tt.args, err, tt.want)
		}
	}
	c := mustParse(t, "pub-sync", "--size=16", "--pids=1,2", "--header=A:b", "--header=C: d, e")
	if diff := cmp.Diff([]int{1, 2}, c.PIDs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"A:b", "C: d, e"}, c.Header); diff != "" {
		t.Error(diff)
	}
}
