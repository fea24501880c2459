// Package deliver decides what a consumer sends, and what becomes of it: a pure
// state machine. Events go in, actions come out; there is no goroutine, clock,
// I/O or lock, and nothing is kept but what a message in flight or a waiting
// request costs. Its owner is the goroutine of the group that leads the stream:
// it calls the methods with the cluster time and carries the actions out.
//
// # Use
//
//	Pull, Ack                a request, or a message to an ack subject, has come
//	Stored, Removed, …       the applied state of the stream moved
//	Tick                     NextDue has come
//	Wake                     Ready says so: delivers, at most MaxTurn messages
//	TakeChange               an envelope forms: absolute rows of what changed
//	Applied, Failed          what became of that envelope
//	Deleted, LeadershipChange, Shutdown   the end, told to every waiting request
//
// Events only note what they make possible; Wake delivers. So a burst of acks
// costs one Wake, and the owner takes the consumers that are ready in turn.
//
// # Facts and changes
//
// What was delivered and what was acked is a fact from the moment it happens: it
// is in memory, it counts, and it is never undone. Its record follows: TakeChange
// hands the rows that differ to the envelope named by a tag; Applied releases
// what rests on it; Failed makes them differ again, and the next envelope carries
// what they are then. Rows are absolute, so nothing is lost or done twice by that.
//
// Every answer rests on applied state. The answer to a double ack, for the ack
// and for each repeat of it, is given at once only if nothing of this consumer
// is on its way, otherwise when the last of it is applied (Limits.HoldTimeout at
// most, then it is dropped: the outcome is unknown to whoever asked, and so it
// should be). An unknown payload has no effect and is answered at once.
//
// A consumer with max_deliver 1 records each delivery before it sends it, and
// the statuses of its requests keep their place behind them. Should the request
// be gone by then, the delivery is recorded back.
//
// # Rows
//
// The cursor row is record.ConsumerState. A delivered message has a row of kind
// PendingAck or PendingNak until it is settled. PendingSettled is a message acked
// at or above the cursor: an earlier term delivered it and did not record it;
// the cursor steps over it and the row goes. PendingExhausted is a message
// that reached max_deliver. After a failover the ack waits go on from their rows.
//
// # Order of delivery
//
// First the redelivery queue: what falls due together in the order of the
// stream, naks in the order they came. Redeliveries ignore the window. Then, if
// fewer than max_ack_pending messages are unacked, the next message that matches.
// A nak that waits for its delay counts against the window, as in JetStream.
//
// Each message goes to the request at the head of the queue, which moves to the
// tail. A request whose client is gone, that expired, or whose byte budget is too
// small ends on the way; a budget is charged only with what was sent to it.
//
// # Acks
//
// Explicit: an ack settles a message if it is of the last delivery, or of one that
// nobody here knows a successor of. The ack of a delivery that another one has
// replaced is refused (503 if it asked for an answer): the message is somebody
// else's now, and his ack, nak or term stands. Only if he stays silent until his
// ack wait ends does the refused ack settle the message instead of a third
// delivery: the work was done, and a worker slower than its ack wait would
// otherwise go round for ever. Config.AckAnyDelivery, which ingress sets, is JetStream's rule: any
// delivery's ack settles. Nak and progress count only if they are of the last
// delivery; they are answered in any case. The ack of a message that reached
// max_deliver settles it.
//
// All: what is pending up to the sequence and matches the filters is settled.
// None: settled at delivery; acks are refused.
//
// An ack at or above the cursor settles the message if it matches and the stream
// holds it; otherwise it has neither an effect nor an answer. Under all it stands
// for what the consumer would deliver before it, too. At most max_ack_pending messages
// are settled ahead.
//
// The ack floor is the position just before the lowest pending message, or of the last
// delivery when there is none; under all it is the ack's own position. A message given
// up was not acked: it holds the floor until an ack leaves nothing pending.
//
// # Interest retention
//
// ActSettle says that this consumer does not need a message any more. The owner
// then asks every other consumer of the stream (Needs) and removes the message
// when none does: the cost of an ack is a binary search in each consumer of the
// stream, over its pending messages. Under workqueue retention there is one
// consumer per message and nobody to ask. A message given up after max_deliver is
// still needed. Needs reads the stream in one case only: a last_per_subject
// consumer that is still in its history.
//
// # Bounds
//
//	pending messages     max_ack_pending, else Limits.MaxUnacked; 100 bytes each
//	waiting requests     max_waiting; 96 bytes each and the reply subject
//	settled ahead        max_ack_pending, else Limits.MaxAhead; 8 bytes each
//	given up             Limits.MaxExhausted; 8 bytes each; above it known by their rows only
//	held answers         Limits.MaxHeld
//	one Wake             MaxTurn deliveries, MaxScan further reads
//	one Tick             MaxDue ack waits, every waiting request
//
// A consumer at rest is its Consumer value, about half a kilobyte, after Trim.
//
// # Not here
//
// Push delivery with flow control, priority groups, replay at the original pace
// and the reset of a consumer (the owner makes a new one from a new cursor).
package deliver
