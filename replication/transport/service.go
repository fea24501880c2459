package transport

import (
	"context"
	"fmt"
	"time"
)

// Handler answers a call. The context ends when the caller's connection or the
// transport does. payload is the handler's to keep. An error reaches the caller as
// a RemoteError with its text.
type Handler func(ctx context.Context, from string, group uint32, payload []byte) ([]byte, error)

// Handle sets the handler for calls of a kind, replacing an earlier one; nil removes it.
// Handlers of one peer run concurrently, up to Config.MaxCalls.
func (t *Transport) Handle(kind uint8, h Handler) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h == nil {
		delete(t.st.handlers, kind)
		return
	}
	t.st.handlers[kind] = h
}

func (t *Transport) handler(kind uint8) Handler {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.st.handlers[kind]
}

// Call asks a node's handler and waits for its answer until ctx ends, without a
// limit of its own. Calls need no hello and no group on either side: the group
// number is passed to the handler. A call to the own node runs the handler here.
// Errors: RemoteError from the handler; ErrRefused (no handler, too many calls):
// certainly not handled; ErrUnreachable, ErrTimeout: possibly handled.
func (t *Transport) Call(
	ctx context.Context,
	nodeID string,
	group uint32,
	kind uint8,
	payload []byte,
) ([]byte, error) {
	if n := len(payload) + frameSlack; n > t.cfg.MaxFrameBytes {
		return nil, fmt.Errorf("%w: call of %d bytes, the limit is %d",
			ErrTooLarge, len(payload), t.cfg.MaxFrameBytes-frameSlack)
	}
	if nodeID == t.cfg.NodeID {
		return t.callSelf(ctx, group, kind, payload)
	}
	w := &wait{ctx: ctx.Done(), quit: t.closed}
	c, err := t.link(nodeID).acquire(w)
	if err != nil {
		return nil, callError(ctx, err)
	}
	r, err := c.roundTrip(frameCall, group, 1+len(payload), w, func(b []byte) []byte {
		return append(append(b, kind), payload...)
	})
	if err == nil {
		err = r.failure(nodeID)
	}
	if err != nil {
		return nil, callError(ctx, err)
	}
	return r.payload, nil
}

// callError adds why the context ended, so that callers can test for it.
func callError(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

func (t *Transport) callSelf(ctx context.Context, group uint32, kind uint8, payload []byte) ([]byte, error) {
	h := t.handler(kind)
	if h == nil {
		return nil, reply{status: statusNoHandler}.failure(t.cfg.NodeID)
	}
	out, err := h(ctx, t.cfg.NodeID, group, payload)
	if err != nil {
		return nil, &RemoteError{NodeID: t.cfg.NodeID, Text: err.Error()}
	}
	return out, nil
}

// serveCall runs a handler on its own goroutine; slots bounds how many do.
func (c *conn) serveCall(ctx context.Context, f frame, slots chan struct{}) {
	if len(f.payload) == 0 {
		c.answer(f, statusMalformed, "call without a kind")
		return
	}
	h := c.t.handler(f.payload[0])
	if h == nil {
		c.answer(f, statusNoHandler, "")
		return
	}
	select {
	case slots <- struct{}{}:
	default:
		c.t.count.Busy.Add(1)
		c.answer(f, statusBusy, "too many calls")
		return
	}
	c.t.count.Calls.Add(1)
	started := c.t.spawn(func(context.Context) {
		defer func() { <-slots }()
		out, err := h(ctx, c.peer, f.group, f.payload[1:])
		switch {
		case err != nil:
			c.answer(f, statusRemote, err.Error())
		case len(out)+frameSlack > c.t.cfg.MaxFrameBytes:
			c.answer(f, statusRemote, fmt.Sprintf("answer of %d bytes is too large", len(out)))
		default:
			c.reply(f, len(out), func(b []byte) []byte { return append(b, out...) })
		}
	})
	if !started {
		<-slots
	}
}

// newWait makes a wait with a deadline; stop releases its timer.
func newWait(timeout time.Duration, quit <-chan struct{}) (w *wait, stop func()) {
	t := time.NewTimer(timeout)
	return &wait{timeout: timeout, expired: t.C, quit: quit}, func() { t.Stop() }
}
