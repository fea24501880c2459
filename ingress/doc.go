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
// # One goroutine per led group
//
// An engine is one leadership term of one group. Its goroutine owns the plan
// (package plan), the consumers (package deliver) and their timers; everything
// else talks to it through a bounded queue that is never blocked on: a full
// queue is answered 10167. Events of one connection are handled in their order.
//
// # Effects
//
// Right before anything leaves that only a leader may say (delivery, status,
// read, leader ack) the engine asks the term whether it still leads.
//
// # Answers
//
// Every publish that asked for a reply is answered once. One that arrives without
// a valid lease may have reached the next leader too: it is not planned, and is
// answered after the timeout with "outcome unknown".
package ingress
