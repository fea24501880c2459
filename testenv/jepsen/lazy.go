package jepsen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// lazyDisk is a file system of testenv/lazyfs, whose process is told what to do.
type lazyDisk struct {
	cmd *exec.Cmd
	dir string

	mu     sync.Mutex // one command at a time
	in     io.WriteCloser
	out    *bufio.Reader
	closed bool
}

// newLazyDisk starts the program and returns when the file system is mounted at dir. With the flag --strict, names,
// too, are lost at a power cut unless their directory was synced.
func newLazyDisk(program, dir string, flags ...string) (*lazyDisk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, append(flags, dir)...) //nolint:noctx // the end of its input ends it
	d := &lazyDisk{dir: dir, cmd: cmd}
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who still unmount
	in, err := d.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.in, d.out = in, bufio.NewReader(out)
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if err := d.answer(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// tell gives one command.
func (d *lazyDisk) tell(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := fmt.Fprintf(d.in, format+"\n", args...); err != nil {
		return fmt.Errorf("lazyfs: %w", err)
	}
	return d.answer()
}

func (d *lazyDisk) answer() error {
	line, err := d.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("lazyfs: %w", err)
	}
	if line = strings.TrimSpace(line); line != "ok" {
		return fmt.Errorf("lazyfs: %s", line)
	}
	return nil
}

func (d *lazyDisk) cutPower(context.Context) error { return d.tell("cut") }

// fill allows what is used, and what is to be left.
func (d *lazyDisk) fill(left int64) error {
	u, err := usage(d.dir)
	if err != nil {
		return err
	}
	return d.tell("quota %d", max(u.used+left, 1))
}

func (d *lazyDisk) free() error {
	return errors.Join(d.tell("quota 0"), d.stall(0), d.tell("eio off"), d.tell("unhang"))
}

func (d *lazyDisk) stall(t time.Duration) error { return d.tell("delay %v", t) }

func (d *lazyDisk) fail(how failure) error { return d.tell("%s", how) }

func (d *lazyDisk) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	err := d.in.Close()
	return errors.Join(err, d.cmd.Wait())
}
