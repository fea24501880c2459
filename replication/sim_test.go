package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Sizes of a simulated run, in virtual time.
const (
	simSeeds   = 4 // without SEEDS in the environment
	simLength  = 12 * time.Second
	simLength5 = 6 * time.Second // of five nodes, whose seconds cost more
	simClients = 6
	simWait    = 5 * time.Second // of a client for its answer
	counterKey = "counter"
)

// TestSim runs clusters under faults. SEEDS=n runs the seeds 1 to n, or from FIRST on, SEED=n
// that one alone. A seed gives the same plan of faults each time; what meets it may differ,
// since Raft draws its own timeouts.
func TestSim(t *testing.T) {
	first, last := 1, simSeeds
	if n, err := strconv.Atoi(os.Getenv("SEEDS")); err == nil {
		last = n
	}
	if n, err := strconv.Atoi(os.Getenv("FIRST")); err == nil {
		first = n
	}
	if n, err := strconv.Atoi(os.Getenv("SEED")); err == nil {
		first, last = n, n
	}
	if first > last {
		t.Fatalf("FIRST=%d is beyond SEEDS=%d: no seed is run", first, last)
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { simulate(t, uint64(seed)) })
		})
	}
}

// sim is one run.
type sim struct {
	*world

	rng    *rand.Rand // of the plan
	stop   chan struct{}
	ended  chan struct{} // of the controller: it works on while the clients have stopped
	work   sync.WaitGroup
	every  atomic.Int64 // one proposal in so many is refused; 0 = none
	chance struct {     // by lot: refusals in step with the envelopes of an epoch would never end
		sync.Mutex
		rng *rand.Rand
	}

	hurts atomic.Int64
	// hurtNodes are those whose disks a fault has changed; of the goroutine that runs the plan.
	hurtNodes map[*node]bool
	reads     atomic.Int64
	end       func() // closes ended

	hist history
	rows struct {
		ok, unknown atomic.Int64
	}
}

func simulate(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	nodes, length := 3, simLength
	switch seed % 4 {
	case 0:
		nodes = 1
	case 2:
		nodes, length = 5, simLength5
	}
	s := &sim{world: newWorld(t, nodes), rng: rng, stop: make(chan struct{}), ended: make(chan struct{})}
	s.hurtNodes = map[*node]bool{}
	s.end = sync.OnceFunc(func() { close(s.ended) })
	s.chance.rng = rand.New(rand.NewPCG(seed, 2))
	s.hist.init()
	halt := sync.OnceFunc(func() { close(s.stop) })
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
		s.down()
		halt()
		s.end()
		s.work.Wait()
	}()
	for _, n := range s.nodes {
		n.hook = func(*record.Proposal) bool { return s.refuses() }
	}
	s.found()
	s.register()
	s.work.Go(func() { s.control(s.ended) })
	for i := range simClients {
		s.work.Go(func() { s.client(i, rand.New(rand.NewPCG(seed, uint64(100+i)))) })
	}
	s.work.Go(func() { s.counter(rand.New(rand.NewPCG(seed, 99))) })
	s.work.Go(func() { s.reader(rand.New(rand.NewPCG(seed, 98))) })
	s.run(s.plan(length))
	halt()
	s.settle()
	s.end()
	s.work.Wait()
	s.verify()
	// Everything that was acknowledged is on the disks.
	s.powerCut(nil, 0, s.nodes...)
	s.settle()
	s.verify()
}

// refuses draws whether a proposal is refused.
func (s *sim) refuses() bool {
	every := s.every.Load()
	if every == 0 {
		return false
	}
	s.chance.Lock()
	defer s.chance.Unlock()
	return s.chance.rng.Int64N(every) == 0
}

func (s *sim) run(plan []fault) {
	begin := time.Now()
	for _, f := range plan {
		if d := f.at - time.Since(begin); d > 0 {
			s.pause(d)
		}
		s.log.Info("fault: " + f.what)
		f.do()
		if s.t.Failed() {
			return
		}
	}
}

// settle heals everything and waits until all replicas are equal.
func (s *sim) settle() {
	s.every.Store(0)
	s.desired.Store(nil)
	for _, n := range s.nodes {
		s.fabric.Rejoin(n.name, s.others(n)...)
		n.up()
	}
	s.undamaged()
	s.putAtLeastOnce("settled") // a transfer of the plan may still be on its way
	s.eventually("all replicas to be sound", func() bool {
		s.touch()
		s.undamaged()
		return s.sound()
	})
	s.eventually("all replicas at one index", func() bool {
		for group := range uint32(2) {
			first := s.nodes[0].host().Group(group).Status().Applied
			for _, n := range s.nodes {
				if st := n.host().Group(group).Status(); st.Applied != first || !st.Replicating {
					return false
				}
			}
		}
		return true
	})
}

// undamaged reports damage that no fault of the plan has done: a power cut is none.
func (s *sim) undamaged() {
	for _, n := range s.nodes {
		if s.hurtNodes[n] {
			continue
		}
		for _, g := range n.host().Groups() {
			if d := g.Damage(); d != nil {
				s.t.Fatalf("group %d at %s is damaged, and nobody damaged its disk: %s", g.ID(), n.name, d.Reason)
			}
		}
	}
}

