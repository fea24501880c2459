// Package membership decides who is in the groups. It is pure: values in, values
// out; gathering what is so and acting on what is decided are the caller's.
//
// # Two decisions
//
// Plan runs in the leader of the metadata group: from the nodes that gossip and
// the registry know, and what was desired before, it says which nodes are to be
// voters and which are to follow. The result is one row of group 0.
//
// Step runs in the leader of each group, which alone can change its
// configuration: it compares the group's members with the row and says the one
// next change, or why there is none.
//
// # Rules
//
//	join     known and alive → non-voter → caught up for a while → voter
//	voters   the largest odd number ≤ max_voters and ≤ the healthy nodes; the rest follow
//	replace  a voter gone for longer than reap_after is replaced: first the new one in, then the old one out
//	shrink   never below min_voters by itself; below it only by an operator's command, and never to nobody
//	answer   no vote is taken away unless those that answer stay a majority; who does not answer goes first
//	even     an even number above min_voters tolerates no more than the odd one below it: one more follows
//	flap     a node that comes and goes must be healthy for longer each time, up to a bound
//	leave    out of the event groups first, out of the metadata group last, unless it is silent
//	wiped    a node that returns with a new incarnation enters as a new replica; its old one goes after
//	install  a replica that is receiving a snapshot counts as in contact
//	balance  a node that leads two event groups more than another voter gives that one a group
//
// One change at a time, each made on the configuration it was decided on.
package membership
