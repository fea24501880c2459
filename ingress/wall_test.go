package ingress

import (
	"testing"
	"time"
	"unsafe"
)

// stepped is t as a wall clock that was moved by d would have read it: the reading of the
// monotonic clock stays.
func stepped(t time.Time, d time.Duration) time.Time {
	moved := t.Add(d)
	// A time.Time begins with its wall clock, the reading of the monotonic one follows.
	type layout struct {
		wall uint64
		ext  int64
	}
	(*layout)(unsafe.Pointer(&moved)).ext = (*layout)(unsafe.Pointer(&t)).ext
	return moved
}

// TestWallClockStepsMoveNoArrival: for how long a request has waited is not the wall clock's
// business. Virtual time has no monotonic clock apart from the wall clock, so this is real time.
func TestWallClockStepsMoveNoArrival(t *testing.T) {
	t.Parallel()
	e := &engine{began: time.Now()}
	for _, step := range []time.Duration{time.Hour, -time.Hour, 365 * 24 * time.Hour, -365 * 24 * time.Hour} {
		for _, waited := range []time.Duration{0, time.Second, time.Minute} {
			at := stepped(e.began.Add(waited), step)
			if got := at.UnixNano() - e.began.UnixNano(); got != int64(step+waited) {
				t.Fatalf("a step of %v moves the wall clock by %v", step, time.Duration(got))
			}
			if got := e.arrived(at); got != int64(waited) {
				t.Errorf("a step of %v: arrived %v after the begin, want %v", step, time.Duration(got), waited)
			}
		}
	}
}

// TestDeadlinesAreOfTheSharedTime: the node that finishes a request may have another wall
// clock than the one that it came to.
func TestDeadlinesAreOfTheSharedTime(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{0, time.Hour, -time.Hour} {
		shared := func() int64 { return time.Now().Add(off).UnixNano() }
		s := &Server{cfg: Config{Now: shared, HoldFor: DefaultHoldFor}}
		before, d, after := shared(), s.deadline(time.Now().Add(-time.Second)), shared()
		want := int64(DefaultHoldFor - time.Second)
		const slack = int64(time.Minute) // the clocks are read one after the other; a wrong one is an hour off
		if d < before+want-slack || d > after+want+slack {
			t.Errorf("shared time off by %v: a deadline %v from now, want %v", off, time.Duration(d-before), time.Duration(want))
		}
	}
}
