package transport

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/transport/memnet"
)

const testGroup = 7

// list is an FSM that keeps every command.
type list struct {
	mu   sync.Mutex
	data []string
	pad  int // bytes a snapshot has beyond its commands
}

func (l *list) Apply(e *raft.Log) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, string(e.Data))
	return nil
}

func (l *list) Snapshot() (raft.FSMSnapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b []byte
	for _, s := range l.data {
		b = append(append(b, s...), '\n')
	}
	b = append(b, 0)
	return listSnapshot(append(b, make([]byte, l.pad)...)), nil
}

func (l *list) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = nil
	for start, i := 0, 0; i < len(b); i++ {
		if b[i] == 0 {
			break
		}
		if b[i] == '\n' {
			l.data = append(l.data, string(b[start:i]))
			start = i + 1
		}
	}
	return nil
}

func (l *list) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.data...)
}

type listSnapshot []byte

func (s listSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return err
	}
	return sink.Close()
}

func (listSnapshot) Release() {}

// slowLog is a log store whose writes can be made to hang.
type slowLog struct {
	*raft.InmemStore
	mu    sync.Mutex
	hang  chan struct{}
	since time.Time
}

func (s *slowLog) StoreLogs(logs []*raft.Log) error {
	s.mu.Lock()
	hang := s.hang
	s.since = time.Now()
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	err := s.InmemStore.StoreLogs(logs)
	s.mu.Lock()
	s.since = time.Time{}
	s.mu.Unlock()
	return err
}

func (s *slowLog) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *slowLog) stall() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since, !s.since.IsZero()
}

// node is one replica of one group, with all that outlives a restart.
type node struct {
	c     *cluster
	id    string
	addr  raft.ServerAddress
	log   *slowLog
	snaps *raft.InmemSnapshotStore
	fsm   *list

	tr   *Transport
	g    *GroupTransport
	r    *raft.Raft
	done chan struct{}
}

type cluster struct {
	t     *testing.T
	fab   *memnet.Fabric
	nodes []*node
	start time.Time
	conf  raft.Configuration
	edit  func(*raft.Config)
}

// newCluster starts n voters in the current bubble and stops them at its end.
func newCluster(t *testing.T, n int, edit func(*raft.Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, fab: memnet.New(), start: time.Now(), edit: edit}
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		nd := c.add(id)
		c.conf.Servers = append(c.conf.Servers, raft.Server{ID: raft.ServerID(nd.addr), Address: nd.addr})
	}
	for _, nd := range c.nodes {
		nd.open()
		if err := raft.BootstrapCluster(nd.config(), nd.log, nd.log, nd.snaps, nd.g, c.conf); err != nil {
			t.Fatal(err)
		}
		nd.raft()
	}
	t.Cleanup(func() {
		for _, nd := range c.nodes {
			nd.log.release()
			nd.stop()
		}
	})
	return c
}

func (s *slowLog) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hang != nil {
		close(s.hang)
		s.hang = nil
	}
}

func (c *cluster) add(id string) *node {
	nd := &node{
		c: c, id: id, addr: Address(id, "i1"), log: &slowLog{InmemStore: raft.NewInmemStore()},
		snaps: raft.NewInmemSnapshotStore(), fsm: &list{},
	}
	c.nodes = append(c.nodes, nd)
	return nd
}

func (n *node) config() *raft.Config {
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(n.addr)
	cfg.Logger = hclog.NewNullLogger()
	cfg.MaxAppendEntries = 512
	cfg.ShutdownOnRemove = false
	cfg.CommitTimeout = 500 * time.Millisecond
	if n.c.edit != nil {
		n.c.edit(cfg)
	}
	return cfg
}

// open starts the node's transport and its group's.
func (n *node) open() {
	n.c.t.Helper()
	tr, err := New(Config{
		NodeID: n.id, Network: n.c.fab.Host(n.id), Listen: n.id + ":1",
		ClusterID: func() string { return "test" },
		Resolve:   func(id string) (string, bool) { return id + ":1", true },
	})
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.run(tr)
}

