// Command jsbench loads any JetStream API over the stock nats.go client and says how fast it was. The same
// binary measures nats-server's JetStream and Holdfast, so that the two can be compared.
//
//	jsbench pub-async --url nats://127.0.0.1:4222 --replicas 3 --msgs 500000 --window 2000 --pids 11,12,13
//
// # Modes
//
//	pub-sync   every publisher waits for each PubAck; latency is publish to PubAck
//	pub-async  up to --window publishes of each publisher wait for their PubAck; same latency
//	consume    a filled stream is consumed by a pull consumer with explicit acks; latency is that of a
//	           double ack (--double-ack), else there is none
//	fetch      the same with one Fetch of --batch messages after the other; latency is that of a full Fetch
//	workq      a work-queue stream is published to (as pub-async) and consumed (as consume) at the same
//	           time; latency is publish to delivery
//
// # What counts
//
// Every message carries 16 bytes that tell it apart, big-endian: run u32, number u32, time of publishing
// u64 in nanoseconds since the run began. A run is believed only if nothing is missing: a stream that holds
// fewer messages than it acknowledged, an acknowledged message that was not delivered, or a queue that is
// not empty at the end is an error and the exit status is 1, numbers or no numbers. Publishes that were
// refused or timed out are an error too, unless --tolerate-errors is given. Redeliveries are counted, not
// refused.
//
// Rates count acknowledged messages (publish modes) or distinct deliveries. The clock stops with the last of
// them; CPU is counted until every ack was processed ("drain"), because that work belongs to the messages.
//
// # Output
//
// A line in the format of Go benchmarks, which benchstat reads, or with --json one object per run.
// server-cpu-s/1M is user and system time of all --pids, from /proc/PID/stat, per million messages: on a
// noisy machine the steadiest of these figures.
package main
