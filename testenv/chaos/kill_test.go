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

// TestNothingAckedIsLostByKills kills the leader under load KILLS times, then all
// three nodes at once ALL times.
func TestNothingAckedIsLostByKills(t *testing.T) {
	kills, all := setting(t, "KILLS", 1), setting(t, "ALL", 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(2+kills+2*all)*time.Minute)
	defer cancel()
	dir := t.TempDir()
	bin := os.Getenv("HOLDFAST_BIN")
	if bin == "" {
		var err error
		if bin, err = process.Build(ctx, "../..", dir); err != nil {
			t.Fatal(err)
		}
	}
	c, err := process.New(process.Config{Bin: bin, Dir: dir, Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer func() {
		if t.Failed() {
			for _, n := range c.Nodes {
				t.Logf("log of %s ends:\n%s", n.ID, n.Log(3000))
			}
		}
	}()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("starting", c.StartAll())
	must("waiting for the cluster", c.WaitReady(ctx))
	load, err := NewLoad(ctx, c.URLs())
	must("preparing the load", err)
	must("starting the load", load.Start(ctx))
	for i := range kills {
		must("publishing goes on", progress(ctx, load, 100))
		leader, err := c.Leader(ctx, 1)
		must("finding the leader", err)
		must("killing the leader", leader.Kill())
		must("publishing goes on without it", progress(ctx, load, 50))
		must("starting it again", leader.Start())
		must("waiting for the cluster", c.WaitReady(ctx))
		t.Logf("leader kill %d of %d: %s, %d acked at quorum so far", i+1, kills, leader.ID, load.Acked())
	}
	for i := range all {
		must("publishing goes on", progress(ctx, load, 100))
		must("killing all", c.KillAll())
		must("starting all", c.StartAll())
		must("waiting for the cluster", c.WaitReady(ctx))
		t.Logf("kill of all %d of %d, %d acked at quorum so far", i+1, all, load.Acked())
	}
	must("publishing goes on", progress(ctx, load, 100))
	load.Stop()
	v, err := load.Judge(ctx)
	must("judging", err)
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
