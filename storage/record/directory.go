package record

import "encoding/json"

// StreamPhase is where the life of a stream's directory row stands.
type StreamPhase string

// Phases of a directory row. Absent rows have none.
const (
	// StreamCreating: name and subjects are reserved; the leader of the group
	// stores the stream, subscribes, makes the row live and replies.
	StreamCreating StreamPhase = "creating"
	// StreamLive: the stream's group answers for it.
	StreamLive StreamPhase = "live"
	// StreamDeleting: the leader of the group removes the stream, then the row.
	StreamDeleting StreamPhase = "deleting"
)

// Request is an API request that a directory row carries until it is answered,
// so that whoever leads the group finishes it.
type Request struct {
	Subject  string          `json:"subject"`
	Reply    string          `json:"reply,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`
	Deadline int64           `json:"deadline"` // nanoseconds of cluster time; later it is finished without a reply
}

// StreamRow is the directory row of a stream: the reservation of its name and
// subjects within an account. Its configuration lives in its group.
type StreamRow struct {
	ID       StreamID    `json:"id"`
	Group    uint32      `json:"group"`
	Account  string      `json:"account"`
	Name     string      `json:"name"`
	Subjects []string    `json:"subjects"`
	Phase    StreamPhase `json:"phase"`
	Request  *Request    `json:"request,omitempty"`
}

// MetaRow is one row of group 0 as its replicas hold it.
type MetaRow struct {
	Key   string
	Value []byte
	// Version is the Raft index of the entry that wrote the row; 0 = no such row.
	Version uint64
	// Author is the id of the proposal that wrote it.
	Author ProposalID
}

// MetaCond is a condition of a group 0 write: the row has this version (0 = is absent).
type MetaCond struct {
	Key     string
	Version uint64
}

// MetaWrite is one change of a group 0 row; a nil Value deletes it.
type MetaWrite struct {
	Key   string
	Value []byte
}