// run runs a transport and makes the group's.
func (n *node) run(tr *Transport) {
	n.c.t.Helper()
	n.tr, n.done = tr, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		if err := tr.Run(context.Background()); err != nil {
			n.c.t.Errorf("run %s: %v", n.id, err)
		}
	}(n.done)
	n.group()
}

// group makes the transport of a new Raft instance.
func (n *node) group() {
	n.c.t.Helper()
	g, err := n.tr.Group(GroupConfig{
		ID: testGroup, Local: n.addr, Voters: n.c.voters(), Stall: n.log.stall,
		Boottime: func() time.Duration { return time.Since(n.c.start) },
	})
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.g = g
}

func (c *cluster) voters() []raft.ServerAddress {
	var out []raft.ServerAddress
	for _, s := range c.conf.Servers {
		if s.Suffrage == raft.Voter {
			out = append(out, s.Address)
		}
	}
	return out
}

func (n *node) raft() {
	n.c.t.Helper()
	r, err := raft.NewRaft(n.config(), n.fsm, n.log, n.log, n.snaps, n.g)
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.r = r
}

// stop shuts the node down; its stores stay.
func (n *node) stop() {
	if n.r != nil {
		f := n.r.Shutdown()
		n.g.Close()
		if err := f.Error(); err != nil {
			n.c.t.Errorf("shutdown %s: %v", n.id, err)
		}
		n.r = nil
	}
	if n.tr != nil {
		n.tr.Close()
		<-n.done
		n.tr = nil
	}
}

// restart is a fresh process on the same stores; the FSM replays.
func (n *node) restart() {
	n.c.t.Helper()
	n.stop()
	n.fsm = &list{}
	n.open()
	n.raft()
}

// recreate destroys and makes the Raft instance in the running process.
func (n *node) recreate() {
	n.c.t.Helper()
	f := n.r.Shutdown()
	n.g.Close()
	if err := f.Error(); err != nil {
		n.c.t.Fatal(err)
	}
	n.fsm = &list{}
	n.group()
	n.raft()
}

// until waits in virtual time for a condition, and fails after limit.
func (c *cluster) until(limit time.Duration, what string, ok func() bool) time.Duration {
	c.t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > limit {
			c.t.Fatalf("not within %v: %s", limit, what)
		}
		<-time.After(10 * time.Millisecond)
	}
	return time.Since(start)
}

// leader waits for a leader among the given nodes, or all.
func (c *cluster) leader(among ...*node) *node {
	c.t.Helper()
	if len(among) == 0 {
		among = c.nodes
	}
	var found *node
	c.until(20*time.Second, "a leader", func() bool {
		for _, n := range among {
			if n.r != nil && n.r.State() == raft.Leader && n.r.Barrier(0).Error() == nil {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

func (c *cluster) others(n *node) []*node {
	var out []*node
	for _, o := range c.nodes {
		if o != n {
			out = append(out, o)
		}
	}
	return out
}

func ids(nodes []*node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.id)
	}
	return out
}

// apply commits commands numbered from..to on a leader.
func (n *node) apply(from, to int) {
	n.c.t.Helper()
	var fs []raft.ApplyFuture
	for i := from; i <= to; i++ {
		fs = append(fs, n.r.Apply(fmt.Appendf(nil, "c%d", i), 0))
	}
	for i, f := range fs {
		if err := f.Error(); err != nil {
			n.c.t.Fatalf("apply %d on %s: %v", from+i, n.id, err)
		}
	}
}

// holds waits until the nodes have applied exactly c1..cn.
func (c *cluster) holds(n int, nodes ...*node) {
	c.t.Helper()
	for _, nd := range nodes {
		c.until(
			30*time.Second,
			fmt.Sprintf("%s holds %d commands", nd.id, n),
			func() bool { return len(nd.fsm.all()) >= n },
		)
		got := nd.fsm.all()
		if len(got) != n {
			c.t.Fatalf("%s holds %d commands, want %d", nd.id, len(got), n)
		}
		for i, s := range got {
			if s != fmt.Sprintf("c%d", i+1) {
				c.t.Fatalf("%s command %d is %q", nd.id, i+1, s)
			}
		}
	}
}
