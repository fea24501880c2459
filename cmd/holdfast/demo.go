package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Names of the demo. Messages of a stream come from publishers whose number is even (for the queue) or odd.
const (
	queueName    = "DEMO_QUEUE"
	queueSubject = "demo.queue"
	logName      = "DEMO_LOG"
	logSubject   = "demo.log"
	workerName   = "WORKERS"
)

// Times of the demo.
const (
	// minDemo leaves time for two fail-overs, and for the first killed node to come back before the second.
	minDemo = 20 * time.Second
	// maxDemo keeps the message ids of the first publishes within the window of duplicates.
	maxDemo = 100 * time.Second
	// downTime is how long a killed node stays away.
	downTime = 5 * time.Second
	// drainTime bounds the wait for publishers and workers at the end.
	drainTime = 60 * time.Second
	// demoSetup bounds connecting and making streams.
	demoSetup = 20 * time.Second
	// maxPublishers keeps the demo small: what each sent is kept in memory.
	maxPublishers = 64
	// redeliverAfter is the ack wait of the consumers.
	redeliverAfter = 5 * time.Second
	// maxEvents bounds what one progress line tells.
	maxEvents = 16
)

// demo is one run.
type demo struct {
	env     *environment
	cluster *localCluster
	began   time.Time
	pubs    []*publisher
	queue   *tally // what the workers of the queue got
	logged  *tally // what the worker of the log got
	events  chan string
	kills   []*killing
}

// killing is one kill -9 of a leader.
type killing struct {
	at     time.Time
	victim string
	acked  chan time.Time // the first ack after it; cap 1
	after  time.Duration  // how long after it that was; 0: none came
}

func (c *demoCmd) validate() error {
	switch {
	case c.Duration < minDemo || c.Duration > maxDemo:
		return fmt.Errorf("--duration: is %v; give %v to %v", c.Duration, minDemo, maxDemo)
	case c.Publishers < 4 || c.Publishers > maxPublishers || c.Publishers%4 != 0:
		return fmt.Errorf("--publishers: is %d; give a multiple of 4, at most %d", c.Publishers,
			maxPublishers)
	case c.Profile != "lan" && c.Profile != "fast":
		return fmt.Errorf("--profile: %q is unknown; give lan or fast", c.Profile)
	}
	return nil
}

// Run runs the demo. It fails if anything acknowledged is lost, or stored twice
// although its publisher gave it a message id.
func (c *demoCmd) Run(env *environment) (err error) {
	if err := c.validate(); err != nil {
		return usage(err)
	}
	ctx, cancel := untilSignal(env)
	defer cancel()
	dir := c.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "holdfast-demo-"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				err = os.RemoveAll(dir)
			} else {
				env.say("\nData and logs of the nodes are kept in %s.", dir)
			}
		}()
	}
	each := make([]ports, localNodes)
	for i := range each {
		if each[i], err = freePorts(ctx); err != nil {
			return err
		}
	}
	cluster, err := newLocalCluster(dir, c.Profile, each)
	if err != nil {
		return err
	}
	d := &demo{env: env, cluster: cluster, queue: newTally(), logged: newTally()}
	d.events = make(chan string, maxEvents)
	defer func() { err = errors.Join(err, cluster.stop(env.ctx)) }()
	return d.run(ctx, c)
}

func (d *demo) run(ctx context.Context, c *demoCmd) error {
	d.env.say("Starting three nodes, each a process of its own …")
	began := time.Now()
	if err := d.cluster.start(ctx); err != nil {
		return err
	}
	d.env.say("All three serve after %.1f s: %s", time.Since(began).Seconds(),
		strings.Join(d.cluster.urls(), " "))
	if err := d.makeStreams(ctx); err != nil {
		return err
	}
	d.env.say("Streams: %s (work queue) and %s (limits), three replicas each, every ack from a quorum.\n",
		queueName, logName)
	var all crew
	defer all.stop()
	if err := d.startClients(ctx, c.Publishers, &all); err != nil {
		return err
	}
	if err := d.play(ctx, c.Duration); err != nil {
		return err
	}
	d.env.say("\nPublishers stop; the workers take what is left …")
	if err := d.drain(ctx, &all); err != nil {
		return err
	}
	return d.judge(ctx)
}

