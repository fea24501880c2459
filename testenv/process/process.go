package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-mq/holdfast/testenv"
)

// Build compiles the binary under test into dir, with build tags if any, and
// returns its path. root is the directory of the module.
func Build(ctx context.Context, root, dir string, tags ...string) (string, error) {
	out := filepath.Join(dir, "holdfast")
	args := []string{"build", "-o", out}
	if len(tags) > 0 {
		args = append(args, "-tags", strings.Join(tags, ","))
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/holdfast")...)
	cmd.Dir = root
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building cmd/holdfast: %w\n%s", err, b)
	}
	return out, nil
}

// Node is one node: its addresses stay the same over restarts.
type Node struct {
	ID     string
	Client string // host:port of NATS
	Admin  string
	Env    []string // beside the environment of this process, from the next Start on
	serf   string
	args   []string
	bin    string
	log    string

	cmd  *exec.Cmd
	done chan struct{}
}

// Cluster is some nodes on this machine.
type Cluster struct {
	Dir   string
	Nodes []*Node
	bin   string
	ports testenv.Ports
}

// Config says what a cluster is like.
type Config struct {
	Bin   string
	Dir   string // data directories and logs; the caller removes it
	Nodes int
	Args  []string // further flags of every node
}

// New prepares a cluster of founders; Start starts each.
func New(c Config) (*Cluster, error) {
	cl := &Cluster{Dir: c.Dir, bin: c.Bin}
	for i := range c.Nodes {
		expect := []string{}
		if c.Nodes > 1 {
			expect = append(expect, "--bootstrap-expect", strconv.Itoa(c.Nodes))
		}
		if i > 0 {
			expect = append(expect, "--join", cl.Nodes[0].serf)
		}
		if err := cl.Add(append(expect, c.Args...)...); err != nil {
			return nil, err
		}
	}
	return cl, nil
}

// Add prepares one more node with the given flags.
func (c *Cluster) Add(args ...string) error {
	var ports [5]string
	for i := range ports {
		var err error
		if ports[i], err = c.ports.Address(); err != nil {
			return err
		}
	}
	id := fmt.Sprintf("n%d", len(c.Nodes)+1)
	n := &Node{
		ID: id, Client: ports[0], Admin: ports[1], serf: ports[2], bin: c.bin,
		log: filepath.Join(c.Dir, id+".log"),
	}
	n.args = append([]string{
		"serve", "--node-id", id, "--data-dir", filepath.Join(c.Dir, id), "--listen", n.Client,
		"--admin-listen", n.Admin, "--serf-listen", n.serf, "--raft-listen", ports[3], "--route-listen", ports[4],
	}, args...)
	c.Nodes = append(c.Nodes, n)
	return nil
}

// Seed is the gossip address of the first node, for --join.
func (c *Cluster) Seed() string { return c.Nodes[0].serf }

// Start starts the process of a node.
func (n *Node) Start() error {
	if n.Running() {
		return fmt.Errorf("node %s runs already", n.ID)
	}
	f, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	cmd := exec.Command(n.bin, n.args...) //nolint:noctx // ended by Kill or Stop
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Env = append(os.Environ(), n.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no orphan outlives the test
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		// The parent of Pdeathsig is the thread, which must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	n.cmd, n.done = cmd, done
	return nil
}

// Running says whether the process lives.
func (n *Node) Running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.done:
		return false
	default:
		return true
	}
}

// PID is the process id, 0 before the first Start.
func (n *Node) PID() int {
	if n.cmd == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// Exited waits until the process has ended and returns its exit code, -1 if a signal
// ended it.
func (n *Node) Exited(ctx context.Context) (int, error) {
	if n.cmd == nil {
		return 0, fmt.Errorf("node %s was never started", n.ID)
	}
	select {
	case <-n.done:
		return n.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("node %s still runs: %w", n.ID, ctx.Err())
	}
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (n *Node) Kill() error { return n.signal(syscall.SIGKILL) }

// Stop asks the process to stop (SIGTERM) and waits until it is gone.
func (n *Node) Stop() error { return n.signal(syscall.SIGTERM) }

func (n *Node) signal(s os.Signal) error {
	if err := n.send(s); err != nil || n.cmd == nil {
		return err
	}
	<-n.done
	return nil
}

func (n *Node) send(s os.Signal) error {
	if !n.Running() {
		return nil
	}
	if err := n.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// KillAll ends every process at once with SIGKILL, and waits until they are gone.
func (c *Cluster) KillAll() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.send(syscall.SIGKILL))
	}
	for _, n := range c.Nodes {
		errs = append(errs, n.Kill())
	}
	return errors.Join(errs...)
}

