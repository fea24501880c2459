package ingress

import "testing"

type tickingTerm struct {
	Term

	reads int64
}

func (t *tickingTerm) Now() int64 {
	t.reads++
	return t.reads
}

func TestATurnReadsTheClockOnceInAWhile(t *testing.T) {
	t.Parallel()
	term := &tickingTerm{}
	c := &turnClock{Term: term}
	for i := range turnReads {
		if got := c.Now(); got != 1 {
			t.Fatalf("read %d of the turn is %d, want 1", i+1, got)
		}
	}
	if got := c.Now(); got != 2 {
		t.Errorf("read %d is %d, want 2", turnReads+1, got)
	}
	c.turn()
	if got := c.Now(); got != 3 {
		t.Errorf("the first read of the next turn is %d, want 3", got)
	}
}
