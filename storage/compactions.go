package storage

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// compactions decides when one database compacts: as many at a time as Pebble
// thinks its backlog needs (GetAllowedWithoutPermission), and none before the
// database is open, since an open that fails would pull the files away from under
// them. Unlike Pebble's own scheduler it has no goroutine that looks every 100 ms:
// what is allowed changes only with a flush or a compaction, and both tell.
//
// It implements pebble.CompactionScheduler and the grant that goes with it. Its
// lock is never held over a call that takes the database's.
type compactions struct {
	db      pebble.DBForCompaction // set before any other call
	waiting sync.WaitGroup         // grants on their way

	mu           sync.Mutex
	open, closed bool // guarded by mu
	running      int  // guarded by mu
	granting     bool // guarded by mu; a goroutine is at it
	again        bool // guarded by mu; and has to look once more
}

// start allows compactions, those that were held back first.
func (c *compactions) start() {
	c.mu.Lock()
	c.open = true
	c.mu.Unlock()
	c.grantSoon()
}

// Register remembers the database.
func (c *compactions) Register(_ int, db pebble.DBForCompaction) { c.db = db }

// Unregister ends granting; no call to the database is left when it returns.
func (c *compactions) Unregister() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.waiting.Wait()
}

// TrySchedule allows a compaction if there is room. Pebble holds its lock.
//
//nolint:ireturn // Pebble's interface
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.roomLocked() {
		return false, nil
	}
	c.running++
	return true, c
}

// UpdateGetAllowedWithoutPermission comes after each flush. Pebble holds its lock.
func (c *compactions) UpdateGetAllowedWithoutPermission() { c.grantSoon() }

// Started is part of a grant.
func (c *compactions) Started() {}

// MeasureCPU is part of a grant.
func (c *compactions) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats is part of a grant; it could slow a compaction down.
func (c *compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done ends a compaction and lets the next one begin.
func (c *compactions) Done() {
	c.mu.Lock()
	c.running--
	c.mu.Unlock()
	c.grantSoon()
}

func (c *compactions) roomLocked() bool {
	return c.open && !c.closed && c.running < c.db.GetAllowedWithoutPermission()
}

// grantSoon has what is waiting scheduled, by a goroutine that ends before
// Unregister returns: the caller may hold the database's lock.
func (c *compactions) grantSoon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.granting || !c.roomLocked() {
		c.again = c.granting
		return
	}
	c.granting = true
	c.waiting.Go(c.grant)
}

func (c *compactions) grant() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.roomLocked() {
		c.again = false
		c.running++ // taken first, or two could take the same room
		c.mu.Unlock()
		accepted := c.db.Schedule(c)
		c.mu.Lock()
		if accepted {
			continue
		}
		c.running--
		if !c.again {
			break
		}
	}
	c.granting = false
}
