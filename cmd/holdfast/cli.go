package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

// Exit codes; see the package comment.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitDamaged = 3
	exitStopped = 4
	exitSignal  = 128 // and the signal's number
)

// environment is what a command has from its process.
type environment struct {
	ctx     context.Context //nolint:containedctx // the process's own
	signals <-chan os.Signal
	stdout  io.Writer
	stderr  io.Writer
	args    []string
}

// say prints a line for people.
func (e *environment) say(format string, args ...any) {
	_, _ = fmt.Fprintf(e.stdout, format+"\n", args...) // nobody may be reading
}

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

// Error implements error.
func (e *exitError) Error() string { return e.err.Error() }

// Unwrap implements errors.Unwrap.
func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// newParser makes the parser of the command line; host is what the default node id is.
func newParser(c *cli, env *environment, host string, exit func(int)) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("holdfast"),
		kong.Description("A durable, replicated work queue for NATS. It speaks JetStream to its clients."),
		kong.Vars{node.Hostname: host},
		kong.Writers(env.stdout, env.stderr),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
}

// helped is the panic by which --help leaves the parser.
type helped struct{ code int }

// run parses the command line and carries it out; it returns the exit code.
func run(env *environment) (code int) {
	host, err := os.Hostname()
	if err != nil {
		host = "" // refused unless --node-id is given
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case helped:
			code = r.code
		default:
			panic(r)
		}
	}()
	parser, err := newParser(&cli{}, env, host, func(code int) { panic(helped{code}) })
	if err != nil {
		_, _ = fmt.Fprintln(env.stderr, "holdfast:", err)
		return exitFailed
	}
	args := env.args
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		_, _ = fmt.Fprintf(env.stderr, "holdfast: %v\nSee holdfast --help.\n", err)
		return exitUsage
	}
	return exitCode(env, ctx.Run(env))
}

// exitCode reports an error and says which exit code it means.
func exitCode(env *environment, err error) int {
	if err == nil {
		return exitOK
	}
	_, _ = fmt.Fprintln(env.stderr, "holdfast:", err)
	var exit *exitError
	var config *node.ConfigError
	switch {
	case errors.As(err, &config): // also one that only the other nodes could show
		return exitUsage
	case errors.As(err, &exit):
		return exit.code
	}
	return exitFailed
}

// Run prints the version.
func (versionCmd) Run(env *environment) error {
	_, err := fmt.Fprintln(env.stdout, "holdfast", node.Version)
	return err
}
