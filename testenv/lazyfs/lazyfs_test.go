package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestCutKeepsWhatWasSynced(t *testing.T) {
	t.Parallel()
	d := newDisk(false)
	n, _ := d.create(d.root, "f", false, 0o644)
	d.write(n, []byte("hello"), 0)
	d.sync(n)
	d.write(n, []byte("J"), 0)
	d.write(n, []byte(" world"), 5)
	d.cut()
	if string(n.data) != "hello" {
		t.Errorf("after the cut the file is %q, want hello", n.data)
	}
	d.resize(n, 2)
	d.resize(n, 4)
	d.sync(n)
	d.cut()
	if string(n.data) != "he\x00\x00" {
		t.Errorf("cut to 2, grown to 4 and synced the file is %q", n.data)
	}
	d.resize(n, 1)
	d.cut()
	if string(n.data) != "he\x00\x00" {
		t.Errorf("cut to 1 and not synced, the file is %q after the cut", n.data)
	}
}

func TestNamesOfAStrictDisk(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		d := newDisk(strict)
		if n, _ := d.create(d.root, "new", false, 0o644); n != nil {
			d.sync(n)
		}
		d.cut()
		if _, err := d.lookup(d.root, "new"); (err == 0) == strict {
			t.Errorf("strict %v: a synced file in a directory that was not is there: %v", strict, err == 0)
		}
		d.create(d.root, "old", false, 0o644)
		d.sync(d.root)
		d.rename(d.root, "old", d.root, "renamed", false)
		d.cut()
		if _, err := d.lookup(d.root, "old"); (err == 0) != strict {
			t.Errorf("strict %v: the old name is there: %v", strict, err == 0)
		}
	}
}

func TestQuota(t *testing.T) {
	t.Parallel()
	d := newDisk(false)
	d.set(func(f *faults) { f.quota = 10 })
	n, _ := d.create(d.root, "f", false, 0o644)
	if err := d.write(n, make([]byte, 10), 0); err != 0 {
		t.Errorf("10 bytes of 10: %v", err)
	}
	if err := d.write(n, []byte{1}, 10); err != syscall.ENOSPC {
		t.Errorf("one byte more: %v, want ENOSPC", err)
	}
	d.remove(d.root, "f", false)
	o, _ := d.create(d.root, "o", false, 0o644)
	if err := d.write(o, make([]byte, 10), 0); err != 0 {
		t.Errorf("after the file was removed: %v", err)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	m := &mounted{disk: newDisk(false)}
	in := "delay 5s\nquota 100\neio sync\nhang\nunhang\ndelay x\nquota -1\nnothing\neio read\n"
	var out bytes.Buffer
	serve(m, strings.NewReader(in), &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, l := range lines {
		if ok := l == "ok"; ok != (i < 5) {
			t.Errorf("answer %d is %q", i, l)
		}
	}
	if want := (faults{delay: 5e9, quota: 100, failSync: true}); m.disk.faults != want {
		t.Errorf("the faults are %+v, want %+v", m.disk.faults, want)
	}
}

// A delay ends with the fault, also for a sync that has begun: a node whose disk is well again has no write that hangs.
func TestDelayEndsWithTheFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(true)
		d.pace(30 * time.Second)
		begin, took := time.Now(), make(chan time.Duration)
		one := func() {
			go func() {
				if err := d.sync(d.root); err != 0 {
					t.Error(err)
				}
				took <- time.Since(begin)
			}()
		}
		one()
		if got := <-took; got != 30*time.Second {
			t.Errorf("a slow sync takes %v, want 30s", got)
		}
		begin = time.Now()
		one()
		<-time.After(time.Second)
		d.pace(0)
		if got := <-took; got != time.Second {
			t.Errorf("a sync that is waiting as the delay ends takes %v, want 1s", got)
		}
		begin = time.Now()
		one()
		if got := <-took; got != 0 {
			t.Errorf("a sync after it takes %v", got)
		}
	})
}

// The same through the kernel, where it may mount.
func TestMounted(t *testing.T) {
	t.Parallel()
	point := t.TempDir()
	m, err := mount(newDisk(false), point)
	if err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	defer func() {
		if err := m.unmount(); err != nil {
			t.Error(err)
		}
	}()
	dir := filepath.Join(point, "d")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(dir, 0o755))
	write := func(name, text string, flags int, sync bool) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|flags, 0o644)
		must(err)
		_, err = f.WriteString(text)
		must(err)
		if sync {
			must(f.Sync())
		}
		must(f.Close())
	}
	write("synced", "one", 0, true)
	write("synced", "two", os.O_APPEND, false)
	write("through", "three", os.O_SYNC, false)
	write("lost", "four", 0, false)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	write("big", string(big), 0, true)
	must(os.Rename(filepath.Join(dir, "big"), filepath.Join(dir, "large")))
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		must(err)
		return string(b)
	}
	if got := read("synced"); got != "onetwo" {
		t.Errorf("before the cut: %q", got)
	}
	must(m.cut())
	for name, want := range map[string]string{"synced": "one", "through": "three", "lost": "", "large": string(big)} {
		if got := read(name); got != want {
			t.Errorf("%s is %.20q after the cut, want %.20q", name, got, want)
		}
	}
	must(command(m, []string{"eio", "sync"}))
	f, err := os.Create(filepath.Join(dir, "f"))
	must(err)
	defer f.Close()
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync of a broken disk: %v, want EIO", err)
	}
}
