package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/holdfast-mq/holdfast/testenv/jepsen"
)

// cli is the command line.
type cli struct {
	System  []string `default:"holdfast" help:"Systems: holdfast, holdfast-leader, holdfast-none, default, always."`
	Seed    []uint64 `default:"0" env:"SEED" help:"Seeds of plans, a run for each; 0: one that is chosen, and printed."`
	Nodes   int      `default:"3" help:"Nodes of a cluster, and replicas of a stream: 3 or 5."`
	Seeds   int      `default:"1" help:"So many seeds in a row from each of them on."`
	Minutes float64  `default:"3" env:"MINUTES" help:"How long load and faults last."`
	Nemesis string   `default:"" help:"Faults, with :VARIANT or not; empty: the common ones; all; none; help lists them."`
	MustRun string   `placeholder:"FAULTS" help:"Fail if one of these faults was in no run of Holdfast; all: of the set."`
	Rate    int      `default:"300" help:"Publishes per second of all writers together."`
	Disk    string   `default:"lazy" help:"Disk of a node: lazy (testenv/lazyfs), lazy-names, loop (ext4, root) or none."`

	From   []string      `placeholder:"FILE" help:"Run nothing: merge reports; the later counts of two of one plan."`
	JSON   string        `name:"json" placeholder:"FILE" help:"Write the reports there, after each run."`
	Update string        `placeholder:"FILE" help:"Replace the table between the markers of this document."`
	Root   string        `default:"." type:"existingdir" help:"Directory of the module."`
	Dir    string        `placeholder:"DIR" help:"Where nodes keep files and logs (default: bin/jepsen of the module)."`
	Keep   bool          `help:"Keep files and logs of a good run, too."`
	Accept time.Duration `name:"clock-accept-after" help:"Build Holdfast to follow wall clocks after that, not ten minutes."`
	Tags   []string      `help:"Build tags of Holdfast."`
	Arg    []string      `name:"holdfast-arg" sep:"none" placeholder:"FLAG" help:"Flag of holdfast serve, repeatable."`
}

func main() {
	var c cli
	kong.Parse(&c, kong.Name("jepsen"), kong.UsageOnError(),
		kong.Description("Jepsen's JetStream workload, on Holdfast and on nats-server."))
	base := context.Background()
	ctx, stop := signal.NotifyContext(base, os.Interrupt, syscall.SIGTERM)
	err := c.run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "jepsen:", err)
		os.Exit(1)
	}
}

// errBad says that Holdfast showed what must not be.
var errBad = errors.New("holdfast broke a promise")

func (c *cli) run(ctx context.Context, out io.Writer) error {
	if c.Nemesis == "help" {
		all := jepsen.Describe()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			say(out, "%-12s %s", name, all[name])
		}
		return nil
	}
	names, err := jepsen.ParseNemeses(c.Nemesis)
	if err != nil {
		return err
	}
	must, err := jepsen.ParseMustRun(c.MustRun, names)
	if err != nil {
		return err
	}
	seeds, err := c.seeds()
	if err != nil {
		return err
	}
	if c.Dir == "" {
		c.Dir = filepath.Join(c.Root, "bin", "jepsen")
	}
	if len(c.From) > 0 {
		reports, err := c.reread(out)
		return errors.Join(err, missed(reports, must))
	}
	reports, err := c.all(ctx, out, seeds, names)
	return errors.Join(err, missed(reports, must))
}

// errMissed says that a run shows nothing of faults that it must have met.
var errMissed = errors.New("holdfast did not meet faults that must run")

func missed(reports []*jepsen.Report, must []string) error {
	if list := jepsen.Unrun(reports, jepsen.Holdfast, must); len(list) > 0 {
		return fmt.Errorf("%w: %s", errMissed, strings.Join(list, ", "))
	}
	return nil
}

// seeds are those to run.
func (c *cli) seeds() ([]uint64, error) {
	if c.Seeds < 1 {
		return nil, fmt.Errorf("--seeds %d: give 1 or more", c.Seeds)
	}
	var out []uint64
	for _, first := range c.Seed {
		if first == 0 {
			first = uint64(time.Now().UnixNano())
		}
		for k := range c.Seeds {
			out = append(out, first+uint64(k))
		}
	}
	return out, nil
}

