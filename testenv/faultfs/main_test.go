package faultfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestQuota follows the book over everything that changes it.
func TestQuota(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	must(t, mem.MkdirAll("d/e", 0o755))
	f, err := mem.Create("d/old", "")
	must(t, err)
	_, err = f.Write(make([]byte, 100))
	must(t, errors.Join(err, f.Close()))
	q, err := NewQuota(mem, "d", 1000)
	must(t, err)
	used := func(what string, want int64) {
		t.Helper()
		if got, _ := q.Used(); got != want {
			t.Errorf("%s: %d bytes used, want %d", what, got, want)
		}
	}
	used("what was there", 100)
	g, err := q.Create("d/e/f", "")
	must(t, err)
	_, err = g.Write(make([]byte, 300))
	must(t, err)
	used("a write", 400)
	must(t, g.Preallocate(0, 600))
	used("a preallocation", 700)
	if _, err := g.WriteAt(make([]byte, 10), 895); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("one byte too many: %v", err)
	}
	_, err = g.WriteAt(make([]byte, 10), 890)
	must(t, err)
	used("the last byte", 1000)
	must(t, g.Close())
	must(t, q.Link("d/e/f", "d/g"))
	must(t, q.Rename("d/e", "d/h"))
	must(t, q.Remove("d/h/f"))
	used("a file with another name", 1000)
	must(t, q.Rename("d/old", "d/g"))
	used("a file that was replaced", 100)
	u, err := q.GetDiskUsage("d")
	must(t, err)
	if diff := cmp.Diff(vfs.DiskUsage{AvailBytes: 900, TotalBytes: 1000, UsedBytes: 100}, u); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	q.Fill(5)
	g, err = q.OpenReadWrite("d/g", "")
	must(t, err)
	if _, err := g.WriteAt(make([]byte, 6), 100); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("six bytes into five: %v", err)
	}
	_, err = g.WriteAt(make([]byte, 6), 99)
	must(t, errors.Join(err, g.Close()))
	must(t, q.RemoveAll("d"))
	used("nothing left", 0)
	if _, fails := q.Used(); fails != 2 {
		t.Errorf("%d failures counted, want 2", fails)
	}
}

// TestSwitch: syncs fail, hang, take longer and work as the control file says.
func TestSwitch(t *testing.T) {
	t.Parallel()
	control := filepath.Join(t.TempDir(), "control")
	f, err := NewSwitch(vfs.NewMem(), control).Create("file", "")
	must(t, err)
	say := func(what string) { must(t, os.WriteFile(control, []byte(what+"\n"), 0o600)) }
	must(t, errors.Join(f.Sync(), f.SyncData()))
	say(Fail)
	for _, err := range []error{f.Sync(), f.SyncData()} {
		if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "file") {
			t.Errorf("a sync that shall fail: %v", err)
		}
	}
	say(Hang)
	done := make(chan error, 1)
	go func() { done <- f.Sync() }()
	select {
	case err := <-done:
		t.Errorf("a sync that shall hang: %v", err)
	case <-time.After(3 * switchPoll):
	}
	say(Slow + "30ms")
	must(t, <-done)
	begun := time.Now()
	must(t, errors.Join(f.Sync(), f.SyncData()))
	if took := time.Since(begun); took < 60*time.Millisecond {
		t.Errorf("two syncs that take 30 ms longer took %v", took)
	}
	say(Slow + "down")
	if err := f.Sync(); err == nil {
		t.Error("a duration that is none is taken")
	}
	must(t, os.Remove(control))
	must(t, errors.Join(f.Sync(), f.Close()))
}