// touch reads every row everywhere: rot that nobody has come by yet is found.
func (s *sim) touch() {
	for _, n := range s.nodes {
		for _, g := range n.host().Groups() {
			_, _ = g.Reader().StateHash(s.t.Context()) // damage shows in the group
		}
	}
}

func (s *sim) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// client publishes one value after the other and deletes some again.
func (s *sim) client(id int, rng *rand.Rand) {
	for k := 0; !s.stopped(); k++ {
		s.pause(time.Duration(rng.IntN(30)) * time.Millisecond)
		r := &request{
			value:  fmt.Sprintf("%d-%d-%s", id, k, padding[:rng.IntN(len(padding))]),
			answer: make(chan answer, 1),
		}
		if rng.IntN(4) == 0 {
			r.delete = s.hist.pick(id)
		}
		a, ok := s.ask(r)
		if !ok {
			continue
		}
		s.hist.record(id, r, a)
	}
}

var padding = func() string {
	b := make([]byte, 600)
	for i := range b {
		b[i] = byte('a' + i%26)
	}
	return string(b)
}()

// ask sends a request to whoever leads; false if nobody took it.
func (s *sim) ask(r *request) (answer, bool) {
	for _, n := range s.nodes {
		p := n.planner()
		if p == nil || p.dead.Load() || !p.submit(r) {
			continue
		}
		select {
		case a := <-r.answer:
			if p.dead.Load() {
				a.err = errUnknown // the answer was not heard
			}
			if a.err == nil && r.delete == 0 {
				s.visible(n, p, r, a.seq)
			}
			return a, true
		case <-time.After(simWait):
			return answer{err: errUnknown}, true
		}
	}
	return answer{}, false
}

// visible: what is acknowledged is applied where it was acknowledged.
func (s *sim) visible(n *node, p *planner, r *request, seq uint64) {
	h := n.host()
	if h == nil {
		return
	}
	m, err := h.Group(1).Reader().Message(testStream, seq)
	switch {
	case err == nil && string(m.Payload) != r.value:
		s.t.Errorf("%s: message %d is %.20q, acknowledged as %.20q", n.name, seq, m.Payload, r.value)
	case errors.Is(err, record.ErrNotFound) && n.planner() == p && !p.dead.Load():
		s.t.Errorf("%s: message %d (%.20q) was acknowledged and is not applied", n.name, seq, r.value)
	}
}

// reader reads as a leader answers reads: from its state, and then a look whether it
// leads. Everything that was acknowledged before a read began must be in it.
func (s *sim) reader(rng *rand.Rand) {
	for !s.stopped() {
		s.pause(time.Duration(rng.IntN(30)) * time.Millisecond)
		for _, n := range s.nodes {
			h, p := n.host(), n.planner()
			if h == nil {
				continue
			}
			t := h.Group(1).Term()
			if t == nil {
				continue
			}
			want := s.hist.top()
			row, err := h.Group(1).Reader().Stream(testStream)
			if (err != nil && !errors.Is(err, record.ErrNotFound)) || t.Check() != nil || p.dead.Load() {
				continue
			}
			s.reads.Add(1)
			if row.State.LastSeq < want {
				s.t.Errorf("%s: a read shows sequence %d after %d was acknowledged", n.name, row.State.LastSeq, want)
			}
		}
	}
}

// counter adds one to a row of group 0, on any node, by compare and set.
func (s *sim) counter(rng *rand.Rand) {
	for !s.stopped() {
		s.pause(time.Duration(rng.IntN(200)) * time.Millisecond)
		n := s.nodes[rng.IntN(len(s.nodes))]
		p, h := n.planner(), n.host() // in this order: a planner of an earlier boot is dead
		if h == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
		err := addOne(ctx, h.Meta())
		cancel()
		switch {
		case err == nil && p.dead.Load():
			s.rows.unknown.Add(1) // answered after the power was cut: nobody heard it
		case err == nil:
			s.rows.ok.Add(1)
		case !errors.Is(err, record.ErrConflict) && !errors.Is(err, record.ErrClosed):
			s.rows.unknown.Add(1)
		case errors.Is(err, record.ErrUnknownOutcome):
			s.rows.unknown.Add(1)
		}
	}
}

func addOne(ctx context.Context, m *Meta) error {
	row, err := m.Get(counterKey)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(string(row.Value))
	return m.Write(ctx, []record.MetaCond{{Key: counterKey, Version: row.Version}},
		[]record.MetaWrite{{Key: counterKey, Value: []byte(strconv.Itoa(n + 1))}})
}

// history is what the clients saw.
type history struct {
	mu      sync.Mutex
	acked   map[uint64]string // sequence to value
	last    map[int]uint64    // last acknowledged sequence of each client
	highest uint64            // of them all
	own     map[int][]uint64
	failed  map[string]bool
	deleted map[uint64]bool // acknowledged
	maybe   map[uint64]bool // deleted, or not
}

