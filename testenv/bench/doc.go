// Command bench compares Holdfast with nats-server's JetStream on one machine, in one interleaved run, and
// prints a markdown table. `make bench-compare` runs it; docs/benchmarks.md says how to read what it prints.
//
// # Systems
//
//	holdfast  Holdfast as it comes: every PubAck after an fsync on a majority
//	always    JetStream, sync_interval always: the same promise
//	default   JetStream as it comes: fsync every two minutes
//
// each with one node (streams with one replica) and with three (three replicas). Every node is a process of
// its own on loopback, with its files in one directory tree, so that all share the same disk.
//
// # Order
//
// A round starts the systems with one node, fresh, measures every work on each, ends them and removes their
// files; then the same with three nodes. Within a work the systems follow each other, in an order that
// rotates with work and round, so that what the machine does meanwhile hits them alike. Each measurement has
// a stream of its own, made before and deleted after it, and begins when the servers have come to rest. A
// system is warmed up once after it started.
//
// # One measurement
//
// The load comes from cmd/jsbench, in a process of its own, connected to the leader of the stream. It
// publishes for --duration × --scale; what is consumed is filled in before, so many messages as last about
// that long, or as can be filled in within three times that. jsbench verifies that nothing is lost; a run in
// which something is missing or refused has no numbers here, is listed below the table, makes the exit status
// 1, and its system is started afresh.
//
// # Numbers
//
// A value is the median over the rounds, with minimum and maximum. A ratio is the median, minimum and maximum
// of the ratios within each round. CPU is user and system time of all server processes of the system.
package main
