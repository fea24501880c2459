// Package seglog is a durable log of indexed entries in segment files, together with the few facts that
// must not be separated from it: the current term and vote, and the term of the newest truncation. It is
// the log and stable store of one Raft group and knows nothing of Raft beyond these words. One log owns one
// directory of a vfs.FS; that only one process uses it is the caller's business.
//
// # Promises
//
//   - Append, SetVote, SetTerm, TruncateSuffix, TruncatePrefix and Reset return nil only after what they
//     wrote was synced. After any crash the log holds everything that was acknowledged, in order, and
//     nothing that was truncated.
//   - An append is one write and one data sync, unless it needs more than one segment. A crash leaves all
//     of a batch or nothing of it. An append that was not acknowledged may be there after a crash; one over
//     several segments may be there up to a segment boundary.
//   - ErrNoSpace leaves the log as it was and usable. Room for segments is taken before anything is
//     written. Votes and truncations may use the last 1/16 of a segment (at most 64 KiB), entries may not,
//     so that they go through when there is no room for another segment.
//   - An I/O error while writing or a failed sync ends the log: ErrFailed for ever, the process must stop.
//   - Wrong or missing bytes that were once durable are reported as a *DamageError by Open, Check and Get,
//     never served and never cut off. The one exception is the last unsealed batch, see "Torn or damaged".
//
// # Files
//
//	SEGMENTS                   the live segments, oldest first; replaced by temporary file, sync, rename,
//	                           sync of the directory
//	<20 decimal digits>.seg    a segment; live if listed, else a spare or one that is ready for use
//	*.tmp                      unfinished; removed by Open
//
// All numbers are little-endian, all checksums CRC32C. Every file starts with the same 16 bytes in every
// format version, so that a future version (ErrVersion) is told from a flipped bit (damage):
//
//	offset  bytes  preamble
//	     0      8  magic: "HFSEGLOG" (segment), "HFSEGLST" (list)
//	     8      4  format version, 1
//	    12      4  checksum of the 12 bytes before
//
//	offset  bytes  segment header
//	    16      8  segment number, also in the name; rises with every use of a file
//	    24      8  use id: random, new with every use of a file
//	    32      8  size of the file
//	    40     20  zero
//	    60      4  checksum of the 60 bytes before
//
//	offset  bytes  list
//	    16      4  number of segments, n > 0
//	    20      4  zero
//	    24   32·n  per segment: number (8), use id (8), end (8), chain value at end (4), zero (4)
//	24+32·n     4  checksum of all before
//
// The end of a listed segment is where its batches end; for the last one it is a lower bound: what was
// durable when the list was written.
//
// # Salvage
//
// Salvage reads what a damaged log still holds and changes nothing: in each segment up to
// the first damage, then on from the next segment. What lies behind damage is marked.
//
// # Batches and records
//
// The batches of a segment follow each other from offset 64 on, each at a multiple of 8. A batch is what
// one call wrote and synced. Checksums are chained: each starts from the one before, the first from the
// checksum of the use id. Bytes of an earlier use of the file therefore never continue a chain.
//
//	offset  bytes  batch header
//	     0      8  use id of the segment
//	     8      4  offset of this header in the file
//	    12      4  length of the records that follow, without padding
//	    16      4  number of records, > 0
//	    20      1  kind: 1 records, 2 seal
//	    21      3  zero
//	    24      4  chain value before the batch
//	    28      4  checksum of the 28 bytes before, started from the chain value before the batch
//
//	offset  bytes  record
//	     0      4  length n of the body
//	     4      1  kind
//	     5      1  entry type, else 0
//	     6      2  length of Ext in an entry, else 0
//	     8      n  body
//	   8+n      4  checksum of all before, started from the previous record's (the first: from the header's)
//
// The checksum of a batch's last record is the batch's checksum and the next chain value. The checksum of a
// record lies directly before the next record, so that one read verifies a single entry.
//
//	kind  record           body
//	   1  entry            index (8), term (8), time in ns (8), Ext, Data
//	   2  head             first and last index, last term, current term, voted term, truncation term
//	                       (8 each), length of candidate and of payload (2 each), candidate, payload
//	   3  vote             current term (8), voted term (8), candidate
//	   4  truncate-suffix  first dropped index (8), current term (8)
//	   5  truncate-prefix  first kept index (8)
//	   6  reset            current term (8)
//	   7  payload          the caller's bytes; the only record of a seal
//
// A segment's first record, and only that one, is a head: what the records of earlier segments add up to.
// An earlier segment is given back only after a later head is durable. A replay starts from the oldest head
// and checks the later ones against what it has replayed.
//
// # Truncation
//
// Nothing is ever cut out of a file. A suffix truncation is a record; entries that come after it take the
// dropped indexes again, in whatever segment is active. A prefix truncation is a record too; segments at
// the front without live entries then leave the list and, after that is durable, become spares or are
// removed. Append-only files keep the chain simple: it is the order of the bytes, truncated entries
// included.
//
// # Rotation and re-use
//
// The next segment is prepared ahead, when the active one is half full, on a goroutine the log owns (or
// inside the call that needs it, with Config.SyncPrepare). From scratch: all bytes written as zeros under a
// temporary name, header, sync, rename, sync of the directory. From a spare: rename, new header, data sync,
// sync of the directory; what it held is left, the new use id disowns it. After a crash both names of a
// re-used file may exist; the number in its header tells which one is right, and a file under a wrong name
// is removed, never written to. Segments get their use id here and enter the list before their first batch
// is written. So a listed segment that is missing, is short or lacks its header is damage, and so is a list
// that does not know a newer segment that holds a batch.
//
// # Seals
//
// A seal is a batch behind the last one that is written without a sync, when the log has been idle for
// Config.SealAfter, by Seal and by Close (which does sync). The next batch is written over it: a seal only
// vouches for what is before it until a batch does. It carries the caller's payload. A payload that changes
// while the log is too busy for seals rides on a batch, at most every 50 ms; each head repeats it. Payloads
// have no promise of durability.
//
// # Torn or damaged
//
// A batch is written only after the one before it was synced. So anything of this use of the file behind an
// invalid place proves that the place was valid once. When a batch does not verify:
//
//   - in a segment that is not the last listed one, or before the end that the list records: damage;
//   - in the last segment, if anywhere between it and the end of the file (at multiples of 8) stands a
//     batch header that verifies and bears this use id and its own offset, seals included: damage;
//   - if a header verifies but continues another chain value: damage;
//   - else it is a torn write: the log ends before it, Recovery says so, the next batch overwrites it.
//
// What is cut was therefore the last batch, and not sealed. The limit of this rule: damage that hits the
// last batch after its sync and before a seal or another batch has reached the disk cannot be told from a
// torn write; nor can damage that takes the last batch and all that follows it, nor an older copy of the
// last segment alone. Marks held by other replicas are for these.
//
// Sectors that hold the end of one batch and the start of the next are written twice. Like every log that
// does not pad to sectors, this one needs a disk that never loses the first half of a sector while it
// rewrites it with the same bytes.
package seglog
