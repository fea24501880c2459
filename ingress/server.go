package ingress

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/ingress/publish"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Config is the configuration of a Server. Zero fields take the defaults.
type Config struct {
	// Node is this node's id, shown as leader in infos.
	Node string
	// Domain is the JetStream domain, if any.
	Domain string
	// Version is shown as _nats.ver.
	Version string
	// MinAck is the weakest ack level that any stream accepts. Default none.
	MinAck jsapi.AckLevel
	// QueueBytes bounds the events that wait for one group's engine. Default 64 MiB.
	QueueBytes int
	// HoldFor is how long a request waits for a leader to be known. Default 4 s.
	HoldFor time.Duration
	// HoldMax is how many requests may wait so. Default 1,024.
	HoldMax int
	// Groups is the number of event groups that new streams are spread over. Default 1.
	Groups uint32
	// Plan bounds the planners.
	Plan plan.Config
	// AgesTrusted says whether messages of a group may be deleted by age now; nil = always.
	AgesTrusted func(group uint32) bool
	// Now is the time that all nodes share, in nanoseconds since 1970; nil = this node's wall clock.
	Now func() int64
	// Open says whether streams may be created now; nil = always. A cluster that is
	// still being founded answers 10008, so that nothing is acked on one disk of three.
	Open func() bool
	// Full says whether this node has no room for new data: publishes and creates of streams are refused
	// with 10023 then; acks, deletes, reads and consumers go on. nil = never.
	Full func() bool
	// Voters is how many voters a group has; more replicas than that are refused. nil = 1.
	Voters func(group uint32) int
	// Resign asks that this node gives up the leadership of a group.
	Resign func(group uint32)
	// Cluster describes who holds a group, for infos; nil = this node alone.
	Cluster func(group uint32) *jsapi.ClusterInfo
	// ReadIndex returns when this replica of a group has applied what its leader had, under its
	// lease, at the time of the call; nil = at once.
	ReadIndex func(ctx context.Context, group uint32) error
	Logger    *zap.Logger
}

// Defaults of Config.
const (
	DefaultQueueBytes = 64 << 20
	DefaultHoldFor    = 4 * time.Second
	DefaultHoldMax    = 1024
)

func (c *Config) setDefaults() error {
	if c.Node == "" {
		return fmt.Errorf("ingress: Node is empty; it must be the node id")
	}
	if c.Logger == nil {
		return fmt.Errorf("ingress: Logger is nil; it must be set")
	}
	if c.QueueBytes == 0 {
		c.QueueBytes = DefaultQueueBytes
	}
	if c.HoldFor == 0 {
		c.HoldFor = DefaultHoldFor
	}
	if c.HoldMax == 0 {
		c.HoldMax = DefaultHoldMax
	}
	if c.Groups == 0 {
		c.Groups = 1
	}
	if c.MinAck == jsapi.LevelUnset {
		c.MinAck = jsapi.LevelNone
	}
	if c.Plan.Timeout == 0 {
		c.Plan.Timeout = plan.DefaultTimeout
	}
	return nil
}

// Reader gives the applied state of a group on this node, leading or not.
type Reader func(group uint32) Store

// Server is the NATS side of one node.
type Server struct {
	cfg      Config
	log      *zap.Logger
	meta     Meta
	dir      *directory
	facts    *facts
	read     Reader
	prefixes []string
	accounts map[string]*account
	ctx      context.Context //nolint:containedctx // the scope of background work; ended by Close
	cancel   context.CancelFunc
	tasks    sync.WaitGroup
	dropped  atomic.Uint64
	held     holder
	// metaCalls are the calls of group 0 that are worked on now.
	metaCalls atomic.Int32
	limbo     *limbo
	closing   atomic.Bool

	mu struct {
		sync.RWMutex
		engines map[uint32]*engine
	}
	stats  apiStats
	counts counters
}

// New connects every account of the hub and begins to serve. ctx bounds the start only.
func New(cfg Config, hub Hub, meta Meta, read Reader) (*Server, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ended by Close
	s := &Server{
		cfg: cfg, log: cfg.Logger, meta: meta, dir: newDirectory(meta), facts: newFacts(), read: read,
		prefixes: []string{jsapi.DefaultPrefix}, accounts: make(map[string]*account), ctx: ctx, cancel: cancel,
	}
	if cfg.Domain != "" {
		s.prefixes = append(s.prefixes, jsapi.DomainPrefix(cfg.Domain))
	}
	s.held.limit = cfg.HoldMax
	s.limbo = newLimbo(time.Duration(cfg.Plan.Timeout), DefaultLimboMax, s.tellLost)
	s.mu.engines = make(map[uint32]*engine)
	for _, acc := range hub.Accounts() {
		a := &account{Account: acc, srv: s}
		s.accounts[acc.Name] = a
	}
	for _, a := range s.accounts {
		if err := a.open(hub); err != nil {
			s.Close()
			return nil, fmt.Errorf("account %s: %w", a.Name, err)
		}
	}
	s.tasks.Go(s.retryHeld)
	s.tasks.Go(func() { s.limbo.run(ctx) })
	return s, nil
}