func (h *history) init() {
	h.acked, h.last, h.own = map[uint64]string{}, map[int]uint64{}, map[int][]uint64{}
	h.failed, h.deleted, h.maybe = map[string]bool{}, map[uint64]bool{}, map[uint64]bool{}
}

// top is the highest sequence that was acknowledged.
func (h *history) top() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.highest
}

// pick chooses one of the client's values to delete, 0 if it has none.
func (h *history) pick(client int) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	own := h.own[client]
	if len(own) == 0 {
		return 0
	}
	h.own[client] = own[1:]
	return own[0]
}

func (h *history) record(client int, r *request, a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case r.delete != 0 && a.err == nil:
		h.deleted[r.delete] = true
	case r.delete != 0 && errors.Is(a.err, errUnknown):
		h.maybe[r.delete] = true
	case r.delete != 0:
	case a.err == nil:
		h.acked[a.seq] = r.value
		h.own[client] = append(h.own[client], a.seq)
		if a.seq <= h.last[client] {
			h.failed[fmt.Sprintf("order: %d after %d", a.seq, h.last[client])] = true
		}
		h.last[client] = a.seq
		h.highest = max(h.highest, a.seq)
	case errors.Is(a.err, errFailed):
		h.failed[r.value] = true
	}
}

// verify compares all replicas with each other and with the history.
func (s *sim) verify() {
	t := s.t
	t.Helper()
	for _, n := range s.nodes {
		n.check()
		s.sane(n)
	}
	for group := range uint32(2) {
		s.equal(group)
	}
	s.verifyMessages()
	row, err := s.nodes[0].host().Meta().Get(counterKey)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := strconv.ParseInt(string(row.Value), 10, 64)
	if ok, unknown := s.rows.ok.Load(), s.rows.unknown.Load(); got < ok || got > ok+unknown {
		t.Errorf("counter is %d after %d additions and %d in doubt", got, ok, unknown)
	}
}

// sane reports files that were set aside as damaged on a disk that no fault has changed:
// what was damaged, and has healed since, left them behind.
func (s *sim) sane(n *node) {
	s.t.Helper()
	if s.hurtNodes[n] {
		return
	}
	for _, g := range n.host().Groups() {
		names, err := n.mu.fs.List(g.cfg.Dir)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, asidePrefix) {
				s.t.Errorf("group %d at %s was damaged, and nobody damaged its disk: %s", g.ID(), n.name, name)
			}
		}
	}
}

// equal compares the state of all replicas of a group at one index: rows of group 0
// are still written now and then.
func (s *sim) equal(group uint32) {
	s.t.Helper()
	s.eventually("replicas to compare", func() bool {
		var first storage.StateHash
		for i, n := range s.nodes {
			h, err := n.host().Group(group).Reader().StateHash(s.t.Context())
			if err != nil {
				s.t.Fatal(err)
			}
			switch {
			case i == 0:
				first = h
			case h.Index != first.Index:
				return false
			case h != first:
				s.t.Errorf("group %d: %s has %v, %s has %v", group, s.nodes[0].name, first, n.name, h)
			}
		}
		return true
	})
}

func (s *sim) verifyMessages() {
	t, h := s.t, &s.hist
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	stored := map[uint64]string{}
	last := uint64(0)
	err := s.nodes[0].group().Reader().Scan(testStream, 1, func(seq uint64, body []byte) bool {
		m, err := record.ParseMessage(seq, body)
		if err != nil {
			t.Error(err)
		}
		if seq <= last {
			t.Errorf("sequence %d after %d", seq, last)
		}
		last = seq
		stored[seq] = string(m.Payload)
		if h.failed[string(m.Payload)] {
			t.Errorf("message %d, said not to be stored, is", seq)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	row, err := s.nodes[0].group().Reader().Stream(testStream)
	if err != nil {
		t.Fatal(err)
	}
	if row.State.Messages != uint64(len(stored)) {
		t.Errorf("the stream counts %d messages and has %d", row.State.Messages, len(stored))
	}
	for seq := uint64(1); seq <= row.State.LastSeq; seq++ {
		if _, there := stored[seq]; !there && !h.deleted[seq] && !h.maybe[seq] {
			t.Errorf("sequence %d was given to nothing", seq)
		}
	}
	for problem := range h.failed {
		if len(problem) > 6 && problem[:6] == "order:" {
			t.Error(problem)
		}
	}
	for seq, value := range h.acked {
		got, there := stored[seq]
		switch {
		case h.deleted[seq] && there:
			t.Errorf("message %d is there after its delete was acknowledged", seq)
		case there && got != value:
			t.Errorf("message %d is %.20q, acknowledged as %.20q", seq, got, value)
		case !there && !h.deleted[seq] && !h.maybe[seq]:
			t.Errorf("message %d (%.20q) was acknowledged and is lost", seq, value)
		}
	}
	if len(h.acked) == 0 {
		t.Error("nothing was acknowledged")
	}
	if s.reads.Load() == 0 {
		t.Error("nothing was read")
	}
	t.Logf("acknowledged %d, deleted %d, not stored %d; reads %d, rows %d; disks damaged %d",
		len(h.acked), len(h.deleted), len(h.failed), s.reads.Load(), s.rows.ok.Load(), s.hurts.Load())
}
