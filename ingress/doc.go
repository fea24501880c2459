// Package ingress is the NATS side of a node: it receives publishes, API requests
// and acks on the CLIENT connection of each account, hands them to the engine of
// the group that owns the stream, and sends replies and deliveries over the
// account's LEAF link.
//
// # Who answers
//
// A Server runs on every node. Control verbs are subscribed on every node, and
// exactly one answers, by the stream's row in the directory (group 0): absent,
// creating or deleting → the leader of group 0; live → the leader of the
// stream's group. Stream subjects, $JS.ACK and MSG.NEXT are subscribed by the
// group's leader only, so NATS interest is the forwarding to the leader.
//
// INFO, LIST, NAMES and creates that find no leader are held by every node and
// answered by the one that leads then. A leader that has died is still named as one
// for a second or two, so every node also keeps, as a spare, what another one has to
// answer, until it heard of that leader sureAfter after the request came. Whoever
// leads the group next answers what it keeps (see holder for why that is once). A
// request stays with the group that had to answer when it came.
//
// # The directory in group 0
//
//	key                        value, JSON
//	stream/<account>/<name>    record.StreamRow: id, group, subjects, phase, request
//	account/<account>          journal: how many changes the account's streams had, the last names
//	ids/stream                 the last stream id given out, decimal
//
// A "/" in an account is written "%2F". Every write names the account's row in its
// conditions and adds to its journal, so reservations of one account never judge on
// the same state, and whoever knows the journal up to n reads what changed since
// instead of every row. A row in phase creating or deleting, or a live one with a
// request (an update of its subjects), is finished and answered by whoever leads the
// stream's group.
//
// # One goroutine per led group
//
// An engine is one leadership term of one group. Its goroutine owns the plan
// (package plan), the consumers (package deliver) and their timers; everything
// else talks to it through a bounded queue that is never blocked on: a full
// queue is answered 10167. Events of one connection are handled in their order.
//
// # Effects
//
// Right before anything leaves that only a leader may say (delivery, status, read,
// leader ack, none ack) whoever writes it asks whether this node still leads, and the
// link refuses it while it is down instead of keeping it for later. A read that can
// not be answered so is held again. Answers that rest on what is applied (PubAcks,
// results of calls that changed something, double acks) stay true and need no lease.
//
// # Answers
//
// Every publish that asked for a reply is answered once. One that arrives without
// a valid lease may have reached the next leader too: it is not planned, and is
// answered after the timeout with "outcome unknown". API calls, too, are answered
// once, and show what is applied: a consumer whose creation is in flight delivers
// nothing and is in no answer, one whose removal is in flight still is.
//
// After a rebuild of the plan the engine takes back what was planned of descriptions
// and consumers; their operations are planned again. What consumers delivered and
// what was acked are facts and are proposed again.
//
// # Long work
//
// Expiry, purges of a part, lowered limits, dead rows of a purge and message ids past
// their window go in bounded steps, each an entry of its own. A due row or a sweep row
// stands for what is left, written in the entry of the step before, so the next leader
// goes on from there without being asked. The row of a purge holds its reply subject:
// whoever finishes it answers. The deletion of a stream is a phase of its directory
// row, that of a consumer one entry.
//
// # A stop in order
//
// Settle comes before a planned end of the terms. Each engine closes the subjects of
// its streams, takes what the server had sent until then, and waits until no operation
// is open: those publishes get their PubAck, later ones find no responders and are
// tried again by the client. Then the terms end. Acks, pulls and requests are served
// up to that.
//
// # Subscriptions that end
//
// What the server had sent for a subscription before it knew of its end still comes
// (package conn) and finds the queue of its engine closed: publishes are told "outcome
// unknown" after the timeout, pulls "409 Leadership Change". Only acks are dropped:
// their messages come again.
package ingress
