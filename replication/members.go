package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Change is a change of a group's configuration.
type Change int

// Changes. A replica always enters as a non-voter: AddVoter makes it count at once.
const (
	AddNonvoter Change = iota
	AddVoter
	Demote
	Remove
)

// changeWait is how long a change waits until Raft can take it: the one before it
// must be committed, and the term's first entry.
const changeWait = 5 * time.Second

// Configure changes the configuration of a group that this node leads and returns
// when the change is committed. server is "nodeID/incarnation". prev, if not 0, is
// the entry (Status.Configured) that holds the only configuration it may be made
// on. Errors: record.ErrNotLeader and record.ErrRefused (not made),
// record.ErrConflict (prev), record.ErrUnknownOutcome.
func (g *Group) Configure(ctx context.Context, change Change, server string, prev uint64) error {
	addr := raft.ServerAddress(server)
	if _, err := transport.NodeOf(addr); err != nil {
		return fmt.Errorf("%w: %w", record.ErrFormat, err)
	}
	in := g.inst.Load()
	if in == nil {
		return errTermOver
	}
	wait := changeWait
	if d, ok := ctx.Deadline(); ok {
		wait = max(time.Millisecond, min(wait, time.Until(d)))
	}
	id := raft.ServerID(addr)
	done := make(chan struct{})
	defer close(done)
	in.push(done)
	return configured(in.await(ctx, func() raft.Future {
		switch change {
		case AddNonvoter:
			return in.raft.AddNonvoter(id, addr, prev, wait)
		case AddVoter:
			return in.raft.AddVoter(id, addr, prev, wait)
		case Demote:
			return in.raft.DemoteVoter(id, prev, wait)
		default:
			return in.raft.RemoveServer(id, prev, wait)
		}
	}))
}

// push proposes an empty entry whenever a change of the configuration has not been committed for a heartbeat timeout.
// Raft sends the entry that makes a replica a voter before it counts that replica's word, and counts the word for an
// entry once: an answer that is quicker than that is not counted, and where it is needed for the majority, as with
// a dead voter to be removed, the change would wait for the next entry, which an idle group does not have.
func (in *instance) push(done <-chan struct{}) {
	in.mu.RLock()
	defer in.mu.RUnlock()
	if in.closed {
		return
	}
	in.routines.Go(func() {
		tick := time.NewTicker(in.g.cfg.Timeouts.Heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-in.gone:
				return
			case <-tick.C:
				in.barrier(func(error) {})
			}
		}
	})
}

// await runs a call of Raft and waits for its future beside the caller, who gives
// up when ctx ends.
func (in *instance) await(ctx context.Context, call func() raft.Future) error {
	in.mu.RLock()
	if in.closed {
		in.mu.RUnlock()
		return errTermOver
	}
	answer := make(chan error, 1)
	in.routines.Go(func() {
		f := call()
		releaseOn(f, in.gone)
		answer <- f.Error()
	})
	in.mu.RUnlock()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", record.ErrUnknownOutcome, ctx.Err())
	}
}

// certain says whether err is one of Raft's own that outcome knows how to read.
func certain(err error) bool {
	known := []error{
		raft.ErrLeadershipLost, raft.ErrRaftShutdown, raft.ErrNotLeader, raft.ErrEnqueueTimeout,
		raft.ErrLeadershipTransferInProgress,
	}
	return slices.ContainsFunc(known, func(e error) bool { return errors.Is(err, e) })
}

// configured maps the answer to a change of the configuration. Raft refuses one on
// another configuration, and one that leaves no voter, with errors that have a
// text only; nothing was stored then.
func configured(err error) error {
	switch {
	case err == nil, errors.Is(err, record.ErrUnknownOutcome), errors.Is(err, record.ErrNotLeader):
		return err
	case certain(err):
		return outcome(err)
	default:
		return fmt.Errorf("%w: %w", record.ErrConflict, err)
	}
}

