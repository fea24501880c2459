package node

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
)

// valid is a configuration that nothing is wrong with.
func valid() Config {
	c := DefaultConfig()
	c.NodeID, c.Logger = "n1", zap.NewNop()
	return c
}

// refusals returns the settings that an error of Validate names, with problem and cure.
func refusals(err error) []ConfigError {
	var out []ConfigError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if c, ok := errors.AsType[*ConfigError](e); ok {
				out = append(out, *c)
			}
		}
	}
	return out
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		NodeID: host, DataDir: "./data", Groups: 1, MinAck: "none", Profile: "lan", MaxVoters: 5,
		DiskMinFree: 256 << 20, DiskBallast: 64 << 20,
		RaftListen: "127.0.0.1:7222", SerfListen: "127.0.0.1:7223", RouteListen: "127.0.0.1:6222",
		AdminListen: "127.0.0.1:8222",
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	c = valid()
	if err := c.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	c.Logger = nil
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "Logger") {
		t.Errorf("without a logger: %v", err)
	}
}

// TestSettingsAreNamedAlike checks that flag and variable of every setting are one name in two spellings.
func TestSettingsAreNamedAlike(t *testing.T) {
	t.Parallel()
	for f := range reflect.TypeFor[Config]().Fields() {
		if f.Tag.Get("kong") == "-" {
			continue
		}
		name := f.Tag.Get("name")
		want := "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if got := f.Tag.Get("env"); got != want || name == "" || f.Tag.Get("help") == "" {
			t.Errorf("%s: flag %q, variable %q (want %q), help %q", f.Name, name, got, want,
				f.Tag.Get("help"))
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	many := func(n int, f func(i int) string) []string {
		var out []string
		for i := range n {
			out = append(out, f(i))
		}
		return out
	}
	peers := []string{"n1=127.0.0.1:7222", "n2=127.0.0.1:7232", "n3=127.0.0.1:7242"}
	type want struct{ setting, problem, cure string }
	tests := []struct {
		name   string
		change func(*Config)
		want   []want
	}{
		{"no node id", func(c *Config) { c.NodeID = "" }, []want{{"--node-id", "empty", "give 1 to 127"}}},
		{
			"node id with slash",
			func(c *Config) { c.NodeID = "a/b" },
			[]want{{"--node-id", `"a/b"`, "letters, digits"}},
		},
		{
			"node id with space",
			func(c *Config) { c.NodeID = "a b" },
			[]want{{"--node-id", `"a b"`, "letters, digits"}},
		},
		{
			"node id begins with dot",
			func(c *Config) { c.NodeID = ".a" },
			[]want{{"--node-id", `".a"`, "beginning with"}},
		},
		{
			"node id too long", func(c *Config) { c.NodeID = strings.Repeat("a", MaxNodeID+1) },
			[]want{{"--node-id", "no node id", "1 to 127"}},
		},
		{
			"no data directory",
			func(c *Config) { c.DataDir = "" },
			[]want{{"--data-dir", "empty", "give a directory"}},
		},
		{"no groups", func(c *Config) { c.Groups = 0 }, []want{{"--groups", "is 0", "1 to 64"}}},
		{
			"too many groups",
			func(c *Config) { c.Groups = replication.MaxGroups + 1 },
			[]want{{"--groups", "is 65", "1 to 64"}},
		},
		{
			"unknown ack level",
			func(c *Config) { c.MinAck = "all" },
			[]want{{"--min-ack", `"all"`, "none, leader or quorum"}},
		},
		{
			"no ack level",
			func(c *Config) { c.MinAck = "" },
			[]want{{"--min-ack", `""`, "none, leader or quorum"}},
		},
		{
			"unknown profile",
			func(c *Config) { c.Profile = "wan" },
			[]want{{"--profile", `"wan"`, "lan, fast or local"}},
		},
		{
			"even voters",
			func(c *Config) { c.MaxVoters = 4 },
			[]want{{"--max-voters", "is 4, an even number", "odd number"}},
		},
		{"no voters", func(c *Config) { c.MaxVoters = 0 }, []want{{"--max-voters", "is 0", "from 1 to 9"}}},
		{
			"too many voters",
			func(c *Config) { c.MaxVoters = MaxMaxVoters + 2 },
			[]want{{"--max-voters", "is 11", "from 1 to 9"}},
		},
		{
			"negative expect",
			func(c *Config) { c.BootstrapExpect = -1 },
			[]want{{"--bootstrap-expect", "is -1", "1 to 64"}},
		},
		{
			"expect too many", func(c *Config) { c.BootstrapExpect = MaxPeers + 1 },
			[]want{{"--bootstrap-expect", "is 65", "1 to 64"}},
		},

		{
			"own NATS",
			func(c *Config) { c.NATSURL = "nats://x:1" },
			[]want{{"--nats-url", "not supported by this version", "remove it"}},
		},
		{
			"own leaf",
			func(c *Config) { c.NATSLeafURL = "nats://x:1" },
			[]want{{"--nats-leaf-url", "not supported by this version", "remove it"}},
		},
		{
			"credentials",
			func(c *Config) { c.NATSCreds = "f" },
			[]want{{"--nats-creds", "not supported by this version", "remove it"}},
		},
		{
			"secret file", func(c *Config) { c.ClusterSecretFile = "f" },
			[]want{{"--cluster-secret-file", "not supported by this version", "loopback"}},
		},
		{
			"secret", func(c *Config) { c.ClusterSecret = "s" },
			[]want{{"HOLDFAST_CLUSTER_SECRET", "not supported by this version", "loopback"}},
		},

		{
			"join and peers",
			func(c *Config) { c.Join, c.Peers = []string{"127.0.0.1:7233"}, peers },
			[]want{{"--join", "--peers", "one of them"}},
		},
		{
			"peers and expect",
			func(c *Config) { c.Peers, c.BootstrapExpect = peers, 3 },
			[]want{{"--bootstrap-expect", "--peers", "one of them"}},
		},
		{"hub file and own NATS", func(c *Config) { c.NATSConfig, c.NATSURL = "f", "nats://x:1" }, []want{
			{"--nats-url", "not supported", "remove it"}, {"--nats-config", "--nats-url", "one of them"},
		}},
		{
			"listen and own NATS", func(c *Config) { c.Listen, c.NATSURL = "127.0.0.1:4222", "nats://x:1" },
			[]want{
				{"--nats-url", "not supported", "remove it"}, {"--listen", "--nats-url", "one of them"},
			},
		},
		{
			"others without routes",
			func(c *Config) { c.Join, c.RouteListen = []string{"127.0.0.1:7233"}, "" },
			[]want{{"--route-listen", "is empty", "give an address"}},
		},
		{
			"gossip without address",
			func(c *Config) { c.BootstrapExpect, c.SerfListen = 3, "" },
			[]want{{"--serf-listen", "is empty", "--peers"}},
		},

		{
			"seed twice",
			func(c *Config) { c.Join = []string{"127.0.0.1:7233", "localhost:7233"} },
			[]want{{"--join", "localhost:7233 twice", "once"}},
		},
		{
			"own address as seed",
			func(c *Config) { c.Join = []string{"127.0.0.1:7223"} },
			[]want{{"--join", "this node's own", "other nodes"}},
		},
		{
			"own advertised address as seed",
			func(c *Config) { c.SerfAdvertise, c.Join = "10.0.0.1:7223", []string{"10.0.0.1:7223"} },
			[]want{{"--join", "this node's own", "other nodes"}},
		},
		{
			"seed without port",
			func(c *Config) { c.Join = []string{"10.0.0.1"} },
			[]want{{"--join", `"10.0.0.1" is not host:port`, "host:port"}},
		},
		{
			"seed with port 0",
			func(c *Config) { c.Join = []string{"10.0.0.1:0"} },
			[]want{{"--join", "port 0", "give the port"}},
		},
		{
			"seed everywhere",
			func(c *Config) { c.Join = []string{"0.0.0.0:7233"} },
			[]want{{"--join", "every interface", "address of the node"}},
		},
		{"too many seeds", func(c *Config) {
			c.Join = many(discovery.MaxSeeds+1,
				func(i int) string { return fmt.Sprintf("127.0.0.1:%d", 8000+i) })
		}, []want{{
			"--join", fmt.Sprintf("has %d", discovery.MaxSeeds+1),
			fmt.Sprintf("at most %d", discovery.MaxSeeds),
		}}},

		{
			"peer twice",
			func(c *Config) { c.Peers = slices.Concat(peers, []string{"n2=127.0.0.1:7252"}) },
			[]want{{"--peers", "n2 twice", "once"}},
		},
		{
			"two peers, one address",
			func(c *Config) { c.Peers = slices.Concat(peers, []string{"n4=127.0.0.1:7242"}) },
			[]want{{"--peers", "both n3 and n4", "its own address"}},
		},
		{
			"not among the peers",
			func(c *Config) { c.Peers = peers[1:] },
			[]want{{"--peers", "does not list this node, n1", "add n1=127.0.0.1:7222"}},
		},
		{
			"peer with another address of this node",
			func(c *Config) { c.Peers, c.RaftListen = peers, "127.0.0.1:7000" },
			[]want{{
				"--peers", "n1, with 127.0.0.1:7222, but --raft-listen is 127.0.0.1:7000",
				"make them equal",
			}},
		},
		{
			"peer with another advertised address",
			func(c *Config) { c.Peers, c.RaftAdvertise = peers, "10.0.0.1:7222" },
			[]want{{"--peers", "--raft-advertise is 10.0.0.1:7222", "make them equal"}},
		},
		{
			"no peer",
			func(c *Config) { c.Peers = slices.Concat(peers, []string{"127.0.0.1:1"}) },
			[]want{{"--peers", `"127.0.0.1:1" is no peer`, "id=host:port"}},
		},
		{
			"peer without port",
			func(c *Config) { c.Peers = slices.Concat(peers, []string{"n4=host"}) },
			[]want{{"--peers", `"host" is not host:port`, "host:port"}},
		},
		{"too many peers", func(c *Config) {
			c.Peers = append([]string{peers[0]}, many(MaxPeers,
				func(i int) string { return fmt.Sprintf("m%d=127.0.0.1:%d", i, 8000+i) })...)
		}, []want{{"--peers", "has 65", "at most 64"}}},

		{
			"reachable Raft",
			func(c *Config) { c.RaftListen = "10.0.0.1:7222" },
			[]want{{"--raft-listen", "no cluster secret", "loopback"}},
		},
		{
			"reachable gossip",
			func(c *Config) { c.SerfListen = "[2001:db8::1]:7223" },
			[]want{{"--serf-listen", "no cluster secret", "loopback"}},
		},
		{
			"reachable routes",
			func(c *Config) { c.RouteListen = "box:6222" },
			[]want{{"--route-listen", "no cluster secret", "loopback"}},
		},
		{"reachable Raft everywhere", func(c *Config) { c.RaftListen = "0.0.0.0:7222" }, []want{
			{"--raft-listen", "no cluster secret", "loopback"}, {
				"--raft-listen", "every interface",
				"give --raft-advertise",
			},
		}},
		{"gossip everywhere, short", func(c *Config) { c.SerfListen = ":7223" }, []want{
			{"--serf-listen", "no cluster secret", "loopback"}, {
				"--serf-listen", "every interface",
				"give --serf-advertise",
			},
		}},
		{"routes everywhere, IPv6", func(c *Config) { c.RouteListen = "[::]:6222" }, []want{
			{"--route-listen", "no cluster secret", "loopback"}, {
				"--route-listen", "every interface",
				"give --route-advertise",
			},
		}},
		{
			"advertised everywhere",
			func(c *Config) { c.RaftAdvertise = "0.0.0.0:7222" },
			[]want{{"--raft-advertise", "every interface", "address of the node"}},
		},
		{
			"advertised everywhere, IPv6",
			func(c *Config) { c.SerfAdvertise = "[::]:7223" },
			[]want{{"--serf-advertise", "every interface", "address of the node"}},
		},
		{
			"advertised without host",
			func(c *Config) { c.RouteAdvertise = ":6222" },
			[]want{{"--route-advertise", "every interface", "address of the node"}},
		},
		{
			"advertised port 0",
			func(c *Config) { c.RaftAdvertise = "10.0.0.1:0" },
			[]want{{"--raft-advertise", "port 0", "give the port"}},
		},
		{
			"admin without token",
			func(c *Config) { c.AdminListen = "0.0.0.0:8222" },
			[]want{{"--admin-listen", "reached from the network", "--admin-token-file"}},
		},
		{
			"no Raft address",
			func(c *Config) { c.RaftListen = "" },
			[]want{{"--raft-listen", `"" is not host:port`, "host:port"}},
		},
		{
			"port too large",
			func(c *Config) { c.AdminListen = "127.0.0.1:65536" },
			[]want{{"--admin-listen", "no port from 0 to 65535", "host:port"}},
		},
		{
			"named port",
			func(c *Config) { c.Listen = "127.0.0.1:nats" },
			[]want{{"--listen", "no port from 0 to 65535", "host:port"}},
		},
		{
			"one port twice",
			func(c *Config) { c.SerfListen = "localhost:7222" },
			[]want{{"--serf-listen", "taken by --raft-listen", "its own port"}},
		},
		{
			"one port everywhere",
			func(c *Config) { c.Listen = "0.0.0.0:8222" },
			[]want{{"--admin-listen", "taken by --listen", "its own port"}},
		},
		{
			"the default port for clients",
			func(c *Config) { c.AdminListen = "127.0.0.1:4222" },
			[]want{{"--admin-listen", "taken by --listen", "its own port"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := valid()
			tt.change(&c)
			err := c.Validate()
			got := refusals(err)
			if len(got) != len(tt.want) {
				t.Fatalf("%d refusals, want %d: %v", len(got), len(tt.want), err)
			}
			for i, w := range tt.want {
				if g := got[i]; g.Setting != w.setting || !strings.Contains(g.Problem, w.problem) ||
					!strings.Contains(g.Cure, w.cure) {
					t.Errorf("refusal %d: %+v, want %+v", i, g, w)
				}
				if !strings.Contains(err.Error(), got[i].Error()) {
					t.Errorf("the error %q does not say %q", err, got[i].Error())
				}
			}
		})
	}
}

func TestValidateAccepts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*Config)
	}{
		{"longest node id", func(c *Config) { c.NodeID = strings.Repeat("a", MaxNodeID) }},
		{"most groups", func(c *Config) { c.Groups = replication.MaxGroups }},
		{"most voters", func(c *Config) { c.MaxVoters = MaxMaxVoters }},
		{"one voter", func(c *Config) { c.MaxVoters = 1 }},
		{"expect most", func(c *Config) { c.BootstrapExpect = MaxPeers }},
		{"clients from everywhere", func(c *Config) { c.Listen = "0.0.0.0:4222" }},
		{"admin with token", func(c *Config) { c.AdminListen, c.AdminTokenFile = "0.0.0.0:8222", "token" }},
		{"no admin", func(c *Config) { c.AdminListen = "" }},
		{"ephemeral ports", func(c *Config) {
			c.Listen, c.RaftListen, c.SerfListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
			c.RouteListen, c.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
		}},
		{"alone, no ports for others", func(c *Config) { c.SerfListen, c.RouteListen = "", "" }},
		{"IPv6 loopback", func(c *Config) { c.RaftListen = "[::1]:7222" }},
		{"seeds", func(c *Config) { c.Join = []string{"127.0.0.1:7233", "box:7233"} }},
		{"seed on the port of another host", func(c *Config) { c.Join = []string{"10.0.0.1:7223"} }},
		{"peers", func(c *Config) { c.Peers = []string{"n1=localhost:7222", "n2=127.0.0.1:7232"} }},
		{"peers advertised", func(c *Config) {
			c.RaftAdvertise, c.Peers = "10.0.0.1:7222", []string{"n1=10.0.0.1:7222", "n2=10.0.0.2:7222"}
		}},
		{"peers do without gossip", func(c *Config) {
			c.Peers, c.SerfListen = []string{"n1=127.0.0.1:7222", "n2=127.0.0.1:7232"}, ""
		}},
		{
			"the hub's file has the address",
			func(c *Config) { c.NATSConfig, c.AdminListen = "f", "127.0.0.1:4222" },
		},
	} {
		c := valid()
		tt.change(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: refused: %v", tt.name, err)
		}
	}
}

// TestRefusalsReadWell checks the form that people see.
func TestRefusalsReadWell(t *testing.T) {
	t.Parallel()
	c := valid()
	c.MaxVoters, c.NodeID = 2, ""
	want := regexp.MustCompile(`^--node-id: is empty; give [^\n]+\n` +
		`--max-voters: is 2, an even number, [^\n]+; give an odd number from 1 to 9$`)
	if err := c.Validate(); err == nil || !want.MatchString(err.Error()) {
		t.Errorf("%v does not match %v", err, want)
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	for profile, want := range map[string]replication.Timeouts{
		"lan": replication.LAN(), "fast": replication.Fast(), "local": replication.Local(),
	} {
		c := Config{Profile: profile}
		if got := c.timeouts(); got != want {
			t.Errorf("%s: %+v, want %+v", profile, got, want)
		}
	}
}
