// Package chaos runs real processes under load, kills them, and judges what the
// clients saw.
//
// # Load
//
// Publishers of each ack level write numbered messages to a work queue and to a
// stream that keeps everything; publishes without an answer are retried with the
// same message id. Workers fetch from the work queue, double ack, and note when an
// ack was confirmed.
//
// # Verdict
//
// At the end an independent reader reads everything back.
//
//	lost         acked at quorum, and not read back: must be 0
//	reordered    a sequence that is not above the one before it: must be 0
//	changed      a sequence acked for one message that holds another: must be 0
//	after ack    a delivery that came more than Grace after its message's ack was confirmed: must be 0
//	duplicates   the same id stored twice inside its window: must be 0
//
// # Faults
//
//	kills        SIGKILL of the leader, and of all
//	power cuts   the same to a build (tag powerloss) in which it loses what was not synced
//	disks        the leader's syncs fail, or hang: the process ends by itself
//
// What levels leader and none lost is counted, not judged: losing some is their contract.
package chaos
