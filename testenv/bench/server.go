package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/testenv"
	"github.com/holdfast-mq/holdfast/testenv/process"
)

const (
	// readyTimeout bounds the start of a system.
	readyTimeout = 90 * time.Second
	// probeTimeout bounds one question to a starting system.
	probeTimeout = 5 * time.Second
	// logTail is how much of a log an error shows, in bytes.
	logTail = 1500
)

// A kind is one of the systems that are compared.
type kind string

const (
	holdfast      kind = "holdfast"
	streamAlways  kind = "always"
	streamDefault kind = "default"
)

func kinds() []kind { return []kind{holdfast, streamAlways, streamDefault} }

// A system is one that runs: one or three processes.
type system struct {
	urls string // of all nodes, comma-separated
	pids []int
	logs func() string // the ends of the logs, for errors
	stop func() error  // ends the processes and waits for them
}

// binaries are the programs that the comparison runs.
type binaries struct{ holdfast, natsserver, jsbench string }

// build compiles them from the module in root into dir.
func build(ctx context.Context, root, dir string) (binaries, error) {
	var b binaries
	for pkg, out := range map[string]*string{
		"./cmd/holdfast":             &b.holdfast,
		"./testenv/bench/natsserver": &b.natsserver,
		"./cmd/jsbench":              &b.jsbench,
	} {
		*out = filepath.Join(dir, filepath.Base(pkg))
		cmd := exec.CommandContext(ctx, "go", "build", "-o", *out, pkg)
		cmd.Dir = root
		if text, err := cmd.CombinedOutput(); err != nil {
			return b, fmt.Errorf("building %s: %w\n%s", pkg, err, text)
		}
	}
	return b, nil
}

// A launcher starts systems from the binaries.
type launcher struct {
	bin          binaries
	holdfastArgs []string
}

// launch starts a system with its files in dir, which it makes, and returns when it stores messages.
func (l *launcher) launch(ctx context.Context, k kind, nodes int, dir string) (*system, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var s *system
	var err error
	if k == holdfast {
		s, err = startHoldfast(ctx, process.Config{
			Bin: l.bin.holdfast, Dir: dir, Nodes: nodes, Args: l.holdfastArgs,
		})
	} else {
		s, err = startStreams(l.bin.natsserver, k, nodes, dir)
	}
	if err == nil {
		err = process.Until(ctx, func() error { return probe(ctx, s.urls, nodes) })
	}
	if err != nil {
		err = fmt.Errorf("start of %s with %d nodes: %w", k, nodes, err)
		if s != nil {
			if !errors.Is(err, context.Canceled) {
				err = fmt.Errorf("%w\n%s", err, s.logs())
			}
			err = errors.Join(err, s.stop())
		}
		return nil, err
	}
	return s, nil
}

// probe stores a message in a stream on all nodes, and deletes the stream.
func probe(ctx context.Context, urls string, nodes int) error {
	nc, err := nats.Connect(urls, nats.Timeout(probeTimeout), nats.IgnoreDiscoveredServers())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cfg := jetstream.StreamConfig{
		Name: "PROBE", Subjects: []string{"probe"}, Replicas: nodes, Storage: jetstream.FileStorage,
	}
	if _, err := js.CreateOrUpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("stream with %d replicas: %w", nodes, err)
	}
	if _, err := js.Publish(ctx, "probe", nil); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return js.DeleteStream(ctx, cfg.Name)
}

// startHoldfast starts Holdfast. It returns what was started with an error, too.
func startHoldfast(ctx context.Context, cfg process.Config) (*system, error) {
	c, err := process.New(cfg)
	if err != nil {
		return nil, err
	}
	s := &system{urls: c.URLs(), stop: func() error {
		c.Close() // kills: the files are removed anyway
		return nil
	}}
	s.logs = func() string {
		var b strings.Builder
		for _, n := range c.Nodes {
			fmt.Fprintf(&b, "log of %s ends:\n%s\n", n.ID, n.Log(logTail))
		}
		return b.String()
	}
	if err := c.StartAll(); err != nil {
		return s, err
	}
	for _, n := range c.Nodes {
		s.pids = append(s.pids, n.PID())
	}
	return s, c.WaitReady(ctx)
}

// startStreams starts nats-server processes with JetStream. It returns what was started with an error, too.
func startStreams(bin string, k kind, nodes int, dir string) (*system, error) {
	var ports testenv.Ports
	var clients, routes []string
	for range nodes {
		client, err := ports.Address()
		if err != nil {
			return nil, err
		}
		route, err := ports.Address()
		if err != nil {
			return nil, err
		}
		clients, routes = append(clients, client), append(routes, route)
	}
	var children []*process.Child
	s := &system{
		urls: "nats://" + strings.Join(clients, ",nats://"),
		logs: func() string { return tails(children) },
		stop: func() error { return killAll(children) },
	}
	for i, client := range clients {
		name := fmt.Sprintf("js%d", i+1)
		cfg := process.StreamServer{
			Name: name, Client: client, Always: k == streamAlways, Store: filepath.Join(dir, name), Cluster: "bench",
		}
		if nodes > 1 {
			cfg.Route, cfg.Routes = routes[i], routes
		}
		file := filepath.Join(dir, name+".conf")
		if err := os.WriteFile(file, []byte(cfg.Text()), 0o600); err != nil {
			return s, err
		}
		c, err := process.StartChild(filepath.Join(dir, name+".log"), nil, bin, file)
		if err != nil {
			return s, err
		}
		children, s.pids = append(children, c), append(s.pids, c.PID())
	}
	return s, nil
}

func tails(children []*process.Child) string {
	var b strings.Builder
	for _, c := range children {
		fmt.Fprintf(&b, "%s ends:\n%s\n", c.Log(), c.Tail(logTail))
	}
	return b.String()
}

func killAll(children []*process.Child) error {
	var errs []error
	for _, c := range children {
		errs = append(errs, c.Kill())
	}
	return errors.Join(errs...)
}
