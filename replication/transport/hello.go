package transport

import "github.com/hashicorp/raft"

// Hello is what a replica says of itself on each connection before any other
// frame of its group.
type Hello struct {
	Term      uint64 // current term
	LastIndex uint64 // of the log or the snapshot, whichever is later
	LastTerm  uint64
	// TruncTerm is the term of the newest suffix truncation record of the log; 0 = none.
	TruncTerm uint64
	// Beat: the running cluster clock, the wall clock, the vector of marks.
	Beat Beat
}

// Beat is what a leader repeats in its append frames. Answers carry the wall
// clock of the follower only.
type Beat struct {
	// Clock is the running cluster clock, nanoseconds since 1970; 0 = none runs.
	Clock int64
	// AgeWait is for how many more nanoseconds nothing may be deleted by age.
	AgeWait int64
	// Wall is the wall clock, nanoseconds since 1970.
	Wall int64
	// Marks is the vector of marks, opaque here.
	Marks []byte
}

// HelloSource is a group's side of hellos and beats. The methods are called from
// goroutines of the transport, several at once; they must not block and must not
// close the group's transport.
type HelloSource interface {
	// LocalHello returns what this replica says of itself now.
	LocalHello() Hello
	// CheckHello judges a peer's hello. An error refuses all frames of the group between
	// the two on that connection. One that wraps ErrBelow (this replica or that peer is
	// below a mark) is told to the peer by this replica's hello, so that it finds the
	// same. The Marks are the source's to keep.
	CheckHello(peer raft.ServerAddress, h Hello) error
	// LocalBeat returns what to repeat in an append frame or its answer.
	LocalBeat() Beat
	// ObserveBeat is told the beat of an append that this replica's Raft accepted
	// (leading: the peer is the leader of its term), or of a follower's answer.
	ObserveBeat(peer raft.ServerAddress, leading bool, b Beat)
	// ObserveMatch is told that a peer acknowledged an append with a log position (no
	// heartbeat) of this leader: it has fsynced the log of term up to index.
	ObserveMatch(peer raft.ServerAddress, term, index uint64)
}

type noSource struct{}

func (noSource) LocalHello() Hello                          { return Hello{} }
func (noSource) CheckHello(raft.ServerAddress, Hello) error { return nil }
func (noSource) LocalBeat() Beat                            { return Beat{} }
func (noSource) ObserveBeat(raft.ServerAddress, bool, Beat) {}

func (noSource) ObserveMatch(raft.ServerAddress, uint64, uint64) {}
