package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
	"go.uber.org/zap"
)

// eventBuffer is the channel between Serf and the pump. Serf's own stages buffer more and drop when full.
const eventBuffer = 256

// bindAttempts is how often a free port is looked for: TCP and UDP must both be free on it.
const bindAttempts = 10

// A Discovery is this node's view of the cluster. All methods may be called at the same time.
type Discovery struct {
	log     *zap.Logger
	library *libraryLog
	t       timings
	addr    netip.AddrPort
	serf    *serf.Serf
	gate    *gate
	events  chan serf.Event
	queue   *queue
	seeds   *seeds
	changes chan []Member
	stop    context.CancelFunc
	done    chan struct{}            // closed when everything has ended
	latest  atomic.Pointer[[]Member] // written by the loop only
	twin    atomic.Pointer[Conflict] // set once, by a join that was refused; see Twin
	told    []Conflict               // owned by the loop: what Changes has announced

	tagsMu sync.Mutex
	tags   Tags // guarded by tagsMu

	joinMu  sync.Mutex     // held while joining and while leaving
	leaves  sync.WaitGroup // the goroutine of Leave; nothing is added once ended
	lifeMu  sync.Mutex
	leaving bool // guarded by lifeMu
	ended   bool // guarded by lifeMu
}

// Start binds the sockets, begins to look for the seeds and returns; it does not wait for any of them.
// Everything it starts ends with ctx or with Shutdown. An error wraps ErrConfig or ErrTagsTooLong, or is
// the socket's.
func Start(ctx context.Context, c Config) (*Discovery, error) {
	ends, err := c.validate(ctx)
	if err != nil {
		return nil, err
	}
	t, err := timingsOf(c.Profile)
	if err != nil {
		return nil, err
	}
	c.Tags.NodeID = c.NodeID
	tags, err := c.Tags.encode()
	if err != nil {
		return nil, err
	}
	library := newLibraryLog(c.Logger)
	sc, err := c.serfConfig(&t, tags, library)
	if err != nil {
		return nil, err
	}
	// Serf leaks goroutines when it cannot bind, so the sockets are opened first.
	transport, port, err := listen(ends.bind, library)
	if err != nil {
		return nil, err
	}
	if p := ends.advertise.Port(); p != 0 {
		port = p
	}
	sc.MemberlistConfig.Transport = transport
	sc.MemberlistConfig.BindAddr, sc.MemberlistConfig.BindPort = ends.bind.Addr().String(), int(port)
	sc.MemberlistConfig.AdvertiseAddr = ends.advertise.Addr().String()
	sc.MemberlistConfig.AdvertisePort = int(port)

	d := &Discovery{
		log: c.Logger, library: library, t: t, tags: c.Tags,
		addr:  netip.AddrPortFrom(ends.advertise.Addr(), port),
		queue: newQueue(), seeds: newSeeds(c.Join),
		changes: make(chan []Member, 1), done: make(chan struct{}),
	}
	if err := d.open(sc); err != nil {
		return nil, errors.Join(err, transport.Shutdown())
	}
	ctx, d.stop = context.WithCancel(ctx)
	go d.run(ctx)
	return d, nil
}

// open creates Serf with the gate before it. Serf calls the gate before it is ready itself.
func (d *Discovery) open(sc *serf.Config) error {
	var ml atomic.Pointer[memberlist.Memberlist]
	d.gate = &gate{
		self: nodeAt{sc.NodeName, d.addr}, log: d.library, changed: d.queue.signal, keep: d.t.keepRefusal,
		answers: func(name string, at netip.AddrPort) bool {
			m := ml.Load()
			if m == nil {
				return false
			}
			_, err := m.Ping(name, net.UDPAddrFromAddrPort(at))
			return err == nil
		},
		cluster:  d.tags.ClusterID,
		refusals: make(map[nodeAt]*Conflict), disputes: make(map[nodeAt]*dispute),
	}
	sc.MemberlistConfig.Merge, sc.MemberlistConfig.Alive = d.gate, d.gate

	events := make(chan serf.Event, eventBuffer)
	sc.EventCh = events
	s, err := serf.Create(sc)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	ml.Store(s.Memberlist())
	d.serf = s
	d.events = events
	return nil
}

