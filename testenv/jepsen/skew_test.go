package jepsen

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

// clockProgram tells its wall clock every 20 ms, in seconds since 1970, and what its
// monotonic clock says since its start, in milliseconds.
const clockProgram = `package main

import (
	"os"
	"strconv"
	"time"
)

func main() {
	begin := time.Now()
	for range time.Tick(20 * time.Millisecond) {
		now := time.Now()
		if now.Sub(begin) > time.Minute {
			return
		}
		os.Stdout.WriteString(strconv.FormatInt(now.Unix(), 10) + " " +
			strconv.FormatInt(now.Sub(begin).Milliseconds(), 10) + "\n")
	}
}
`

// TestWallClocksCanBeMoved moves the wall clock of a program while it runs; its monotonic
// clock does not notice.
func TestWallClocksCanBeMoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	overlay, err := Overlay(t.Context(), dir, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.go": clockProgram, "go.mod": "module clock\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", "clock", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	c, n := &Cluster{dir: dir, skewed: true}, &Node{Slot: "n1"}
	if err := c.setWall(n, -time.Hour); err != nil {
		t.Fatal(err)
	}
	child, err := process.StartChild(filepath.Join(dir, "log"), c.env(n), filepath.Join(dir, "clock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := child.Kill(); err != nil {
			t.Error(err)
		}
	}()
	for _, by := range []time.Duration{-time.Hour, aYear, -aYear, 0} {
		if err := c.setWall(n, by); err != nil {
			t.Fatal(err)
		}
		ok := await(t.Context(), 10*time.Second, func() bool {
			wall, _, found := lastClock(child)
			return found && time.Until(wall.Add(-by)).Abs() < 30*time.Second
		})
		if !ok {
			t.Errorf("moved by %v, the clock tells:\n%s", by, child.Tail(100))
		}
	}
	still := time.Unix(1234567890, 987654321)
	if err := c.freezeWall(n, still); err != nil {
		t.Fatal(err)
	}
	stands := func() bool { wall, _, found := lastClock(child); return found && wall.Unix() == still.Unix() }
	if !await(t.Context(), 10*time.Second, stands) {
		t.Errorf("stopped, the clock tells:\n%s", child.Tail(100))
	}
	_, first, _ := lastClock(child)
	if !await(t.Context(), 10*time.Second, func() bool { _, since, _ := lastClock(child); return since > first+time.Second }) ||
		!stands() {
		t.Errorf("a second after it stopped, the clock tells:\n%s", child.Tail(100))
	}
	if err := c.setWall(n, 0); err != nil {
		t.Fatal(err)
	}
	if !await(t.Context(), 10*time.Second, func() bool { return !stands() }) {
		t.Error("the clock does not go on")
	}
	if _, since, ok := lastClock(child); !ok || since < 0 || since > time.Minute {
		t.Errorf("the monotonic clock tells %v", since)
	}
}

// lastClock is the last whole line that the program wrote.
func lastClock(c *process.Child) (wall time.Time, since time.Duration, ok bool) {
	lines := strings.Split(c.Tail(200), "\n")
	if len(lines) < 3 {
		return wall, 0, false
	}
	a, b, _ := strings.Cut(lines[len(lines)-2], " ")
	sec, err := strconv.ParseInt(a, 10, 64)
	ms, err2 := strconv.ParseInt(b, 10, 64)
	return time.Unix(sec, 0), time.Duration(ms) * time.Millisecond, err == nil && err2 == nil
}

// TestOnlyTheConstantIsReplaced: of the product's source, if its clock is to be corrected sooner.
func TestOnlyTheConstantIsReplaced(t *testing.T) {
	t.Parallel()
	from, to, err := acceptOverlay(t.TempDir(), filepath.Join("..", ".."), 40*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(string(before), "10 * time.Minute", "time.Duration(40000000000)", 1)
	if string(after) != want {
		t.Errorf("the file is\n%s", after)
	}
	if acceptAfter != 10*time.Minute {
		t.Errorf("the product's own is %v here", acceptAfter)
	}
	if _, _, err := acceptOverlay(t.TempDir(), t.TempDir(), time.Second); err == nil {
		t.Error("a module without that file is accepted")
	}
}
