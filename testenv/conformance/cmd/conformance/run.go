package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// result is how a test ended.
type result struct {
	class
	outcome string
	took    time.Duration
	output  string
	log     string // where the output is, unless it passed
}

// killAfter is how much longer than its own timeout a test's process may live.
const killAfter = 15 * time.Second

// runAll runs the tests, some at a time, then those that must have the machine to themselves.
func runAll(ctx context.Context, o *options, b *binaries, t *tester, list classes) ([]result, error) {
	out := filepath.Join(o.cache, "output")
	if err := os.RemoveAll(out); err != nil {
		return nil, err
	}
	var crowd, quiet classes
	for _, c := range list {
		if c.quiet() {
			quiet = append(quiet, c)
		} else {
			crowd = append(crowd, c)
		}
	}
	began := time.Now()
	one := func(ctx context.Context, c class) (*result, error) {
		r, err := runOne(ctx, o, b.suites[c.pkg], t, c)
		if err == nil && r.outcome == fail {
			r.log, err = keep(out, c.id, r.output)
		}
		if err == nil {
			fmt.Printf("%-4s %6.1fs %s\n", r.outcome, r.took.Seconds(), c.id)
		}
		return r, err
	}
	results, err := some(ctx, o.jobs, crowd, one)
	if err != nil {
		return nil, err
	}
	if busy := pressure(); busy > busyPressure && len(quiet) > 0 {
		fmt.Printf("warning: other work keeps the CPUs busy (pressure %.0f %%); "+
			"the tests that need quiet may fail for that\n", busy)
	}
	alone, err := some(ctx, 1, quiet, one)
	if err != nil {
		return nil, err
	}
	fmt.Printf("%d tests in %v\n", len(list), time.Since(began).Round(time.Second))
	return append(results, alone...), nil
}

// busyPressure is the share of the time, in percent, in which something waited for a CPU, from which on a machine
// is not quiet.
const busyPressure = 25

// pressure is that share of the last ten seconds, 0 where the system does not tell.
func pressure() float64 {
	b, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	var share float64
	if _, err := fmt.Sscanf(string(b), "some avg10=%f", &share); err != nil {
		return 0
	}
	return share
}

// some runs tests, as many at a time as there are jobs.
func some(
	ctx context.Context, jobs int, list classes, one func(context.Context, class) (*result, error),
) ([]result, error) {
	results := make([]result, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(jobs)
	for i, c := range list {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r, err := one(ctx, c)
			if err == nil {
				results[i] = *r
			}
			return err
		})
	}
	return results, g.Wait()
}

func keep(dir string, i id, output string) (string, error) {
	path := filepath.Join(dir, strings.ReplaceAll(i.pkg, "/", "-")+"."+i.test+".txt")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(output), 0o644)
}

// runOne runs one test in a process of its own, in its package's directory.
func runOne(ctx context.Context, o *options, s suite, t *tester, c class) (*result, error) {
	kill, cancel := context.WithTimeout(ctx, o.timeout+killAfter)
	defer cancel()
	cmd := exec.CommandContext(kill, s.bin,
		"-test.run", "^"+c.test+"$", "-test.v", "-test.timeout", o.timeout.String())
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), testEnv(t.url)...)
	cmd.WaitDelay = time.Second
	began := time.Now()
	output, err := cmd.CombinedOutput()
	r := &result{class: c, took: time.Since(began), output: string(output)}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	switch {
	case strings.Contains(r.output, "--- SKIP: "+c.test+" "):
		r.outcome = skip
	case err == nil && strings.Contains(r.output, "--- PASS: "+c.test+" "):
		r.outcome = pass
	default:
		r.outcome = fail
		if err := t.reap(c.test); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// failed matches the lines by which a test says what went wrong.
var failed = regexp.MustCompile(`(?m)^(?:panic: .*|\s+\w+_test\.go:\d+: .*|FATAL.*)$`)

// last is what a failed or skipped test said last.
func (r *result) last() string {
	lines := failed.FindAllString(r.output, -1)
	if len(lines) == 0 {
		return "no message"
	}
	return strings.Join(strings.Fields(lines[len(lines)-1]), " ")
}

// counts prints how many tests of each class passed.
func counts(w io.Writer, results []result) {
	type count struct{ pass, all int }
	byFeature := make(map[string]count)
	total := count{}
	add := func(c count, r *result) count {
		c.all++
		if r.outcome == pass {
			c.pass++
		}
		return c
	}
	for i := range results {
		r := &results[i]
		total = add(total, r)
		for _, f := range slices.Concat([]string{"needs " + r.needs}, r.features) {
			byFeature[f] = add(byFeature[f], r)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(byFeature)) {
		fmt.Fprintf(w, "%4d of %4d pass  %s\n", byFeature[f].pass, byFeature[f].all, f)
	}
	fmt.Fprintf(w, "%4d of %4d pass  in all\n", total.pass, total.all)
}

// compare prints the results that the table does not expect, and how many there are.
func (e expected) compare(w io.Writer, results []result) int {
	wrong := 0
	for i := range results {
		r := &results[i]
		want := e[r.id]
		if r.outcome == want.result {
			continue
		}
		wrong++
		fmt.Fprintf(w, "UNEXPECTED %s, expected %s: %s", r.outcome, want.result, r.id)
		switch {
		case r.outcome == pass:
			fmt.Fprintf(w, "\n  change its line in expected.tsv to: %s\t%s\tpass\t\n", r.pkg, r.test)
		default:
			fmt.Fprintf(w, "\n  %s\n  output: %s\n", r.last(), r.log)
		}
	}
	return wrong
}
