package hub

import (
	"crypto/tls"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/conf"
	"go.uber.org/zap"
)

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	log := quietLog(t)
	for _, c := range []struct {
		name, conf string
		cfg        Config
		want       string // FILE stands for the file's path
	}{
		{"logger", "", Config{Log: nil}, "hub: configuration: Log is nil, a logger is needed"},
		{
			"timeout", "",
			Config{Log: log, StartTimeout: -1},
			"hub: configuration: StartTimeout -1ns, must not be negative",
		},
		{
			"lame duck", "",
			Config{Log: log, LameDuck: MinLameDuck - 1},
			"hub: configuration: LameDuck 99.999999ms, must be at least 100ms",
		},
		{
			"name", "",
			Config{Log: log, ServerName: "a b"},
			`hub: configuration: server name "a b" contains white space`,
		},
		{
			"cluster name", "",
			Config{Log: log, ClusterName: "a\n"},
			`hub: configuration: cluster name "a\n" contains white space`,
		},
		{
			"no cluster name", "",
			Config{Log: log, RouteListen: "127.0.0.1:0"},
			"hub: configuration: route listen 127.0.0.1:0 needs a cluster name",
		},
		{
			"listen", "",
			Config{Log: log, Listen: "4222"},
			`hub: configuration: listen "4222" is not host:port: address 4222: missing port in address`,
		},
		{
			"port", "",
			Config{Log: log, Listen: "127.0.0.1:65536"},
			`hub: configuration: listen "127.0.0.1:65536": port "65536" is not a number from 0 to 65535`,
		},
		{
			"port name", "",
			Config{Log: log, ClusterName: "c", RouteListen: "127.0.0.1:http"},
			`hub: configuration: route listen "127.0.0.1:http": port "http" is not a number from 0 to 65535`,
		},
		{
			"advertise", "",
			Config{Log: log, RouteAdvertise: "x"},
			`hub: configuration: route advertise "x" is not host:port: address x: missing port in address`,
		},
		{
			"open routes", "",
			Config{Log: log, ClusterName: "c", RouteListen: "0.0.0.0:0"},
			"hub: configuration: route listen 0.0.0.0:0 can be reached from the network, which needs " +
				"route TLS; use a loopback address without",
		},
		{
			"routes without listener", "",
			Config{Log: log, Routes: []string{"a:1"}},
			"hub: configuration: hub: no route listener is configured",
		},
		{
			"listen twice", `listen: "0.0.0.0:4222"`,
			Config{Log: log, Listen: "127.0.0.1:4222"},
			`hub: configuration: "listen" is 0.0.0.0:4222 in FILE, but the listen address is given as ` +
				`127.0.0.1:4222; remove one of them`,
		},
		{
			"port twice", `port: 4333`,
			Config{Log: log, Listen: "127.0.0.1:4222"},
			`hub: configuration: "listen" is 0.0.0.0:4333 in FILE, but the listen address is given as ` +
				`127.0.0.1:4222; remove one of them`,
		},
		{
			"server name twice", `server_name: x`,
			Config{Log: log, ServerName: "y"},
			`hub: configuration: "server_name" is x in FILE, but the server name (node id) is given as y; ` +
				`remove one of them`,
		},
		{
			"cluster name twice", `cluster { name: x }`,
			Config{Log: log, ClusterName: "y"},
			`hub: configuration: "cluster.name" is x in FILE, but the cluster name is given as y; ` +
				`remove one of them`,
		},
		{
			"route listen twice", `cluster { listen: "127.0.0.1:7000" }`,
			Config{Log: log, ClusterName: "y", RouteListen: "127.0.0.1:7001"},
			`hub: configuration: "cluster.listen" is 127.0.0.1:7000 in FILE, but the route listen ` +
				`address is given as 127.0.0.1:7001; remove one of them`,
		},
		{
			"route advertise twice", `cluster { listen: "127.0.0.1:7000", advertise: "a:1" }`,
			Config{Log: log, RouteAdvertise: "b:1"},
			`hub: configuration: "cluster.advertise" is a:1 in FILE, but the route advertise address is ` +
				`given as b:1; remove one of them`,
		},
		{"syntax", `accounts {`, Config{Log: log}, "hub: configuration: FILE: "},
		{
			"unknown", "debug: false\nfoo: 1",
			Config{Log: log},
			`hub: configuration: FILE:2:1: unknown field "foo"`,
		},
		{
			"bad jetstream", `accounts { A { jetstream: maybe } }`,
			Config{Log: log},
			`hub: configuration: FILE: Expected 'enabled' or 'disabled' for string value, got 'maybe'`,
		},
		{
			"nats's own check", `no_auth_user: nobody`,
			Config{Log: log},
			`hub: configuration: no_auth_user: "nobody" present, but users/nkeys are not defined`,
		},
		{
			"mqtt", `server_name: x, mqtt { port: -1 }`,
			Config{Log: log},
			`hub: configuration: FILE: "mqtt": needs nats-server's own JetStream, which is off`,
		},
		{
			"operator", `trusted_keys: [OCAT33MTVU2VUOIMGNGUNXJ66AH2RLSDAF3MUBCYAY5QMIL65NQM6XQG]`,
			Config{Log: log},
			`hub: configuration: FILE: "operator": JWT mode cannot be used, because service users ` +
				`cannot be added to it; list accounts and users in the file`,
		},
		{
			"leaf nkey",
			`leafnodes { port: -1
				authorization { nkey: UCK5N7N66OBOINFXAYC2ACJQYFSOD4VYNU6APEJTAVFZB2SVHLKGEW7L } }`,
			Config{Log: log},
			`hub: configuration: FILE: "leafnodes.authorization.nkey": cannot be combined with the user ` +
				`of our own link; use users`,
		},
		{
			"leaf account",
			`accounts { A { users: [{user: a, password: a}] } }
				leafnodes { port: -1, authorization { account: A } }`,
			Config{Log: log},
			`hub: configuration: FILE: "leafnodes.authorization.account": without a user it would bind our ` +
				`own link to that account; use users`,
		},
		{
			"gateway", `gateway { name: g, port: -1 }`,
			Config{Log: log},
			`hub: configuration: FILE: "gateway": the leafnode listener of our own link needs ` +
				`a system_account beside it`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := c.want
			if c.conf != "" {
				c.cfg.ConfigFile = write(t, "hub.conf", c.conf)
				want = strings.ReplaceAll(want, "FILE", c.cfg.ConfigFile)
			}
			h, err := Start(t.Context(), c.cfg)
			if err == nil {
				h.Stop()
				t.Fatal("Start succeeded")
			}
			if !errors.Is(err, ErrConfig) {
				t.Errorf("not ErrConfig: %v", err)
			}
			got := strings.TrimSpace(err.Error())
			if c.name == "syntax" && strings.HasPrefix(got, want) {
				return // the rest is nats-server's
			}
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	_, err := Start(t.Context(), Config{Log: log, ConfigFile: "/nowhere/hub.conf"})
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "/nowhere/hub.conf") {
		t.Errorf("missing file: %v", err)
	}
}

