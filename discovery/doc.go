// Package discovery finds the other nodes of a cluster by gossip (Serf over memberlist) and says who is
// there. It decides nothing: it hands whole member lists upwards, and whoever receives them acts. It
// imports no package of ours and knows nothing of Raft.
//
// # Contract
//
//   - A Discovery is running from Start until Shutdown or the end of Start's context; then its channel is
//     closed, its sockets are closed, and nothing is logged any more. (Goroutines of memberlist end a moment
//     later.)
//   - Changes delivers complete member lists, newest wins: a slow reader misses lists in between, never
//     the last one. Lists are sorted by node id, hold this node too, and are the receiver's to keep.
//   - A seed that does not answer is normal. While no other live member is known the seeds are tried again,
//     with growing pauses, for ever.
//   - Since of a member is when this node saw its present status begin. A member that failed and came back
//     has a new Since even if both happened between two lists: a flapping node can be told from a steady one.
//   - A lost event is made good: the list is rebuilt from Serf's own state every 10 s at the latest.
//
// # Who is let in
//
// Members of one cluster share the gossip key, if there is one, and the cluster id, once there is one. A
// node without an id (nothing bootstrapped yet) belongs to whatever cluster the live members it knows
// belong to; so it can join one, and it cannot become a bridge between two. A live node that carries
// another id, or that does not carry our tags at all, is refused by name: the joining side gets the reason
// as its error, both sides keep it in Conflicts.
//
// Two live nodes with one node id: the gossip layer keeps the first address and ignores the other. A node
// that is told, while joining, that its own name lives elsewhere asks that address whether a node of this
// name answers. If so it refuses to merge (ErrNodeIDInUse) and lists only itself; the others refuse it as
// well, and both report it in Conflicts for as long as both answer; Twin tells the newcomer that it is the one
// too many. If nobody answers there, the old
// address is a leftover of its own previous life: it merges, and is let in by the others once they have
// seen the old address dead for DeadNodeReclaimTime.
//
// # Tags
//
// What a node says about itself is at most 512 bytes, encoded (a limit of memberlist's packets):
//
//	cid     cluster id, absent before bootstrap
//	id      node id, equal to the gossip name
//	expect  number of founders that the node waits for, absent if none
//	raft    Raft address, host:port
//	route   address of the hub's routes, host:port
//	admin   address of the admin listener, host:port
//	client  address for NATS clients, host:port
//	ver     version of the program
//	inc     incarnations of the node's replicas, for the first configuration
//	drain   "1" while the node is draining, else absent
//	feat    highest feature level that the node can do, absent if it does not say
//	level   feature level of its cluster, absent while it knows none
//
// An unknown tag is ignored, so that a newer node can join. No log positions: each update is a broadcast.
//
// # Goroutines
//
// The pump takes events from Serf into a queue without a bound, because Serf sends them while it holds its
// member lock and would stop if nobody took them; the loop is the only writer of the member list; the joiner
// tries the seeds; the auditor asks disputed addresses. All four end with the context and are waited for in
// Shutdown.
package discovery
