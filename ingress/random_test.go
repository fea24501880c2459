package ingress

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/publish"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestQueueUnderFaults runs a work queue with random publishes, pulls, acks,
// refusals, lost outcomes, leases and leaders, and judges what clients saw:
//
//   - every publish is answered once;
//   - a message that was acked to its publisher by quorum is there until a worker acks it;
//   - one that was said not to be stored never comes;
//   - one whose ack was confirmed is not delivered again, by any leader;
//   - no two publishes got one sequence.
func TestQueueUnderFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(m{"retention": "workqueue"})
				n.consumer("C", m{"ack_wait": 10 * time.Second, "max_ack_pending": 20})
				c := &chaos{
					t: t, rng: rand.New(rand.NewPCG(seed, 7)), nodes: []*node{n, n.w.node("n2", Config{})},
					publishes: map[string]*published{}, acks: map[string]string{}, asked: map[string]bool{},
					acked: map[string]bool{}, confirmed: map[string]bool{},
				}
				n.term.hold()
				for range 500 {
					c.step()
				}
				c.finish()
			})
		})
	}
}

type published struct {
	id, level string
	replies   []sent
}

type delivery struct {
	id, reply string
	node      *node
}

type chaos struct {
	t     *testing.T
	rng   *rand.Rand
	nodes []*node
	lead  int
	seen  [2]int // messages of each link that were looked at

	publishes map[string]*published // by reply inbox
	acks      map[string]string     // reply inboxes of double acks, to message ids
	asked     map[string]bool       // inboxes of pulls
	open      []delivery            // delivered, not acked
	acked     map[string]bool       // an ack was sent
	confirmed map[string]bool       // and answered
}

func (c *chaos) leader() *node { return c.nodes[c.lead] }

func (c *chaos) step() {
	n := c.leader()
	switch p := c.rng.IntN(100); {
	case p < 30:
		c.publish()
	case p < 42:
		inbox := n.pull("C", fmt.Sprintf(`{"batch":%d,"expires":20000000000}`, 1+c.rng.IntN(5)))
		c.asked[inbox] = true
	case p < 64:
		c.ack()
	case p < 84:
		if n.term.pending() > 0 {
			n.term.commit()
		}
	case p < 88:
		if k := n.term.pending(); k > 0 {
			n.term.durable(c.rng.IntN(k))
		}
	case p < 92:
		if n.term.pending() > 0 {
			n.term.refuse([]error{record.ErrRefused, record.ErrStalePlan}[c.rng.IntN(2)])
		}
	case p < 94:
		n.term.set(func() { n.term.lease = !n.term.lease })
	case p < 97:
		pass(time.Duration(c.rng.IntN(8000)) * time.Millisecond)
	default:
		c.failover()
	}
	c.look()
}

func (c *chaos) publish() {
	id := fmt.Sprint("m", len(c.publishes))
	level := []string{"quorum", "quorum", "quorum", "leader", "none"}[c.rng.IntN(5)]
	inbox := c.leader().send("s.a", withAck(level), id)
	c.publishes[inbox] = &published{id: id, level: level}
}

func (c *chaos) ack() {
	if len(c.open) == 0 {
		return
	}
	i := c.rng.IntN(len(c.open))
	d := c.open[i]
	c.open = append(c.open[:i], c.open[i+1:]...)
	switch c.rng.IntN(6) {
	case 0: // forgotten
	case 1:
		c.leader().ack(d.reply, "-NAK")
	case 2, 3:
		c.acked[d.id] = true
		c.leader().ack(d.reply, "+ACK")
	default:
		c.acked[d.id] = true
		c.acks[c.leader().send(d.reply, "", "+ACK")] = d.id
	}
}

