package node

import (
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/membership"
	"github.com/holdfast-mq/holdfast/storage"
)

// Config is the whole configuration of a node. The tags are its flags, its variables in the environment and
// the defaults (see DefaultConfig); the keys of a configuration file are the names of the flags. Addresses are
// host:port. Validate says what may be combined.
type Config struct {
	// NodeID names this node, once and for ever: what its replicas, the gossip, the hub's server name and the
	// infos of streams show. Letters, digits, '-' and '.', at most MaxNodeID, beginning with a letter or digit.
	NodeID string `name:"node-id" env:"HOLDFAST_NODE_ID" default:"${hostname}" help:"Name of this node in the cluster, never to be changed." group:"Node"`
	// DataDir holds everything that the node keeps. One process at a time uses it.
	DataDir string `name:"data-dir" env:"HOLDFAST_DATA_DIR" default:"./data" help:"Directory of everything the node keeps." group:"Node"`
	// DiskMinFree is the room in bytes on the disk of DataDir below which publishes and creates of streams are
	// refused; 0 = only once the disk was full. DiskBallast is the size of the file that is given back then.
	DiskMinFree int `name:"disk-min-free" env:"HOLDFAST_DISK_MIN_FREE" default:"268435456" placeholder:"BYTES" help:"Free bytes on the disk of the data directory below which publishes are refused." group:"Node"`
	DiskBallast int `name:"disk-ballast" env:"HOLDFAST_DISK_BALLAST" default:"67108864" placeholder:"BYTES" help:"Size of a file that is given back when the disk is full all the same." group:"Node"`
	// Groups is the number of event groups, 1 to replication.MaxGroups. The same on all nodes, never changed.
	Groups int `name:"groups" env:"HOLDFAST_GROUPS" default:"1" help:"Raft groups that streams are spread over, 1 to 64; the same on all nodes, and never changed; a node with another number is refused (exit code 2)." group:"Node"`
	// MinAck is the weakest acknowledgement level that any publish may ask for: none, leader or quorum.
	MinAck string `name:"min-ack" env:"HOLDFAST_MIN_ACK" default:"none" help:"Weakest ack level that any publish may ask for: none, leader or quorum." group:"Node"`
	// Profile chooses the Raft timeouts: lan, fast (disks whose fsync never takes 100 ms) or local (virtual
	// time). The same on all nodes.
	Profile string `name:"profile" env:"HOLDFAST_PROFILE" default:"lan" help:"Raft timeouts: lan, fast (fsync never above 100 ms) or local (tests); the same on all nodes." group:"Node"`

	// Listen is for NATS clients. Empty: what NATSConfig says, else hub.DefaultListen.
	Listen string `name:"listen" env:"HOLDFAST_LISTEN" placeholder:"HOST:PORT" help:"Address for NATS clients; 127.0.0.1:4222, unless --nats-config has one." group:"NATS"`
	// NATSConfig is a nats-server configuration file for the embedded hub: accounts, users, TLS, limits.
	NATSConfig string `name:"nats-config" env:"HOLDFAST_NATS_CONFIG" placeholder:"FILE" help:"nats-server configuration for accounts, users, TLS and limits of the embedded hub." group:"NATS"`
	// NATSURL, NATSLeafURL and NATSCreds are for a hub of your own. This version refuses them.
	NATSURL     string `name:"nats-url" env:"HOLDFAST_NATS_URL" placeholder:"URL" help:"A NATS server of your own instead of the embedded hub (not supported by this version)." group:"NATS"`
	NATSLeafURL string `name:"nats-leaf-url" env:"HOLDFAST_NATS_LEAF_URL" placeholder:"URL" help:"Its leafnode listener (not supported by this version)." group:"NATS"`
	NATSCreds   string `name:"nats-creds" env:"HOLDFAST_NATS_CREDS" placeholder:"FILE" help:"Credentials for it (not supported by this version)." group:"NATS"`

	// RaftListen is the port of all groups; RaftAdvertise is where other nodes dial it, default RaftListen.
	RaftListen    string `name:"raft-listen" env:"HOLDFAST_RAFT_LISTEN" default:"127.0.0.1:7222" help:"Address for replication." group:"Cluster"`
	RaftAdvertise string `name:"raft-advertise" env:"HOLDFAST_RAFT_ADVERTISE" placeholder:"HOST:PORT" help:"Where other nodes reach it, if that differs." group:"Cluster"`
	// SerfListen is for gossip (TCP and UDP). Empty only for a node without gossip: alone, or with Peers.
	SerfListen    string `name:"serf-listen" env:"HOLDFAST_SERF_LISTEN" default:"127.0.0.1:7223" help:"Address for gossip, TCP and UDP." group:"Cluster"`
	SerfAdvertise string `name:"serf-advertise" env:"HOLDFAST_SERF_ADVERTISE" placeholder:"HOST:PORT" help:"Where other nodes reach it, if that differs." group:"Cluster"`
	// RouteListen is where the hubs of other nodes connect. Empty only for a node that is and stays alone.
	RouteListen    string `name:"route-listen" env:"HOLDFAST_ROUTE_LISTEN" default:"127.0.0.1:6222" help:"Address for the hubs of other nodes." group:"Cluster"`
	RouteAdvertise string `name:"route-advertise" env:"HOLDFAST_ROUTE_ADVERTISE" placeholder:"HOST:PORT" help:"Where other nodes reach it, if that differs." group:"Cluster"`
	// Join are gossip addresses of other nodes, at most discovery.MaxSeeds.
	Join []string `name:"join" env:"HOLDFAST_JOIN" sep:"," placeholder:"HOST:PORT" help:"Gossip addresses of other nodes." group:"Cluster"`
	// Peers is a fixed membership without gossip: id=raft-address of every node, this one included.
	Peers []string `name:"peers" env:"HOLDFAST_PEERS" sep:"," placeholder:"ID=HOST:PORT" help:"Fixed membership without gossip: every node and its Raft address, this one too." group:"Cluster"`
	// BootstrapExpect is how many nodes found the cluster together; 0 = none: alone, or joining one that exists.
	BootstrapExpect int `name:"bootstrap-expect" env:"HOLDFAST_BOOTSTRAP_EXPECT" default:"0" placeholder:"N" help:"Found a new cluster when so many nodes are there; the same on all of them." group:"Cluster"`
	// MaxVoters is the most voters a group has, odd, at most MaxMaxVoters; further nodes follow without a vote.
	MaxVoters int `name:"max-voters" env:"HOLDFAST_MAX_VOTERS" default:"5" help:"Most voters of a group, odd; further nodes follow without a vote." group:"Cluster"`
	// ClusterSecretFile and ClusterSecret are for networks that are not yours alone. This version refuses them.
	ClusterSecretFile string `name:"cluster-secret-file" env:"HOLDFAST_CLUSTER_SECRET_FILE" placeholder:"FILE" help:"Secret shared by all nodes (not supported by this version)." group:"Cluster"`
	ClusterSecret     string `kong:"-"`

	// AdminListen is for health, metrics and operators. Empty: none.
	AdminListen string `name:"admin-listen" env:"HOLDFAST_ADMIN_LISTEN" default:"127.0.0.1:8222" help:"Address for health, metrics and operators' commands." group:"Admin"`
	// AdminTokenFile holds the token that every request to AdminListen must bear. Needed off loopback.
	AdminTokenFile string `name:"admin-token-file" env:"HOLDFAST_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"Bearer token that admin requests must show; needed off loopback." group:"Admin"`

	// SegmentSize is the size of the files of the event groups' logs, in bytes; 0: seglog.DefaultSegmentSize. It
	// bounds a message, and it is written in full at the first start: tests that start many nodes make it small.
	SegmentSize int64 `kong:"-"`
	// Retention says how much log the event groups keep behind snapshots; zero: replication.DefaultRetention. For
	// tests in which a node that was away must need a snapshot.
	Retention replication.Retention `kong:"-"`

	// Membership are the rules of who votes, replication/membership; MaxVoters above is the one of them that
	// has a flag. Zero fields mean their defaults. For tests, which cannot wait for a minute.
	Membership membership.Settings `kong:"-"`
	// Feature is the highest feature level that the node pretends to know; 0 = replication.FeatureLevel. For
	// tests of upgrades.
	Feature int `kong:"-"`

	// FS is the file system of DataDir; nil = the operating system's. For tests.
	FS storage.FS `kong:"-"`

	// Logger is where the node and the libraries in it report. Required.
	Logger *zap.Logger `kong:"-"`
}