// listen opens the TCP and UDP sockets and returns the port they share.
func listen(bind netip.AddrPort, log *libraryLog) (*memberlist.NetTransport, uint16, error) {
	attempts := 1
	if bind.Port() == 0 {
		attempts = bindAttempts
	}
	std := zap.NewStdLog(log.log)
	std.SetOutput(log)
	var failure error
	for range attempts {
		t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{bind.Addr().String()}, BindPort: int(bind.Port()), Logger: std,
		})
		if err == nil {
			return t, uint16(t.GetAutoBindPort()), nil
		}
		failure = err
	}
	return nil, 0, fmt.Errorf("discovery: bind %s: %w", bind, failure)
}

// run owns every goroutine of the Discovery and ends when all have.
func (d *Discovery) run(ctx context.Context) {
	defer close(d.done)
	defer close(d.changes)
	drained := make(chan struct{})
	var pump, workers sync.WaitGroup
	pump.Go(func() { d.pump(drained) })
	workers.Go(func() { d.loop(ctx) })
	workers.Go(func() { d.joinSeeds(ctx) })
	workers.Go(func() { d.auditDisputes(ctx) })

	<-ctx.Done()
	d.lifeMu.Lock()
	d.ended = true
	d.lifeMu.Unlock()
	d.leaves.Wait() // memberlist panics if it is shut down in the middle of a leave
	// The pump goes on: Serf may be sending an event with its lock held, which Shutdown would wait for.
	if err := d.serf.Shutdown(); err != nil {
		d.log.Warn("gossip did not stop cleanly", zap.Error(err))
	}
	d.library.silence()
	workers.Wait()
	close(drained)
	pump.Wait()
}

// pump moves events out of Serf's way until everything else has ended.
func (d *Discovery) pump(drained <-chan struct{}) {
	for {
		select {
		case e := <-d.events:
			d.queue.put(arrival{event: e, at: time.Now()})
		case <-drained:
			return
		}
	}
}

// loop turns events into lists. It is the only writer of the member list.
func (d *Discovery) loop(ctx context.Context) {
	r := newRoster()
	tick := time.NewTicker(d.t.reconcile)
	defer tick.Stop()
	for {
		for _, a := range d.queue.take() {
			r.observe(a.event, a.at)
		}
		members, strangers := r.list(time.Now(), d.serf.Members(), d.Tags().ClusterID)
		d.gate.update(members)
		for at, err := range strangers {
			_ = d.gate.refuse(at, err)
		}
		if d.gate.displaced() {
			// A refused merge does not keep everything out: answers to probes carry gossip too.
			members = slices.DeleteFunc(members, func(m Member) bool { return m.NodeID != d.gate.self.name })
		}
		d.publish(members)
		select {
		case <-ctx.Done():
			return
		case <-d.queue.wake:
		case <-tick.C:
		}
	}
}

// publish replaces the latest list and offers it, instead of one that nobody has taken yet.
func (d *Discovery) publish(members []Member) {
	conflicts := d.gate.conflicts()
	if old := d.latest.Load(); old != nil && slices.Equal(*old, members) && sameConflicts(d.told, conflicts) {
		return
	}
	d.told = conflicts
	d.latest.Store(&members)
	select {
	case <-d.changes:
	default:
	}
	d.changes <- slices.Clone(members) // room for one, and no other sender
}

// sameConflicts compares who is in conflict, not when.
func sameConflicts(a, b []Conflict) bool {
	return slices.EqualFunc(a, b, func(x, y Conflict) bool {
		return x.NodeID == y.NodeID && x.Addr == y.Addr && x.Other == y.Other && x.Reason == y.Reason
	})
}

// auditDisputes keeps Conflicts true.
func (d *Discovery) auditDisputes(ctx context.Context) {
	tick := time.NewTicker(d.t.audit)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.gate.audit(ctx)
		}
	}
}

// Addr returns the gossip address that others are told.
func (d *Discovery) Addr() netip.AddrPort {
	return d.addr
}

// Members returns the latest list, sorted by node id, this node among them. The caller may keep it.
func (d *Discovery) Members() []Member {
	if latest := d.latest.Load(); latest != nil {
		return slices.Clone(*latest)
	}
	return nil
}

