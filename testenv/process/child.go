package process

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Child is a process that does not outlive this one.
type Child struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// StartChild starts a program; what it writes is appended to the file log. env are
// further variables of its environment.
func StartChild(log string, env []string, bin string, args ...string) (*Child, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the child has its own
	c := &Child{log: log, done: make(chan struct{})}
	c.cmd = exec.Command(bin, args...) //nolint:noctx // Signal ends it
	c.cmd.Stdout, c.cmd.Stderr = f, f
	if len(env) > 0 {
		c.cmd.Env = append(os.Environ(), env...)
	}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig comes when the thread that started the child ends, so that thread is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// PID is the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Running says whether the process lives.
func (c *Child) Running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// ExitCode is what the process ended with; -1 if it still runs, or a signal ended it.
func (c *Child) ExitCode() int {
	if c.Running() {
		return -1
	}
	return c.cmd.ProcessState.ExitCode()
}

// Signal sends a signal; a process that has ended already is no error.
func (c *Child) Signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (c *Child) Kill() error {
	if err := c.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.done
	return nil
}

// Log is the file that what the process writes goes to.
func (c *Child) Log() string { return c.log }

// Tail returns the end of what the process wrote, at most n bytes.
func (c *Child) Tail(n int) string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-n):])
}
