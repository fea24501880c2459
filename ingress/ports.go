package ingress

import (
	"context"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Msg is a message that came in. Header is the raw header block, or nil; the
// receiver owns both slices.
type Msg struct {
	Subject, Reply string
	Header, Data   []byte
}

// Conn is the CLIENT connection of an account on this node.
type Conn interface {
	// Subscribe calls h for every message on subject, on the connection's one
	// reading goroutine; h must not block. The subscription outlives reconnects.
	Subscribe(subject string, h func(*Msg)) (cancel func(), err error)
	// Flush returns when the server has processed all that was sent before.
	Flush(ctx context.Context) error
	// Publish sends a message as a client.
	Publish(subject, reply string, header, body []byte) error
	// Close ends the connection.
	Close()
}

// Outgoing is a message that leaves over a link.
type Outgoing struct {
	Subject      string
	Header, Body []byte
	// Fenced: the right to send was checked right before and does not last, so the
	// message is refused, not kept, while the link is down.
	Fenced bool
}

// Link is the LEAF link of an account on this node. Its calls do not block.
type Link interface {
	// Send sends a message.
	Send(m *Outgoing) error
	// Deliver sends a message to an inbox which shows the client subject and the ack reply.
	// With link.ErrDown and link.ErrOverflow nothing was sent, and a later call may succeed.
	Deliver(inbox string, ack []byte, subject string, header, body []byte) error
	// Interest says whether anybody may listen on subject; since is when the request
	// that named it came.
	Interest(subject string, since time.Time) bool
	// Down says since when the link is down.
	Down() (since time.Time, down bool)
	// MaxPayload is the largest header and body together, in bytes.
	MaxPayload() int
	// Close ends the link.
	Close()
}

// Hub opens connections to the NATS server.
type Hub interface {
	// Accounts returns the accounts to serve.
	Accounts() []Account
	// Conn opens the CLIENT connection of an account.
	Conn(account string) (Conn, error)
	// Link opens the LEAF link of an account.
	Link(account string) (Link, error)
}

// Account is an account of the hub.
type Account struct {
	Name string
	// JetStream: the API is served; otherwise INFO is answered 10039.
	JetStream bool
	// Silent: another account answers the API for this one.
	Silent bool
}

// Term is one leadership term of a group on this node.
type Term interface {
	plan.Term
	// Barrier returns when everything proposed before has ended and is applied.
	Barrier(ctx context.Context) error
	// Check returns nil while effects of the term may leave this node.
	Check() error
}

// Rows reads the applied rows that describe streams and consumers.
type Rows interface {
	// Stream returns the description and the counters of a stream, or record.ErrNotFound.
	Stream(id record.StreamID) (description []byte, st record.StreamState, err error)
	// All calls stream for every stream, then consumer for every consumer, in the order of
	// streams: far cheaper for many than to ask for each.
	All(
		stream func(id record.StreamID, description []byte, st *record.StreamState),
		consumer func(id record.StreamID, description []byte),
	) error
	// Consumers calls f for every consumer of a stream.
	Consumers(id record.StreamID, f func(record.ConsumerID, []byte, record.ConsumerState) bool) error
	// Pendings calls f for the pending rows of a consumer, in order of sequence.
	Pendings(id record.StreamID, c record.ConsumerID, f func(record.Pending) bool) error
	// Sweeps calls f for the long work that is not done.
	Sweeps(f func(SweepRow) bool) error
	// Due calls f for the due rows up to a time, in order.
	Due(until int64, f func(DueRow) bool) error
}

// SweepRow is long work of a stream, its kind (see package plan) and how far it has come.
type SweepRow struct {
	Stream record.StreamID
	Kind   uint8
	Cursor []byte
}

// DueRow is one due row.
type DueRow struct {
	Bucket int64
	Stream record.StreamID
	Ticket uint64
	Kind   uint8
}

// Store is the applied state of one group on this node.
type Store interface {
	plan.Store
	Rows
}

// Meta is group 0 as every node holds it.
type Meta interface {
	// Get returns a row; ok is false if there is none.
	Get(key string) (record.MetaRow, bool)
	// Scan calls f for the rows whose key starts with prefix, in order.
	Scan(prefix string, f func(record.MetaRow) bool)
	// Write applies all writes if all conditions hold, else record.ErrConflict.
	// It returns when this replica has applied it.
	Write(ctx context.Context, conds []record.MetaCond, writes []record.MetaWrite) error
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
	// Leading says whether this node leads group 0 now, under its lease.
	Leading() bool
	// GroupLeader returns the node id that leads a group, "" if none is known, and when
	// this node last heard of it as the leader, if it is another one.
	GroupLeader(group uint32) (node string, heard time.Time)
}