func TestSameSettingTwiceIsFine(t *testing.T) {
	t.Parallel()
	listen := fixedAddr(t)
	h := start(t, Config{
		ServerName: "x", Listen: listen, ClusterName: "c", RouteListen: "127.0.0.1:0",
		ConfigFile: write(t, "hub.conf", `server_name: x, listen: "`+listen+`"
			cluster { name: c, listen: "127.0.0.1:-1" }`),
	})
	if h.ClientAddr() != listen || h.ServerName() != "x" {
		t.Errorf("%s %s", h.ClientAddr(), h.ServerName())
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	p, err := newPlan(Config{Log: zap.NewNop()})
	if err != nil || p.listen.String() != DefaultListen {
		t.Errorf("default listen %v, %v", p.listen, err)
	}
	p, err = newPlan(Config{ConfigFile: write(t, "hub.conf", "debug: false")})
	if err != nil || p.listen.String() != DefaultListen {
		t.Errorf("a file without listen: %v, %v", p.listen, err)
	}
	p, err = newPlan(Config{ConfigFile: write(t, "hub.conf", "port: 4999")})
	if err != nil || p.listen.String() != "0.0.0.0:4999" {
		t.Errorf("a file with a port: %v, %v", p.listen, err)
	}
	for in, want := range map[addr]string{
		{"", 1}: "127.0.0.1:1", {"0.0.0.0", 1}: "127.0.0.1:1", {"::", 1}: "127.0.0.1:1",
		{"10.1.2.3", 1}: "10.1.2.3:1", {"host", 1}: "host:1", {"::1", 1}: "[::1]:1",
	} {
		if got := boundAddr(in.host, in.port).String(); got != want {
			t.Errorf("boundAddr(%v) = %s, want %s", in, got, want)
		}
	}
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "localhost": true,
		"": false, "0.0.0.0": false, "10.0.0.1": false,
	} {
		if isLoopback(host) != want {
			t.Errorf("isLoopback(%q) = %v", host, !want)
		}
	}
	cfg := Config{Log: zap.NewNop(), ClusterName: "c", RouteListen: "0.0.0.0:1", RouteTLS: &tls.Config{}}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		t.Errorf("open routes with TLS: %v", err)
	}
	if cfg.StartTimeout != 10*time.Second || cfg.LameDuck != 10*time.Second {
		t.Errorf("defaults %v %v", cfg.StartTimeout, cfg.LameDuck)
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	const api = "$JS.API.>"
	for s, want := range map[string]bool{
		"$JS.API.>": true, ">": true, "$JS.>": true, "*.API.INFO": true, "$JS.API.INFO": true,
		"$JS.API.STREAM.*.x": true, "*.*": false, "*.*.*": true, "$JS.API": false, "$JS.ACK.>": false,
		"$JS.hub.API.>": false, "api.>": false,
		"*.>": true,
	} {
		if overlap(s, api) != want || overlap(api, s) != want {
			t.Errorf("overlap(%q) = %v", s, !want)
		}
	}
}

