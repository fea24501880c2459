package differential

import (
	"context"
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

// Run runs them and returns how many ended with a difference that nothing explains, or with an entry of the list
// that a full run did not see.
func (s *Suite) Run(ctx context.Context) (failures int, err error) {
	if s.Steps == 0 {
		s.Steps = DefaultSteps
	}
	p, err := Start(ctx, s.Dir)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := p.Stop(context.WithoutCancel(ctx)); err == nil {
			err = e
		}
	}()
	seen := make(map[string]int)
	steps := 0
	for _, seed := range s.Seeds {
		begin := time.Now()
		res, err := p.run(ctx, generate(seed, s.Steps), s.options())
		if err != nil {
			return failures, fmt.Errorf("seed %d: %w", seed, err)
		}
		steps += len(res.Script)
		for name, n := range res.Explained {
			seen[name] += n
		}
		if len(res.Diffs) > 0 {
			failures++
			if err := s.report(ctx, p, seed, res); err != nil {
				return failures, err
			}
			continue
		}
		fmt.Fprintf(s.Out, "seed %d: %d steps, %.1f s, same\n", seed, len(res.Script), time.Since(begin).Seconds())
	}
	fmt.Fprintf(s.Out, "%d seeds, %d steps, %d with unexplained differences\n", len(s.Seeds), steps, failures)
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		fmt.Fprintf(s.Out, "  explained %d times: %s\n", seen[name], name)
	}
	if len(s.Seeds) >= FullRun {
		failures += s.unseen(seen)
	}
	return failures, nil
}

func (s *Suite) options() Options {
	var opts Options
	if s.Verbose {
		opts.Trace = func(step int, op Op) { fmt.Fprintf(s.Out, "  %3d %s\n", step, op) }
	}
	return opts
}

// unseen tells of entries of the list that are not needed any more.
func (s *Suite) unseen(seen map[string]int) int {
	n := 0
	for _, e := range explanations() {
		if seen[e.name] == 0 {
			fmt.Fprintf(s.Out, "never seen, remove it from explained.go: %s\n", e.name)
			n++
		}
	}
	return n
}

// report tells of a difference, shrunk, and keeps the script.
func (s *Suite) report(ctx context.Context, p *Pair, seed uint64, res *Result) error {
	fmt.Fprintf(s.Out, "seed %d: DIFFERENT at step %d: %s\n", seed, len(res.Script), res.Script[len(res.Script)-1])
	for i := range res.Diffs {
		fmt.Fprintf(s.Out, "  %s\n", &res.Diffs[i])
	}
	if s.ShrinkFor > 0 {
		res = p.Shrink(ctx, res, s.options(), s.ShrinkFor)
		fmt.Fprintf(s.Out, " shrunk to %d steps:\n", len(res.Script))
		for i, op := range res.Script {
			fmt.Fprintf(s.Out, "  %3d %s\n", i+1, op)
		}
		for i := range res.Diffs {
			fmt.Fprintf(s.Out, "  %s\n", &res.Diffs[i])
		}
	}
	lines, err := res.Script.MarshalLines()
	if err != nil {
		return err
	}
	path := filepath.Join(s.Dir, fmt.Sprintf("seed-%d.jsonl", seed))
	fmt.Fprintf(s.Out, " script: %s (run it with -replay)\n", path)
	return os.WriteFile(path, lines, 0o600)
}

// Replay runs a script from a file.
func (s *Suite) Replay(ctx context.Context, path string) (failures int, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	script, err := ParseScript(b)
	if err != nil {
		return 0, err
	}
	p, err := Start(ctx, s.Dir)
	if err != nil {
		return 0, err
	}
	res, err := p.Replay(ctx, script, s.options())
	if err == nil {
		for i := range res.Diffs {
			fmt.Fprintf(s.Out, "step %d: %s\n", res.Diffs[i].Step, &res.Diffs[i])
		}
		failures = len(res.Diffs)
		fmt.Fprintf(s.Out, "%d steps, %d differences\n", len(res.Script), failures)
	}
	if e := p.Stop(context.WithoutCancel(ctx)); err == nil {
		err = e
	}
	return failures, err
}