// failover ends the term. A prefix of what it had in flight is in the next leader's log.
func (c *chaos) failover() {
	n := c.leader()
	if n.term.pending() > 0 && c.rng.IntN(3) == 0 {
		n.term.lose()
	}
	old := n.term
	var flight []*record.Proposal
	for p := old.take(); p != nil; p = old.take() {
		flight = append(flight, p)
	}
	n.endTerm()
	for _, p := range flight[:c.rng.IntN(len(flight)+1)] {
		if err := n.w.group.apply(p.Entry, old.number); err != nil && !errors.Is(err, record.ErrStalePlan) {
			c.t.Fatal(err)
		}
	}
	c.look()
	c.lead = c.rng.IntN(2)
	c.leader().lead().hold()
}

// look judges what was sent since the last look.
func (c *chaos) look() {
	c.t.Helper()
	for i, n := range c.nodes {
		n.hub.link.mu.Lock()
		news := n.hub.link.sent[c.seen[i]:]
		c.seen[i] = len(n.hub.link.sent)
		n.hub.link.mu.Unlock()
		for _, s := range news {
			c.judge(n, s)
		}
	}
}

func (c *chaos) judge(n *node, s sent) {
	c.t.Helper()
	if p := c.publishes[s.to]; p != nil {
		if p.replies = append(p.replies, s); len(p.replies) > 1 {
			c.t.Fatalf("%s (%s) is answered twice: %+v", p.id, p.level, p.replies)
		}
		return
	}
	if id, ok := c.acks[s.to]; ok {
		if s.header == "" {
			c.confirmed[id] = true
		}
		return
	}
	if !c.asked[s.to] || s.subject == "" {
		return
	}
	if c.confirmed[s.body] {
		c.t.Fatalf("%s delivers %s, whose ack was confirmed", n.name, s.body)
	}
	c.open = append(c.open, delivery{s.body, s.reply, n})
}

// finish ends the faults, drains the queue and judges the whole.
func (c *chaos) finish() {
	n := c.leader()
	n.term.set(func() { n.term.lease = true })
	n.term.release()
	if n.srv.engine(1).p.Err() != nil {
		n.endTerm()
		n.lead()
	}
	pass(10 * time.Second)
	c.look()
	for round := 0; n.state().Msgs > 0; round++ {
		if round == 100 {
			c.t.Fatalf("the queue does not drain: %+v, %+v", n.state(), n.consumerInfo("C"))
		}
		c.asked[n.pull("C", pullMany(20))] = true
		pass(11 * time.Second)
		c.look()
		for _, d := range c.open {
			c.acked[d.id] = true
			c.acks[n.send(d.reply, "", "+ACK")] = d.id
		}
		c.open = nil
		c.look()
	}
	seqs := map[uint64]string{}
	for inbox, p := range c.publishes {
		if len(p.replies) != 1 {
			c.t.Fatalf("%s (%s, %s) has %d answers", p.id, p.level, inbox, len(p.replies))
		}
		c.verdict(p, seqs)
	}
	if in := n.consumerInfo("C"); in.NumPending != 0 || in.NumAckPending != 0 {
		c.t.Fatalf("the empty queue's consumer is %+v", in)
	}
}

func (c *chaos) verdict(p *published, seqs map[uint64]string) {
	var r struct {
		Seq   uint64       `json:"seq"`
		Error *jsapi.Error `json:"error"`
	}
	if err := json.Unmarshal([]byte(p.replies[0].body), &r); err != nil {
		c.t.Fatalf("%s: %q", p.id, p.replies[0].body)
	}
	switch {
	case r.Error != nil && strings.Contains(r.Error.Description, publish.TextNotStored):
		if c.acked[p.id] {
			c.t.Fatalf("%s was said not to be stored, and was delivered", p.id)
		}
	case r.Error != nil || p.replies[0].header != "":
		// Unknown, or not by quorum: anything may have become of it.
	default:
		if other, ok := seqs[r.Seq]; ok {
			c.t.Fatalf("%s and %s both have sequence %d", p.id, other, r.Seq)
		}
		seqs[r.Seq] = p.id
		if !c.acked[p.id] {
			c.t.Fatalf("%s is lost: stored as %d, never acked by a worker, and not in the queue", p.id, r.Seq)
		}
	}
}
