package main

import (
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

func TestArgs(t *testing.T) {
	t.Parallel()
	const timed = " --msgs 6000000 --max-duration 3s"
	want := map[string]string{
		"async-128": "pub-async --size 128 --publishers 1 --window 2000 --light" + timed,
		"async-1k":  "pub-async --size 1024 --publishers 1 --window 2000 --light" + timed,
		"async-16k": "pub-async --size 16384 --publishers 1 --window 500 --light" + timed,
		"sync-64":   "pub-sync --size 128 --publishers 64" + timed,
		"sync-1":    "pub-sync --size 128 --publishers 1" + timed,
		"workq":     "workq --size 128 --publishers 1 --window 1000 --light" + timed,
		"consume":   "consume --size 128 --publishers 1 --window 2000 --msgs 30000",
	}
	got := map[string]string{}
	for _, w := range works() {
		got[w.name] = strings.Join(w.args(3*time.Second, pace{publish: 50_000, consume: 10_000}), " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// However short, a fast system must not run out of messages before its time is over.
	w := works()[0]
	short := strings.Join(w.args(time.Millisecond, pace{}), " ")
	if !strings.HasSuffix(short, "--msgs 2000000 --max-duration 1ms") {
		t.Errorf("got %s", short)
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		p    pace
		want int
	}{
		{"nothing known", pace{}, minFill},
		{"as it publishes", pace{publish: 5_000}, 10_000},
		{"as it consumes", pace{publish: 5_000, consume: 4_000}, 8_000},
		{"as long as filling may take", pace{publish: 1_000, consume: 80_000}, 6_000},
		{"the least", pace{publish: 100, consume: 80_000}, minFill},
	}
	for _, tt := range tests {
		if got := fill(2*time.Second, tt.p); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

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

func TestConfig(t *testing.T) {
	t.Parallel()
	c, err := parse(t, "--scale=0.5", "--work=workq,sync-1",
		"--holdfast-arg=--profile=fast", "--holdfast-arg=--groups=2")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range c.works() {
		names = append(names, w.name)
	}
	if diff := cmp.Diff([]string{"sync-1", "workq"}, names); diff != "" {
		t.Errorf("works (-want +got):\n%s", diff)
	}
	if c.target() != 1250*time.Millisecond || c.Rounds != 3 || !cmp.Equal(c.Nodes, []int{1, 3}) {
		t.Errorf("target %v, rounds %d, nodes %v; want 1.25s, 3, [1 3]", c.target(), c.Rounds, c.Nodes)
	}
	const want = `make bench-compare ROUNDS=3 SCALE=0.5 ` +
		`ARGS="--work=workq,sync-1 --holdfast-arg=--profile=fast --holdfast-arg=--groups=2"`
	if got := command(c); got != want {
		t.Errorf("command %q, want %q", got, want)
	}
	for _, tt := range []struct{ args, want string }{
		{"", "make bench-compare ROUNDS=3 SCALE=1"},
		{"--scale=100", "make bench-compare ROUNDS=3 SCALE=100"},
		{"--rounds=100 --scale=9 --nodes=3,1", `make bench-compare ROUNDS=100 SCALE=9 ARGS="--nodes=3,1"`},
	} {
		if c, err := parse(t, strings.Fields(tt.args)...); err != nil || command(c) != tt.want {
			t.Errorf("%q: %v, %q; want %q", tt.args, err, command(c), tt.want)
		}
	}
	for arg, want := range map[string]string{
		"--rounds=0":    "--rounds is 0: want 1 to 100",
		"--rounds=101":  "--rounds is 101: want 1 to 100",
		"--scale=0":     "--scale is 0: want 0.001 to 100",
		"--scale=101":   "--scale is 101: want 0.001 to 100",
		"--scale=NaN":   "--scale is NaN: want 0.001 to 100",
		"--duration=0s": "--duration is 0s: want more than 0",
		"--nodes=2":     "--nodes has 2: want 1, 3 or both, each once",
		"--nodes=3,3":   "--nodes has 3: want 1, 3 or both, each once",
		"--work=x": `--work "x" is unknown: ` +
			`want of async-128, async-1k, async-16k, sync-64, sync-1, workq, consume`,
	} {
		if _, err := parse(t, arg); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", arg, err, want)
		}
	}
}
