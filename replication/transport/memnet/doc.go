// Package memnet is a network in memory for tests of virtual time: everything that
// waits does so on channels and timers, so that inside a testing/synctest bubble time
// advances while all hosts wait.
//
// A Fabric has hosts by name; an address is "host:port", and a Host is a
// transport.Network. Faults are set per direction between two hosts:
//
//   - Cut holds what is written, and the end of connections, as a router that drops
//     packets does; Heal delivers it in order, as TCP's retransmissions do. A dial
//     needs both directions and waits.
//   - Delay adds a latency to what is written from then on.
//   - Drop breaks all connections between two hosts: both sides get an error at once.
//   - Crash is Drop towards everybody and closes the host's listeners.
//
// Writes are buffered up to Buffer bytes per direction, then they wait.
package memnet
