package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

// tester is the running tester.
type tester struct {
	cmd *exec.Cmd
	dir string
	url string
	nc  *nats.Conn
}

// startTester starts the tester with its state in a new directory.
func startTester(ctx context.Context, o *options, bin string) (*tester, error) {
	dir, err := os.MkdirTemp(o.state, "holdfast-conformance-")
	if err != nil {
		return nil, err
	}
	t := &tester{dir: dir}
	args := []string{"-dir", dir, "-servers", o.servers}
	if o.verbose {
		args = append(args, "-v")
	}
	t.cmd = exec.CommandContext(ctx, bin, args...)
	t.cmd.Cancel = func() error { return t.cmd.Process.Signal(syscall.SIGTERM) }
	t.cmd.WaitDelay = testerGrace
	log, err := os.Create(filepath.Join(o.cache, "tester.log"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer log.Close()
	t.cmd.Stderr = log
	out, err := t.cmd.StdoutPipe()
	if err == nil {
		err = t.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := t.connect(out); err != nil {
		t.stop()
		return nil, fmt.Errorf("tester: %w (see %s)", err, log.Name())
	}
	return t, nil
}

const (
	testerGrace = 20 * time.Second
	askTimeout  = 30 * time.Second
)

func (t *tester) connect(out io.Reader) error {
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("did not say where it listens: %w", err)
	}
	t.url = strings.TrimSpace(line)
	t.nc, err = nats.Connect(t.url)
	return err
}

func (t *tester) stop() {
	if t.nc != nil {
		t.nc.Close()
	}
	_ = t.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = t.cmd.Wait()
	if err := os.RemoveAll(t.dir); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
}

// ask sends a request to the tester.
func (t *tester) ask(endpoint string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	m, err := t.nc.Request("tester."+endpoint, body, askTimeout)
	if err != nil {
		return fmt.Errorf("tester.%s: %w", endpoint, err)
	}
	if code := m.Header.Get("Nats-Service-Error-Code"); code != "" {
		return fmt.Errorf("tester.%s: %s %s", endpoint, code, m.Header.Get("Nats-Service-Error"))
	}
	return json.Unmarshal(m.Data, response)
}

// reap destroys the instances that a test left behind, as one that panics does. They bear its name.
func (t *tester) reap(test string) error {
	var list struct {
		Instances []struct {
			ID          string `json:"id"`
			Description string `json:"description"`
		} `json:"instances"`
	}
	if err := t.ask("list", struct{}{}, &list); err != nil {
		return err
	}
	var errs []error
	for _, in := range list.Instances {
		if in.Description == test || strings.HasPrefix(in.Description, test+"/") {
			errs = append(errs, t.destroy(in.ID))
		}
	}
	return errors.Join(errs...)
}

func (t *tester) destroy(instance string) error {
	var gone struct{}
	return t.ask("destroy", map[string]string{"instance_id": instance}, &gone)
}
