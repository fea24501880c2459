package ingress

import "sync"

// queue hands events from many goroutines to one, in order. Offers are bounded by
// bytes; what must not be lost (outcomes of proposals) is pushed regardless.
type queue struct {
	wake  chan struct{}
	limit int

	mu struct {
		sync.Mutex
		events []event
		bytes  int
		closed bool
	}
}

// offered is what became of an event.
type offered uint8

const (
	taken offered = iota
	full
	closed // nobody handles events any more
)

func newQueue(limit int) *queue {
	return &queue{wake: make(chan struct{}, 1), limit: limit}
}

// offer adds an event of a size, if there is room.
func (q *queue) offer(ev event, size int) offered {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.closed:
		return closed
	case q.mu.bytes+size > q.limit:
		return full
	}
	q.mu.events = append(q.mu.events, ev)
	q.mu.bytes += size
	q.signal()
	return taken
}

// push adds an event whatever the size of the queue; a closed one drops it.
func (q *queue) push(ev event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed {
		return
	}
	q.mu.events = append(q.mu.events, ev)
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// size is the sum of the sizes of the events offered and not taken.
func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.bytes
}

// take returns all events, leaving buf (emptied) for the next ones.
func (q *queue) take(buf []event) []event {
	clear(buf)
	q.mu.Lock()
	defer q.mu.Unlock()
	evs := q.mu.events
	q.mu.events, q.mu.bytes = buf[:0], 0
	return evs
}

// close refuses further events and returns those that are left.
func (q *queue) close() []event {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	evs := q.mu.events
	q.mu.events, q.mu.bytes = nil, 0
	return evs
}
