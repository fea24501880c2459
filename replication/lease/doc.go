// Package lease decides whether a leader may act on its own: until when no other
// replica can have been elected. It is pure: times are durations on
// CLOCK_BOOTTIME that the caller reads, and nothing here waits or locks.
//
// # The rule
//
// A follower that acknowledged an append refuses its vote until one heartbeat
// timeout has passed since it received that append, which is not before the
// leader sent it. So with the send times of the newest acknowledged append of
// each voter, newest first, the leader itself counted as now,
//
//	end = (quorum-th newest send time) + 0.8 × heartbeat timeout
//
// No successor can have been elected before end. The fifth that is given away
// covers clocks that run at different rates and the time between the check and
// the effect. Only voters count. A leader that is the only voter is always
// within its lease. A term change forgets everything.
//
// # Transfers
//
// A target of TimeoutNow is elected by votes that skip "we have a leader", so
// the lease is void from before the request is written. It counts again when the
// target has acknowledged an append that was sent after the request, in an order
// that the transport guarantees: then the request can no longer take effect. The
// owner re-creates the Raft instance when that takes longer than two election
// timeouts (Status.Void, Status.Since): better no leader for an election than one
// without a lease.
package lease
