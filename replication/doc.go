// Package replication keeps the state of a node's groups the same on every
// replica: Raft groups on a segment log and a Pebble store, the terms of their
// leaders, their snapshots, and the metadata group. Beside replication/transport
// it is the only package that knows hashicorp/raft.
//
// # Entries
//
// A group's leader plans; replicas copy. An event group's entry is an envelope of
// replication/command; the state machine applies it if the fence admits it
// (record.Fence.Admits) and does nothing otherwise, on every replica alike. The
// metadata group's entry is a conditional write of rows. A configuration of the
// group is recorded with the entry that holds it. No-ops and barriers never come
// to the state machine.
//
// Many entries become one batch of the store, with the index, the term and the
// fence of the last one in it, so a crash leaves a prefix of the entries, and
// those that are replayed and applied already are skipped. An entry that this
// build does not know, or a write that fails, stops the node: skipping it would
// make replicas diverge.
//
// # The log cut rule
//
// The store has no write-ahead log of its own: the Raft log is it. So the log is
// never cut beyond the last index that the store has flushed. Snapshots flush
// before they are published, and Raft cuts after that; beside it the log store
// clips every cut to what the store says is durable. A suffix is never cut at or
// below what is applied.
//
// # What is checked before Raft starts
//
//  1. The state reaches the snapshot that the pointer file names.
//
//  2. The log reaches the last entry applied, unless an installed snapshot covers
//     it: an entry is in the log, fsynced, before it is applied.
//
//  3. The log reaches the snapshot and agrees with its term. After an install it
//     may not: the log is dropped then, as the install would have done next. After
//     a snapshot taken here, it is damage: entries stay in the log behind those.
//
//  4. The entry applied last is in the log with the same term, and the current
//     term is not below that of the last entry.
//
//  5. The log reaches this replica's own mark (package marks).
//
// # Damage
//
// A group that fails one of them, or whose files do not verify when they are opened or
// read, is damaged on this node, and only that group on this node is: its frames are
// refused (the port is quarantined before anything else happens, so nothing that rests
// on the damage can leave), its term ends, its Raft instance stops, reads of its state
// fail with record.ErrDamaged. The others go on. Group 0 is no exception, but a node
// without a sound replica of it leads no other group: it hands them over.
//
// The file DAMAGED is durable before the instance stops, and a start honours it without
// a look at the rest. hashicorp/raft panics when it cannot read an entry, so it is given
// one that does nothing; by then nobody is sent it, and the state machine takes nothing.
//
// A damaged replica is replaced by itself, once a leader of the group says under its
// lease that a majority of the voters is healthy without it (kindReseed): its files are
// moved into damaged-<time>, DAMAGED last, never deleted; a replica with a new
// incarnation, hence without votes or marks, starts empty in their place; group 0's
// leader writes it into the node's row (kindReplica), the group's leader takes it in,
// sends it a snapshot, makes it a voter and removes the old one, as it does for a node
// that came back without its disk. Without such a leader, or on a single node, nothing
// happens: Damage.Waits says what an operator can do.
//
// A replica that is sound and not in its group any more, since another process of the node's
// id, or later files, had its place for a while, hears of no leader for ever. It asks the leader of
// group 0 who has its place (kindPlace), and that of its own group whether it is not in
// (kindReseed), and is replaced in the same way: it must not come back under a name whose votes
// it may not know.
//
// The file NODE is one of all groups: without it nobody knows as whom they voted. So when it
// does not verify, or is missing beside data, every group is marked before anything else,
// the file is set aside, and another one, with a new incarnation that no replica has, says
// that the old one was lost; the groups are replaced one by one as above. The node founds
// nothing, and its row keeps the incarnation it had, until all of them are. Which cluster it
// is of group 0's state says, or the others do. Where no other node is known to be a voter,
// by the configuration of group 0 if it can be read, by the settings if not, nothing is
// touched and the start refused; so it is where that configuration says that the replica is
// of another node. Recover writes the file anew.
//
//	DAMAGED, JSON             version 1, group, server, file, reason, found (RFC 3339)
//
// # Marks
//
// What a log cannot know by itself is that its end, or the whole directory, was replaced
// by an older one. Package marks has the rule. Leaders make marks of the voters by what
// they acknowledge, and of themselves by what StoreLogs has stored; they repeat all of
// them with each append. Every voter keeps them in memory and with the seals of its log:
// there they cost no sync of their own, share its checksums, and are as new as what the
// log holds within 50 ms. Hellos carry them; both sides judge both replicas by them
// before any other frame, the damaged one finds it out itself.
//
// What a seal keeps, version 2 (version 1 is a clock alone), big-endian:
//
//	1  version, 2
//	2  length n of the clock
//	n  clock, as package clock persists it
//	…  marks, as package marks writes them
//
// # Terms of leadership
//
// Raft's notification starts a term: a Barrier, then Handler.Lead, under a context
// that ends with the term. Whatever only a leader may say is preceded by
// Term.Check: the term has not ended, Raft leads in it, the lease is valid. Of a
// proposal, exactly one Done is heard:
//
//	Raft's answer                                        Done
//	applied, and admitted by the fence                   nil
//	applied, not admitted                                record.ErrStalePlan
//	row version differs (metadata group)                 record.ErrConflict
//	not the leader                                       record.ErrNotLeader
//	a transfer runs, the queue is full                   record.ErrRefused
//	anything else: leadership lost, shut down, log error record.ErrUnknownOutcome
//
// Proposal.Durable comes from the log store, when the fsync of the entry here is done.
//
// # Snapshots
//
// The state is its own snapshot: taking one is a flush and a small pointer file,
// the only commit point. A copy is made when a follower needs one, of the newest
// state. An install is received into a directory of its own, verified, and put in
// use by the pointer; Raft then restores, which opens it.
//
// Raft opens a snapshot for every attempt. So that an attempt can go on where the one
// before was cut, by a connection or by the follower's restart, the copy stays on offer and
// is opened again (type offers); the follower keeps what it has (storage, "Snapshots") and
// says so. The copy of another leader is another stream and starts anew; the old leader
// goes on with its own if it leads again in time.
//
// While a copy is sent, or its install was cut, and until the follower has come within
// MinTrailing/2 entries of the end of the log, the log is not cut behind the copy, or behind
// what the follower has acknowledged since: snapshots that are taken faster than an install
// ends do not make the follower need another one. All of it ends
//
//   - InstallKeep after the follower has last made progress. One that refuses (damaged,
//     quarantined, below its mark) or cannot be reached makes none and has nothing kept;
//   - when the log is larger than InstallLogBytes and than the copy. A follower that takes
//     bytes as fast as entries are written has the copy before the log is as large.
//
// What was kept is cut then, without another snapshot. Apart from that no follower has a
// say in what is cut: TrailingBytes, MinTrailing and MaxTrailing do, whoever is away. No
// apply waits for a copy: it is taken and read beside them, after a flush.
//
// # Work-arounds for hashicorp/raft v1.8.0
//
// The transport has its own (heartbeats, pipelining, a hung disk, the vote
// embargo). Here: an install over a log that reaches the snapshot or passes it drops
// entries behind it that may have been acknowledged, which the log refuses, and
// leaves Raft's memory of its last entry wrong, and every later append and install
// fails (issue 697); a transfer to a peer that stops answering can refuse every
// entry for ever (issue 696). Both are noticed, and the group's Raft instance is
// created anew on the same log and state. Shutdown leaves futures unanswered;
// releaseOn ends their waits.
//
// One limit stays: a replica refuses its vote to one that is not a voter in its own
// latest configuration. If the leader is lost right after a new voter's
// configuration was committed by the new voter and itself, the others cannot elect
// anyone until it is back. So a change of the configuration is complete when every
// voter has it, not when it is committed.
//
// # Directory
//
//	NODE                        version 1, node, cluster, incarnation; new: not every group has
//	                            its first replica yet; groups: how many event groups have had
//	                            one; lost: the file before was damaged, and not every group
//	                            was replaced yet; checksum, the last field:
//	                            CRC-32C of the bytes before it, 8 hexadecimal digits (JSON)
//	damaged-<time>/NODE         one that was damaged
//	groups/<n>/INCARNATION      CRC-32C of the id, 8 hexadecimal digits, a space, id of the
//	                            replica, newline; its Raft id is nodeID/incarnation
//	groups/<n>/log/             storage/seglog
//	groups/<n>/state/           storage
//	groups/<n>/DAMAGED          the replica is damaged, see Damage
//	groups/<n>/damaged-<time>/  what one before was made of, DAMAGED among it
//
// Builds before checksums wrote both without; such files are read, byte for byte as those
// builds write them.
package replication
