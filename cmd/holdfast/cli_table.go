package main

import (
	"time"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

// cli is the command line.
type cli struct {
	Serve   serveCmd   `cmd:"" help:"Run a node."`
	Demo    demoCmd    `cmd:"" help:"Run three nodes, publish and consume, kill leaders, and count what was lost."`
	Cluster clusterCmd `cmd:"" help:"Look at a cluster and change it."`
	Leave   leaveCmd   `cmd:"" help:"Take a node out of its cluster for good, and stop it."`
	Check   checkCmd   `cmd:"" help:"Verify the files of a stopped node, changing nothing."`
	Dump    dumpCmd    `cmd:"" help:"List what the files of a stopped node hold."`
	Salvage salvageCmd `cmd:"" help:"Copy out of a stopped node's files the messages that verify, and list what does not."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// settings are those of a node without their Validate, which the parser would call before they are complete.
type settings node.Config

type serveCmd struct {
	File string   `name:"config" env:"HOLDFAST_CONFIG" placeholder:"FILE" help:"YAML file of settings, named as the flags; flags and environment go before it." group:"Node"`
	Node settings `embed:""`

	LogLevel  string `name:"log-level" env:"HOLDFAST_LOG_LEVEL" default:"info" help:"Least level that is logged: debug, info, warn or error." group:"Log"`
	LogFormat string `name:"log-format" env:"HOLDFAST_LOG_FORMAT" default:"auto" help:"console, json, or auto: console on a terminal, else json." group:"Log"`
}

type demoCmd struct {
	Duration   time.Duration `default:"45s" help:"How long to publish; two leaders are killed in this time."`
	Publishers int           `default:"8" help:"Publishers; half of them give their messages a Nats-Msg-Id."`
	Dir        string        `placeholder:"DIR" help:"Where the nodes keep their data and logs; kept afterwards (default: a temporary directory, removed unless something is lost)."`
	Profile    string        `default:"lan" help:"Raft timeouts of the nodes: lan or fast."`
}

type clusterCmd struct {
	Status      statusCmd      `cmd:"" help:"Show how the groups stand, as one node sees them."`
	Members     membersCmd     `cmd:"" help:"Show the nodes and what they are in the groups."`
	Transfer    transferCmd    `cmd:"" help:"Hand the leadership of a group to another node."`
	AcceptClock acceptClockCmd `cmd:"" help:"Say that the wall clocks are right: clocks that are behind are corrected at once, and a wait before messages are deleted by age ends."`
	Remove      removeCmd      `cmd:"" help:"Take a node out of the cluster for good."`
	Recover     recoverCmd     `cmd:"" help:"Go on with one stopped node after the majority was lost for good, giving up the others."`
	Local       localCmd       `cmd:"" help:"Run three nodes on this machine that find each other by gossip, until Ctrl-C."`
}

// operatorFlags say which node is asked.
type operatorFlags struct {
	Admin     string        `env:"HOLDFAST_ADMIN" default:"127.0.0.1:8222" help:"Admin address of the node to ask."`
	TokenFile string        `name:"admin-token-file" env:"HOLDFAST_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"Bearer token that the node wants."`
	Timeout   time.Duration `default:"60s" help:"How long to wait for the answer."`
	JSON      bool          `name:"json" help:"Print the answer as it came."`
}

type statusCmd struct {
	Ask operatorFlags `embed:""`
}

type membersCmd struct {
	Ask operatorFlags `embed:""`
}

type transferCmd struct {
	Ask   operatorFlags `embed:""`
	Group uint32        `required:"" help:"Group to hand over; 0 is the metadata group."`
	To    string        `placeholder:"NODE" help:"Node to hand it to (default: the best one)."`
}

type acceptClockCmd struct {
	Ask operatorFlags `embed:""`
}

type removeCmd struct {
	Ask  operatorFlags `embed:""`
	Node string        `arg:"" help:"Id of the node."`
}

type leaveCmd struct {
	Ask operatorFlags `embed:""`
}

// recoverCmd is for a cluster that lost the majority of its voters for good.
type recoverCmd struct {
	Dir      string `arg:"" help:"Data directory of the node that survives; it must be stopped."`
	Survivor string `required:"" placeholder:"NODE" help:"Id of that node, to say that it is meant. Every other node of the cluster is given up and must never start again with its old data."`
}

type localCmd struct {
	Dir string `default:"./data/cluster" help:"Where the nodes keep their data and logs."`
}

type checkCmd struct {
	Dir string `arg:"" help:"Data directory of a node that is stopped."`
}

type dumpCmd struct {
	Dir   string `arg:"" help:"Data directory of a node that is stopped."`
	Group int    `default:"-1" placeholder:"N" help:"Only this group (default: all)."`
	Log   bool   `help:"List every record of the logs, too."`
}

type salvageCmd struct {
	Dir string `arg:"" help:"Data directory of a node that is stopped; nothing in it is changed."`
	Out string `arg:"" help:"Directory to write to: a new or an empty one."`
}

type versionCmd struct{}
