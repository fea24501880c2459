// Package cases replays cases from the field: what users of systems like this one reported when messages were
// lost, delivered twice, or not delivered, with what must hold instead. It holds tests only.
//
// # Contract
//
// Everything is driven from outside, by a stock client (and by a sloppy one, see raw_test.go, for what a good
// client cannot send), against a cluster in this process. A case is named after what must hold; its comment says
// why it is there, with the public report where there is one. The times of a case are shortened, and no test
// sleeps: it waits for a condition, and what must not happen is told from a later event that would follow it.
//
//	cluster_test.go    TestOneNode and TestThreeNodes: the clusters, shared by their cases, and the client
//	acks_test.go       what an ack settles, and whose word counts
//	pulls_test.go      requests, and consumers that nobody asks
//	queue_test.go      work queues: filters, consumers that come and go, leaders that move
//	purge_test.go      messages that are removed under consumers and publishers
//	worker_test.go     a worker that is killed
//	ids_test.go        message ids
//	headers_test.go    header blocks, byte for byte
//	routes_test.go     nothing of one message gets into another
//
// Cases share a cluster, not a stream: each has its own stream and subjects. Those of TestOneNode run at the same
// time. Those of TestThreeNodes move leaders, so they run one after the other.
//
// What is decided without a cluster is tested beside the code that decides it; a case is here as well if routes,
// replicas or a new leader can make a difference, or if it takes a client to see it.
package cases
