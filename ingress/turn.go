package ingress

// turnReads is how often a turn's clock is read before it looks at the time again.
const turnReads = 64

// turnClock is the term as an engine's own goroutine sees it: its clock stands
// still for a few reads. Reading the cluster clock costs a system call, as it runs
// on CLOCK_BOOTTIME, and that was 5 to 7 % of a leader's work at one read a message.
// The lease and whether the term still leads are never kept.
type turnClock struct {
	Term

	now  int64
	left int
}

// Now implements Term: the cluster time of at most turnReads reads ago, in this turn.
func (c *turnClock) Now() int64 {
	if c.left == 0 {
		c.now, c.left = c.Term.Now(), turnReads
	}
	c.left--
	return c.now
}

// turn begins a turn.
func (c *turnClock) turn() { c.left = 0 }
