package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// offsetVariable names the file that a skewed program reads the offset of its wall clock from.
const offsetVariable = "HOLDFAST_WALL_OFFSET_FILE"

// frozenMark stands in that file before a time, in nanoseconds since 1970, at which the clock stands still.
const frozenMark = "@"

// offsetSettles is how long after a change of that file every running program has read it.
const offsetSettles = 500 * time.Millisecond

// The wall clock of a skewed program is that of the machine plus what the file says, or stands
// still, for all that is compiled into it, the libraries and the time stamps of its log as well. Timers
// and CLOCK_BOOTTIME are as ever.
const (
	readsClock  = "\tsec, nsec, mono := runtimeNow()\n"
	skewedClock = readsClock + `	if at := holdfastFrozen.Load(); at != 0 {
		sec, nsec = at/1e9, int32(at%1e9)
	} else if skew := holdfastSkew.Load(); skew != 0 {
		at := Unix(sec, int64(nsec)+skew)
		sec, nsec = at.Unix(), int32(at.Nanosecond())
	}
`
	readsOffset = `package time

import (
	"sync/atomic"
	"syscall"
)

var holdfastSkew, holdfastFrozen atomic.Int64

const (
	holdfastSkewVariable = "` + offsetVariable + `"
	holdfastSkewEvery    = 20 * Millisecond
)

func init() {
	name, ok := syscall.Getenv(holdfastSkewVariable)
	if !ok || name == "" {
		return
	}
	holdfastReadSkew(name)
	go func() {
		for {
			Sleep(holdfastSkewEvery)
			holdfastReadSkew(name)
		}
	}()
}

func holdfastReadSkew(name string) {
	fd, err := open(name)
	if err != nil {
		return
	}
	var b [32]byte
	n, err := read(fd, b[:])
	closefd(fd)
	if err != nil {
		return
	}
	if n > 0 && b[0] == '` + frozenMark + `' {
		at := int64(0)
		for _, digit := range b[1:n] {
			at = 10*at + int64(digit-'0')
		}
		holdfastFrozen.Store(at)
		return
	}
	d, err := ParseDuration(string(b[:max(n, 0)]))
	if err == nil {
		holdfastSkew.Store(int64(d))
		holdfastFrozen.Store(0)
	}
}
`
)

// errNoSkew says that the library of this Go reads the clock in another way than known here.
var errNoSkew = errors.New("jepsen: time.Now of this Go is not the one known")

// acceptFile and acceptsAfter are where the product says for how long wall clocks must be ahead.
const (
	acceptFile   = "replication/clock/clock.go"
	acceptsAfter = "DefaultAcceptAfter = 10 * time.Minute"
)

// errNoAccept says that the product has no such constant there any more.
var errNoAccept = errors.New("jepsen: " + acceptFile + " does not say " + acceptsAfter)

// Overlay writes, below dir, what makes go build -overlay compile a program whose wall
// clock can be moved, and returns the file to name. The program's own source is untouched,
// unless it is to believe wall clocks after another time than it does: accept, 0 for the
// product's own, in place of that constant in the module.
func Overlay(ctx context.Context, dir, module string, accept time.Duration) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	lib := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	old, err := os.ReadFile(filepath.Join(lib, "time.go"))
	if err != nil {
		return "", err
	}
	if strings.Count(string(old), readsClock) != 1 {
		return "", errNoSkew
	}
	now, offset := filepath.Join(dir, "time.go.txt"), filepath.Join(dir, "skew.go.txt")
	files := map[string]string{filepath.Join(lib, "time.go"): now, filepath.Join(lib, "holdfast_skew.go"): offset}
	if accept > 0 {
		from, to, err := acceptOverlay(dir, module, accept)
		if err != nil {
			return "", err
		}
		files[from] = to
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": files})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, errors.Join(
		os.WriteFile(now, []byte(strings.Replace(string(old), readsClock, skewedClock, 1)), 0o600),
		os.WriteFile(offset, []byte(readsOffset), 0o600),
		os.WriteFile(file, replace, 0o600),
	)
}

// acceptOverlay writes the product's file with another constant, and returns both names.
func acceptOverlay(dir, module string, accept time.Duration) (from, to string, err error) {
	if from, err = filepath.Abs(filepath.Join(module, acceptFile)); err != nil {
		return "", "", err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return "", "", err
	}
	if strings.Count(string(text), acceptsAfter) != 1 {
		return "", "", errNoAccept
	}
	to = filepath.Join(dir, "accept.go.txt")
	changed := strings.Replace(string(text), acceptsAfter, fmt.Sprintf("DefaultAcceptAfter = time.Duration(%d)", accept), 1)
	return from, to, os.WriteFile(to, []byte(changed), 0o600)
}

// wallFile is where the node of a place reads the offset of its wall clock.
func (c *Cluster) wallFile(n *Node) string { return filepath.Join(c.dir, n.Slot+".wall") }

// setWall moves the wall clock of a node, running or not, to an offset from the machine's, and lets it go on.
func (c *Cluster) setWall(n *Node, d time.Duration) error {
	text := d.String()
	if d == 0 && n.wall == "" {
		return nil
	}
	return c.writeWall(n, text)
}

// freezeWall has the wall clock of a node stand still at a time.
func (c *Cluster) freezeWall(n *Node, at time.Time) error {
	return c.writeWall(n, frozenMark+strconv.FormatInt(at.UnixNano(), 10))
}

func (c *Cluster) writeWall(n *Node, text string) error {
	if n.wall == text {
		return nil
	}
	n.wall = text
	file := c.wallFile(n)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
