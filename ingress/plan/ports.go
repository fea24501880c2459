package plan

import (
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Term is the leadership term of a group that a Planner works for.
type Term interface {
	// Number is the Raft term.
	Number() uint64
	// Base is the fence applied last on this replica.
	Base() record.Fence
	// NextID returns a proposal id that no other proposal of this boot has.
	NextID() record.ProposalID
	// Propose hands an entry over; it never blocks. See record.Proposal.
	Propose(p *record.Proposal)
	// Now is the cluster time in nanoseconds.
	Now() int64
}

// Messages reads the applied messages of a stream.
type Messages interface {
	// Message returns a message that the caller may keep, or record.ErrNotFound.
	Message(stream record.StreamID, seq uint64) (record.Message, error)
	// Scan calls f for the stored messages from seq on, in order, until f returns
	// false. body is valid during the call only.
	Scan(stream record.StreamID, from uint64, f func(seq uint64, body []byte) bool) error
	// ScanKeys is Scan without reading the messages.
	ScanKeys(stream record.StreamID, from uint64, f func(seq uint64) bool) error
	// ScanSubject calls f for the stored sequences of exactly this subject from seq on, in order.
	ScanSubject(stream record.StreamID, subject string, from uint64, f func(seq uint64) bool) error
	// NextBySubject returns the first stored sequence at or above from of exactly this subject.
	NextBySubject(stream record.StreamID, subject string, from uint64) (seq uint64, ok bool, err error)
	// PrevBySubject returns the last stored sequence from floor to upTo of exactly this subject.
	PrevBySubject(stream record.StreamID, subject string, floor, upTo uint64) (seq uint64, ok bool, err error)
}

// Index reads the applied rows of a stream other than its messages.
type Index interface {
	// StreamState returns the counters of a stream, or record.ErrNotFound.
	StreamState(stream record.StreamID) (record.StreamState, error)
	// SubjectStat returns the row of a subject; ok is false if it has none.
	SubjectStat(stream record.StreamID, subject string) (st record.SubjectStat, ok bool, err error)
	// Subjects calls f for the subject rows whose subject starts with prefix and
	// is greater than after, in order, until f returns false.
	Subjects(stream record.StreamID, prefix, after string, f func(string, record.SubjectStat) bool) error
	// SubjectRows calls f for the rows of messages in the index of subjects, also dead ones, from one on, in
	// the order of subject and sequence, until f returns false: those of sequences below below, and the first
	// other one of each subject.
	SubjectRows(stream record.StreamID, subject string, from, below uint64, f func(subject string, seq uint64) bool) error
	// Dedup returns sequence and time of a message id; ok is false if it has none.
	Dedup(stream record.StreamID, id string) (seq uint64, at int64, ok bool, err error)
	// DedupUntil calls f for the ids used from one time to another, oldest first, until f returns
	// false; nothing older than from is left.
	DedupUntil(stream record.StreamID, from, until int64, f func(at int64, id string) bool) error
}

// Store is the applied state of a group as a Planner reads it.
type Store interface {
	Messages
	Index
}

// Listener hears what becomes of envelopes, for the parts of the plan that live
// outside of it (consumers).
type Listener interface {
	// Gather is asked for changes before an envelope is sealed: it may write
	// commands into the Planner's Builder. Their fate is told by tick.
	Gather(tick uint64)
	// Applied: the envelope of this tick is applied here.
	Applied(tick uint64)
	// Failed: the envelope of this tick is a no-op everywhere and never will be
	// applied; its facts have to be proposed again.
	Failed(tick uint64)
	// Stored: the applied state of a stream moved.
	Stored(s *Stream)
	// Rebuilt: all planned state was dropped; what the listener keeps of plans goes
	// too. The operations that made it are planned again after this call.
	Rebuilt()
	// Removed: the message left the stream; it is not delivered any more. Messages
	// below the stream's first sequence leave without a call when a prefix is cut.
	Removed(s *Stream, seq uint64, subject string)
}

// Op is an operation: a request that is judged against the plan.
type Op interface {
	// Plan judges the operation and writes what follows from it. It returns the
	// tick of the envelope that its answer rests on, 0 for none. It may be called
	// again after a rebuild, on another state.
	Plan(p *Planner) (rests uint64)
	// Done: the envelope that the last verdict rests on is applied; answer.
	Done(p *Planner)
	// Fail: the term ended, or the operation waited too long. certain: it was
	// not stored and never will be. It may be called before a late Done.
	Fail(certain bool)
	// Base returns the bookkeeping of the operation.
	Base() *OpBase
}

// OpBase is embedded in every operation.
type OpBase struct {
	// Arrived is when the operation came, nanoseconds of a monotonic clock of the owner.
	Arrived int64
	// Size counts against the admission budget, in bytes.
	Size int
	n    uint64
	late bool
}
