package ingress

import "sync/atomic"

// counters are counted where the event happens.
type counters struct {
	publishes, answers, deliveries, acks, pulls atomic.Uint64
}

// Stats are counts since New, and what waits now. They are of this node only.
type Stats struct {
	// Publishes came to a leader here, Answers went back: PubAcks and errors.
	Publishes, Answers uint64
	// Deliveries were sent; Acks and Pulls (requests for messages) came.
	Deliveries, Acks, Pulls uint64
	// Requests of the API were answered, Errors of them with an error.
	Requests, Errors uint64
	// Refused because the queue of a group was full.
	Refused uint64
	// Held API requests wait for a leader.
	Held int
	// QueuedBytes wait for the engines of the groups led here.
	QueuedBytes int
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	c := &s.counts
	out := Stats{
		Publishes: c.publishes.Load(), Answers: c.answers.Load(), Deliveries: c.deliveries.Load(),
		Acks: c.acks.Load(), Pulls: c.pulls.Load(),
		Requests: s.stats.total.Load(), Errors: s.stats.errors.Load(), Refused: s.dropped.Load(),
	}
	s.held.mu.Lock()
	out.Held = len(s.held.calls)
	s.held.mu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.mu.engines {
		out.QueuedBytes += e.q.size()
	}
	return out
}
