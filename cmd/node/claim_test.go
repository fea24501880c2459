package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// soon is a context for claims that are to fail.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*claimRetry)
	t.Cleanup(cancel)
	return ctx
}

// claimable is a configuration that listens on ephemeral ports, with a new data directory.
func claimable(t *testing.T) Config {
	t.Helper()
	c := valid()
	c.DataDir = filepath.Join(t.TempDir(), "a", "b")
	c.Listen, c.RaftListen, c.SerfListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	c.RouteListen, c.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
	return c
}

func refusal(t *testing.T, err error) ConfigError {
	t.Helper()
	var c *ConfigError
	if !errors.As(err, &c) {
		t.Fatalf("%v is no ConfigError", err)
	}
	return *c
}

func TestClaimDirectory(t *testing.T) {
	t.Parallel()
	c := claimable(t)
	lock, err := c.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.claim(soon(t))
	got := refusal(t, err)
	if want := fmt.Sprintf("%s is in use by process %d", c.DataDir,
		os.Getpid()); got.Setting != "--data-dir" ||
		got.Problem != want || !strings.Contains(got.Cure, "another directory") {
		t.Errorf("the second claim: %+v, want %q", got, want)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := c.claim(soon(t))
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
}

// TestClaimWaits: a predecessor that is on its way out is waited for.
func TestClaimWaits(t *testing.T) {
	t.Parallel()
	c := claimable(t)
	first, err := c.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.AdminListen = l.Addr().String()
	time.AfterFunc(2*claimRetry, func() { _ = first.Release() })
	time.AfterFunc(4*claimRetry, func() { _ = l.Close() })
	began := time.Now()
	second, err := c.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(began); waited < 4*claimRetry {
		t.Errorf("waited %v only", waited)
	}
	if err := second.Release(); err != nil {
		t.Error(err)
	}
}

func TestClaimNamesTheAddress(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	tcp, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	busy := tcp.Addr().String()
	for _, tt := range []struct {
		setting, addr, problem string
		set                    func(*Config, string)
	}{
		{"--raft-listen", busy, "in use by another process", func(c *Config, a string) { c.RaftListen = a }},
		{"--serf-listen", busy, "in use by another process", func(c *Config, a string) { c.SerfListen = a }},
		{
			"--serf-listen", udp.LocalAddr().String(), "in use by another process",
			func(c *Config, a string) { c.SerfListen = a },
		},
		{
			"--route-listen", busy, "in use by another process",
			func(c *Config, a string) { c.RouteListen = a },
		},
		{"--listen", busy, "in use by another process", func(c *Config, a string) { c.Listen = a }},
		{
			"--admin-listen", busy, "in use by another process",
			func(c *Config, a string) { c.AdminListen = a },
		},
		{
			"--listen", "192.0.2.1:4222", "assign requested address",
			func(c *Config, a string) { c.Listen = a },
		},
	} {
		c := claimable(t)
		tt.set(&c, tt.addr)
		_, err := c.claim(soon(t))
		got := refusal(t, err)
		if got.Setting != tt.setting || !strings.Contains(got.Problem, tt.addr) ||
			!strings.Contains(got.Problem, tt.problem) ||
			!strings.Contains(got.Cure, "give") {
			t.Errorf("%s %s: %+v", tt.setting, tt.addr, got)
		}
		lock, err := LockDir(c.DataDir)
		if err != nil {
			t.Errorf("%s: the directory is still held: %v", tt.setting, err)
			continue
		}
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
	}
}

func TestClaimNeedsADirectory(t *testing.T) {
	t.Parallel()
	c := claimable(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		c.DataDir = dir
		_, err := c.claim(soon(t))
		if got := refusal(t, err); got.Setting != "--data-dir" ||
			!strings.Contains(got.Problem, "not a directory") {
			t.Errorf("%s: %+v", dir, got)
		}
	}
}

func TestHolderOfAForeignFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release() //nolint:errcheck // a test's own
	if err := os.WriteFile(filepath.Join(dir, LockFile), []byte("who knows"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LockDir(dir); !errors.Is(err, ErrInUse) ||
		!strings.Contains(err.Error(), "by another process") {
		t.Errorf("got %v", err)
	}
}
