package differential

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Suite runs the scripts of several seeds.
type Suite struct {
	// Seeds are run in order.
	Seeds []uint64
	// Steps of each. Default DefaultSteps.
	Steps int
	// Dir is for the data of both servers and for the scripts that differ.
	Dir string
	// Out is written for people.
	Out io.Writer
	// ShrinkFor bounds the time to shrink one difference; 0 does not shrink.
	ShrinkFor time.Duration
	// Verbose tells every step.
	Verbose bool
}

// DefaultSteps is the number of operations of a script, and FullRun the number of seeds from which on every entry
// of the list of explained differences must be seen.
const (
	DefaultSteps = 250
	FullRun      = 20
)

// meantSeed stands for the script that full runs begin with: what is meant to differ and rare.
const meantSeed = 0

// Run runs them and returns how many ended with a difference that nothing explains, or with an entry of the list
// that a full run did not see.
func (s *Suite) Run(ctx context.Context) (failures int, err error) {
	if s.Steps == 0 {
		s.Steps = DefaultSteps
	}
	out := &teller{w: s.Out}
	err = s.with(ctx, func(p *Pair) error {
		seen := make(map[string]int)
		steps := 0
		seeds := s.Seeds
		if len(seeds) >= FullRun {
			seeds = append([]uint64{meantSeed}, seeds...)
		}
		for _, seed := range seeds {
			res, err := s.seed(ctx, p, seed, out)
			if err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
			steps += len(res.Script)
			for name, n := range res.Explained {
				seen[name] += n
			}
			if len(res.Diffs) > 0 {
				failures++
			}
		}
		out.printf("%d seeds, %d steps, %d with unexplained differences\n", len(s.Seeds), steps, failures)
		for _, name := range slices.Sorted(maps.Keys(seen)) {
			out.printf("  explained %d times: %s\n", seen[name], name)
		}
		if len(s.Seeds) >= FullRun {
			failures += unseen(seen, out)
		}
		return nil
	})
	return failures, errors.Join(err, out.err)
}

// Replay runs a script from a file and returns how many differences nothing explains.
func (s *Suite) Replay(ctx context.Context, path string) (failures int, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	script, err := ParseScript(b)
	if err != nil {
		return 0, err
	}
	out := &teller{w: s.Out}
	err = s.with(ctx, func(p *Pair) error {
		res, err := p.Replay(ctx, script, s.options(out))
		if err != nil {
			return err
		}
		for i := range res.Diffs {
			out.printf("step %d: %s\n", res.Diffs[i].Step, &res.Diffs[i])
		}
		failures = len(res.Diffs)
		out.printf("%d steps, %d differences\n", len(res.Script), failures)
		return nil
	})
	return failures, errors.Join(err, out.err)
}

// with runs f on a pair of servers, which it starts and stops.
func (s *Suite) with(ctx context.Context, f func(*Pair) error) error {
	p, err := Start(ctx, s.Dir)
	if err != nil {
		return err
	}
	err = f(p)
	return errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
}

func (s *Suite) options(out *teller) Options {
	var opts Options
	if s.Verbose {
		opts.Trace = func(step int, op Op) { out.printf("  %3d %s\n", step, op) }
	}
	return opts
}

// seed runs the script of one seed and tells how it went.
func (s *Suite) seed(ctx context.Context, p *Pair, seed uint64, out *teller) (*Result, error) {
	begin := time.Now()
	script := generate(seed, s.Steps)
	if seed == meantSeed {
		script = meant().source()
	}
	res, err := p.run(ctx, script, s.options(out))
	if err != nil {
		return nil, err
	}
	if len(res.Diffs) > 0 {
		return res, s.report(ctx, p, seed, res, out)
	}
	out.printf("seed %d: %d steps, %.1f s, same\n", seed, len(res.Script), time.Since(begin).Seconds())
	return res, nil
}

// unseen tells of entries of the list that are not needed any more, and counts them.
func unseen(seen map[string]int, out *teller) int {
	n := 0
	for _, e := range explanations {
		if seen[e.name] == 0 {
			out.printf("never seen, remove it from explained_table.go: %s\n", e.name)
			n++
		}
	}
	return n
}

// report tells of a difference, shrunk, and keeps the script.
func (s *Suite) report(ctx context.Context, p *Pair, seed uint64, res *Result, out *teller) error {
	out.printf("seed %d: DIFFERENT at step %d: %s\n", seed, len(res.Script), res.Script[len(res.Script)-1])
	out.diffs(res.Diffs)
	if s.ShrinkFor > 0 {
		res = p.Shrink(ctx, res, s.options(out), s.ShrinkFor)
		out.printf(" shrunk to %d steps:\n", len(res.Script))
		for i, op := range res.Script {
			out.printf("  %3d %s\n", i+1, op)
		}
		out.diffs(res.Diffs)
	}
	lines, err := res.Script.MarshalLines()
	if err != nil {
		return err
	}
	path := filepath.Join(s.Dir, fmt.Sprintf("seed-%d.jsonl", seed))
	out.printf(" script: %s (run it with -replay)\n", path)
	return os.WriteFile(path, lines, 0o600)
}

// teller writes for people and keeps the first error of it.
type teller struct {
	w   io.Writer
	err error
}

func (t *teller) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

func (t *teller) diffs(diffs []Diff) {
	for i := range diffs {
		t.printf("  %s\n", &diffs[i])
	}
}