// Variables are resolved; nats-server accepts an unknown key only if a reference used it.
func TestVariables(t *testing.T) {
	t.Setenv("HUB_TEST_TOKEN", "from-env")
	path := write(t, "hub.conf", `
		USER: joe
		PW: "se$cret"
		WAIT = 7
		include "more.conf"
		authorization {
			INNER: $PW
			users: [{user: $USER, password: $INNER}, {user: env, password: $HUB_TEST_TOKEN}]
			timeout: $WAIT
		}
		accounts { NAME: app, A { users: [{user: $NAME, password: $PW}] } }
		server_tags: ["a:b", $USER]
		max_payload: 2MB`)
	more := "MAX: 123\nmax_connections: $MAX\nping_interval: \"2m\"\n"
	if err := writeBeside(path, "more.conf", more); err != nil {
		t.Fatal(err)
	}
	p, err := newPlan(Config{ConfigFile: path})
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.options(nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, p.text)
	}
	got := map[string]string{}
	for _, u := range o.Users {
		if !strings.HasPrefix(u.Username, "holdfast-") {
			got[u.Username] = u.Password
		}
	}
	if d := cmp.Diff(map[string]string{"joe": "se$cret", "env": "from-env", "app": "se$cret"}, got); d != "" {
		t.Error(d)
	}
	if o.MaxConn != 123 || o.MaxPayload != 2<<20 || o.PingInterval != 2*time.Minute || o.AuthTimeout != 7 {
		t.Errorf("%d %d %v %v", o.MaxConn, o.MaxPayload, o.PingInterval, o.AuthTimeout)
	}
	if d := cmp.Diff([]string{"a:b", "joe"}, []string(o.Tags)); d != "" {
		t.Error(d)
	}
}

// What render writes must parse to the same again. A map of nothing but used variables is the one thing whose
// marks it cannot keep, as there is no other key to put the references at.
func FuzzRender(f *testing.F) {
	for _, s := range []string{
		`a: 1`, `a: -1, b: 2.5, c: "x", d: true, e: [1, "two", {three: 3.0}], f { g { h: [] } }`,
		`s: "q\"b\\s\tt\nn\rr\x01"`, `'k"ey': v`, `pw: $2a$10$abc`, `t: 2016-05-04T18:53:41Z`,
		`x: 4k, y: 1GB, z: 3e`,
		"V: 1\nw: $V", `neg: -0.5`, `u: "é ü 世"`, `p: (block string)`, `inc: include`, `"include": 3`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "include") && !strings.Contains(s, `"include"`) {
			t.Skip("reads files")
		}
		m, err := conf.ParseWithChecks(s)
		if err != nil {
			t.Skip()
		}
		text, err := render(m)
		if err != nil {
			t.Skip() // a key with both kinds of quotes
		}
		again, err := conf.ParseWithChecks(text)
		if err != nil {
			t.Fatalf("%v\n%q\n%s", err, s, text)
		}
		if d := cmp.Diff(unwrap(m), unwrap(again)); d != "" {
			t.Fatalf("%s\n%q\n%s", d, s, text)
		}
		if len(usedKeys(m)) < len(m) && !maps.Equal(usedKeys(m), usedKeys(again)) {
			t.Fatalf("used variables %v, then %v\n%q\n%s", usedKeys(m), usedKeys(again), s, text)
		}
	})
}

func usedKeys(m map[string]any) map[string]bool {
	out := map[string]bool{}
	for k, v := range m {
		if tk, ok := v.(token); ok && tk.IsUsedVariable() {
			out[k] = true
		}
	}
	return out
}
