package jepsen

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFlipChangesBitsOnly(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	before := bytes.Repeat([]byte{0x5a}, 4096)
	if err := os.WriteFile(file, before, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := flip(file, 4096, rand.New(rand.NewPCG(1, 2))); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(file)
	if err != nil || len(after) != len(before) {
		t.Fatalf("%d bytes, %v", len(after), err)
	}
	n := 0
	for i := range after {
		n += bits.OnesCount8(after[i] ^ before[i])
	}
	if n != flips {
		t.Errorf("%d bits differ, want %d", n, flips)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := flip(empty, 0, rand.New(rand.NewPCG(1, 2))); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

// TestFilesAreFoundByKind has a directory with one file of each kind of each system.
func TestFilesAreFoundByKind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{
		"groups/1/log/00000000000000000001.seg", "groups/1/log/SEGMENTS", "groups/1/state/db-1/000004.sst",
		"groups/1/state/db-1/MANIFEST-000001", "groups/1/state/POINTER", "groups/1/INCARNATION", "NODE", "LOCK", "gossip",
		"jetstream/APP/streams/S/msgs/1.blk", "jetstream/APP/streams/S/msgs/index.db", "jetstream/x/meta.inf",
		"jetstream/x/meta.sum", "jetstream/x/tav.idx", "jetstream/x/snapshots/snap.2.10",
		"jetstream/APP/streams/S/obs/C/o.dat", "groups/1/damaged-log-1/00000000000000000003.seg",
	} {
		file := filepath.Join(dir, "data", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	empty := filepath.Join(dir, "data", "groups", "1", "log", "00000000000000000002.seg")
	if err := os.WriteFile(empty, nil, 0o600); err != nil { // there is nothing to damage in it
		t.Fatal(err)
	}
	n := &Node{dir: dir}
	for _, f := range []flavor{&holdfast{}, &streamServer{}} {
		for kind, patterns := range f.kinds() {
			got, err := (&Cluster{}).files(n, patterns, 1)
			if err != nil || len(got) == 0 {
				t.Errorf("%T: %s: %v, %v", f, kind, got, err)
			}
		}
		for _, kind := range f.snapshots() {
			if f.kinds()[kind] == nil {
				t.Errorf("%T: there is no kind %q", f, kind)
			}
		}
	}
	got, err := (&Cluster{}).files(n, (&holdfast{}).kinds()["log"], 1)
	log := filepath.Join(dir, "data", "groups", "1", "log")
	want := []string{filepath.Join(log, "00000000000000000001.seg"), filepath.Join(log, "SEGMENTS")}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("the log: %v\n%s", err, diff)
	}
}

// TestExcusesEnd holds excuses to their time.
func TestExcusesEnd(t *testing.T) {
	t.Parallel()
	h := &History{Excused: []Interval{{"pause", 10 * second, 20 * second}}}
	for at, want := range map[Moment]bool{
		10*second - 1: false, 10 * second: true, 20 * second: true, 20*second + excuseAfter: true,
		20*second + excuseAfter + 1: false,
	} {
		if got := h.excused(Delivery{Asked: 9 * second, At: at}, 11*second); got != want {
			t.Errorf("at %v: %t, want %t", at, got, want)
		}
	}
}

func TestGapIsTheLongestSilence(t *testing.T) {
	t.Parallel()
	h := newHistory()
	for _, at := range []Moment{1, 4, 5, 11, 30} {
		h.publish(Publish{Return: at * second, Outcome: Acked})
	}
	h.publish(Publish{Return: 8 * second, Outcome: Unknown})
	for _, tt := range []struct{ begin, end, want Moment }{{0, 12, 6}, {2, 4, 2}, {12, 29, 17}, {12, 40, 18}} {
		if got := h.gap(tt.begin*second, tt.end*second); got != tt.want*second {
			t.Errorf("%d to %d: %v, want %d s", tt.begin, tt.end, got, tt.want)
		}
	}
	if sent, acked := h.counts(); sent != 6 || acked != 5 {
		t.Errorf("%d sent, %d acked, want 6 and 5", sent, acked)
	}
}
