package jepsen

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// exitRefused is the exit code of a node that its cluster does not take.
	exitRefused = 2
	// crashText is how much of its log a crash shows, in bytes.
	crashText = 600
)

// crashMarks are in a log what the runtime of Go writes of a bug, whatever the process ended with.
func crashMarks() []string { return []string{"panic:", "fatal error:", "DATA RACE"} }

// ending is what is known of how the process of a node may end, and did.
type ending struct {
	asked syscall.Signal // the last one that it was sent to end it
	codes []int          // that it may end with by itself
	noted bool           // the end has been judged
}

// allowEnd announces that the process of a node that runs may end by itself with an exit code. Nemeses that damage
// disks, start twins or remove nodes need no call: watchedDisk, Start and remove announce what follows from that.
func (c *Cluster) allowEnd(n *Node, code int) {
	if !slices.Contains(n.end.codes, code) {
		n.end.codes = append(n.end.codes, code)
	}
}

// begun notes that a process of a node was started: what it may end with follows from what it is started into.
func (c *Cluster) begun(n *Node) {
	n.end = ending{}
	if !slices.Contains(c.begins, n) {
		c.begins = append(c.begins, n)
	}
	if n.sickened {
		c.allowEnd(n, exitStopped)
	}
	for _, o := range c.begins { // of two nodes with one id one is refused
		if o != n && o.ID == n.ID && o.Running() {
			c.allowEnd(o, exitRefused)
			c.allowEnd(n, exitRefused)
		}
	}
}

// left notes that a node was removed by command: its processes are refused, until its files are gone.
func (c *Cluster) left(id string) {
	if !slices.Contains(c.removed, id) {
		c.removed = append(c.removed, id)
	}
}

// ended judges, once, how the last process of a node has ended, if it has. Without that a node that crashes
// again and again looks like one that a nemesis killed, for somebody always starts it.
func (c *Cluster) ended(n *Node) {
	if !c.Kind.Ours() || n.child == nil || n.end.noted || n.child.Running() {
		return
	}
	n.end.noted = true
	code := n.child.ExitCode()
	switch {
	case code < 0 && n.end.asked == syscall.SIGKILL, code == 0 && n.end.asked != 0:
	case slices.Contains(n.end.codes, code):
	case code == exitRefused && slices.Contains(c.removed, n.ID):
	default:
		c.Ended = append(c.Ended, fmt.Sprintf("%s in %s at %s with exit code %d: %s", n.ID, n.Slot,
			time.Now().Format(time.TimeOnly), code, lastLine(c.tail(n))))
	}
}

// signal sends the process of a node a signal to end it. An end before that was one by itself.
func (c *Cluster) signal(n *Node, s syscall.Signal) error {
	c.ended(n)
	n.end.asked = s
	return n.child.Signal(s)
}

// crashes are all places in the logs of all processes that ran where the runtime says that there is a bug.
func (c *Cluster) crashes() ([]string, error) {
	var out []string
	var files []string
	for _, n := range c.begins {
		file := c.logFile(n)
		if slices.Contains(files, file) {
			continue
		}
		files = append(files, file)
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, err
		}
		found, err := crashesIn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return out, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, text := range found {
			out = append(out, n.Slot+": "+text)
		}
	}
	return out, nil
}

// crashesIn finds lines of a log that tell of a bug, each with what comes after it.
func crashesIn(r io.Reader) ([]string, error) {
	var out []string
	open := false // what is read goes to the last one, too
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		marked := slices.ContainsFunc(crashMarks(), func(mark string) bool { return strings.Contains(line, mark) })
		switch {
		case open && len(out[len(out)-1])+len(line) <= crashText: // with one that it leads to
			out[len(out)-1] += line
		case marked:
			out, open = append(out, line), true
		default:
			open = false
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

// lastLine is the last line of a text that is not empty, without much of a long one.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := lines[len(lines)-1]
	return last[:min(len(last), crashText)]
}

// watchedDisk announces what its faults may lead to: a process that was there during one may end because it
// cannot go on, also when the fault is over; one that was started later may not.
type watchedDisk struct {
	disk
	c *Cluster
	n *Node
}

// watch announces the faults of a node's disk.
func (c *Cluster) watch(n *Node, d disk) disk { //nolint:ireturn // one that can be sick is still one
	w := watchedDisk{disk: d, c: c, n: n}
	if sick, ok := d.(sickDisk); ok {
		return &watchedSick{watchedDisk: w, sick: sick}
	}
	return &w
}

func (d *watchedDisk) begin() {
	d.n.sickened = true
	d.c.allowEnd(d.n, exitStopped)
}

func (d *watchedDisk) fill(left int64) error {
	d.begin()
	return d.disk.fill(left)
}

func (d *watchedDisk) free() error {
	err := d.disk.free()
	if err == nil {
		d.n.sickened = false
	}
	return err
}

// watchedSick is a watchedDisk that can be slow, hang and fail.
type watchedSick struct {
	watchedDisk
	sick sickDisk
}

func (d *watchedSick) stall(t time.Duration) error {
	if t > 0 {
		d.begin()
	}
	return d.sick.stall(t)
}

func (d *watchedSick) fail(how failure) error {
	d.begin()
	return d.sick.fail(how)
}
