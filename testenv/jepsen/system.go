package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-mq/holdfast/testenv"
	"github.com/holdfast-mq/holdfast/testenv/netcut"
	"github.com/holdfast-mq/holdfast/testenv/process"
)

const (
	// adminTimeout bounds one request to an admin or monitoring port.
	adminTimeout = 3 * time.Second
	// logTail is how much of a log an error shows, in bytes.
	logTail = 2000
)

// flavor is what differs between the systems.
type flavor interface {
	// args are the arguments of the node's process.
	args(c *Cluster, n *Node) ([]string, error)
	// readyPath is where the node's HTTP port answers 200 when it serves.
	readyPath() string
	// moveLeader makes a node the leader of the streams, if it can at once.
	moveLeader(ctx context.Context, c *Cluster, to *Node) error
	// remove takes a node that will not come back out of the cluster.
	remove(ctx context.Context, c *Cluster, id string) error
	// kinds are the kinds of files it keeps, by name, as patterns of base names; snapshots are those
	// of them that a node starts from.
	kinds() map[string][]string
	snapshots() []string
}

// Node is one place for a process. Its client port never changes; its name and the
// other ports do when the process leaves and another one joins in its place.
type Node struct {
	Slot   string // of the links: n1, n2, …
	ID     string // of the process
	Client string
	Admin  string

	raft, serf, route          string // listened on
	raftAdv, serfAdv, routeAdv string // the proxies before them
	dir                        string // of its files
	disk                       disk   // nil: a plain directory
	child                      *process.Child
	end                        ending // of child
	sickened                   bool   // its disk has a fault
	paused                     bool
	generation                 int
	revived                    time.Time
	wall                       string // offset of its wall clock, or where it stands; empty: it is right
}

// Cluster is one system: its processes, links and files.
type Cluster struct {
	Kind  Kind
	Nodes []*Node
	Net   *netcut.Net
	// Revived is how often a process had ended by itself and was started again.
	Revived int
	// Ended are ends of processes that nothing explains: no signal of ours, no fault of a disk, no refusal.
	Ended []string

	dir    string
	bin    string
	args   []string // further flags of every process
	skewed bool     // wall clocks can be moved
	onHold func()   // called before a node is paused or isolated; may be nil
	begins []*Node  // of which a process was ever started, also those beside Nodes
	// removed are ids of nodes that were removed by command and still have files.
	removed []string
	ports   testenv.Ports
	flavor  flavor
}

// newCluster prepares a cluster; Start starts its processes.
func newCluster(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{Kind: cfg.Kind, Net: netcut.New(), dir: cfg.Dir, bin: cfg.Bin, args: cfg.Args, skewed: cfg.Skewed}
	if err := c.choose(); err != nil {
		return nil, err
	}
	for i := range cfg.Nodes {
		n := &Node{Slot: fmt.Sprintf("n%d", i+1)}
		n.ID = n.Slot
		c.Nodes = append(c.Nodes, n)
		if err := c.prepare(ctx, n, &cfg); err != nil {
			return c, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func (c *Cluster) prepare(ctx context.Context, n *Node, cfg *Config) error {
	for _, p := range []*string{&n.Client, &n.Admin} {
		var err error
		if *p, err = c.ports.Address(); err != nil {
			return err
		}
	}
	if err := c.newPorts(ctx, n); err != nil {
		return err
	}
	n.dir = filepath.Join(c.dir, n.Slot)
	d, err := cfg.mountAt(ctx, n.Slot)
	if err == nil && d != nil {
		n.disk = c.watch(n, d)
	}
	return err
}

// newPorts gives a node ports for other nodes, each behind a proxy.
func (c *Cluster) newPorts(ctx context.Context, n *Node) error {
	for _, p := range []*string{&n.raft, &n.serf, &n.route, &n.raftAdv, &n.serfAdv, &n.routeAdv} {
		var err error
		if *p, err = c.ports.Address(); err != nil {
			return err
		}
	}
	return errors.Join(
		c.Net.Proxy(ctx, n.Slot, n.raftAdv, n.raft),
		c.Net.Proxy(ctx, n.Slot, n.serfAdv, n.serf),
		c.Net.ProxyUDP(ctx, n.Slot, n.serfAdv, n.serf),
		c.Net.Proxy(ctx, n.Slot, n.routeAdv, n.route),
	)
}

// data is the directory that the process keeps its files in; on a disk of its own it
// is below the mount, beside lost+found.
func (n *Node) data() string { return filepath.Join(n.dir, "data") }

// logFile is what all processes of the node's place write to.
func (c *Cluster) logFile(n *Node) string { return filepath.Join(c.dir, n.Slot+".log") }

// Start starts the process of a node; one that runs is left as it is.
func (c *Cluster) Start(n *Node) error {
	if n.Running() {
		return nil
	}
	c.ended(n)
	args, err := c.flavor.args(c, n)
	if err != nil {
		return err
	}
	child, err := process.StartChild(c.logFile(n), c.env(n), c.bin, append(args, c.args...)...)
	if err != nil {
		return fmt.Errorf("starting %s: %w", n.ID, err)
	}
	n.child, n.paused = child, false
	c.begun(n)
	c.Net.Process(n.Slot, child.PID())
	return nil
}

// env is what a node finds in its environment beside what is in ours.
func (c *Cluster) env(n *Node) []string {
	if !c.skewed {
		return nil
	}
	return []string{offsetVariable + "=" + c.wallFile(n)}
}

// StartAll starts every node that does not run.
func (c *Cluster) StartAll() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, c.Start(n))
	}
	return errors.Join(errs...)
}