// Log returns the end of what the node wrote.
func (n *Node) Log(bytes int) string {
	b, err := os.ReadFile(n.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-bytes):])
}

// fromNATS marks the lines of a log that the node's NATS server wrote.
const fromNATS = `"logger":"nats"`

// Events returns the last lines of what the node wrote, without those of its NATS server: each route that opens or
// closes is several lines there, and hides what the node itself says.
func (n *Node) Events(lines int) string {
	b, err := os.ReadFile(n.log)
	if err != nil {
		return err.Error()
	}
	own := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(b)), "\n"), func(line string) bool {
		return strings.Contains(line, fromNATS)
	})
	return strings.Join(own[max(0, len(own)-lines):], "\n")
}

// Status is a group as the admin listener shows it.
type Status struct {
	Group       int    `json:"group"`
	Role        string `json:"role"`
	Term        uint64 `json:"term"`
	Leader      string `json:"leader"`
	Commit      uint64 `json:"commit"`
	Applied     uint64 `json:"applied"`
	LastLog     uint64 `json:"last_log"`
	Replicating bool   `json:"replicating"`
	Members     []struct {
		Node  string `json:"node"`
		Voter bool   `json:"voter"`
	} `json:"members"`
}

// Raft returns the groups of a node.
func (n *Node) Raft(ctx context.Context) ([]Status, error) {
	b, err := n.get(ctx, "/raft")
	if err != nil {
		return nil, err
	}
	var out []Status
	err = json.Unmarshal(b, &out)
	return out, err
}

func (n *Node) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Admin+path, nil)
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

// Ready returns nil if the node says that it serves.
func (n *Node) Ready(ctx context.Context) error {
	if !n.Running() {
		return fmt.Errorf("node %s does not run; its log ends:\n%s", n.ID, n.Log(2000))
	}
	_, err := n.get(ctx, "/readyz")
	return err
}

// StartAll starts every node that does not run.
func (c *Cluster) StartAll() error {
	for _, n := range c.Nodes {
		if !n.Running() {
			if err := n.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// WaitReady waits until every running node serves.
func (c *Cluster) WaitReady(ctx context.Context) error {
	return Until(ctx, func() error {
		for _, n := range c.Nodes {
			if n.cmd == nil {
				continue
			}
			if err := n.Ready(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// Leader waits until the running nodes agree on the leader of a group, and returns it.
func (c *Cluster) Leader(ctx context.Context, group int) (*Node, error) {
	var leader *Node
	err := Until(ctx, func() error {
		leader = nil
		for _, n := range c.Nodes {
			if !n.Running() {
				continue
			}
			groups, err := n.Raft(ctx)
			if err != nil {
				return err
			}
			if group >= len(groups) {
				return fmt.Errorf("node %s has %d groups", n.ID, len(groups))
			}
			if groups[group].Role == "leader" && groups[group].Replicating {
				leader = n
			}
		}
		if leader == nil {
			return fmt.Errorf("no node leads group %d", group)
		}
		return nil
	})
	return leader, err
}

// URLs are the client URLs of all nodes.
func (c *Cluster) URLs() string {
	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, "nats://"+n.Client)
	}
	return strings.Join(urls, ",")
}

// Close kills what still runs.
func (c *Cluster) Close() {
	for _, n := range c.Nodes {
		_ = n.Kill()
	}
}

// pollEvery is the pause between two looks at a condition.
const pollEvery = 50 * time.Millisecond

// Until calls f until it returns nil, or ctx ends; then it returns f's last error.
func Until(ctx context.Context, f func() error) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}
