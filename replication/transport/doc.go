// Package transport is the port that the replicas of all groups talk through: a
// raft.Transport of our own, because hashicorp/raft v1.8.0 has open bugs that only
// a transport can disarm, and a small request service beside it.
//
// # What it promises
//
//   - Identity. A replica is "nodeID/incarnation", its Raft server id and address
//     alike. Frames that are for another incarnation, or come from another than the
//     hello on their connection named, are refused and counted, as are frames of
//     unknown and quarantined groups. Real addresses come from Config.Resolve.
//   - One process. A node id is one process (the boot nonce of its handshake or welcome)
//     for each peer at a time. A connection, dialled or accepted, control or snapshot, of
//     another one is refused with ErrTwin while the current one is heard: while any of its
//     connections is open and a whole frame came on one within ProcessSilence (pings see
//     to that). When all are closed, as after a kill, the next one that comes is the
//     current one at once; when they are open and silent, as after a loss of power or of a
//     stopped process, one that has come for half of ProcessSilence, and the old ones'
//     connections are closed. Twin tells a process that a peer has refused it for
//     TwinPatience. Each peer judges by itself: two processes that different peers hear are
//     not told apart until one of these hears both.
//   - Order. One control connection per ordered pair of nodes, made by the sender of
//     requests, carries the frames of all groups; those of one group are handed to
//     Raft one after the other, in the order in which they were sent. A newer
//     connection of a peer replaces the older one, whose frames are dropped: it is
//     answered only after nothing of the old one is being handed over any more.
//     Calls (below) run concurrently and are not ordered.
//   - Heartbeats go through Consumer, as everything does (hashicorp/raft issue 695:
//     handled beside the main loop they let replicas diverge), and are not
//     pipelined (issue 612: one refusal can leave a follower without entries for ever).
//     Per peer and group one append with a log position and one heartbeat are in flight.
//   - Snapshots are followed by a heartbeat of their sender, at the receiver: a candidate
//     that got one would else know that leader for ever (see GroupTransport.beat).
//   - Dead-man switch. While the leader's log write has been in flight for more than
//     half a heartbeat timeout, its appends fail, so that followers elect another
//     (issue 503: otherwise they never would).
//   - Hello. On each connection, before any other frame of a group, both replicas say
//     their term, last entry, newest truncation term, marks and clocks, and judge the
//     other's (HelloSource). One that finds a replica below a mark still answers with its
//     own hello, and then refuses what follows: so the other finds it, too. A re-created
//     instance does it again on open connections.
//   - Vote embargo. From its creation a group's transport neither asks for nor gives
//     votes and pre-votes, nor accepts TimeoutNow, until one heartbeat timeout of
//     CLOCK_BOOTTIME has passed and hellos were exchanged with the current leader or
//     a majority; see embargo.
//   - Lease. For each group it keeps who acknowledged what and when it had been sent;
//     package lease says what follows. The lease is void from before TimeoutNow is
//     queued until the target has acknowledged an append that was queued after it on
//     the same connection or a later one (a later one is welcomed only after the
//     earlier was drained). The target, for its part, accepts TimeoutNow only from
//     the current leader, in its term, on the connection that its appends come by,
//     and then acknowledges no append of that term or an older one any more.
//   - Deadlines. Heartbeats, votes, hellos, TimeoutNow: one heartbeat timeout. Appends:
//     10 s. Snapshots: 10 s without progress, whatever their size. Every read and write
//     of a connection has a deadline; all are pinged.
//   - Limits. Every queue, frame, window and number of connections is bounded by a field of
//     Config; what goes beyond is refused with an answer, never dropped in silence.
//
// A group's transport belongs to one Raft instance. Close it and make another to
// re-create the instance in the running process.
//
// # Wire format, version 1
//
// Integers are big-endian. "str" is a one-byte length and bytes, "long" a four-byte
// length and bytes, "flag" a byte 0 or 1. A frame:
//
//	size  field
//	4     length of what follows
//	1     type
//	4     group (0 where none is meant)
//	8     request id, chosen by the dialer, repeated in the reply
//	rest  payload
//
// Payloads by type; the dialer sends all but welcome, pong, reply and snapshot ack:
//
//	 1 handshake      "HFRT", u16 version, u8 kind (1 control, 2 snapshot), str cluster id,
//	                  str from, str to (node ids), u64 boot nonce, u64 dial number
//	 2 welcome        "HFRT", u16 version, str cluster id, str node id, u64 boot nonce, str where
//	                  another process of the dialer's id is heard (empty = that is not why),
//	                  str refusal (empty = welcome)
//	 3 ping  4 pong   nothing
//	 5 reply          u8 status, then the answer (status 0) or a text
//	 6 hello          route, hello; answer: hello
//	 7 append         route, u64 term, u64 previous index, u64 previous term, u64 commit
//	                  index, beat, u32 count, entries; answer: u8 version, u64 term,
//	                  u64 last index, flag success, flag no backoff, i64 wall clock
//	 8 vote           route, u64 term, u64 last index, u64 last term, flag transfer;
//	                  answer: u8 version, u64 term, flag granted
//	 9 pre-vote       route, u64 term, u64 last index, u64 last term; answer as for vote
//	10 timeout now    route, u64 term; answer: u8 version
//	11 snapshot open  route, 16 bytes stream id (0 = none), u8 snapshot version, u64 term,
//	                  u64 last index, u64 last term, u64 configuration index, i64 size,
//	                  long configuration; answer: u8 version, u64 term, flag success
//	12 snapshot chunk bytes
//	13 snapshot ack   i64 bytes of the stream that the receiver has
//	14 call           u8 kind, payload; answer: payload
//
//	route   u8 Raft protocol version, str from, str to (addresses "nodeID/incarnation")
//	hello   u64 term, u64 last index, u64 last term, u64 truncation term, beat
//	beat    i64 cluster clock, i64 age wait, i64 wall clock, long marks
//	entry   u64 index, u64 term, u8 type, i64 appended at (nanoseconds since 1970, least
//	        value = none), long extensions, long data
//
// The first frame of a connection is its handshake, at most 4 KiB, as is the welcome,
// whose form is the same in all versions. The other side of a handshake must be of
// the same cluster and the node that was meant. A side that does not know its cluster
// yet is accepted for that connection, which ends when the side learns it.
//
// A snapshot connection carries, after its handshake, one hello, one snapshot open, the
// receiver's first acknowledgement, which says how much of the stream it held before, and
// the chunks from there on, at most a window of them unacknowledged; once all bytes are
// consumed the receiver repeats its acknowledgement while Raft restores. So a connection
// that ends costs a window at most of what was sent on it. Raft is handed a request whose
// size is that of the rest.
//
// An entry aliases the one buffer its frame was read into.
package transport
