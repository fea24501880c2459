package jepsen

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestDisks puts a disk of each kind to the same test: what was synced is there after
// a power cut, what was not is not, and a full one is full until it is freed.
func TestDisks(t *testing.T) {
	t.Parallel()
	for _, kind := range []DiskKind{Lazy, LazyNames, Loop} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cfg := &Config{Dir: dir, Disk: kind}
			if kind.Lazy() {
				cfg.Lazyfs = filepath.Join(dir, "lazyfs")
				cmd := exec.CommandContext(t.Context(), "go", "build", "-o", cfg.Lazyfs, ".")
				cmd.Dir = "../lazyfs"
				if text, err := cmd.CombinedOutput(); err != nil {
					t.Skipf("lazyfs cannot be built here: %v: %s", err, text)
				}
			}
			if err := cfg.canMount(t.Context()); err != nil {
				t.Skip(err)
			}
			d, err := cfg.mountAt(t.Context(), "n1")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.close(); err != nil {
					t.Error(err)
				}
			})
			losesPower(t, kind, d, filepath.Join(dir, "n1"))
			fillsUp(t, d, filepath.Join(dir, "n1"))
			stalls(t, d, filepath.Join(dir, "n1"))
		})
	}
}

func store(t *testing.T, file, text string) error {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func losesPower(t *testing.T, kind DiskKind, d disk, dir string) {
	t.Helper()
	synced, lazy := filepath.Join(dir, "synced"), filepath.Join(dir, "lazy")
	if err := errors.Join(store(t, synced, "kept"), syncFile(dir), os.WriteFile(lazy, []byte("lost"), 0o600)); err != nil {
		t.Fatal(err)
	}
	nameless := filepath.Join(dir, "nameless")
	if err := store(t, nameless, "kept"); err != nil {
		t.Fatal(err)
	}
	if err := d.cutPower(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(synced); string(b) != "kept" {
		t.Errorf("the synced file holds %q, %v", b, err)
	}
	if b, err := os.ReadFile(lazy); string(b) == "lost" {
		t.Errorf("the file that was not synced is there: %v", err)
	}
	if _, err := os.Stat(nameless); (err == nil) == (kind == Lazy) { // ext4 gives a synced file its name
		t.Errorf("a file whose directory was not synced: %v", err)
	}
}

func fillsUp(t *testing.T, d disk, dir string) {
	t.Helper()
	file := filepath.Join(dir, "more")
	const left = 2 << 20
	if err := d.fill(left); err != nil {
		t.Fatal(err)
	}
	if u, err := usage(dir); err != nil || u.free > left+(64<<10) || u.free < left/2 {
		t.Errorf("%d bytes are left, %v, want %d", u.free, err, left)
	}
	if err := store(t, file, string(make([]byte, 1<<16))); err != nil {
		t.Errorf("a write to a disk with some room left: %v", err)
	}
	if err := errors.Join(os.Remove(file), d.fill(0)); err != nil {
		t.Fatal(err)
	}
	if err := store(t, file, string(make([]byte, 1<<16))); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to a full disk: %v", err)
	}
	if err := d.free(); err != nil {
		t.Fatal(err)
	}
	if err := store(t, file, string(make([]byte, 1<<16))); err != nil {
		t.Errorf("a write after the disk was freed: %v", err)
	}
}

func stalls(t *testing.T, d disk, dir string) {
	t.Helper()
	const slow = 200 * time.Millisecond
	sick, err := (&Node{disk: d}).sick()
	if errors.Is(err, errNoSick) {
		return
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(err)
	must(sick.stall(slow))
	begin := time.Now()
	if err := store(t, filepath.Join(dir, "slow"), "x"); err != nil || time.Since(begin) < slow {
		t.Errorf("a slow sync took %v, %v", time.Since(begin), err)
	}
	must(sick.stall(0))
	for _, what := range []failure{syncFails, writeFails} {
		must(sick.fail(what))
		if err := store(t, filepath.Join(dir, "failing"), "x"); !errors.Is(err, syscall.EIO) {
			t.Errorf("after %q: %v, want EIO", what, err)
		}
		must(sick.free())
		must(store(t, filepath.Join(dir, "failing"), "x"))
	}
	must(sick.fail(syncHangs))
	done := make(chan error, 1)
	go func() { done <- store(t, filepath.Join(dir, "hanging"), "x") }()
	select {
	case err := <-done:
		t.Errorf("the sync of a disk that hangs returned: %v", err)
	case <-time.After(slow):
	}
	must(sick.free())
	must(<-done)
}