// Lead serves one leadership term of a group; it returns when ctx has ended and
// everything that it began has ended too. If it can not go on, because the state was
// not read, say, what waits is answered and the group given away; if nobody takes it,
// it is served anew.
func (s *Server) Lead(ctx context.Context, group uint32, term Term, store Store) {
	for again := true; again; {
		e := newEngine(ctx, s, group, term, store)
		s.mu.Lock()
		s.mu.engines[group] = e
		s.mu.Unlock()
		err := e.run()
		s.mu.Lock()
		if s.mu.engines[group] == e {
			delete(s.mu.engines, group)
		}
		s.mu.Unlock()
		again = err != nil && s.giveAway(ctx, e, err)
	}
}

// resignEvery is the pause between two tries to give a group away.
const resignEvery = 5 * time.Second

// giveAway ends the term from within: what an engine can not plan, the next leader's can. It says whether there is
// none after a while, and nothing is in flight any more that the engine proposed.
func (s *Server) giveAway(ctx context.Context, e *engine, why error) bool {
	if errors.Is(why, record.ErrNotLeader) || errors.Is(why, record.ErrUnknownOutcome) {
		e.log.Info("term is ending", zap.Error(why))
	} else {
		e.log.Error("group leader can not go on, giving leadership away", zap.Error(why))
	}
	t := time.NewTicker(resignEvery)
	defer t.Stop()
	for {
		if e.term.Check() == nil {
			s.resign(e.group)
		}
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
		if e.term.Check() == nil && e.term.Barrier(ctx) == nil {
			e.log.Warn("nobody else leads the group: going on")
			return true
		}
	}
}

func (s *Server) engine(group uint32) *engine {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.engines[group]
}

func (s *Server) account(name string) *account { return s.accounts[name] }

func (s *Server) resign(group uint32) {
	if s.cfg.Resign != nil {
		s.cfg.Resign(group)
	}
}

func (s *Server) agesTrusted(group uint32) bool {
	return s.cfg.AgesTrusted == nil || s.cfg.AgesTrusted(group)
}

// deadline is until when a request that came at a time is answered, in the time of Config.Now:
// another node may be the one that looks at it.
func (s *Server) deadline(came time.Time) int64 {
	return s.now() + int64(s.cfg.HoldFor-time.Since(came))
}

func (s *Server) now() int64 {
	if s.cfg.Now == nil {
		return time.Now().UnixNano()
	}
	return s.cfg.Now()
}

// LinkDown returns since when the link of any account is down, and whether one is.
func (s *Server) LinkDown() (since time.Time, down bool) {
	for _, a := range s.accounts {
		if at, d := a.link.Down(); d && (!down || at.Before(since)) {
			since, down = at, true
		}
	}
	return since, down
}

// Drain says that the node is shutting down: what ends from now on ends with
// "Server Shutdown".
func (s *Server) Drain() { s.closing.Store(true) }

// Close ends everything; terms must have ended before.
func (s *Server) Close() {
	for _, a := range s.accounts {
		a.closeConn() // nothing comes in from here on
	}
	s.cancel()
	s.tasks.Wait() // their answers still leave
	for _, a := range s.accounts {
		a.closeLink()
	}
}

// unplanned puts a publish that came without a valid lease, or was not planned when
// its term ended, into limbo.
func (s *Server) unplanned(ev *event) {
	if ev.msg.Reply != "" {
		s.limbo.add(lost{acct: ev.stream.acct, reply: ev.msg.Reply, stream: ev.stream.name, at: ev.at})
	}
}

func (s *Server) tellLost(p *lost) {
	e := jsapi.WithText(jsapi.CodeClusterNotAvail, publish.TextUnknown)
	p.acct.send(p.reply, nil, jsapi.AppendPubError(nil, p.stream, e))
}

// overloaded answers a publish that found the group's queue full. Without a valid lease
// another leader may have stored it.
func (s *Server) overloaded(term Term, ev *event) {
	s.dropped.Add(1)
	if term.Check() != nil {
		s.unplanned(ev)
		return
	}
	st := ev.stream
	e := jsapi.NewError(jsapi.CodeStreamTooManyRequests)
	st.acct.send(ev.msg.Reply, jsapi.AppendStatus(nil, jsapi.StatusTooManyRequests), jsapi.AppendPubError(nil, st.name, e))
}
