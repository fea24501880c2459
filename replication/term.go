package replication

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Handler does what only the leader of a group may do.
type Handler interface {
	// Lead runs for one term of leadership. It is called after every entry of
	// earlier terms was applied here and must return when ctx ends, having ended
	// whatever it started; the next term waits for that. One that returns earlier
	// leaves the group without a planner until the next term.
	Lead(ctx context.Context, t *Term)
}

// barrierRetry is the pause between two tries of a Barrier that is refused.
const barrierRetry = 10 * time.Millisecond

// Term is one stretch of leadership of a group on this node. Safe for concurrent use.
type Term struct {
	inst   *instance
	number uint64
	cancel context.CancelFunc
	over   <-chan struct{}
	ended  atomic.Bool
	ready  atomic.Bool
}

// Number is the Raft term. Two Terms of one group may have the same number (the
// news of a lost leadership can come after the next one was won); the fence then
// tells their envelopes apart by Base.
func (t *Term) Number() uint64 { return t.number }

// Group is the replica that leads.
func (t *Term) Group() *Group { return t.inst.g }

// Base is the fence applied last on this replica. After Barrier returned and with
// nothing in flight it is what ordinal 1 of the next epoch is planned on. The next
// epoch is Base().Epoch+1 if Base().Term is Number(), and at least 1.
func (t *Term) Base() record.Fence { return t.inst.rep.fsm.fence() }

// NextID returns a proposal id that no other proposal of this boot has.
func (t *Term) NextID() record.ProposalID { return t.inst.g.ids.next() }

// Now is the cluster clock, in nanoseconds since 1970. It never goes back.
func (t *Term) Now() int64 { return t.inst.rep.clock.time() }

// Check returns nil if this node may act as the group's leader at this moment:
// the term has not ended, Raft still leads in it, and the lease is valid. It
// allocates nothing on success. Call it right before the write of whatever only a
// leader may say. Errors wrap record.ErrNotLeader.
func (t *Term) Check() error {
	if t.ended.Load() || t.inst.resigned.Load() {
		return errTermOver
	}
	// Raft leaves the state Leader before it grants a vote, so this order proves
	// leadership in this very term at the moment State was read.
	if t.inst.raft.State() != raft.Leader || t.inst.raft.CurrentTerm() != t.number {
		return errTermOver
	}
	if !plantedNoLease && !t.inst.trans.LeaseValid(t.number) {
		return errNoLease
	}
	return nil
}

var (
	errTermOver = fmt.Errorf("%w: the term is over", record.ErrNotLeader)
	errNoLease  = fmt.Errorf("%w: no valid lease", record.ErrNotLeader)
)

// Propose sends an entry into the group's log. It never blocks; p.Done is called
// exactly once, from a goroutine of the group, as record.Proposal says. Proposals
// of one caller enter the log in the order of the calls, those that enter it.
// p must not be changed before Done.
func (t *Term) Propose(p *record.Proposal) {
	if t.ended.Load() {
		t.inst.refuse(p, errTermOver)
		return
	}
	t.inst.propose(p)
}

// Barrier returns nil when every entry dispatched before the call has been applied
// here or can never be. A leadership transfer refuses barriers, and so does a full
// queue: it is tried again until ctx or the term ends. Errors wrap
// record.ErrNotLeader, or are ctx's.
func (t *Term) Barrier(ctx context.Context) error {
	for {
		err := t.barrierOnce(ctx)
		if err == nil || !errors.Is(err, record.ErrRefused) {
			return err
		}
		timer := time.NewTimer(barrierRetry)
		select {
		case <-timer.C:
		case <-t.over:
			timer.Stop()
			return errTermOver
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func (t *Term) barrierOnce(ctx context.Context) error {
	answer := make(chan error, 1)
	t.inst.barrier(func(err error) { answer <- err })
	select {
	case err := <-answer:
		if err == nil && (t.inst.raft.State() != raft.Leader || t.inst.raft.CurrentTerm() != t.number) {
			return errTermOver
		}
		if errors.Is(err, record.ErrUnknownOutcome) {
			return fmt.Errorf("%w: %w", errTermOver, err)
		}
		return err
	case <-t.over:
		return errTermOver
	case <-ctx.Done():
		return ctx.Err()
	}
}