// all makes the runs, the systems in turn under each seed. One that cannot be made does not keep the
// others; a signal does.
func (c *cli) all(ctx context.Context, out io.Writer, seeds []uint64, names []string) ([]*jepsen.Report, error) {
	var reports []*jepsen.Report
	var failed []error
	for _, seed := range seeds {
		for _, system := range c.System {
			dir := filepath.Join(c.Dir, system)
			if len(seeds) > 1 {
				dir += fmt.Sprintf("-%d", seed)
			}
			r, err := c.one(ctx, out, run{jepsen.Kind(system), seed, names, dir})
			if err != nil {
				failed = append(failed, fmt.Errorf("%s, seed %d: %w", system, seed, err))
				say(out, "FAILED: %s, seed %d: %v", system, seed, err)
			} else {
				say(out, "\n%s", r.Text())
				reports = append(reports, r)
				if r.Kind.Ours() && len(r.Problems()) > 0 {
					failed = append(failed, fmt.Errorf("%w; files and logs are in %s, and --seed %d replays the plan",
						errBad, dir, seed))
				}
			}
			if err := errors.Join(ctx.Err(), c.keep(reports)); err != nil {
				return reports, errors.Join(append(failed, err)...)
			}
		}
	}
	return reports, errors.Join(append(failed, c.write(out, reports))...)
}

// run is one run of one system.
type run struct {
	kind  jepsen.Kind
	seed  uint64
	names []string
	dir   string
}

func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }

// one builds a system and runs it.
func (c *cli) one(ctx context.Context, out io.Writer, what run) (*jepsen.Report, error) {
	dir, err := filepath.Abs(what.dir)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, err
	}
	say(out, "%s, %d nodes, seed %d, %.1f minutes: %s", what.kind, c.Nodes, what.seed, c.Minutes,
		strings.Join(what.names, ","))
	cfg := jepsen.Config{
		Kind: what.kind, Dir: dir, Seed: what.seed, Length: time.Duration(c.Minutes * float64(time.Minute)), Nodes: c.Nodes,
		Nemeses: what.names, Rate: c.Rate, Disk: jepsen.DiskKind(c.Disk), AcceptAfter: c.Accept,
		OneVictim: slices.ContainsFunc(c.System, func(s string) bool { return !jepsen.Kind(s).Ours() }),
		Log:       func(format string, args ...any) { say(out, format, args...) },
	}
	if err := c.build(ctx, &cfg, slices.ContainsFunc(what.names, jepsen.MovesClocks)); err != nil {
		return nil, err
	}
	r, err := jepsen.Run(ctx, cfg)
	if err == nil && !c.Keep && len(r.Problems()) == 0 {
		err = os.RemoveAll(dir)
	}
	return r, err
}

// build makes the programs of a run; skewed: the wall clock of the system's can be moved.
func (c *cli) build(ctx context.Context, cfg *jepsen.Config, skewed bool) (err error) { //nolint:revive // as said
	var flags, env []string
	compile := func(module, pkg string) (string, error) {
		file := filepath.Join(cfg.Dir, filepath.Base(pkg))
		cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", file}, flags...), ".")...)
		cmd.Dir = filepath.Join(c.Root, module, pkg)
		if len(env) > 0 {
			cmd.Env = append(os.Environ(), env...)
		}
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w: %s", pkg, err, text)
		}
		return file, nil
	}
	if cfg.Disk.Lazy() {
		if cfg.Lazyfs, err = compile("testenv", "lazyfs"); err != nil {
			cfg.Log("%v", err) // what needs it is reported as not run
		}
	}
	if skewed {
		overlay, err := jepsen.Overlay(ctx, cfg.Dir, c.Root, c.Accept)
		if err != nil {
			cfg.Log("%v", err)
		} else { // everything is compiled anew, once; without C that takes half as long
			cfg.Skewed, flags, env = true, []string{"-overlay", overlay}, []string{"CGO_ENABLED=0"}
		}
	}
	if !cfg.Kind.Ours() {
		cfg.Bin, err = compile("testenv/bench", "natsserver")
		return err
	}
	cfg.Args = c.Arg
	if len(c.Tags) > 0 {
		flags = append(flags, "-tags", strings.Join(c.Tags, ","))
	}
	cfg.Bin, err = compile("", filepath.Join("cmd", "holdfast"))
	return err
}

// reread makes the comparison of reports that were written earlier.
func (c *cli) reread(out io.Writer) ([]*jepsen.Report, error) {
	var lists [][]*jepsen.Report
	for _, file := range c.From {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var list []*jepsen.Report
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		lists = append(lists, list)
	}
	reports := jepsen.Merge(lists...)
	return reports, errors.Join(c.keep(reports), c.write(out, reports))
}

// keep writes the reports that there are, if that was asked for.
func (c *cli) keep(reports []*jepsen.Report) error {
	if c.JSON == "" {
		return nil
	}
	text, err := json.MarshalIndent(reports, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.JSON, text, 0o600)
}

// write prints the comparison, if there is one, and puts it where that was asked for.
func (c *cli) write(out io.Writer, reports []*jepsen.Report) error {
	table := jepsen.Table(reports)
	if len(reports) > 1 {
		say(out, "\n%s", table)
	}
	if c.Update != "" {
		return jepsen.Update(c.Update, table)
	}
	return nil
}
