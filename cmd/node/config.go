package node

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/replication"
)

// Limits of Config.
const (
	// MaxNodeID is the longest node id, in bytes: an incarnation must fit behind it in a replica's id.
	MaxNodeID = 127
	// MaxMaxVoters is the largest MaxVoters: every entry waits for a majority of them.
	MaxMaxVoters = 9
	// MaxPeers is the largest number of Peers, and of nodes to expect.
	MaxPeers = 64
)

// Hostname is the word in the default of NodeID that DefaultConfig and the command line replace.
const Hostname = "hostname"

// A ConfigError is one setting that cannot be used as it is.
type ConfigError struct {
	// Setting is its flag, with the dashes.
	Setting string
	// Problem says what is wrong with it, Cure what to give instead.
	Problem, Cure string
}

// Error implements error.
func (e *ConfigError) Error() string { return e.Setting + ": " + e.Problem + "; " + e.Cure }

// DefaultConfig returns the defaults; the node id is the host name.
func DefaultConfig() Config {
	var c Config
	host, _ := os.Hostname() // empty is refused by Validate
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		text := v.Type().Field(i).Tag.Get("default")
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(strings.ReplaceAll(text, "${"+Hostname+"}", host))
		case reflect.Int:
			n, _ := strconv.Atoi(text) // a test checks every default
			f.SetInt(int64(n))
		default:
		}
	}
	return c
}

func (c *Config) timeouts() replication.Timeouts {
	switch c.Profile {
	case "fast":
		return replication.Fast()
	case "local":
		return replication.Local()
	}
	return replication.LAN()
}

var nodeIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

const nodeIDRule = "give 1 to 127 letters, digits, '-' and '.', beginning with a letter or digit"

// Validate says everything that is wrong, as ConfigErrors joined into one error; nil if nothing is.
func (c *Config) Validate() error {
	v := &verdict{}
	switch {
	case c.NodeID == "":
		v.add("--node-id", "is empty", nodeIDRule)
	case !nodeIDPattern.MatchString(c.NodeID) || len(c.NodeID) > MaxNodeID:
		v.add("--node-id", fmt.Sprintf("%q is no node id", c.NodeID), nodeIDRule)
	}
	if c.DataDir == "" {
		v.add("--data-dir", "is empty", "give a directory")
	}
	if c.Logger == nil {
		v.errs = append(v.errs, errors.New("node: Logger is nil; it is required"))
	}
	c.checkNumbers(v)
	c.checkDisk(v)
	if _, err := jsapi.ParseAckLevel(c.MinAck); err != nil {
		v.add("--min-ack", fmt.Sprintf("%q is no ack level", c.MinAck), "give none, leader or quorum")
	}
	if !slices.Contains([]string{"lan", "fast", "local"}, c.Profile) {
		v.add("--profile", fmt.Sprintf("%q is unknown", c.Profile), "give lan, fast or local")
	}
	c.checkUnbuilt(v)
	c.checkTogether(v)
	c.checkListeners(v)
	c.checkJoin(v)
	c.checkPeers(v)
	return errors.Join(v.errs...)
}

// verdict gathers what is wrong.
type verdict struct{ errs []error }

func (v *verdict) add(setting, problem, cure string) {
	v.errs = append(v.errs, &ConfigError{Setting: setting, Problem: problem, Cure: cure})
}

func (c *Config) checkNumbers(v *verdict) {
	if c.Groups < 1 || c.Groups > replication.MaxGroups {
		v.add("--groups", fmt.Sprintf("is %d", c.Groups), fmt.Sprintf("give 1 to %d", replication.MaxGroups))
	}
	switch odd := fmt.Sprintf("give an odd number from 1 to %d", MaxMaxVoters); {
	case c.MaxVoters < 1 || c.MaxVoters > MaxMaxVoters:
		v.add("--max-voters", fmt.Sprintf("is %d", c.MaxVoters), odd)
	case c.MaxVoters%2 == 0:
		v.add("--max-voters", fmt.Sprintf("is %d, an even number, which survives no more than %d",
			c.MaxVoters,
			c.MaxVoters-1), odd)
	}
	if c.BootstrapExpect < 0 || c.BootstrapExpect > MaxPeers {
		v.add("--bootstrap-expect", fmt.Sprintf("is %d", c.BootstrapExpect),
			fmt.Sprintf("give 1 to %d, or 0", MaxPeers))
	}
}

