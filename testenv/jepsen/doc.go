// Package jepsen is the workload of Jepsen's JetStream test, in Go, with the stock
// client: one code for Holdfast and for nats-server, so that both are judged alike.
//
// # Systems
//
//	holdfast         three processes of Holdfast, or five; quorum acks
//	holdfast-leader  the same; the writers ask for the ack level leader
//	holdfast-none    or none
//	default          as many of nats-server, streams with as many replicas
//	always           the same with sync_interval: always
//
// Links between nodes go through testenv/netcut. Each node has a disk of its own, of
// testenv/lazyfs, which loses what was not synced at a power cut, or an ext4 image behind
// a loop device. Both need the right to mount; without it, what needs them is reported
// as not run.
//
// # Work
//
// Two writers per node, each with a connection to that node only, publish
// "<writer>-<counter>", each id once, with a timeout of 5 s and no retry: three of four
// to a stream that keeps everything, the fourth to a work queue. A worker per node
// fetches from the queue and double acks. A client per node reads and writes registers:
// subjects of a third stream, written with the last sequence of the subject as their
// expectation.
//
// A patient client per node stays where these give up, on a connection that no ping ends: its
// pulls of the work queue live for a minute, and for a minute it takes every answer to its reads
// of registers. So it hears what a leader does that was paused for longer than 5 s.
//
// # Faults
//
// A plan is a pure function of the seed. Each nemesis of the set comes once before any
// comes again, each of its variants once before one of them does; nemesis_table.go lists
// them. After each step everything is repaired; a process that ended by itself is started
// again, as a service manager does, and counted. Of Holdfast it is a violation, unless it was
// told to end, its disk had a fault (exit code 4), or it was removed or is a twin (exit code 2).
// A step that needs all other nodes, since
// it takes files or a node, or holds the others to a bound, is left out, and counted, while
// one of them does not serve or has no vote.
//
// A cluster of five has two of them killed, cut off, without power or damaged at once.
//
// Faults are parted into blocks of what three minutes have time for (Blocks). A plan begins
// with the block of its seed: short runs under so many seeds in a row, from a multiple of
// Blocks on, come to every fault, and a run of 30 minutes does, whatever its seed is.
//
// # Clocks
//
// The system is built with Overlay, if the set has the nemesis clock: time.Now of the
// standard library then adds what a file says. So the wall clock of one process moves for
// all that is compiled into it, and the product's own source has no hook for it. While the
// clocks move, messages with an age, ids, ack waits and delayed naks are looked at (probe).
//
// # Verdict
//
// At the end everything is repaired, and load goes on for a moment; then the queue is
// drained, and each node in turn is made the leader and the streams are read through
// it. Of Holdfast, the states of all replicas are compared by a hash over all rows, and each
// must be there; and no log may tell of a panic, another end by the runtime, or a data race.
// With a weaker level than quorum, lost, changed and disorder are allowed, but for registers, which
// are written at quorum.
// A run without a step, an acked publish, a confirmed ack or a read has tested nothing, which
// is a violation, too.
//
//	lost        acked − read by anybody; prefix, middle or postfix of its writer's messages.
//	            Of the work queue: acked − delivered to anybody
//	            Of a stream that no node can be read through, all acked are unreadable
//	lost by     the same through one node: divergence
//	unexpected  read − attempted
//	stored      refused for certain, and read
//	recovered   unknown outcome, and read: allowed
//	duplicates  one publish at two sequences: nothing is retried, so there is no excuse
//	changed     read at another sequence than the PubAck said, or two PubAcks with one
//	disorder    invoked after another's ack returned, and given a lower sequence
//	after ack   delivered more than Grace after a double ack of it was confirmed.
//	            Those that a pause or a cut may have held up are counted apart: the pull was sent, and
//	            no ack confirmed, before the node was held or 2 s after
//	low count   a delivery that counts no more deliveries than an earlier one: allowed
//	queue       puts, deliveries and settlements of one message that no order explains;
//	            a delivery happens between the pull it answers and its arrival
//	registers   reads and writes of one subject that no order explains
//	stale       a patient read that shows less than was acked, or read, before it was asked;
//	invented    or what nobody had begun to write when it was answered
//
// Also reported is, for each step, the longest time in it without an acked publish.
//
// Queue and registers are searched by porcupine. A publish that is refused with 503 counts as
// unknown, unless the answer says "not stored", or Holdfast says that it has no room.
package jepsen