// Changes returns the channel of member lists; see the package comment. It has one receiver. A list also
// comes when Conflicts has changed. It is closed when the Discovery has ended.
func (d *Discovery) Changes() <-chan []Member {
	return d.changes
}

// Conflicts returns what an operator must settle, sorted by node id: live nodes that share an id, for as
// long as they do, and nodes that were refused lately.
func (d *Discovery) Conflicts() []Conflict {
	return d.gate.conflicts()
}

// Twin says that this node is the second of two live ones with one id: it wanted to join, was refused because
// another live node answers to its name, and was never let in before. Other is where that one answers. It
// stays true, whatever becomes of the other: whoever has the id is not this process.
func (d *Discovery) Twin() (Conflict, bool) {
	if c := d.twin.Load(); c != nil {
		return *c, true
	}
	return Conflict{}, false
}

// SetTags changes what this node says about itself and waits until the news is on its way. The change
// function must not change NodeID; it gets a copy and is not called again. On ErrTagsTooLong, ErrConfig or
// ErrStopped nothing has changed. After any other error the new tags are set and spread with the next full
// exchange.
func (d *Discovery) SetTags(change func(*Tags)) error {
	d.tagsMu.Lock()
	defer d.tagsMu.Unlock()
	tags := d.tags
	change(&tags)
	if tags.NodeID != d.tags.NodeID {
		return fmt.Errorf("%w: the node id cannot change from %q to %q",
			ErrConfig, d.tags.NodeID, tags.NodeID)
	}
	encoded, err := tags.encode()
	if err != nil {
		return err
	}
	if d.serf.State() != serf.SerfAlive {
		return ErrStopped
	}
	d.tags = tags
	d.gate.setCluster(tags.ClusterID)
	if err := d.serf.SetTags(encoded); err != nil {
		return fmt.Errorf("discovery: tags are set but not yet spread: %w", err)
	}
	return nil
}

// Tags returns what this node says about itself.
func (d *Discovery) Tags() Tags {
	d.tagsMu.Lock()
	defer d.tagsMu.Unlock()
	return d.tags
}

// Forget declares a failed member gone for good, in the whole cluster, so that nobody waits for it or tries
// to reach it again. A member that is alive cannot be forgotten (ErrAlive): Serf would drop it for good.
func (d *Discovery) Forget(nodeID string) error {
	if d.stopping() || d.serf.State() != serf.SerfAlive {
		return ErrStopped
	}
	for _, m := range d.serf.Members() {
		if m.Name == nodeID && statusOf(m.Status) == Alive {
			return fmt.Errorf("%w: %q", ErrAlive, nodeID)
		}
	}
	if err := d.serf.RemoveFailedNodePrune(nodeID); err != nil {
		return fmt.Errorf("discovery: forget %q: %w", nodeID, err)
	}
	return nil
}

// Leave says goodbye, so that others see Left and not Failed, and waits until they can know it or ctx ends.
// The Discovery then serves only Members; Shutdown must follow. A second Leave, or one after the end, is
// ErrStopped.
func (d *Discovery) Leave(ctx context.Context) error {
	left := make(chan error, 1)
	d.lifeMu.Lock()
	if d.leaving || d.ended {
		d.lifeMu.Unlock()
		return ErrStopped
	}
	d.leaving = true
	// Serf's leave ends by itself, after two broadcast timeouts and the leave delay at the latest.
	d.leaves.Go(func() {
		d.joinMu.Lock()
		defer d.joinMu.Unlock()
		left <- d.serf.Leave()
	})
	d.lifeMu.Unlock()
	select {
	case err := <-left:
		if err != nil {
			return fmt.Errorf("discovery: leave: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("discovery: leave: %w", context.Cause(ctx))
	}
}

// stopping reports whether this node has begun to leave or to end.
func (d *Discovery) stopping() bool {
	d.lifeMu.Lock()
	defer d.lifeMu.Unlock()
	return d.leaving || d.ended
}

// Shutdown ends everything and waits for it, a Leave under way included. Without a Leave before it, others
// see this node fail. It may be called more than once.
func (d *Discovery) Shutdown() {
	d.stop()
	<-d.done
}
