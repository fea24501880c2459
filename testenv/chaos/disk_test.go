package chaos

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/testenv/faultfs"
	"github.com/holdfast-mq/holdfast/testenv/process"
)

const (
	// exitStopped is the exit code of a node whose disk failed.
	exitStopped = 4
	// moveWithin bounds how long a leader's disk may hang before another one leads: the transport holds
	// appends back at once, the others miss them for a heartbeat timeout, and elect; the rest is a slow machine.
	moveWithin = 15 * time.Second
)

// TestNothingAckedIsLostByFailedDisks lets the disk of the leader fail, then hang,
// under load. The process ends by itself both times and says why, and others lead
// before that.
func TestNothingAckedIsLostByFailedDisks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c := newCluster(ctx, t, "powerloss")
	control := func(n *process.Node) string { return filepath.Join(c.Dir, "disk-of-"+n.ID) }
	for _, n := range c.Nodes {
		n.Env = []string{"HOLDFAST_POWERLOSS_CONTROL=" + control(n)}
	}
	must(t, "starting", c.StartAll())
	must(t, "waiting for the cluster", c.WaitReady(ctx))
	load, err := NewLoad(ctx, c.URLs())
	must(t, "preparing the load", err)
	must(t, "starting the load", load.Start(ctx))
	for _, v := range []struct{ what, log string }{
		{faultfs.Fail, ".seg: input/output error"},
		{faultfs.Hang, "hangs for more than"},
	} {
		must(t, "publishing goes on", progress(ctx, load, 100))
		leader, err := c.Leader(ctx, 1)
		must(t, "finding the leader", err)
		begin := time.Now()
		must(t, "breaking the disk", os.WriteFile(control(leader), []byte(v.what), 0o600))
		must(t, "publishing goes on without it", progress(ctx, load, 100))
		moved := time.Since(begin)
		if moved > moveWithin {
			t.Errorf("%s: publishing goes on after %v, want %v at most", v.what, moved, moveWithin)
		}
		code, err := leader.Exited(ctx)
		must(t, "waiting for the end of the node", err)
		ended := time.Since(begin)
		if log := leader.Log(20000); code != exitStopped || !strings.Contains(log, v.log) {
			t.Errorf("%s: exit code %d, want %d, and %q in the log:\n%s", v.what, code, exitStopped, v.log, log)
		}
		must(t, "mending the disk", os.Remove(control(leader)))
		must(t, "starting it again", leader.Start())
		must(t, "waiting for the cluster", c.WaitReady(ctx))
		t.Logf("%s: %s; 100 publishes by others after %v, ended after %v, ready again after %v, %d acked",
			v.what, leader.ID, moved, ended, time.Since(begin), load.Acked())
	}
	load.Stop()
	v, err := load.Judge(ctx)
	must(t, "judging", err)
	t.Logf("\n%s", v)
	if bad := v.Failed(); bad != "" {
		t.Error(bad)
	}
}
