package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNumber(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{
		0: "0.00", 0.126: "0.13", 9.99: "9.99", 10: "10.0", 99.9: "99.9", 100: "100", 999.4: "999",
		1000: "1,000", 12345.6: "12,346", 1234567: "1,234,567",
	} {
		if got := number(x); got != want {
			t.Errorf("%v: %q, want %q", x, got, want)
		}
	}
}

func TestCells(t *testing.T) {
	t.Parallel()
	tests := []struct{ got, want string }{
		{value(spread{}), "–"},
		{value(spread{1, 5, 5, 5}), "5.00"},
		{value(spread{3, 1500, 200, 30000}), "1,500 [200–30,000]"},
		{ratio(spread{}, 0.7, 1.3), "–"},
		{ratio(spread{1, 2, 2, 2}, 0.7, 1.3), "**2.00**"},
		{ratio(spread{3, 2, 1.5, 2.25}, 0.7, 1.3), "**2.00** [1.50–2.25]"},
		{ratio(spread{1, 0.69, 0.69, 0.69}, 0.7, 1.3), "**0.69**"},
		{ratio(spread{1, 0.7, 0.7, 0.7}, 0.7, 1.3), "**0.70** ≈"},
		{ratio(spread{1, 1.3, 1.3, 1.3}, 0.7, 1.3), "**1.30** ≈"},
		{ratio(spread{1, 1.31, 1.31, 1.31}, 0.7, 1.3), "**1.31**"},
		{aims("≥", 0, 0), "–"},
		{aims("≥", 2.5, 1.4), "≥ 2.5 / ≥ 1.4"},
		{aims("≤", 50, 0), "≤ 50 / –"},
		{aims("≤", 0, 0.8), "– / ≤ 0.8"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// someDone are two rounds of one work; JetStream's second run with the default failed.
func someDone() []measurement {
	var out []measurement
	add := func(round int, k kind, rate, cpu float64) {
		out = append(out, measurement{
			Round: round, Nodes: 3, System: k, Work: "async-128", Others: 0.04 * float64(round),
			Result: result{Msgs: 1, Rate: rate, ServerCPU: cpu, P50: 1500, P99: 20_000},
		})
	}
	add(1, holdfast, 90_000, 10)
	add(1, streamAlways, 30_000, 25)
	add(1, streamDefault, 80_000, 20)
	add(2, holdfast, 100_000, 12)
	add(2, streamAlways, 50_000, 24)
	return append(out, measurement{
		Round: 2, Nodes: 3, System: streamDefault, Work: "async-128", Err: "jsbench: lost\nmore of it",
		Result: result{Rate: 1e9, ServerCPU: 1e9},
	})
}

func TestReport(t *testing.T) {
	t.Parallel()
	c := &Config{
		Rounds: 2, Scale: 1, Duration: 3 * time.Second, Nodes: []int{3},
		Work: []string{"async-128", "consume"},
	}
	h := header{
		holdfast: "abc123", natsServer: "2.15.3", goVersion: "Go 1.26.8", machine: "2 CPUs, an ext4 disk",
		fileSystem: "ext4", command: "make bench-compare", took: 61 * time.Second,
	}
	got := report(c, h, someDone())
	want, err := os.ReadFile("testdata/report.md")
	if diff := cmp.Diff(string(want), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestReportWarns(t *testing.T) {
	t.Parallel()
	c := &Config{Rounds: 1, Scale: 1, Duration: time.Second, Nodes: []int{1}}
	busy := []measurement{{Round: 1, Nodes: 1, System: holdfast, Work: "sync-1", Others: 0.11}}
	for _, tt := range []struct {
		name, want string
		there      bool
		h          header
		done       []measurement
	}{
		{"busy", "other work to do", true, header{fileSystem: "ext4"}, busy},
		{"quiet", "other work to do", false, header{fileSystem: "ext4"}, someDone()},
		{"no disk", "tmpfs", true, header{fileSystem: tmpfs}, nil},
		{"disk", "tmpfs", false, header{fileSystem: "ext4"}, nil},
		{"failed", "Failed, and not", false, header{}, busy},
	} {
		if got := strings.Contains(report(c, tt.h, tt.done), tt.want); got != tt.there {
			t.Errorf("%s: report has %q: %t, want %t", tt.name, tt.want, got, tt.there)
		}
	}
}
