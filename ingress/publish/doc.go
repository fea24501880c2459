// Package publish turns a message on a stream's subject into one stored message
// and one reply.
//
// # Contract
//
// An Op is one publish. Its checks run in the order of a single JetStream server
// (the first that fails answers), on the plan state of the stream, so a client
// that waits for its PubAck sees what a single server would do.
//
// Checks that need nothing but the message and the configuration are answered at
// once. A duplicate, a refusal by a sequence or a limit, and the PubAck itself
// rest on planned state: they are sent when the envelope they rest on is applied.
//
// # Ack levels
//
// quorum: the PubAck is sent after the message is applied here, which is after a
// majority fsynced it. leader: after the leader fsynced it, with the header
// "Holdfast-Ack: leader"; its sequence is provisional. none: at admission, with
// sequence 0. Each publish with a reply subject is answered once, whatever the
// level and whatever happens after.
package publish
