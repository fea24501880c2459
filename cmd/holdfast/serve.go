package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

const (
	// stopTimeout bounds a stop in order: handing over, answering, closing.
	stopTimeout = 30 * time.Second
	// failedTimeout is stopTimeout of a node that can not go on: others wait to take its place.
	failedTimeout = 5 * time.Second
	// stopGrace is how much later than its timeout a stop is given up.
	stopGrace = 2 * time.Second
	// readyPoll is how often a starting node is asked whether it serves.
	readyPoll = 100 * time.Millisecond
	// waitNote is how long a start may take before the reasons to wait are printed.
	waitNote = 3 * time.Second
	// secretVariable may hold the cluster secret; it is no flag, because other users see those.
	secretVariable = "HOLDFAST_CLUSTER_SECRET"
)

// BeforeResolve reads the configuration file, if one is given.
func (c *serveCmd) BeforeResolve(ctx *kong.Context) error {
	flags := ctx.Flags()
	i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == "config" })
	path, _ := ctx.FlagValue(flags[i]).(string)
	if path == "" {
		return nil
	}
	r, err := fileResolver(path, flags)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	ctx.AddResolver(r)
	return nil
}

// config returns the configuration of the node as given.
func (c *serveCmd) config() node.Config {
	cfg := node.Config(c.Node)
	cfg.ClusterSecret = os.Getenv(secretVariable)
	empty := func(s string) bool { return strings.TrimSpace(s) == "" }
	cfg.Join = slices.DeleteFunc(cfg.Join, empty) // a variable of a script may be empty
	cfg.Peers = slices.DeleteFunc(cfg.Peers, empty)
	return cfg
}

// Run runs a node until a signal, its failure, or an operator who takes it out.
func (c *serveCmd) Run(env *environment) error {
	log, err := newLogger(c.LogLevel, c.LogFormat, env.stderr)
	if err != nil {
		return usage(err)
	}
	cfg := c.config()
	cfg.Logger = log
	if err := cfg.Validate(); err != nil {
		return usage(err)
	}
	if cfg.FS, err = fileSystem(cfg.DataDir); err != nil {
		return err
	}
	n, err := start(env, cfg)
	if err != nil || n == nil {
		return err
	}
	return attend(env, n, log, cfg.DataDir)
}

// start starts the node; a signal meanwhile stops it: n is nil then.
func start(env *environment, cfg node.Config) (*node.Node, error) {
	ctx, cancel := context.WithCancel(env.ctx)
	defer cancel()
	var n *node.Node
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, err = node.Start(ctx, cfg)
	}()
	select {
	case <-done:
		return n, err
	case <-env.signals:
		cancel()
	}
	select {
	case <-done:
	case sig := <-env.signals:
		return nil, atOnce(sig)
	}
	if n == nil {
		return nil, nil //nolint:nilnil // stopped in order before it was there
	}
	return nil, stop(env, n, stopTimeout)
}

// attend waits for what ends a node, and says when it serves.
func attend(env *environment, n *node.Node, log *zap.Logger, dir string) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	began, noted := time.Now(), ""
	for {
		select {
		case sig := <-env.signals:
			log.Info("stopping", zap.String("signal", sig.String()))
			return stop(env, n, stopTimeout)
		case err := <-n.Failed():
			err = fmt.Errorf("the node cannot go on: %w", err)
			log.Error("stopping", zap.Error(err))
			return &exitError{exitStopped, errors.Join(err, stop(env, n, failedTimeout))}
		case <-n.Left():
			env.say("This node has left its cluster.")
			return stop(env, n, stopTimeout)
		case <-tick.C:
			why := strings.Join(n.Readiness(), "; ")
			if why == "" {
				tick.Stop()
				announce(env, n, dir)
			} else if why != noted && time.Since(began) > waitNote {
				noted = why
				env.say("Waiting: %s.", why)
			}
		}
	}
}

// stop stops a node in order, or at once at a further signal.
func stop(env *environment, n *node.Node, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(env.ctx, timeout)
	defer cancel()
	late := time.NewTimer(timeout + stopGrace)
	defer late.Stop()
	done := make(chan error, 1)
	go func() { done <- n.Stop(ctx) }()
	select {
	case err := <-done:
		return err
	case sig := <-env.signals:
		return atOnce(sig)
	case <-late.C:
		// A disk that hangs holds whoever waits for it, for ever. The end of the process does not wait.
		return &exitError{exitStopped, fmt.Errorf("the node did not stop within %v", timeout+stopGrace)}
	}
}

func atOnce(sig os.Signal) error {
	code := exitFailed
	if s, ok := sig.(syscall.Signal); ok {
		code = exitSignal + int(s)
	}
	return &exitError{code, fmt.Errorf("second signal (%v): ended at once", sig)}
}

// announce says where the node is and what to type next.
func announce(env *environment, n *node.Node, dir string) {
	url := n.ClientURL()
	env.say("\nHoldfast %s is ready.\n", node.Version)
	env.say("  clients  %s", url)
	if n.AdminURL() != "" {
		env.say("  admin    %s  (/readyz, /raft, /members, /metrics)", n.AdminURL())
	}
	env.say("  data     %s\n", dir)
	env.say("Next, in another terminal, with the nats command line:\n")
	for _, line := range firstSteps(url) {
		env.say("  %s", line)
	}
	env.say("\nCtrl-C stops the node in order; a second one, at once.")
}

// firstSteps are commands for a first queue: make it, put something in, take it out.
func firstSteps(url string) []string {
	return []string{
		"export NATS_URL=" + url,
		"nats stream add ORDERS --subjects 'orders.>' --retention work --defaults",
		"nats consumer add ORDERS WORKERS --pull --ack explicit --defaults",
		"nats publish --jetstream orders.new 'one coffee'",
		"nats consumer next ORDERS WORKERS",
	}
}