// Running says whether the process lives, paused or not.
func (n *Node) Running() bool { return n.child != nil && n.child.Running() }

// Kill ends the process with SIGKILL and waits until it is gone.
func (c *Cluster) Kill(n *Node) error {
	if n.child == nil {
		return nil
	}
	if err := c.signal(n, syscall.SIGKILL); err != nil {
		return err
	}
	<-n.child.Done()
	c.ended(n)
	c.Net.Process(n.Slot, 0)
	return nil
}

// CutPower kills the process, and with it everything that its disk had not synced.
// Without a disk of its own it is a kill.
func (c *Cluster) CutPower(ctx context.Context, ns ...*Node) error {
	var errs []error
	for _, n := range ns {
		if n.child != nil {
			errs = append(errs, c.signal(n, syscall.SIGKILL))
		}
	}
	for _, n := range ns {
		errs = append(errs, c.Kill(n))
	}
	for _, n := range ns {
		if n.disk != nil {
			errs = append(errs, n.disk.cutPower(ctx))
		}
	}
	return errors.Join(errs...)
}

// stopTimeout is how long a process may take to stop by itself.
const stopTimeout = 60 * time.Second

// Stop asks the process to stop, and waits until it is gone.
func (c *Cluster) Stop(ctx context.Context, n *Node) error {
	if !n.Running() {
		return nil
	}
	if err := c.signal(n, syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	select {
	case <-n.child.Done():
		c.ended(n)
		c.Net.Process(n.Slot, 0)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not stop %v after SIGTERM", n.ID, stopTimeout)
	}
}

// Pause stops the process where it is (SIGSTOP); Resume lets it go on.
func (c *Cluster) Pause(n *Node) error {
	if !n.Running() {
		return nil
	}
	n.paused = true
	c.holds()
	return n.child.Signal(syscall.SIGSTOP)
}

// holds tells who wants to know that a node is being held.
func (c *Cluster) holds() {
	if c.onHold != nil {
		c.onHold()
	}
}

// Resume lets a paused process go on.
func (c *Cluster) Resume(n *Node) error {
	if !n.paused {
		return nil
	}
	n.paused = false
	return n.child.Signal(syscall.SIGCONT)
}

// Repair opens every link, sets clocks right, lets every process go on, and starts what does not run.
func (c *Cluster) Repair() error {
	c.Net.Heal()
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, c.Resume(n), c.setWall(n, 0))
		if n.disk != nil {
			errs = append(errs, n.disk.free())
		}
	}
	return errors.Join(append(errs, c.StartAll())...)
}

// Isolate cuts a node off from all others, both ways.
func (c *Cluster) Isolate(n *Node) error {
	c.holds()
	var errs []error
	for _, o := range c.Nodes {
		if o != n {
			errs = append(errs, c.Net.SetBoth(n.Slot, o.Slot, netcut.State{Mode: netcut.Cut}))
		}
	}
	return errors.Join(errs...)
}

// Ready returns nil if the node says that it serves.
func (c *Cluster) Ready(ctx context.Context, n *Node) error {
	if !n.Running() {
		return fmt.Errorf("node %s does not run; its log ends:\n%s", n.ID, c.tail(n))
	}
	_, err := n.request(ctx, http.MethodGet, c.flavor.readyPath())
	return err
}

// WaitReady waits until every node serves. A process that ended by itself is started again.
func (c *Cluster) WaitReady(ctx context.Context) error {
	return process.Until(ctx, func() error {
		for _, n := range c.Nodes {
			if err := c.Ready(ctx, n); err != nil {
				return errors.Join(err, c.revive(n))
			}
		}
		return nil
	})
}

// reviveEvery is the least time between two starts of a process that keeps ending by itself.
const reviveEvery = 2 * time.Second

// revive does what a service manager does: it starts a process that ended by itself.
func (c *Cluster) revive(n *Node) error {
	if n.Running() || time.Since(n.revived) < reviveEvery {
		return nil
	}
	n.revived = time.Now()
	c.Revived++
	return c.Start(n)
}

func (c *Cluster) tail(n *Node) string {
	text, err := os.ReadFile(c.logFile(n))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-logTail):])
}

// request asks the admin or monitoring port of a node.
func (n *Node) request(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	return n.ask(ctx, method, path)
}

// ask is request with no bound of its own.
func (n *Node) ask(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.Admin+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s of %s: %s: %s", path, n.ID, resp.Status, b)
	}
	return b, err
}

// replace makes the node one that was never there, in the same place: another name,
// no files, other ports for nodes.
func (c *Cluster) replace(ctx context.Context, n *Node) error {
	n.generation++
	n.ID = fmt.Sprintf("%s-%d", n.Slot, n.generation)
	return errors.Join(c.wipe(n), c.newPorts(ctx, n))
}

// wipe removes the files of a node that does not run. What was refused for them is not, without them.
func (c *Cluster) wipe(n *Node) error {
	c.ended(n)
	c.removed = slices.DeleteFunc(c.removed, func(id string) bool { return id == n.ID })
	return os.RemoveAll(n.data())
}

// Close kills what still runs and ends links and disks. Files stay.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.Nodes {
		if n.disk != nil {
			errs = append(errs, n.disk.free()) // a sync that hangs cannot be killed
		}
		errs = append(errs, c.Kill(n))
		if n.disk != nil {
			errs = append(errs, n.disk.close())
		}
	}
	return errors.Join(append(errs, c.Net.Close())...)
}
