package ingress

import (
	"context"
	"sync"
)

// Settle takes no more publishes in and returns when every one that came before has
// its answer, or when ctx ends. It comes before a planned end of the terms: what is
// on its way then gets its PubAck, not "outcome unknown". Publishers find no
// responders until another node leads, and try again. Acks, pulls and requests are
// served until the terms end.
func (s *Server) Settle(ctx context.Context) {
	s.mu.RLock()
	engines := make([]*engine, 0, len(s.mu.engines))
	for _, e := range s.mu.engines {
		engines = append(engines, e)
	}
	s.mu.RUnlock()
	var wg sync.WaitGroup
	for _, e := range engines {
		wg.Go(func() { e.settle(ctx) })
	}
	wg.Wait()
}

// settle is Settle for one group.
func (e *engine) settle(ctx context.Context) {
	done := make(chan struct{})
	e.q.push(event{kind: evRun, fn: func(e *engine) {
		e.muted = true
		for _, st := range e.streams {
			if len(st.subs) == 0 {
				continue
			}
			if err := st.subscribe(); err != nil { // closes the subjects that a muted engine does not serve
				e.failed(st, "closing the subjects of a stream", err)
			}
		}
		e.tasks.Go(func() {
			for _, a := range e.srv.accounts {
				_ = a.conn.Flush(e.ctx) // one that is down has sent nothing
			}
			// What the server had sent is in the queue, before this.
			e.q.push(event{kind: evRun, fn: func(e *engine) { e.quiet = done }})
		})
	}})
	select {
	case <-done:
	case <-ctx.Done():
	case <-e.ctx.Done():
	}
}

// lookQuiet tells who waits for it that no operation is open any more.
func (e *engine) lookQuiet() {
	if e.quiet != nil && e.p.Held() == 0 {
		close(e.quiet)
		e.quiet = nil
	}
}