// Transfer hands the leadership of the group to a node, or to the best one if node
// is empty, and returns when this node has stepped down. The target must be a
// voter that acknowledged everything but what is in flight within the last 200 ms.
// Errors: record.ErrNotLeader, record.ErrRefused (no such target, or another
// transfer runs); any other: the transfer failed, and this node may still lead.
func (g *Group) Transfer(ctx context.Context, node string) error {
	in := g.inst.Load()
	if in == nil || in.term.Load() == nil {
		return errTermOver
	}
	target, err := in.successor(node)
	if err != nil {
		return err
	}
	return in.transfer(ctx, target)
}

func (in *instance) transfer(ctx context.Context, target raft.ServerAddress) error {
	err := in.await(ctx, func() raft.Future {
		return in.raft.LeadershipTransferToServer(raft.ServerID(target), target)
	})
	if err == nil {
		return nil
	}
	if certain(err) {
		err = outcome(err)
	}
	return fmt.Errorf("transfer to %s: %w", target, err)
}

// yield hands the leadership to the best other replica, if there is one, beside the caller.
func (in *instance) yield() {
	in.mu.RLock()
	defer in.mu.RUnlock()
	if in.closed {
		return
	}
	in.routines.Go(func() {
		target, err := in.successor("")
		if err != nil {
			in.g.log.Info("leadership not handed over", zap.Error(err))
			return
		}
		f := in.raft.LeadershipTransferToServer(raft.ServerID(target), target)
		releaseOn(f, in.gone)
		if err := f.Error(); err != nil {
			in.g.log.Info("leadership not handed over", zap.Error(err))
		}
	})
}

// successor picks the replica to hand the leadership to. A transfer to one that does
// not answer can wedge hashicorp/raft v1.8.0 (issue 696).
func (in *instance) successor(node string) (raft.ServerAddress, error) {
	last, now := in.raft.LastIndex(), time.Now()
	voters := map[raft.ServerAddress]string{}
	for _, m := range members(in.raft.GetConfiguration().Configuration()) {
		if m.Voter && m.Node != in.g.host.cfg.NodeID {
			voters[raft.ServerAddress(m.Server)] = m.Node
		}
	}
	fit := slices.DeleteFunc(in.trans.Progress(), func(p transport.Progress) bool {
		n, voter := voters[p.Address]
		return !voter || (node != "" && n != node) || p.OutOfService || now.Sub(p.Contact) > transferFresh ||
			p.Match+uint64(in.limit) < last
	})
	switch {
	case node == in.g.host.cfg.NodeID:
		return "", fmt.Errorf("%w: node %q leads group %d already", record.ErrRefused, node, in.g.id)
	case node != "" && !slices.Contains(slices.Collect(maps.Values(voters)), node):
		return "", fmt.Errorf("%w: node %q has no vote in group %d; besides the leader, %s have", record.ErrRefused, node,
			in.g.id, strings.Join(slices.Sorted(maps.Values(voters)), ", "))
	case len(fit) == 0:
		return "", fmt.Errorf("%w: no voter %q that is caught up and answered within %v",
			record.ErrRefused, node, transferFresh)
	}
	best := slices.MaxFunc(fit, func(a, b transport.Progress) int { return cmp.Compare(a.Match, b.Match) })
	return best.Address, nil
}

// Progress is what a leader knows of another replica.
type Progress struct {
	Server string
	// Match is the last index it acknowledged in this term, 0 = none.
	Match uint64
	// Contact is how long ago it answered anything; negative = never.
	Contact time.Duration
	// OutOfService: since then, its node has said that it does not serve this replica; see transport.Progress.
	OutOfService bool
}

// Progress returns what the leader knows of the other replicas; nil if this node does not lead.
func (g *Group) Progress() []Progress {
	in := g.inst.Load()
	if in == nil || !in.leads() {
		return nil
	}
	var out []Progress
	for _, p := range in.trans.Progress() {
		c := time.Duration(-1)
		if !p.Contact.IsZero() {
			c = time.Since(p.Contact)
		}
		out = append(out, Progress{
			Server: string(p.Address), Match: p.Match, Contact: c, OutOfService: p.OutOfService,
		})
	}
	return out
}
