// Package ntfbackend is a backend of ntf, nats.go's test framework, whose servers are nodes of Holdfast in
// this process.
//
// A server is a node with an empty data directory, started with the configuration that ntf rendered as its
// NATSConfig; the node strips the jetstream keys and reads accounts and domain from it. Servers of a
// cluster are nodes with a fixed membership; their cluster block is taken out, since the nodes connect
// their hubs themselves. A server that was asked for without JetStream is the hub of a node alone: nobody
// answers the JetStream API there, as on a nats-server without JetStream.
package ntfbackend
