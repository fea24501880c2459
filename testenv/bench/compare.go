package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Markers enclose the report in a document; what is between them is replaced.
const (
	beginMarker = "<!-- bench-compare: begin (replaced by make bench-compare; do not edit) -->"
	endMarker   = "<!-- bench-compare: end -->"
)

// errFailed says that measurements have no numbers.
var errFailed = errors.New("measurements failed")

// compare runs the comparison and writes the report to out, progress to log.
func compare(ctx context.Context, c *Config, out, log io.Writer) (err error) {
	root, err := filepath.Abs(c.Root)
	if err != nil {
		return err
	}
	if c.Update != "" { // found out before the run and not after it
		if err := update(c.Update, nil); err != nil {
			return err
		}
	}
	dir, err := workDir(c, root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	h, err := describe(ctx, root, dir)
	if err != nil {
		return err
	}
	h.command = command(c)
	r := &runner{c: c, dir: dir, log: log}
	r.say("building\n")
	bin, err := build(ctx, root, dir)
	if err != nil {
		return err
	}
	l := &launcher{bin: bin, holdfastArgs: c.HoldfastArgs}
	r.launch, r.load = l.launch, jsbench(bin.jsbench)
	began := time.Now()
	runErr := r.run(ctx)
	h.took = time.Since(began)
	if len(r.done) == 0 {
		return runErr
	}
	if runErr != nil {
		c.Update = "" // a document should hold whole runs
	}
	return errors.Join(runErr, publish(c, report(c, h, r.done), r.done, out), judge(r.done))
}

// judge is an error if a measurement failed.
func judge(done []measurement) error {
	if failed := failures(done); failed != "" {
		return fmt.Errorf("%w:\n%s", errFailed, failed)
	}
	return nil
}

// workDir makes the directory of binaries and files of the servers.
func workDir(c *Config, root string) (string, error) {
	parent := c.Dir
	if parent == "" {
		parent = filepath.Join(root, "bin") // ignored by git, and surely on a disk if the module is
	}
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return "", err
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, "bench-")
}

// describe finds out what is compared, and on what.
func describe(ctx context.Context, root, dir string) (header, error) {
	fs, err := fileSystem(dir)
	if err != nil {
		return header{}, err
	}
	machine, err := shape(fs)
	if err != nil {
		return header{}, err
	}
	return header{
		holdfast: revision(ctx, root), natsServer: server.VERSION,
		goVersion: "Go " + strings.TrimPrefix(runtime.Version(), "go"), machine: machine, fileSystem: fs,
	}, nil
}

// revision is the commit of the module, with a mark if files differ from it.
func revision(ctx context.Context, root string) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*")
	cmd.Dir = root
	text, err := cmd.Output()
	if err != nil {
		return "of no known commit" // not a repository
	}
	return string(bytes.TrimSpace(text))
}

// command is what repeats the run.
func command(c *Config) string {
	var args []string
	if !slices.Equal(c.Nodes, sizes()) {
		args = append(args, "--nodes="+strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Nodes), " ", ","), "[]"))
	}
	if len(c.Work) > 0 {
		args = append(args, "--work="+strings.Join(c.Work, ","))
	}
	for _, a := range c.HoldfastArgs {
		args = append(args, "--holdfast-arg="+a)
	}
	s := fmt.Sprintf("make bench-compare ROUNDS=%d SCALE=%g", c.Rounds, c.Scale)
	if len(args) > 0 {
		s += ` ARGS="` + strings.Join(args, " ") + `"`
	}
	return s
}

// publish writes the report and the measurements where the configuration wants them.
func publish(c *Config, text string, done []measurement, out io.Writer) error {
	_, err := io.WriteString(out, text)
	errs := []error{err}
	if c.Out != "" {
		errs = append(errs, os.WriteFile(c.Out, []byte(text), 0o600))
	}
	if c.JSON != "" {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		for i := range done {
			errs = append(errs, enc.Encode(&done[i]))
		}
		errs = append(errs, os.WriteFile(c.JSON, b.Bytes(), 0o600))
	}
	if c.Update != "" {
		errs = append(errs, update(c.Update, []byte(text)))
	}
	return errors.Join(errs...)
}

// update replaces what is between the markers of a document; with no text it only looks whether it could.
func update(file string, text []byte) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	doc, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	fresh, err := between(doc, text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if text == nil {
		return nil
	}
	return os.WriteFile(file, fresh, info.Mode())
}

// between puts text between the markers of a document.
func between(doc, text []byte) ([]byte, error) {
	for _, m := range []string{beginMarker, endMarker} {
		if n := bytes.Count(doc, []byte(m)); n != 1 {
			return nil, fmt.Errorf("has the line %q %d times, want once", m, n)
		}
	}
	before, rest, _ := bytes.Cut(doc, []byte(beginMarker))
	_, after, ok := bytes.Cut(rest, []byte(endMarker))
	if !ok {
		return nil, fmt.Errorf("has the line %q before %q", endMarker, beginMarker)
	}
	gap := []byte("\n\n")
	parts := [][]byte{before, []byte(beginMarker), gap, bytes.TrimSpace(text), gap, []byte(endMarker), after}
	return bytes.Join(parts, nil), nil
}
