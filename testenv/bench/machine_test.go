package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestParseProcessStat(t *testing.T) {
	t.Parallel()
	const tail = " S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 8 0 1"
	for _, name := range []string{"(holdfast)", "(a b) c)", "(()"} {
		if got, err := parseProcessStat([]byte("42 " + name + tail)); err != nil || got != 3*time.Second {
			t.Errorf("%s: %v, %v; want 3 s", name, got, err)
		}
	}
	for _, bad := range []string{"", "42 x", "42 (x) S 1 2", "42 (x) S 1 2 3 4 5 6 7 8 9 10 x 50 0"} {
		if _, err := parseProcessStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestParseMachineStat(t *testing.T) {
	t.Parallel()
	// Everything but idle (1000) and iowait (2000); guest times (last two) are in user already.
	got, err := parseMachineStat([]byte("cpu  100 1 20 1000 2000 3 4 5 50 60\ncpu0 1 1 1 1 1 1 1 1 0 0\n"))
	if want := 1330 * time.Millisecond; err != nil || got != want {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 x 4 5 6 7 8"} {
		if _, err := parseMachineStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestParseMemTotal(t *testing.T) {
	t.Parallel()
	got, err := parseMemTotal([]byte("MemTotal:       24616928 kB\nMemFree: 1 kB\n"))
	if err != nil || got != 23 {
		t.Errorf("%d, %v; want 23", got, err)
	}
	for _, bad := range []string{"", "MemFree: 1 kB", "MemTotal: x kB"} {
		if _, err := parseMemTotal([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestMeter(t *testing.T) {
	t.Parallel()
	m, err := newMeter([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if others, err := m.others(); err != nil || others < 0 || others > 1 {
		t.Errorf("%v, %v; want 0 to 1", others, err)
	}
	_, err = newMeter([]int{1 << 30})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "process 1073741824") {
		t.Errorf("no such process: %v", err)
	}
}

func TestShape(t *testing.T) {
	t.Parallel()
	fs, err := fileSystem("/proc")
	if err != nil || fs != "file system 0x9fa0" {
		t.Errorf("/proc is %q, %v; want an unnamed file system", fs, err)
	}
	if _, err := fileSystem("/no/such/directory"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such directory: %v", err)
	}
	s, err := shape("ext4")
	if err != nil || !strings.Contains(s, " CPUs (") || !strings.Contains(s, "one ext4 disk for all nodes,") {
		t.Errorf("shape is %q, %v", s, err)
	}
}
