package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// measureTimeout bounds a measurement beyond what it should take: jsbench gives up earlier by itself.
	measureTimeout = 3 * time.Minute
	// killAfter is how long jsbench has to delete its stream when it is told to stop.
	killAfter = 10 * time.Second
	// restWindow is how long servers are watched to see whether they rest, maxRest how long that is awaited.
	restWindow = 100 * time.Millisecond
	maxRest    = time.Second
	// restShare is how much of one processor resting servers may use: idle clusters send heartbeats.
	restShare = 0.2
	// warmUpShare is the length of a warm-up as a share of a measurement.
	warmUpShare = 0.4
)

// A result is what jsbench prints for a run.
type result struct {
	Msgs      int     `json:"msgs"`
	Rate      float64 `json:"msgs_per_s"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	Errors    int64   `json:"errors"`
	Lost      int     `json:"lost"`
	Repeats   int64   `json:"redelivered"`
	ServerCPU float64 `json:"server_cpu_s_per_1m"`
	ClientCPU float64 `json:"client_cpu_s_per_1m"`
}

// A measurement is one result and where it belongs.
type measurement struct {
	Round  int     `json:"round"`
	Nodes  int     `json:"nodes"`
	System kind    `json:"system"`
	Work   string  `json:"work"`
	Result result  `json:"result"`
	Others float64 `json:"others"` // share of the machine that others used meanwhile
	Err    string  `json:"error,omitempty"`
}

// A runner makes the rounds.
type runner struct {
	c   *Config
	dir string
	log io.Writer // progress

	launch func(ctx context.Context, k kind, nodes int, dir string) (*system, error)
	load   func(ctx context.Context, args ...string) (result, error)

	launched int
	paces    map[place]pace
	done     []measurement
}

// A place is one system in one size.
type place struct {
	nodes int
	kind  kind
}

// run makes all rounds. An error means that it could not go on; done holds what there is.
func (r *runner) run(ctx context.Context) error {
	r.paces = make(map[place]pace)
	for round := range r.c.Rounds {
		for _, nodes := range r.c.Nodes {
			f := &fleet{r: r, round: round + 1, nodes: nodes, running: make(map[kind]*system)}
			if err := errors.Join(f.measure(ctx), f.stop()); err != nil {
				return err
			}
		}
	}
	return nil
}

// A fleet is the systems of one size in one round.
type fleet struct {
	r       *runner
	round   int
	nodes   int
	running map[kind]*system
}

// measure starts the systems and measures every work on each.
func (f *fleet) measure(ctx context.Context) error {
	for _, k := range kinds() {
		if err := f.start(ctx, k); err != nil {
			return err
		}
	}
	for i, w := range f.r.c.works() {
		order := kinds()
		for j := range order {
			k := order[(j+i+f.round)%len(order)]
			m := f.one(ctx, k, w)
			if err := ctx.Err(); err != nil {
				return err
			}
			f.r.note(m, w.title)
			if m.Err == "" {
				continue
			}
			// Whatever is wrong should not spoil what comes next.
			if err := errors.Join(f.running[k].stop(), f.start(ctx, k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// start starts one system afresh, and warms it up.
func (f *fleet) start(ctx context.Context, k kind) error {
	f.r.launched++
	dir := filepath.Join(f.r.dir, fmt.Sprintf("%03d-%s-%d", f.r.launched, k, f.nodes))
	began := time.Now()
	s, err := f.r.launch(ctx, k, f.nodes, dir)
	if err != nil {
		return err
	}
	f.running[k] = s
	f.r.say("started %s with %d node(s) in %.1f s\n", k, f.nodes, time.Since(began).Seconds())
	warmUp := works()[0]
	target := time.Duration(float64(f.r.c.target()) * warmUpShare)
	res, err := f.r.load(ctx, f.args(s, &warmUp, target, pace{})...)
	if err != nil {
		return fmt.Errorf("warming up %s with %d nodes: %w\n%s", k, f.nodes, err, s.logs())
	}
	where := place{f.nodes, k}
	p := f.r.paces[where]
	p.publish = res.Rate
	f.r.paces[where] = p
	return nil
}

// args are those of jsbench.
func (f *fleet) args(s *system, w *work, target time.Duration, p pace) []string {
	var pids []string
	for _, pid := range s.pids {
		pids = append(pids, strconv.Itoa(pid))
	}
	return append(w.args(target, p), "--json", "--url", s.urls, "--replicas", strconv.Itoa(f.nodes),
		"--pids", strings.Join(pids, ","))
}

// one measures one work on one system.
func (f *fleet) one(ctx context.Context, k kind, w work) measurement {
	m := measurement{Round: f.round, Nodes: f.nodes, System: k, Work: w.name}
	fail := func(err error) measurement {
		m.Err = err.Error()
		return m
	}
	var all []int
	for _, s := range f.running {
		all = append(all, s.pids...)
	}
	if err := rest(ctx, all); err != nil {
		return fail(err)
	}
	meter, err := newMeter(all)
	if err != nil {
		return fail(err)
	}
	where, s := place{f.nodes, k}, f.running[k]
	ctx, cancel := context.WithTimeout(ctx, f.r.c.target()*(2+fillTime)+measureTimeout)
	defer cancel()
	if m.Result, err = f.r.load(ctx, f.args(s, &w, f.r.c.target(), f.r.paces[where])...); err != nil {
		return fail(err)
	}
	if m.Others, err = meter.others(); err != nil {
		return fail(err)
	}
	if w.mode == modeConsume {
		p := f.r.paces[where]
		p.consume = m.Result.Rate
		f.r.paces[where] = p
	}
	return m
}

// rest waits until the processes do little, or maxRest.
func rest(ctx context.Context, pids []int) error {
	t := time.NewTicker(restWindow)
	defer t.Stop()
	before, err := serversCPU(pids)
	for range int(maxRest / restWindow) {
		if err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		var now time.Duration
		if now, err = serversCPU(pids); float64(now-before) <= restShare*float64(restWindow) {
			break
		}
		before = now
	}
	return err
}

// stop ends the systems and removes their files.
func (f *fleet) stop() error {
	var errs []error
	for _, s := range f.running {
		errs = append(errs, s.stop())
	}
	old, err := filepath.Glob(filepath.Join(f.r.dir, "*-*-*"))
	errs = append(errs, err)
	for _, dir := range old {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// note keeps a measurement and says so.
func (r *runner) note(m measurement, title string) {
	r.done = append(r.done, m)
	r.say("round %d/%d, %d node(s), %-8s  %s: ", m.Round, r.c.Rounds, m.Nodes, m.System, title)
	if m.Err != "" {
		r.say("FAILED: %s\n", m.Err)
		return
	}
	r.say("%s msg/s, %s CPU s/1M (others: %.0f %% of the machine)\n",
		number(m.Result.Rate), number(m.Result.ServerCPU), m.Others*100)
}

// say tells of progress; that nobody can hear it is no reason to stop.
func (r *runner) say(format string, args ...any) { _, _ = fmt.Fprintf(r.log, format, args...) }

// jsbench runs one load and reads what it prints.
func jsbench(bin string) func(ctx context.Context, args ...string) (result, error) {
	return func(ctx context.Context, args ...string) (result, error) {
		cmd := exec.CommandContext(ctx, bin, args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = killAfter
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		var res result
		if err := cmd.Run(); err != nil {
			return res, fmt.Errorf("jsbench: %w: %s", err, strings.TrimSpace(stderr.String()))
		}
		if err := json.Unmarshal(stdout.Bytes(), &res); err != nil {
			return res, fmt.Errorf("jsbench printed %q: %w", stdout.Bytes(), err)
		}
		switch {
		case res.Lost > 0 || res.Errors > 0:
			return res, fmt.Errorf("jsbench: %d messages lost, %d requests failed", res.Lost, res.Errors)
		case res.Msgs == 0 || res.Rate <= 0:
			return res, errors.New("jsbench measured nothing")
		}
		return res, nil
	}
}
