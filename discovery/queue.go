package discovery

import (
	"sync"
	"time"

	"github.com/hashicorp/serf/serf"
)

// An arrival is an event of Serf and when the pump took it.
type arrival struct {
	event serf.Event
	at    time.Time
}

// queue is a list without a bound between the pump and the loop. It may grow without a bound because it is
// fed by changes of membership, which are few, and because the alternative, to block, stops Serf.
type queue struct {
	mu   sync.Mutex
	list []arrival // guarded by mu
	wake chan struct{}
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1)}
}

// put adds an arrival and never blocks.
func (q *queue) put(a arrival) {
	q.mu.Lock()
	q.list = append(q.list, a)
	q.mu.Unlock()
	q.signal()
}

// signal wakes the reader, with or without news.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns everything put so far, oldest first.
func (q *queue) take() []arrival {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list = nil
	return list
}
