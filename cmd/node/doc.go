// Package node is the composition root: it holds the whole configuration and
// builds a node from the packages below it. cmd/holdfast and the test harness
// start exactly this.
//
// # Start and stop
//
// A node is built from the bottom up: replicas of the groups, the hub, the NATS
// side, gossip, the admin listener. It stops from the top down, for a reason at
// each step (see Node.Stop).
package node
