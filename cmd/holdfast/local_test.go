package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLocalCluster runs three real processes: they find each other, one of them is
// killed and comes back, and all of them stop in order.
func TestLocalCluster(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	each := make([]ports, localNodes)
	for i := range each {
		var err error
		if each[i], err = freePorts(ctx); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	c, err := newLocalCluster(dir, "lan", each)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := c.start(ctx); err != nil {
		t.Fatal(err)
	}
	leader := c.leader(ctx)
	if leader == nil {
		t.Fatal("ready without a leader")
	}
	if err := leader.kill(); err != nil {
		t.Fatal(err)
	}
	if err := leader.kill(); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("a second kill: %v", err)
	}
	for next := leader; next == leader || next == nil; next = c.leader(ctx) {
		select {
		case <-time.After(localPoll):
		case <-ctx.Done():
			t.Fatal("nobody took over")
		}
	}
}

// TestDirectoryInUse: a second node on a directory waits for the first one, then
// is refused by its name, and the first one stops in order.
func TestDirectoryInUse(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	p, err := freePorts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c, err := newLocalCluster(dir, "lan", []ports{p})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := &process{id: "second", dir: filepath.Join(dir, "second"), args: c.nodes[0].args}
	if err := second.start(t.Context(), c.program); err != nil {
		t.Fatal(err)
	}
	r := second.now.Load()
	<-r.exited
	b, err := os.ReadFile(second.logFile())
	if err != nil {
		t.Fatal(err)
	}
	var code interface{ ExitCode() int }
	want := "is in use by process"
	if !errors.As(r.err, &code) || code.ExitCode() != exitUsage || !strings.Contains(string(b), want) ||
		!strings.Contains(string(b), "--data-dir") {
		t.Errorf("%v: %s", r.err, b)
	}
	// The files of a running node are nobody else's.
	data := filepath.Join(c.nodes[0].dir, "data")
	if code, _, errs := try(t, "check", data); code != exitUsage || !strings.Contains(errs, want) {
		t.Errorf("check of a running node: %d %s", code, errs)
	}
	if err := c.stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	checkStopped(t, data)
}

// checkStopped verifies the files that a node left, and that damage is found in them.
func checkStopped(t *testing.T, data string) {
	t.Helper()
	code, out, errs := try(t, "check", data)
	if code != exitOK || !strings.Contains(out, "node n1, cluster ") ||
		!strings.Contains(out, "group 0: ok: log 1..") ||
		!strings.Contains(out, "group 1: ok: log 1..") {
		t.Errorf("check: %d %s %s", code, out, errs)
	}
	if code, out, errs := try(t, "dump", "--log", data); code != exitOK ||
		!strings.Contains(out, "entry 1 term 1") {
		t.Errorf("dump: %d %s %s", code, out, errs)
	}
	if code, _, errs := try(t, "dump", "--group", "2", data); code != exitUsage ||
		!strings.Contains(errs, "there are [0 1]") {
		t.Errorf("dump of group 2: %d %s", code, errs)
	}
	segments, err := filepath.Glob(filepath.Join(data, "groups", "1", "log", "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	f, err := os.OpenFile(segments[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0x55}, 100); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	code, out, errs = try(t, "check", data)
	if code != exitDamaged || !strings.Contains(out, "group 1: DAMAGED") ||
		!strings.Contains(out, segments[0]) ||
		!strings.Contains(out, "group 0: ok") || !strings.Contains(errs, "1 damaged") {
		t.Errorf("check of damage: %d %s %s", code, out, errs)
	}
}
