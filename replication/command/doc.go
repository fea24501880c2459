// Package command holds the formats of the entries that the Raft groups
// replicate. Pure functions over bytes; it imports storage/record only, so the
// planner can lay an entry out once, in its final form, without learning of Raft.
//
// All integers are big-endian. Every entry starts with a version byte and a
// type byte. Version 1 is the only one; another one, or an unknown type, is an
// error: the group stops rather than let replicas diverge.
//
// # Envelope (entry type 1, event groups)
//
//	offset  size  field
//	0       1     version, 1
//	1       1     entry type, 1
//	2       2     zero
//	4       24    fence: planning term, epoch, ordinal
//	28      24    base: the fence applied last when ordinal 1 was planned, else zeros
//	52      16    proposal id
//	68      8     cluster time at planning, nanoseconds
//	76      4     number of commands
//	80      …     commands: type byte, u32 length of the body, body
//
// Commands hold plain puts and deletes with all their values: the leader has
// decided, replicas copy. Applying one needs no read, no clock and no policy.
//
//	type  name           body
//	0     StoreBatch     stream u32, count u32, items
//	1     DeleteBatch    count u32, keys of 24 bytes, ranges u32, ranges of 24 bytes, index section
//	2     PutStream      stream u32, description (opaque to this layer)
//	3     DeleteStream   stream u32
//	4     PutConsumer    stream u32, consumer u32, description
//	5     DeleteConsumer stream u32, consumer u32
//	6     ConsumerBatch  stream u32, consumer u32, state 72 B, puts u32, rows of 48 B, deletes u32, u64 each,
//	                     ranges u32, pairs of u64 (inclusive)
//	7     Sweep          stream u32, kind u8, done u8, cursor length u16, cursor
//	8     Counters       stream u32, state 64 B, subjects u32, rows
//	9     Index          puts u32, entries, then an index section of deletes
//
// StoreBatch item: sequence u64, bucket u64 (0, or when it falls due), subject
// hash u64, flags u8 (1 = body absent: the sequence is consumed, nothing is
// stored), message-id length u8, u32 length of the message, message id,
// serialized message (storage/record). A message id makes a dedup row in the
// same envelope as its message.
//
// DeleteBatch key: stream u32, flags u32 (zero), bucket u64, sequence u64.
// Range: stream u32, flags u32 (zero), first u64, last u64 (inclusive).
// Index section: count u32, then entries; each names a derived row to delete,
// written out by the leader, since a 24-byte key holds neither subject nor id:
//
//	kind 1  subject row  stream u32, subject length u16, subject, sequence u64
//	kind 2  dedup row    stream u32, id length u8, id, time u64
//	kind 3  due row      bucket u64, stream u32, ticket u64
//	kind 4  dedup row whose message was skipped: as kind 2, with sequence u64 (puts only)
//
// Counters row: subject length u16, subject, count u64 (0 deletes the row), first u64, last u64.
// Index puts: kind 3 followed by a value of u8 kind; kind 4.
//
// # MetaBatch (entry type 2, group 0)
//
//	0   1   version, 1
//	1   1   entry type, 2
//	2   2   zero
//	4   16  proposal id
//	20  4   number of conditions: key length u16, key, version u64
//	…   4   number of writes: key length u16, key, u8 (0 delete, 1 put), u32 length, value
//
// It is applied as a whole if every condition holds, or not at all.
package command
