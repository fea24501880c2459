package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
)

// process is one node in a process of its own, of this same program.
type process struct {
	id   string
	dir  string // holds data/ and log
	args []string

	client, admin string // addresses

	now atomic.Pointer[running] // nil before the first start
}

// running is one life of a process.
type running struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended; then err says how
	err    error
}

func (p *process) logFile() string { return filepath.Join(p.dir, "log") }

// start starts the process; what it logs is added to its log file.
func (p *process) start(ctx context.Context, program string) error {
	if err := os.MkdirAll(p.dir, 0o750); err != nil {
		return err
	}
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// Not bound to ctx: it is ended by stop or kill, which wait for it.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, p.args...) //nolint:gosec // this program
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, plainEnvironment()
	cmd.SysProcAttr = processAttributes()
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.id, err), log.Close())
	}
	r := &running{cmd: cmd, exited: make(chan struct{})}
	p.now.Store(r)
	go func() {
		defer close(r.exited)
		r.err = errors.Join(cmd.Wait(), log.Close())
	}()
	return nil
}

// plainEnvironment is the environment without settings of a node.
func plainEnvironment() []string {
	var out []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HOLDFAST_") {
			out = append(out, v)
		}
	}
	return out
}

// alive returns the present life of the process; nil if it was not started or has ended.
func (p *process) alive() *running {
	r := p.now.Load()
	if r == nil {
		return nil
	}
	select {
	case <-r.exited:
		return nil
	default:
		return r
	}
}

// kill ends the process as a crash would (SIGKILL) and waits for its end.
func (p *process) kill() error {
	r := p.alive()
	if r == nil {
		return fmt.Errorf("%s does not run", p.id)
	}
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.id, err)
	}
	<-r.exited
	return nil
}

// stop ends the process in order (SIGTERM), or as kill does when ctx ends. An exit
// code other than 0 is an error.
func (p *process) stop(ctx context.Context) error {
	r := p.alive()
	if r == nil {
		return nil
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.id, err)
	}
	select {
	case <-r.exited:
		if r.err != nil {
			return fmt.Errorf("%s: %w; its log is %s", p.id, r.err, p.logFile())
		}
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s did not stop in time", p.id), p.kill())
	}
}