// connect opens a connection of a stock client to the cluster.
func (d *demo) connect(name string) (*nats.Conn, error) {
	return nats.Connect(strings.Join(d.cluster.urls(), ","), nats.Name(name), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}

func (d *demo) makeStreams(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoSetup)
	defer cancel()
	nc, err := d.connect("demo-setup")
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for _, s := range []jetstream.StreamConfig{
		{Name: queueName, Subjects: []string{queueSubject + ".>"}, Retention: jetstream.WorkQueuePolicy},
		{Name: logName, Subjects: []string{logSubject + ".>"}},
	} {
		s.Replicas = localNodes
		if _, err := js.CreateStream(ctx, s); err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
		if _, err := js.CreateConsumer(ctx, s.Name, jetstream.ConsumerConfig{
			Durable: workerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: redeliverAfter,
		}); err != nil {
			return fmt.Errorf("consumer of %s: %w", s.Name, err)
		}
	}
	return nil
}

// script is what happens to the nodes while clients work.
type script struct {
	d         *demo
	length    time.Duration
	kills     []time.Duration // when a leader is killed, from the beginning
	dead      *process        // waits for its return
	back      time.Time       // when that is
	returning chan error      // the start of a killed node is under way
}

// play lets time pass: a progress line every second, two kills of the leader, two returns.
func (d *demo) play(ctx context.Context, length time.Duration) error {
	s := &script{d: d, length: length, kills: []time.Duration{length / 6, length * 6 / 10}}
	d.began = time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := 0
	for {
		select {
		case <-ctx.Done():
			return errors.New("stopped before the end")
		case err := <-s.returning:
			if err != nil {
				return err
			}
			s.returning = nil
			continue
		case <-tick.C:
		}
		if done, err := s.step(ctx, time.Since(d.began)); done || err != nil {
			return err
		}
		last = d.progress(ctx, last)
	}
}

// step does what is due after so much time.
func (s *script) step(ctx context.Context, passed time.Duration) (done bool, err error) {
	if s.dead != nil {
		if time.Now().After(s.back) {
			s.returning = s.d.revive(ctx, s.dead)
			s.dead = nil
		}
		return false, nil
	}
	if passed > s.length+2*localReady {
		return false, errors.New("the script of the demo could not be carried out in time")
	}
	if s.returning != nil {
		return false, nil
	}
	if next := len(s.d.kills); next < len(s.kills) {
		if passed >= s.kills[next] {
			s.dead, err = s.d.killLeader(ctx)
			s.back = time.Now().Add(downTime)
		}
		return false, err
	}
	return passed >= s.length, nil
}

// progress prints one line and returns how many publishes are acked so far.
func (d *demo) progress(ctx context.Context, last int) int {
	acked, retries := 0, 0
	for _, p := range d.pubs {
		acked += int(p.acked.Load())
		retries += int(p.retries.Load())
	}
	leader := "-"
	if p := d.cluster.leader(ctx); p != nil {
		leader = p.id
	}
	var notes []string
	for len(d.events) > 0 {
		notes = append(notes, <-d.events)
	}
	d.env.say("%3.0fs  acked %7d (%+5d)  consumed %7d  retries %4d  leader %-2s  %s",
		time.Since(d.began).Seconds(), acked,
		acked-last, d.queue.distinct()+d.logged.distinct(), retries, leader, strings.Join(notes, "; "))
	return acked
}

// killLeader kills the leader of the streams' group as a crash would.
func (d *demo) killLeader(ctx context.Context) (*process, error) {
	victim := d.cluster.leader(ctx)
	if victim == nil {
		d.events <- "no leader to kill yet"
		return nil, nil //nolint:nilnil // tried again at the next tick
	}
	k := &killing{victim: victim.id, acked: make(chan time.Time, 1)}
	if err := victim.kill(); err != nil {
		return nil, err
	}
	k.at = time.Now()
	d.kills = append(d.kills, k)
	for _, p := range d.pubs {
		p.watch.Store(k)
	}
	d.events <- "KILLED the leader " + victim.id + " (SIGKILL)"
	return victim, nil
}

// revive starts a killed node again, on what its disk holds; the channel tells when it serves.
func (d *demo) revive(ctx context.Context, p *process) chan error {
	began, done := time.Now(), make(chan error, 1)
	d.events <- "starting " + p.id + " again"
	go func() {
		err := p.start(ctx, d.cluster.program)
		if err == nil {
			err = d.cluster.awaitReady(ctx, p)
		}
		if err == nil {
			d.events <- fmt.Sprintf("%s serves again, %.1f s after its start", p.id,
				time.Since(began).Seconds())
		}
		done <- err
	}()
	return done
}
