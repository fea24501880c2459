package record

// Proposal is one entry on its way into a group's Raft log.
type Proposal struct {
	ID    ProposalID
	Entry []byte
	// Durable, if set, is called once when the leader has fsynced the entry in its
	// own log. It must not block: it runs inside the log store.
	Durable func()
	// Done is called exactly once, from a goroutine of the group: nil when the entry
	// was committed and applied here; otherwise an error that wraps ErrRefused,
	// ErrNotLeader (both: certainly not dispatched), ErrStalePlan (committed, a
	// no-op everywhere) or ErrUnknownOutcome. Calls of different proposals may come in
	// another order than the proposals were made. It must not block.
	Done func(error)
}
