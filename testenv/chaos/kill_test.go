package chaos

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

func setting(t *testing.T, name string, def int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s=%q: want a number", name, s)
	}
	return n
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// newCluster returns three stopped nodes of a binary with build tags, or of
// HOLDFAST_BIN if it needs none.
func newCluster(ctx context.Context, t *testing.T, tags ...string) *process.Cluster {
	t.Helper()
	dir := t.TempDir()
	bin := os.Getenv("HOLDFAST_BIN")
	if bin == "" || len(tags) > 0 {
		var err error
		begin := time.Now()
		bin, err = process.Build(ctx, "../..", dir, tags...)
		must(t, "building", err)
		t.Logf("built in %v", time.Since(begin).Round(time.Millisecond))
	}
	c, err := process.New(process.Config{Bin: bin, Dir: dir, Nodes: 3, Args: []string{"--disk-ballast", "0"}})
	must(t, "preparing the cluster", err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range c.Nodes {
				t.Logf("log of %s ends:\n%s", n.ID, n.Events(40))
			}
		}
		c.Close()
	})
	return c
}

// TestNothingAckedIsLostByKills kills the leader under load KILLS times, then all
// three nodes at once ALL times.
func TestNothingAckedIsLostByKills(t *testing.T) {
	kills, all := setting(t, "KILLS", 1), setting(t, "ALL", 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(2+kills+2*all)*time.Minute)
	defer cancel()
	runKills(ctx, t, newCluster(ctx, t), kills, all)
}

// TestNothingAckedIsLostByPowerCuts does the same to a build in which SIGKILL loses
// what was not synced, as a power cut does. One node keeps some of it by chance.
func TestNothingAckedIsLostByPowerCuts(t *testing.T) {
	kills, all := setting(t, "KILLS", 1), setting(t, "ALL", 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(2+kills+2*all)*time.Minute)
	defer cancel()
	c := newCluster(ctx, t, "powerloss")
	c.Nodes[2].Env = []string{"HOLDFAST_POWERLOSS_LEAK=30"}
	runKills(ctx, t, c, kills, all)
}

func runKills(ctx context.Context, t *testing.T, c *process.Cluster, kills, all int) {
	t.Helper()
	must(t, "starting", c.StartAll())
	must(t, "waiting for the cluster", c.WaitReady(ctx))
	load, err := NewLoad(ctx, c.URLs())
	must(t, "preparing the load", err)
	must(t, "starting the load", load.Start(ctx))
	for i := range kills {
		must(t, "publishing goes on", progress(ctx, load, 100))
		leader, err := c.Leader(ctx, 1)
		must(t, "finding the leader", err)
		must(t, "killing the leader", leader.Kill())
		must(t, "publishing goes on without it", progress(ctx, load, 50))
		must(t, "starting it again", leader.Start())
		must(t, "waiting for the cluster", c.WaitReady(ctx))
		t.Logf("leader kill %d of %d: %s, %d acked at quorum so far", i+1, kills, leader.ID, load.Acked())
	}
	for i := range all {
		must(t, "publishing goes on", progress(ctx, load, 100))
		must(t, "killing all", c.KillAll())
		must(t, "starting all", c.StartAll())
		must(t, "waiting for the cluster", c.WaitReady(ctx))
		t.Logf("kill of all %d of %d, %d acked at quorum so far", i+1, all, load.Acked())
	}
	must(t, "publishing goes on", progress(ctx, load, 100))
	load.Stop()
	v, err := load.Judge(ctx)
	must(t, "judging", err)
	t.Logf("\n%s", v)
	if bad := v.Failed(); bad != "" {
		t.Error(bad)
	}
}

// progress waits until the load got some more quorum acks.
func progress(ctx context.Context, l *Load, more int) error {
	from := l.Acked()
	return process.Until(ctx, func() error {
		if n := l.Acked() - from; n < more {
			return fmt.Errorf("%d more acked at quorum, want %d", n, more)
		}
		return nil
	})
}
