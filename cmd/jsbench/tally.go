package main

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A numberSet holds message numbers. All methods may be called at the same time.
type numberSet struct {
	words []atomic.Uint64
	limit uint32
	count atomic.Int64
}

func newNumberSet(limit int) *numberSet {
	return &numberSet{words: make([]atomic.Uint64, (limit+63)/64), limit: uint32(limit)}
}

// add puts a number in and reports whether it is new; one out of range never is.
func (s *numberSet) add(n uint32) bool {
	if n >= s.limit {
		return false
	}
	bit := uint64(1) << (n % 64)
	if s.words[n/64].Or(bit)&bit != 0 {
		return false
	}
	s.count.Add(1)
	return true
}

func (s *numberSet) len() int { return int(s.count.Load()) }

// missingIn counts the numbers of s that other does not hold.
func (s *numberSet) missingIn(other *numberSet) int {
	missing := 0
	for i := range s.words {
		missing += bits.OnesCount64(s.words[i].Load() &^ other.words[i].Load())
	}
	return missing
}

// A tally is what one run counts.
type tally struct {
	began time.Time
	run   uint32

	acked    *numberSet // published and acknowledged
	received *numberSet // delivered at least once
	repeats  atomic.Int64
	failures atomic.Int64
	progress atomic.Int64 // time of the latest new ack or delivery, nanoseconds since began

	mu        sync.Mutex
	latencies []time.Duration // guarded by mu
	firstErr  error           // guarded by mu
}

func newTally(c *Config, run uint32) *tally {
	return &tally{
		began: time.Now(), run: run, acked: newNumberSet(c.Msgs), received: newNumberSet(c.Msgs),
	}
}

// now is the time since the run began.
func (t *tally) now() time.Duration { return time.Since(t.began) }

// moved notes progress.
func (t *tally) moved() { t.progress.Store(int64(t.now())) }

// idle is how long nothing has moved.
func (t *tally) idle() time.Duration { return t.now() - time.Duration(t.progress.Load()) }

// observe adds latencies.
func (t *tally) observe(some ...time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latencies = append(t.latencies, some...)
}

// fail counts a failed publish or ack and keeps the first reason.
func (t *tally) fail(err error) {
	t.failures.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.firstErr == nil {
		t.firstErr = err
	}
}

// reason is the first failure.
func (t *tally) reason() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.firstErr
}

// percentiles returns the p-quantiles of the latencies, zeros if there are none.
func (t *tally) percentiles(p ...float64) []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.latencies)
	out := make([]time.Duration, len(p))
	if n := len(t.latencies); n > 0 {
		for i, q := range p {
			out[i] = t.latencies[int(q*float64(n-1))]
		}
	}
	return out
}
