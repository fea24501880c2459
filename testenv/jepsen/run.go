package jepsen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	// startTimeout is how long a cluster may take to serve at first.
	startTimeout = 90 * time.Second
	// afterHeal is how long the load goes on after everything was repaired.
	afterHeal = 5 * time.Second
	// ageSlack is by how much more than the time of load max_age is: nothing may expire before the end.
	ageSlack = 30 * time.Minute
	// maxSteps bounds a plan; a run ends by the clock.
	maxSteps = 1000
)

// Config is one run.
type Config struct {
	Kind Kind
	// Bin is the program of the system.
	Bin string
	// Dir is where processes keep their files and logs.
	Dir     string
	Seed    uint64
	Length  time.Duration // of load and faults; the end takes its own time
	Nemeses []string
	Rate    int // publishes per second of all writers together
	Args    []string
	// Skewed: Bin was built with Overlay, so that its wall clock can be moved.
	Skewed bool
	// AcceptAfter is for how long the wall clocks must be ahead until Bin follows them, if it
	// was not built with what the product comes with; 0: it was.
	AcceptAfter time.Duration
	// OneVictim: all damage to files in this run is done to one node only, so that a system
	// that does not notice damage loses no majority of its replicas by it.
	OneVictim bool
	// Nodes is how many the cluster has, and replicas each stream: 3 or 5; 0: 3.
	Nodes int
	// Disk is what nodes have their files on; Lazyfs is the program of testenv/lazyfs, for Lazy and LazyNames.
	Disk   DiskKind
	Lazyfs string
	Log    func(format string, args ...any)
}

// Bounds of a Config.
const (
	MinRate = 1
	MaxRate = 20000
)

func (c *Config) validate() error {
	switch {
	case c.Rate < MinRate || c.Rate > MaxRate:
		return fmt.Errorf("rate %d: give %d to %d publishes a second", c.Rate, MinRate, MaxRate)
	case !slices.Contains(sizes(), c.Nodes):
		return fmt.Errorf("%d nodes: give one of %v", c.Nodes, sizes())
	case c.Length <= 0:
		return fmt.Errorf("length %v: give more than nothing", c.Length)
	}
	if len(c.Nemeses) == 0 {
		return nil // none, which is a run without faults
	}
	_, err := ParseNemeses(strings.Join(c.Nemeses, ","))
	return err
}

// StepReport is one step that ran.
type StepReport struct {
	Step  string `json:"step"`
	Begin Moment `json:"begin_ns"`
	End   Moment `json:"end_ns"`
	// Gap is the longest time in it without the ack of a publish.
	Gap Moment `json:"gap_ns"`
	// Failed: it could not be carried out to its end.
	Failed bool `json:"failed,omitempty"`
}

