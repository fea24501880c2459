// Package storage holds the state of the groups: messages, their index rows,
// streams, consumers and cursors, group 0's rows. One Pebble database per group,
// all of one process on shared caches. It is the only package that knows Pebble.
// It knows neither Raft nor NATS: entries have an index and a term, configurations
// are opaque bytes.
//
// # Rows
//
// A key is a prefix byte, then fixed big-endian words, then at most one string.
// A string that more key follows is escaped so that order is kept whatever its
// bytes are: a NUL becomes 00 FF, and 00 01 ends it. Subjects and message ids may
// hold any byte.
//
//	prefix  key                                     value
//	!       "format"                                u32 format version, 1
//	!       "applied"                               u64 index, u64 term, fence, u64 highest cluster time
//	!       "conf"                                  u64 index, group configuration (opaque)
//	!       "covered"                               u64 index of the last local snapshot
//	S       stream u32, 0                           description of the stream (opaque)
//	S       stream u32, 1                           record.StreamState
//	M       stream u32, sequence u64                serialized message
//	J       stream u32, subject (escaped), seq u64  –
//	N       stream u32, subject                     record.SubjectStat
//	B       bucket u64, stream u32, ticket u64      u8 kind of what falls due
//	D       stream u32, message id                  u64 sequence, u64 time
//	E       stream u32, time u64, message id        u64 sequence (time-ordered twin of D; sign bit flipped)
//	C       stream u32, consumer u32, 0             description of the consumer (opaque)
//	C       stream u32, consumer u32, 1             record.ConsumerState
//	P       stream u32, consumer u32, sequence u64  record.Pending
//	W       stream u32, kind u8                     cursor of an unfinished sweep
//	R       key of a row of group 0                 u64 version, author (16 B), value
//
// J, N, B, D and E are derived: never authoritative, rows below the first
// sequence of their stream are dead, readers are told where to start and sweeps
// remove the dead in steps. No reader starts at a prefix: skipping what was
// deleted there costs time that grows with it. A sweep does, once.
//
// # Batches
//
// All changes of an apply and the index they reach are one Batch, committed as
// one. There is no write-ahead log: the Raft log is it. Pebble writes out whole
// batches, oldest first, so after a crash the state is exactly that of some
// earlier index, and "applied" says which; the log applies the rest again.
// DurableApplied is the index that cannot be lost any more, and the log is never
// cut beyond it.
//
// # Files
//
//	<Dir>/POINTER       the only commit point: database directory, snapshot, installed flag
//	<Dir>/INCOMING      an install that was cut and may go on: its stream, database directory, progress
//	<Dir>/*.tmp         one of these being written
//	<Dir>/db-<n>        databases; the one that POINTER names is the state
//	<Dir>/out-<n>       checkpoints that are being sent
//
// Open removes every db and out directory that is neither the state nor named by
// INCOMING, and nothing else. POINTER is replaced by write, fsync, rename, fsync of the directory; the
// integers are big-endian:
//
//	0   4  "HFPT"
//	4   4  version, 1
//	8   4  flags: 1 installed, 2 creating (the first database is not complete yet)
//	12  8  snapshot index, 0 = none
//	20  8  snapshot term
//	28  8  index of the configuration's entry
//	36  4  length n of the configuration
//	40  n  configuration
//	…   2  length of the directory's name
//	…   …  name
//	…   4  CRC32C of all before it
//
// A new group writes POINTER (creating), makes db-1 and flushes its format row,
// then writes POINTER again. So a directory with databases and no POINTER is
// damaged, and one that is "creating" holds nothing yet.
//
// # Snapshots
//
// The state is its own snapshot. A local one (PublishLocal) writes "covered",
// flushes and replaces POINTER: it costs the same for any size of state. Entries
// that never come to the state machine lie between "applied" and "covered"; the
// higher of the two is the reach of the state. A state whose reach is below the
// snapshot in POINTER is damaged, since the log may be cut up to that.
//
// To feed another replica a Checkpoint (hard links, flushed) is streamed; it
// holds the newest state, which may be newer than POINTER. The other one stages it
// in db-<n+1> (Install), syncs every file and the directories, reads it through,
// replaces POINTER (Commit), then opens it in place of the old database (Activate),
// which goes when its last reader is done. A crash before the rename leaves the old
// state and garbage, one after it the new state: the log is reconciled by the
// installed flag.
//
// An install whose stream is cut is kept (Suspend, ContinueInstall): every InstallSyncBytes,
// and when it is cut, the file being written and the directory are synced, and then
// INCOMING is replaced, in the way of POINTER. So what INCOMING says is there is there after
// any crash; what came after it is sent again, over what may be there of it. A file counts
// when its checksum fits: the part of one that is gone on with is read again for that, and
// complete ones are read through, like all rows, before POINTER is replaced. INCOMING is
// removed before what it names, and after POINTER names that. Another stream, a state that
// has come as far by the log, or a record that does not verify end it.
//
//	0   4  "HFIN"
//	4   4  version, 1
//	8   16 id of the stream, random, of the checkpoint that it is of
//	24  8  snapshot index, not 0
//	32  8  snapshot term
//	40  8  index of the configuration's entry
//	48  4  length n of the configuration
//	52  n  configuration
//	…   2  length of the directory's name, and the name
//	…   4  number of files in the stream
//	…   8  length of the stream
//	…   8  bytes of the stream that are held
//	…   1  what comes next: 1 head of a file, 2 its name, 3 its data, 4 its checksum, 5 the last checksum
//	…   2  length of that part (0 for data)
//	…   2  length of what is there of it (0 for data), and the bytes
//	…   8  bytes of the last file that are missing (before a name: its size)
//	…   4  number of files whose names came; for each: u16 length of the name, name, u64
//	       size, SHA-256 (zero if it is not complete), u8 1 if it is complete
//	…   4  CRC32C of all before it
//
// The stream of a checkpoint, its length known ahead, readable from any offset:
//
//	"HFCK", u32 version 1, u32 number of files, u64 length of the whole stream
//	per file: u16 length of the name, u64 size, name, data, SHA-256 of the data
//	SHA-256 of all of the above but the data
//
// # Damage
//
// An error that wraps record.ErrDamaged names the file. Reads return it; what the
// background finds goes to Config.Damaged. SetAside keeps damaged files. Pebble's
// fatal errors go to Config.Fatal: this package never ends the process. Rebuild puts a
// state together from tables whose manifest cannot be read, for salvage.
//
// # Goroutines
//
// Short ones that start compactions (compactions.go) and Pebble's own; all have
// ended when Close returns.
package storage
