package transport

import (
	"errors"
	"fmt"
)

// Errors of this package; each is wrapped with what happened. Test with errors.Is.
var (
	// ErrClosed: the transport or the group's transport was closed, or is not running yet.
	ErrClosed = errors.New("transport closed")
	// ErrGroupExists: the group has a transport that was not closed.
	ErrGroupExists = errors.New("group already has a transport")
	// ErrUnreachable: no connection to the peer: no address, dial or handshake
	// failed, or it was lost before the answer came.
	ErrUnreachable = errors.New("peer unreachable")
	// ErrTimeout: the peer did not answer in time; it may still act on the request.
	ErrTimeout = errors.New("peer did not answer in time")
	// ErrRefused: the peer got the frame and refused it: an unknown or quarantined
	// group, another incarnation, a hello below a mark, a full queue.
	ErrRefused = errors.New("refused by peer")
	// ErrEmbargo: this replica, or the peer, may not ask for or give votes yet.
	ErrEmbargo = errors.New("vote embargo")
	// ErrStalled: a log write of this leader has been in flight for too long.
	ErrStalled = errors.New("log write stalled")
	// ErrQuarantined: the group is quarantined on this node.
	ErrQuarantined = errors.New("group quarantined")
	// ErrProtocol: bytes that are not a frame of this protocol.
	ErrProtocol = errors.New("protocol error")
	// ErrTooLarge: a frame or payload beyond its limit.
	ErrTooLarge = errors.New("too large")
	// ErrBelow: a replica is below a mark of its own; see HelloSource.CheckHello.
	ErrBelow = errors.New("below a mark")
	// ErrOtherCluster: the other side of a connection belongs to another cluster.
	ErrOtherCluster = errors.New("another cluster")
	// ErrTwin: another live process has the node id that one side of a connection gave.
	ErrTwin = errors.New("two live processes with one node id")
	// ErrHello: the hello of a peer was not accepted here.
	ErrHello = errors.New("hello not accepted")
)

// RemoteError is an error that the peer's handler, or the peer's Raft instance,
// returned. Its text is the peer's.
type RemoteError struct {
	NodeID string
	Text   string
}

// Error names the node and repeats its text.
func (e *RemoteError) Error() string { return fmt.Sprintf("%s: %s", e.NodeID, e.Text) }

// refusal is ErrRefused with the status that says why.
type refusal struct {
	node   string
	status status
	text   string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrRefused, r.node, r.status.describe(r.text))
}

func (r *refusal) Unwrap() error { return ErrRefused }
