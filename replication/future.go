package replication

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// releaseOn makes the wait for f end, with raft.ErrRaftShutdown, when gone is
// closed.
//
// hashicorp/raft v1.8.0 never answers a future that lies in one of its queues
// (proposals to dispatch, entries to apply) at Shutdown: who waits for it waits
// for ever. Its futures have a channel for that (deferError.ShutdownCh), which
// ApplyLog, Barrier and the configuration changes leave unset. The field is
// exported but its struct is not, hence reflect; nothing but Error reads it, and
// Error is called after this. It reports whether f has the field;
// TestReleaseOn holds it to that for every kind of future waited for here.
func releaseOn(f raft.Future, gone chan struct{}) bool {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return false
	}
	ch := v.Elem().FieldByName("ShutdownCh")
	if !ch.IsValid() || !ch.CanSet() || ch.Type() != reflect.TypeFor[chan struct{}]() {
		return false
	}
	ch.Set(reflect.ValueOf(gone))
	return true
}

// outcome maps the answer of a raft future to the errors of a record.Proposal.
// Refusals are certain: raft answers them before it dispatches the entry. All
// other errors may come after the entry was stored somewhere.
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return fmt.Errorf("%w: %w", record.ErrNotLeader, err)
	case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", record.ErrRefused, err)
	default:
		return fmt.Errorf("%w: %w", record.ErrUnknownOutcome, err)
	}
}

// ticket is one proposal between its dispatch and its Done.
type ticket struct {
	future raft.ApplyFuture // nil: refused is the answer
	failed error
	done   func(error)
}

// collector answers the proposals of one Raft instance. One goroutine waits for
// the futures in the order the proposals were made, so an answer may come later
// than it could, never in place of another.
type collector struct {
	observe func(error) // is told every answer of Raft, nil included

	mu     sync.Mutex // guards queue and closed
	queue  []ticket
	closed bool
	wake   chan struct{} // cap 1
	idle   sync.WaitGroup
}

func newCollector(observe func(error)) *collector {
	c := &collector{observe: observe, wake: make(chan struct{}, 1)}
	c.idle.Go(c.run)
	return c
}

// add queues a ticket; it never blocks. One that comes after close is answered all
// the same: its instance is gone, and so is whoever waited for the goroutine.
func (c *collector) add(t ticket) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.queue = append(c.queue, t)
	}
	c.mu.Unlock()
	if closed {
		go t.done(c.answer(&t))
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// close answers what is queued and ends the goroutine. The futures must have been
// released.
func (c *collector) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	c.idle.Wait()
}

func (c *collector) run() {
	var batch []ticket
	for {
		c.mu.Lock()
		batch, c.queue = c.queue, batch[:0]
		closed := c.closed
		c.mu.Unlock()
		for i := range batch {
			batch[i].done(c.answer(&batch[i]))
			batch[i] = ticket{}
		}
		if len(batch) > 0 {
			continue
		}
		if closed {
			return
		}
		<-c.wake
	}
}

func (c *collector) answer(t *ticket) error {
	if t.future == nil {
		return t.failed
	}
	err := t.future.Error()
	c.observe(err)
	if err != nil {
		return outcome(err)
	}
	switch r := t.future.Response().(type) {
	case nil:
		return nil
	case error:
		return r
	default:
		return fmt.Errorf("%w: response %T", record.ErrUnknownOutcome, r)
	}
}
