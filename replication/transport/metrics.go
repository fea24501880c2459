package transport

import "sync/atomic"

// Counters count events since the transport was made; read them at any time.
type Counters struct {
	FramesSent, FramesReceived atomic.Uint64
	BytesSent, BytesReceived   atomic.Uint64

	Dials            atomic.Uint64 // attempts
	DialErrors       atomic.Uint64 // that failed, the handshake included
	Accepted         atomic.Uint64 // inbound connections past the handshake
	HandshakeRefused atomic.Uint64 // by this node
	Replaced         atomic.Uint64 // inbound connections closed for a newer one
	TwinsRefused     atomic.Uint64 // connections to or from a second process of a peer's id
	TwinsReplaced    atomic.Uint64 // processes of a peer given up for another one: they were silent
	ProtocolErrors   atomic.Uint64 // connections closed for malformed frames

	UnknownGroup     atomic.Uint64 // frames of groups this node does not have
	Quarantined      atomic.Uint64 // frames of quarantined groups
	WrongReceiver    atomic.Uint64 // frames for another incarnation
	WrongSender      atomic.Uint64 // frames from another incarnation, or another node's name
	Busy             atomic.Uint64 // frames refused because the group's queue was full
	HelloRefused     atomic.Uint64 // hellos that this node refused or was refused
	VotesEmbargoed   atomic.Uint64 // votes and pre-votes not sent or not answered
	TransfersRefused atomic.Uint64 // TimeoutNow from another than the current leader
	Stalled          atomic.Uint64 // appends not sent because a log write is stuck
	Timeouts         atomic.Uint64 // requests without an answer in time
	Calls            atomic.Uint64 // served

	SnapshotsSent, SnapshotsReceived         atomic.Uint64
	SnapshotsResumed                         atomic.Uint64 // sends that went on where an earlier one was cut
	SnapshotBytesSent, SnapshotBytesReceived atomic.Uint64
}
