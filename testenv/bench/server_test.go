package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

func TestServersCPU(t *testing.T) {
	t.Parallel()
	c, err := process.StartChild(filepath.Join(t.TempDir(), "log"), nil, "/bin/sh", "-c", "exec sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	if cpu, err := serversCPU([]int{c.PID()}); err != nil || cpu > time.Minute {
		t.Errorf("%v, %v", cpu, err)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := serversCPU([]int{c.PID()}); err == nil {
		t.Error("the process is still there")
	}
}
