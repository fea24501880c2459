package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// lab notes what a runner does with systems and loads.
type lab struct {
	t      *testing.T
	events []string
	fail   func(event string) error
}

func (l *lab) launch(_ context.Context, k kind, nodes int, dir string) (*system, error) {
	url := fmt.Sprintf("%s-%d", k, nodes)
	l.events = append(l.events, "start "+url)
	if err := os.Mkdir(dir, 0o700); err != nil {
		l.t.Error(err) // every start has a directory of its own
	}
	if err := l.fail("start " + url); err != nil {
		return nil, err
	}
	gone := false
	return &system{urls: url, logs: func() string { return "its log" }, stop: func() error {
		if gone {
			return fmt.Errorf("%s was stopped twice", url)
		}
		gone = true
		l.events = append(l.events, "stop "+url)
		return nil
	}}, nil
}

func (l *lab) load(_ context.Context, args ...string) (result, error) {
	flag := func(name string) string { return args[slices.Index(args, name)+1] }
	event := fmt.Sprintf("%s %s r%s", args[0], flag("--url"), flag("--replicas"))
	if args[0] == modeConsume {
		event += " msgs " + flag("--msgs")
	} else if flag("--max-duration") == "400ms" {
		event = "warm up " + flag("--url")
	}
	l.events = append(l.events, event)
	rate := 8_000.0
	if args[0] == modeConsume {
		rate = 5_000
	}
	return result{Msgs: 1, Rate: rate, ServerCPU: 1}, l.fail(event)
}

func newLab(t *testing.T, c *Config) (*lab, *runner) {
	t.Helper()
	l := &lab{t: t, fail: func(string) error { return nil }}
	c.Scale, c.Duration = 1, time.Second
	return l, &runner{c: c, dir: t.TempDir(), log: io.Discard, launch: l.launch, load: l.load}
}

// warm are the events of a start.
func warm(urls ...string) []string {
	var out []string
	for _, u := range urls {
		out = append(out, "start "+u, "warm up "+u)
	}
	return out
}

// consume are the events of consuming, everywhere with so many messages.
func consume(msgs string, places ...string) []string {
	var out []string
	for _, p := range places {
		out = append(out, "consume "+p+" msgs "+msgs)
	}
	return out
}

func TestRounds(t *testing.T) {
	t.Parallel()
	l, r := newLab(t, &Config{Rounds: 2, Nodes: []int{1, 3}, Work: []string{"sync-1", modeConsume}})
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range l.events {
		if !strings.HasPrefix(e, "stop") { // in any order
			got = append(got, e)
		}
	}
	var want []string
	for _, step := range [][]string{
		warm("holdfast-1", "always-1", "default-1"),
		{"pub-sync always-1 r1", "pub-sync default-1 r1", "pub-sync holdfast-1 r1"},
		consume("8000", "default-1 r1", "holdfast-1 r1", "always-1 r1"),
		warm("holdfast-3", "always-3", "default-3"),
		{"pub-sync always-3 r3", "pub-sync default-3 r3", "pub-sync holdfast-3 r3"},
		consume("8000", "default-3 r3", "holdfast-3 r3", "always-3 r3"),
		warm("holdfast-1", "always-1", "default-1"),
		{"pub-sync default-1 r1", "pub-sync holdfast-1 r1", "pub-sync always-1 r1"},
		consume("5000", "holdfast-1 r1", "always-1 r1", "default-1 r1"),
		warm("holdfast-3", "always-3", "default-3"),
		{"pub-sync default-3 r3", "pub-sync holdfast-3 r3", "pub-sync always-3 r3"},
		consume("5000", "holdfast-3 r3", "always-3 r3", "default-3 r3"),
	} {
		want = append(want, step...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(l.events)-len(got) != 12 {
		t.Errorf("%d systems were stopped, want 12", len(l.events)-len(got))
	}
	first := r.done[0]
	first.Others = 0
	wantFirst := measurement{
		Round: 1, Nodes: 1, System: streamAlways, Work: "sync-1",
		Result: result{Msgs: 1, Rate: 8000, ServerCPU: 1},
	}
	if diff := cmp.Diff(wantFirst, first); diff != "" || len(r.done) != 24 {
		t.Errorf("%d measurements, want 24; the first (-want +got):\n%s", len(r.done), diff)
	}
	if left, err := filepath.Glob(filepath.Join(r.dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left", left, err)
	}
}

// TestFailedMeasurement checks that a system that lost something is started afresh and the rest goes on.
func TestFailedMeasurement(t *testing.T) {
	t.Parallel()
	l, r := newLab(t, &Config{Rounds: 1, Nodes: []int{3}, Work: []string{"sync-1"}})
	l.fail = func(event string) error {
		if event == "pub-sync default-3 r3" {
			return errors.New("lost")
		}
		return nil
	}
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	begin := slices.Index(l.events, "pub-sync default-3 r3")
	want := []string{
		"pub-sync default-3 r3", "stop default-3", "start default-3", "warm up default-3",
		"pub-sync holdfast-3 r3",
	}
	if diff := cmp.Diff(want, l.events[begin:begin+5]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var got []string
	for _, m := range r.done {
		got = append(got, string(m.System)+":"+m.Err)
	}
	if diff := cmp.Diff([]string{"always:", "default:lost", "holdfast:"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCannotGoOn checks that what was started is stopped when the run ends early.
func TestCannotGoOn(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"start default-1", "warm up default-1"} {
		l, r := newLab(t, &Config{Rounds: 1, Nodes: []int{1}, Work: []string{"sync-1"}})
		broken := errors.New("broken")
		l.fail = func(event string) error {
			if event == at {
				return broken
			}
			return nil
		}
		if err := r.run(t.Context()); !errors.Is(err, broken) {
			t.Errorf("%s: %v, want %v", at, err, broken)
		}
		for _, url := range []string{"holdfast-1", "always-1"} {
			if !slices.Contains(l.events, "stop "+url) {
				t.Errorf("%s: %s was not stopped", at, url)
			}
		}
	}
	l, r := newLab(t, &Config{Rounds: 1, Nodes: []int{1}, Work: []string{"sync-1"}})
	ctx, cancel := context.WithCancel(t.Context())
	l.fail = func(event string) error {
		if strings.HasPrefix(event, "pub-sync") {
			cancel()
		}
		return ctx.Err()
	}
	if err := r.run(ctx); !errors.Is(err, context.Canceled) || len(r.done) != 0 {
		t.Errorf("%v and %d measurements, want %v and none", err, len(r.done), context.Canceled)
	}
}

func TestJsbench(t *testing.T) {
	t.Parallel()
	load := jsbench("/bin/sh")
	const script = `echo '{"msgs":3,"msgs_per_s":4.5,"p99_us":6,"server_cpu_s_per_1m":7}'`
	got, err := load(t.Context(), "-c", script)
	want := result{Msgs: 3, Rate: 4.5, P99: 6, ServerCPU: 7}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for script, want := range map[string]string{
		`echo '{"msgs":3,"msgs_per_s":4.5,"lost":1}'`:   "1 messages lost, 0 requests failed",
		`echo '{"msgs":3,"msgs_per_s":4.5,"errors":2}'`: "0 messages lost, 2 requests failed",
		`echo '{"msgs":0}'`:                             "measured nothing",
		`echo nothing`:                                  `printed "nothing\n"`,
		`echo no server >&2; exit 1`:                    "exit status 1: no server",
	} {
		if _, err := load(t.Context(), "-c", script); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", script, err, want)
		}
	}
}
