// Package marks holds the rule by which a replica that has lost what it once
// acknowledged is told from a sound one: a log that was cut at its end, or a whole
// directory that was replaced by an older copy, which is consistent in itself.
//
// # The rule
//
// A mark (T, i) of a replica says: in the term of leader T it had fsynced a log equal
// to T's up to i. Leaders make marks, of their followers by what these acknowledge and
// of themselves by what they have stored, and repeat the newest one of every voter in
// their frames. Every voter keeps, for each replica, the highest: by T, then by i.
//
// A replica is below (T, i) only if
//
//   - its current term is lower than T: whoever acknowledged something in T had T
//     stored before; or
//   - its last index, of log or snapshot, is lower than i, while neither its last entry
//     nor its newest truncation has a term higher than T. What a later leader cut off
//     is no damage, and a truncation that has no entry behind it yet says whose it was.
//
// A replica below a mark is damaged. A new incarnation has another name and so no marks.
//
// # Limits
//
// An acknowledgement that no third replica has heard of cannot be missed by anyone, and
// neither can that of a single node whose whole directory was replaced.
//
// # Wire and disk form, version 1
//
//	size  field
//	1     version, 1
//	2     number of marks (big-endian, like all)
//	per mark, in the order of the names:
//	1     length of the name
//	n     name: server id, "nodeID/incarnation"
//	8     term
//	8     index
//
// No mark is the empty string of bytes.
package marks