// checkUnbuilt refuses what is planned and not there: to ignore it would be worse.
func (c *Config) checkUnbuilt(v *verdict) {
	for _, s := range []struct{ setting, value, cure string }{
		{"--nats-url", c.NATSURL, "remove it: the embedded hub is used"},
		{"--nats-leaf-url", c.NATSLeafURL, "remove it: the embedded hub is used"},
		{"--nats-creds", c.NATSCreds, "remove it: the embedded hub needs none"},
		{"--cluster-secret-file", c.ClusterSecretFile, "remove it, and keep all nodes on loopback addresses"},
		{"HOLDFAST_CLUSTER_SECRET", c.ClusterSecret, "remove it, and keep all nodes on loopback addresses"},
	} {
		if s.value != "" {
			v.add(s.setting, "is not supported by this version", s.cure)
		}
	}
}

// checkTogether refuses settings that contradict each other.
func (c *Config) checkTogether(v *verdict) {
	const one = "give one of them"
	join, peers, found := len(c.Join) > 0, len(c.Peers) > 0, c.BootstrapExpect != 0
	for _, s := range []struct {
		wrong                  bool
		setting, problem, cure string
	}{
		{join && peers, "--join", "is for gossip, --peers for a fixed membership without it", one},
		{peers && found, "--bootstrap-expect", "is for gossip; with --peers, those are the founders", one},
		{
			c.NATSURL != "" && c.NATSConfig != "", "--nats-config",
			"is for the embedded hub, --nats-url for a server of your own", one,
		},
		{
			c.NATSURL != "" && c.Listen != "", "--listen",
			"is for the embedded hub, --nats-url for a server of your own", one,
		},
		{
			(join || peers || c.BootstrapExpect > 1) && c.RouteListen == "", "--route-listen",
			"is empty, but the hub must reach those of other nodes", "give an address",
		},
		{
			(join || c.BootstrapExpect > 1) && !peers && c.SerfListen == "", "--serf-listen",
			"is empty, but other nodes are found by gossip", "give an address, or --peers",
		},
	} {
		if s.wrong {
			v.add(s.setting, s.problem, s.cure)
		}
	}
}

func (c *Config) checkJoin(v *verdict) {
	if len(c.Join) > discovery.MaxSeeds {
		v.add("--join", fmt.Sprintf("has %d addresses", len(c.Join)),
			fmt.Sprintf("give at most %d", discovery.MaxSeeds))
	}
	own := c.SerfAdvertise
	if own == "" {
		own = c.SerfListen
	}
	seen := make(map[string]bool)
	for _, seed := range c.Join {
		a, ok := dialable(v, "--join", seed)
		switch {
		case !ok:
		case seen[a.String()]:
			v.add("--join", "names "+seed+" twice", "give each node once")
		case a.String() == canonical(own):
			v.add("--join", seed+" is this node's own gossip address", "give those of other nodes")
		}
		seen[a.String()] = true
	}
}

// advertised is the Raft address that others dial, and the setting that says so.
func (c *Config) advertised() (addr, setting string) {
	if c.RaftAdvertise != "" {
		return c.RaftAdvertise, "--raft-advertise"
	}
	return c.RaftListen, "--raft-listen"
}

func (c *Config) checkPeers(v *verdict) {
	if len(c.Peers) == 0 {
		return
	}
	if len(c.Peers) > MaxPeers {
		v.add("--peers", fmt.Sprintf("has %d nodes", len(c.Peers)), fmt.Sprintf("give at most %d", MaxPeers))
	}
	own, _ := c.advertised()
	byID, byAddr := make(map[string]string), make(map[string]string)
	for _, peer := range c.Peers {
		id, addr, found := strings.Cut(peer, "=")
		if !found || !nodeIDPattern.MatchString(id) || len(id) > MaxNodeID {
			v.add("--peers", fmt.Sprintf("%q is no peer", peer), "give id=host:port for each node")
			continue
		}
		a, ok := dialable(v, "--peers", addr)
		if !ok {
			continue
		}
		c.checkPeer(v, id, addr, byID, byAddr)
		byID[id], byAddr[a.String()] = addr, id
	}
	if _, listed := byID[c.NodeID]; !listed && c.NodeID != "" {
		v.add("--peers", "does not list this node, "+c.NodeID,
			fmt.Sprintf("add %s=%s, or correct --node-id", c.NodeID, own))
	}
}

// checkPeer judges a peer beside those before it.
func (c *Config) checkPeer(v *verdict, id, addr string, byID, byAddr map[string]string) {
	if _, twice := byID[id]; twice {
		v.add("--peers", "names the node "+id+" twice", "give each node once")
	}
	if other, twice := byAddr[canonical(addr)]; twice && other != id {
		v.add("--peers", fmt.Sprintf("gives %s to both %s and %s", addr, other, id),
			"give each node its own address")
	}
	own, setting := c.advertised()
	if id == c.NodeID && canonical(addr) != canonical(own) {
		v.add("--peers", fmt.Sprintf("lists this node, %s, with %s, but %s is %s", id, addr, setting, own),
			"make them equal")
	}
}
