// Package netcut puts proxies between nodes that are processes of one machine, so
// that tests can cut and slow their links without privileges.
//
// # Place
//
// A proxy stands in front of each port that other nodes dial. The node listens on
// the real port and advertises the proxy's address:
//
//	node a ──▶ proxy of b's port ──▶ b's port
//
// # Who dials
//
// A link is an ordered pair of nodes, so a proxy must know who dialled. For TCP it
// looks up the connection's socket in /proc/net/tcp and finds the process that holds
// it in /proc/<pid>/fd of the nodes' processes; a connection of a stranger is closed
// and counted. For UDP, a node sends from the port it is bound to, which is the port
// behind its own proxy; datagrams of strangers are dropped and counted.
//
// # Directions
//
// Bytes that a sends to b use the link a→b, whoever dialled. So a link that is cut
// one way stops half of each connection.
//
// # States
//
//	Open   bytes pass, after Delay ± Jitter, in order (datagrams may overtake)
//	Cut    bytes wait, and pass when the link opens again, as they do in TCP; the end
//	       of a connection waits, too. Datagrams are lost. A new connection hangs until
//	       both directions are open.
//	Reset  connections are reset, and new ones at once; datagrams are lost
//
// What a side sends into a cut link is held by the kernel up to its buffers' size;
// then its writes block.
//
// # Within one process
//
// Sever takes a listener and its connections from the test's own process: for nodes
// that are no processes, and for a connection of a node to itself.
//
// # Limits
//
// Linux only. The dialled port accepts connections even of a cut link, so a dialler
// sees a connection that stays silent rather than one that does not come to be.
package netcut
