// Package node is the composition root: it holds the whole configuration and
// builds a node from the packages below it. cmd/holdfast and the test harness
// start exactly this.
//
// # Start and stop
//
// A node is built from the bottom up: replicas of the groups, the hub, the NATS
// side, gossip, the admin listener. It stops from the top down, for a reason at
// each step (see Node.Stop).
//
// # Configuration
//
// Config is all of it; the command line, the environment and files only fill it
// in. Validate names everything that is wrong at once, each as a ConfigError: the
// setting, the problem, the cure. A start then claims the data directory (an flock
// on the file LOCK, which holds the process id) and looks that every address can
// be listened on; both may still be held by a predecessor that was just killed, so
// it tries for five seconds.
//
// # Admin listener
//
//	GET  /healthz                 200 if nothing here is broken, else 503 and the reasons; status says
//	                              whether the node goes on ("degraded": a group is damaged here) or not;
//	                              notes say what breaks nothing (clocks that are off or not believed yet,
//	                              founders with different numbers of groups)
//	GET  /readyz                  200 if this node serves, else 503 and the reasons
//	GET  /raft                    replication.Status of every group, the metadata group first
//	GET  /members                 the nodes that registry, gossip and groups know: MemberStatus
//	GET  /metrics                 Prometheus; every number is read when it is asked for
//	POST /transfer?group=N&to=ID  hands a group over, to the best node without to; 421 if another node leads it
//	POST /accept-clock            tells the leaders of all groups that the wall clocks are right: []AcceptedClock
//	POST /remove?node=ID          the node is to leave; returns when that is decided
//	POST /leave                   this node leaves; returns when it is out, and Left tells the process to stop
//
// A node that is one too many ends by itself, with a ConfigError at Node.Failed: the second of two live ones with
// one id, one that was removed, one that cannot do the cluster's feature level.
//
// Answers are JSON, refusals a Problem. Off loopback every request needs the
// bearer token of AdminTokenFile; with such a file, on loopback too. A request that
// a browser sends for another site is refused.
package node
