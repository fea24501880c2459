// Package differential sends the same client operations to a JetStream server and to Holdfast and compares
// everything a client sees.
//
// # How
//
// A seed makes a script: operations as raw bytes (subject, header block, body), chosen by what the streams and
// consumers of the JetStream side are at that moment. Two backends run it step by step: nats-server's own
// JetStream with file storage, and one Holdfast node, both in this process, each behind a client connection that
// keeps header blocks as they are on the wire. After each step are compared: the answer, everything that came to
// the inbox of any open pull request, the advisories, and the state of all streams and consumers as STREAM.LIST
// and CONSUMER.LIST tell it. At the end of a script every message of every stream is compared, and every inbox
// once more. The next operation is sent when both sides show the same.
//
//	op.go           what an operation is
//	gen_*.go        the generator
//	backend.go      the two servers
//	client.go       one connection and what arrived on it
//	run.go          a script on both
//	normal.go       what is not compared: times, ids, generated names
//	compare.go      differences
//	explained*.go   differences that are meant, each with its reason
//	apart.go        meant differences that stay: the stream is deleted on both sides
//	shrink.go       the shortest script with the same difference
//
// # Timing
//
// Nothing here sleeps for a time. A step is over when both sides gave what is due, or when one has and the other
// did not for Patience. Where JetStream gives no answer at all, both sides must stay silent for Silence. Values
// that depend on when something happened are not compared; what an ack wait, an expiry or an age does is waited
// for on each side and then compared.
//
// # Explained differences
//
// The list in explained_table.go is matched narrowly; a full run (see FullRun) fails for an entry that it never saw,
// so that the list shrinks when Holdfast learns something.
package differential
