package replication

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-metrics"
)

// slowDispatch holds Raft's loop back between sending an entry and what follows, as a busy machine may.
type slowDispatch struct {
	metrics.BlackholeSink
	by time.Duration
}

func (s *slowDispatch) AddSampleWithLabels(key []string, _ float32, _ []metrics.Label) {
	if slices.Contains(key, "dispatchLog") {
		<-time.After(s.by)
	}
}

// TestNewVoterAnswersBeforeItCounts: the only other live replica becomes a voter, and answers for the entry that says
// so before Raft counts it as one. Nobody proposes anything else. The change is committed all the same.
func TestNewVoterAnswersBeforeItCounts(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		w.put(value(0))
		leader := w.leader()
		g := leader.group()
		others := slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return n == leader })
		dead, joins := others[0], others[1]
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.Configure(ctx, Demote, joins.group().Server(), 0); err != nil {
			t.Fatal(err)
		}
		w.eventually("all replicas to be even", w.even)

		conf := metrics.DefaultConfig("")
		conf.EnableRuntimeMetrics, conf.EnableHostname = false, false
		global := func(s metrics.MetricSink) {
			if _, err := metrics.NewGlobal(conf, s); err != nil {
				t.Fatal(err)
			}
		}
		global(&slowDispatch{by: g.cfg.Timeouts.Heartbeat / 4})
		defer global(&metrics.BlackholeSink{})
		w.fabric.Isolate(dead.name, w.others(dead)...)
		begin := time.Now()
		if err := g.Configure(ctx, AddVoter, joins.group().Server(), 0); err != nil {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
		if took := time.Since(begin); took > 3*g.cfg.Timeouts.Heartbeat {
			t.Errorf("committed after %v, want one heartbeat timeout, %v, and a little", took, g.cfg.Timeouts.Heartbeat)
		}
	})
}