// Report is what a run gives.
type Report struct {
	Kind    Kind     `json:"kind"`
	Seed    uint64   `json:"seed"`
	Nodes   int      `json:"nodes"`
	Nemeses []string `json:"nemeses"`
	Disk    DiskKind `json:"disk"`
	// Steps ran, in this order; NotRun are nemeses that could not, and why.
	Steps  []StepReport      `json:"steps"`
	NotRun map[string]string `json:"not_run,omitempty"`
	Failed []string          `json:"failed,omitempty"` // steps that could not be carried out
	// LeftOut counts steps that need all other nodes, as they lose files of one or hold the others to a bound, and
	// came while another was not well;
	// LeftOutOf the same by nemesis.
	LeftOut   int            `json:"left_out,omitempty"`
	LeftOutOf map[string]int `json:"left_out_of,omitempty"`
	// Files counts what came of damage to files.
	Files harmTally `json:"files,omitzero"`
	// Broken are promises that a step saw broken.
	Broken []string `json:"broken,omitempty"`
	// Seconds is how long load and faults lasted; Rate the acked publishes per second.
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"acked_per_second"`
	// AckedAfterHeal are publishes acked after everything was repaired.
	AckedAfterHeal int `json:"acked_after_heal"`
	// Revived is how often a process that had ended by itself was started again, whatever it ended for. Ended are
	// ends that nothing explains, Crashed the places in logs that tell of a bug.
	Revived   int      `json:"revived"`
	Ended     []string `json:"ended,omitempty"`
	Crashed   []string `json:"crashed,omitempty"`
	Strangers uint64   `json:"strangers"`
	Verdict   *Verdict `json:"verdict"`
}

// size is the number of nodes; reports of before it was noted are of clusters of the usual size.
func (r *Report) size() int { return cmp.Or(r.Nodes, sizes()[0]) }

// Problems are those of the verdict and of the run itself.
func (r *Report) Problems() []Problem {
	out := r.Verdict.Problems(r.Kind)
	if len(r.Nemeses) > 0 && len(r.Steps) == 0 {
		out = append(out, Problem{"no fault was carried out, so nothing was tested", Finding{Count: 1}})
	}
	if r.Verdict.Unready == "" && r.AckedAfterHeal == 0 {
		out = append(out, Problem{"nothing was acked after everything was repaired", Finding{Count: 1}})
	}
	for _, found := range []struct {
		what  string
		cases []string
	}{
		{"promises broken during a fault", r.Broken},
		{"steps that could not be carried out", r.Failed},
		{"processes that ended by themselves, for no fault", r.Ended},
		{"crashes in the logs", r.Crashed},
	} {
		if n := len(found.cases); n > 0 {
			out = append(out, Problem{found.what, Finding{Count: n, Examples: found.cases[:min(n, examples)]}})
		}
	}
	return out
}

// Run runs the workload under the plan of the seed, and judges what clients saw. An
// error means that there is nothing to judge.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg.Nodes = cmp.Or(cfg.Nodes, sizes()[0])
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := &Report{
		Kind: cfg.Kind, Seed: cfg.Seed, Nodes: cfg.Nodes, Nemeses: cfg.Nemeses,
		NotRun: map[string]string{}, LeftOutOf: map[string]int{},
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	lacking := ""
	if err := cfg.canMount(ctx); err != nil {
		lacking, cfg.Disk = err.Error(), Plain
	}
	r.Disk = cfg.Disk
	names := r.runnable(cfg, lacking)
	c, err := newCluster(ctx, cfg)
	if err != nil {
		return nil, err
	}
	err = r.run(ctx, c, cfg, NewPlan(cfg.Seed, names, cfg.Nodes, maxSteps))
	err = errors.Join(err, c.Close())
	r.Revived, r.Strangers, r.Ended = c.Revived, c.Net.Unknown(), c.Ended
	if cfg.Kind.Ours() {
		var failed error
		r.Crashed, failed = c.crashes()
		err = errors.Join(err, failed)
	}
	return r, err
}

// runnable leaves out, with the reason, what cannot run; lacking says why there are no disks.
func (r *Report) runnable(cfg Config, lacking string) []string {
	all := nemeses()
	return slices.DeleteFunc(slices.Clone(cfg.Nemeses), func(name string) bool {
		n := all[baseOf(name)]
		why := n.missing
		if n.disk && why == "" {
			why = lacking
		}
		if n.wall && why == "" && !cfg.Skewed {
			why = "needs a build whose wall clock can be moved"
		}
		if n.slow && why == "" && !r.Disk.Lazy() {
			why = "needs disks of testenv/lazyfs"
		}
		if why != "" {
			r.NotRun[name] = why
		} else if why := foreign(cfg.Kind, name); why != "" { // it stays in the plan, which is the same for all
			r.NotRun[name] = why
		}
		return why != ""
	})
}

// foreign says why a fault is not run on a system; empty: it is.
func foreign(kind Kind, name string) string {
	switch {
	case kind.Ours():
		return ""
	case name == "clock"+variantSep+clockCorrect, name == "clock"+variantSep+clockAccept:
		return "its only clocks are those of the machines"
	case oldFile(name) != "":
		return "it has no such file"
	default:
		return nemeses()[baseOf(name)].foreign
	}
}

// unreached says of which faults of the set there was no step.
func (r *Report) unreached() {
	done := make(map[string]bool)
	for fault := range r.gaps() {
		done[fault], done[baseOf(fault)] = true, true
	}
	for _, name := range r.Nemeses {
		if !done[name] && r.NotRun[name] == "" {
			r.NotRun[name] = "the time was over before its turn"
		}
	}
}

func (r *Report) run(ctx context.Context, c *Cluster, cfg Config, plan []Step) error {
	if err := boot(ctx, c, cfg.Length+ageSlack); err != nil {
		return err
	}
	h := newHistory()
	c.onHold = h.hold
	l, err := startLoad(ctx, c, h, cfg.Rate, cfg.Seed)
	if err != nil {
		return err
	}
	defer l.close()
	w := &world{c: c, h: h, acceptAfter: cmp.Or(cfg.AcceptAfter, acceptAfter), say: func(format string, args ...any) {
		cfg.Log("%8v  %s", h.now().Round(time.Millisecond), fmt.Sprintf(format, args...))
	}}
	if err := r.faults(ctx, w, cfg, plan); err != nil {
		return err
	}
	r.unreached()
	r.Seconds = h.now().Seconds()
	_, acked := h.counts()
	r.Rate = float64(acked) / r.Seconds
	if err := r.finish(ctx, w, l); err != nil {
		return err
	}
	cfg.Log("judging %d publishes", len(h.Publishes))
	r.Verdict, r.Broken, r.Files = Check(h), w.found, w.harm
	return nil
}

func boot(ctx context.Context, c *Cluster, age time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.StartAll(); err != nil {
		return err
	}
	if err := c.WaitReady(ctx); err != nil {
		return fmt.Errorf("the cluster does not come up: %w", err)
	}
	return createStreams(ctx, c, age)
}

// faults carries out the plan until the time is over.
func (r *Report) faults(ctx context.Context, w *world, cfg Config, plan []Step) error {
	all, only := nemeses(), -1
	for i, s := range plan {
		if why := foreign(cfg.Kind, s.fault()); why != "" {
			w.say("step %d: %s is not run here: %s", i+1, s.Name, why)
			continue
		}
		if all[s.Name].takes && cfg.OneVictim {
			if only < 0 {
				only = s.Order[0]
			}
			s = s.on(only)
		}
		if w.h.now()+s.Quiet >= cfg.Length {
			break
		}
		if err := hold(ctx, s.Quiet); err != nil {
			return err
		}
		sent, acked := w.h.counts()
		w.say("step %d: %s (%d sent, %d acked)", i+1, s, sent, acked)
		if (all[s.Name].takes || all[s.Name].alone) && !w.well(ctx) {
			w.say("step %d left out: it needs every other node, and not every one is well", i+1)
			r.LeftOut++
			r.LeftOutOf[s.Name]++
			continue
		}
		begin := w.h.now()
		err := all[s.Name].run(ctx, w, s)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			w.say("step %d failed: %v", i+1, err)
			r.Failed = append(r.Failed, fmt.Sprintf("%d, %s: %v", i+1, s.Name, err))
		}
		end := w.h.now()
		r.Steps = append(r.Steps, StepReport{
			Step: s.String(), Begin: begin, End: end, Gap: w.h.gap(begin, end), Failed: err != nil,
		})
		if err := w.c.Repair(); err != nil {
			return err
		}
	}
	return hold(ctx, cfg.Length-w.h.now())
}

// patiently bounds a part of the end: shortly, if the cluster did not come back anyway.
func (w *world) patiently(ctx context.Context, d time.Duration, f func(ctx context.Context) error) error {
	if w.h.Unready != "" {
		d = min(d, impatience)
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}

// finish repairs everything and reads everything back, through every node.
func (r *Report) finish(ctx context.Context, w *world, l *load) error {
	w.say("repairing everything")
	if err := w.c.Repair(); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	if err := w.c.WaitReady(wait); err != nil {
		w.h.unready(err)
		w.say("not ready: %v", err)
	}
	_, before := w.h.counts()
	if err := hold(ctx, afterHeal); err != nil {
		return err
	}
	l.stopWriting()
	_, after := w.h.counts()
	r.AckedAfterHeal = after - before
	w.say("draining the work queue")
	if err := w.patiently(ctx, drainTimeout, func(ctx context.Context) error { return drain(ctx, w.c) }); err != nil {
		w.say("draining: %v", err)
	} else {
		w.h.Drained = true
	}
	l.close()
	for _, n := range w.c.Nodes {
		w.say("reading everything through %s", n.ID)
		err := w.patiently(ctx, readTimeout, func(ctx context.Context) error {
			reads, err := readThrough(ctx, w.c, n)
			w.h.Reads = append(w.h.Reads, reads...)
			return err
		})
		if err != nil {
			w.h.unready(err)
			w.say("%v", err)
		}
	}
	w.h.Replicas = w.c.replicas()
	err := w.patiently(ctx, hashTimeout, func(ctx context.Context) (err error) {
		w.h.Hashes, err = hashes(ctx, w.c)
		return err
	})
	if err != nil {
		w.say("comparing replicas: %v", err)
		w.h.unready(err)
	}
	return ctx.Err()
}
