// Command conformance runs the suites of nats.go against Holdfast, each test in a process of its own, and
// compares the results with expected.tsv. Run it in the module's directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	core, update bool
	run          *regexp.Regexp
	jobs         int
	timeout      time.Duration
	cache, state string
	servers      string
	verbose      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func parseFlags() (*options, error) {
	o := &options{}
	flag.BoolVar(&o.core, "core", false, "only the tests that must never fail")
	flag.BoolVar(&o.update, "update", false, "write the results into expected.tsv")
	pattern := flag.String("run", "", "only the tests whose package.name matches, as 'test.TestPull'")
	flag.IntVar(&o.jobs, "jobs", 3, "tests at a time")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "time for one test")
	flag.StringVar(&o.cache, "cache", filepath.Join("..", "..", ".cache", "conformance"),
		"directory of what is built, and of the output of tests that fail")
	flag.StringVar(&o.state, "state", "",
		"parent of the servers' directories; default: /dev/shm if there is one, so that no disk is measured")
	flag.StringVar(&o.servers, "servers", "holdfast",
		`what servers are: "holdfast", or "inprocess" for the real JetStream`)
	flag.BoolVar(&o.verbose, "v", false, "have the servers log, to tester.log in the cache")
	flag.Parse()
	var err error
	if o.run, err = regexp.Compile(*pattern); err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	switch {
	case flag.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q; give flags only", flag.Arg(0))
	case o.jobs < 1:
		return nil, fmt.Errorf("-jobs is %d; give 1 or more", o.jobs)
	case o.timeout < time.Second:
		return nil, fmt.Errorf("-timeout is %v; give 1s or more", o.timeout)
	}
	if o.cache, err = filepath.Abs(o.cache); err != nil {
		return nil, err
	}
	if o.state == "" {
		if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
			o.state = "/dev/shm"
		} else {
			o.state = os.TempDir()
		}
	}
	return o, nil
}

func run(ctx context.Context) error {
	o, err := parseFlags()
	if err != nil {
		return err
	}
	list, err := readClasses("classes.tsv")
	if err != nil {
		return err
	}
	want, err := readExpected("expected.tsv")
	if err != nil {
		return err
	}
	if err := want.check(list); err != nil {
		return err
	}
	bins, err := build(ctx, o.cache)
	if err != nil {
		return err
	}
	if err := bins.check(ctx, list); err != nil {
		return err
	}
	t, err := startTester(ctx, o, bins.tester)
	if err != nil {
		return err
	}
	defer t.stop()
	if o.servers == "holdfast" {
		if err := t.guard(); err != nil {
			return fmt.Errorf("the servers under test are not ours: %w", err)
		}
	}
	results, err := runAll(ctx, o, bins, t, list.selected(o))
	if err != nil {
		return err
	}
	counts(os.Stdout, results)
	if o.update {
		return want.update("expected.tsv", list, results)
	}
	if wrong := want.compare(os.Stdout, results); wrong > 0 {
		return fmt.Errorf("%d results are not what expected.tsv says", wrong)
	}
	if len(results) == 0 {
		return errors.New("no test was selected")
	}
	fmt.Println("all results are as expected")
	return nil
}
