package hub

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

func routed(t *testing.T, name string, cfg Config) *Hub {
	t.Helper()
	cfg.ServerName, cfg.ClusterName = name, "c"
	if cfg.RouteListen == "" {
		cfg.RouteListen = "127.0.0.1:0"
	}
	return start(t, cfg)
}

func setRoutes(t *testing.T, h *Hub, routes ...string) {
	t.Helper()
	if err := h.SetRoutes(routes); err != nil {
		t.Fatal(err)
	}
}

// waitRoutes waits until every hub has a route to every other one.
func waitRoutes(t *testing.T, hubs ...*Hub) {
	t.Helper()
	for _, h := range hubs {
		var want []string
		for _, o := range hubs {
			if o != h {
				want = append(want, o.ServerName())
			}
		}
		slices.Sort(want)
		eventually(t, fmt.Sprintf("routes of %s: %v", h.ServerName(), want), func() bool {
			got, err := h.RouteNames()
			return err == nil && slices.Equal(got, want)
		})
	}
}

// hear checks that a client of every hub hears one of every other.
func hear(t *testing.T, clients ...*nats.Conn) {
	t.Helper()
	subject := nats.NewInbox()
	subs := make([]*nats.Subscription, len(clients))
	for i, nc := range clients {
		sub, err := nc.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		subs[i] = sub
		if err := nc.FlushTimeout(testTimeout); err != nil {
			t.Fatal(err)
		}
	}
	for i, nc := range clients {
		// Interest crosses the routes a moment after the flush: repeat until everybody heard this one.
		for j, sub := range subs {
			eventually(t, fmt.Sprintf("client %d hears client %d", j, i), func() bool {
				if err := nc.Publish(subject, fmt.Appendf(nil, "%d", i)); err != nil {
					t.Fatal(err)
				}
				for {
					m, err := sub.NextMsg(50 * time.Millisecond)
					if err != nil {
						return false
					}
					if string(m.Data) == fmt.Sprint(i) {
						return true
					}
				}
			})
		}
	}
}

func TestRoutesJoinOneAfterAnother(t *testing.T) {
	t.Parallel()
	cfg := Config{Listen: fixedAddr(t), RouteListen: fixedAddr(t)}
	a, b, c := routed(t, "a", Config{}), routed(t, "b", Config{}), routed(t, "c", cfg)
	var clients []*nats.Conn
	for _, h := range []*Hub{a, b, c} {
		nc := connect(t, h.ClientURL(), nats.NoReconnect())
		clients = append(clients, nc)
	}
	setRoutes(t, a) // alone
	waitRoutes(t, a)
	setRoutes(t, b, a.RouteAddr(), b.RouteAddr()) // its own address among them
	waitRoutes(t, a, b)
	hear(t, clients[:2]...)
	setRoutes(t, c, b.RouteAddr()) // one member is enough
	waitRoutes(t, a, b, c)
	hear(t, clients...)

	// Everybody learns of everybody; nothing may break.
	all := []string{a.RouteAddr(), b.RouteAddr(), c.RouteAddr()}
	for _, h := range []*Hub{a, b, c} {
		setRoutes(t, h, all...)
		setRoutes(t, h, all...)
	}
	waitRoutes(t, a, b, c)
	hear(t, clients...)

	// c goes and comes back at its address; the others dial it, it knows nobody.
	c.Stop()
	waitRoutes(t, a, b)
	c = routed(t, "c", cfg)
	waitRoutes(t, a, b, c)
	hear(t, clients[0], clients[1], connect(t, c.ClientURL()))

	// Forgotten by all: the routes close.
	setRoutes(t, a, b.RouteAddr())
	setRoutes(t, b, a.RouteAddr())
	c.Stop()
	waitRoutes(t, a, b)
	for i, nc := range clients[:2] {
		if !nc.IsConnected() {
			t.Errorf("client %d was disconnected by the changes", i)
		}
	}
}

// A reload parses the configuration again; users, accounts, service connections and links must survive it.
func TestSetRoutesKeepsConnections(t *testing.T) {
	t.Parallel()
	conf := `
		jetstream: enabled
		accounts {
			A {
				jetstream: enabled, users: [{user: a, password: ` + bcryptOfSecret + `}]
				exports: [{service: "x"}]
			}
			B { users: [{user: b, password: b}], imports: [{service: {account: A, subject: x}, to: y}] }
		}
		leafnodes { listen: "127.0.0.1:-1", authorization { user: edge, password: e, account: B } }`
	h := routed(t, "a", Config{ConfigFile: write(t, "hub.conf", conf)})
	other := routed(t, "b", Config{ConfigFile: write(t, "hub.conf", conf)})
	lost := make(chan string, 10)
	watch := func(name string) []nats.Option {
		return []nats.Option{nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { lost <- name })}
	}
	user := connect(t, h.ClientURL(), append(watch("user b"), nats.UserInfo("b", "b"))...)
	connect(t, h.ClientURL(), append(watch("user a"), nats.UserInfo("a", "secret"))...)
	url, opts, err := h.ConnectClient("A")
	if err != nil {
		t.Fatal(err)
	}
	svc := connect(t, url, append(watch("service"), opts...)...)
	answer(t, svc, "x", "hello")
	for range 3 {
		setRoutes(t, h, other.RouteAddr())
		waitRoutes(t, h, other)
		if got := request(user, "y"); got != "hello" {
			t.Fatalf("import after a reload: %q", got)
		}
		setRoutes(t, h)
	}
	if got := request(user, "y"); got != "hello" {
		t.Fatalf("import after a reload: %q", got)
	}
	if got := jsImports(t, h, "A"); len(got) != 0 {
		t.Errorf("A imports %q", got)
	}
	if got := leafAccount(t, h, "A"); got != "A" {
		t.Errorf("link after a reload: %q", got)
	}
	select {
	case name := <-lost:
		t.Errorf("%s was disconnected", name)
	default:
	}
}

func TestRoutesOfFile(t *testing.T) {
	t.Parallel()
	a := routed(t, "a", Config{})
	b := start(t, Config{ConfigFile: write(t, "hub.conf", `server_name: b
		cluster { name: c, listen: "127.0.0.1:-1", routes: ["nats-route://`+a.RouteAddr()+`"] }`)})
	waitRoutes(t, a, b)
	d := start(t, Config{Routes: []string{b.RouteAddr()}, ConfigFile: write(t, "hub.conf", `server_name: d
		cluster { name: c, listen: "127.0.0.1:-1", routes: ["nats-route://`+a.RouteAddr()+`"] }`)})
	waitRoutes(t, a, b, d)
	setRoutes(t, d)
	b.Stop()
	waitRoutes(t, a, d) // the file's route is still there
	if b.ServerName() != "b" || d.ServerName() != "d" {
		t.Errorf("names %s %s", b.ServerName(), d.ServerName())
	}
}

func TestRouteAuthorization(t *testing.T) {
	t.Parallel()
	conf := `cluster { authorization { user: r, password: p } }`
	a := routed(t, "a", Config{ConfigFile: write(t, "hub.conf", conf)})
	b := routed(t, "b", Config{ConfigFile: write(t, "hub.conf", conf), Routes: []string{a.RouteAddr()}})
	waitRoutes(t, a, b)
	c := routed(t, "c", Config{ConfigFile: write(t, "hub.conf", conf)})
	setRoutes(t, c, a.RouteAddr())
	waitRoutes(t, a, b, c)
}

// pinned makes a TLS configuration of the given key that accepts the same key only.
func pinned(t *testing.T, key ed25519.PrivateKey) *tls.Config {
	t.Helper()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			pub, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !pub.Equal(key.Public()) {
				return errors.New("another key")
			}
			return nil
		},
	}
}

func TestRouteTLS(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := routed(t, "a", Config{RouteTLS: pinned(t, key)})
	stranger := routed(t, "stranger", Config{RouteTLS: pinned(t, other), Routes: []string{a.RouteAddr()}})
	b := routed(t, "b", Config{RouteTLS: pinned(t, key), Routes: []string{a.RouteAddr()}})
	waitRoutes(t, a, b)
	c := routed(t, "c", Config{RouteTLS: pinned(t, key)})
	setRoutes(t, c, b.RouteAddr())
	waitRoutes(t, a, b, c)
	waitRoutes(t, stranger)
}

func TestParseRoutes(t *testing.T) {
	t.Parallel()
	got, err := parseRoutes([]string{"b:2", "a:1", "b:2", "nats-route://u:p@c:3", "[::1]:4"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"nats-route://[::1]:4", "nats-route://a:1", "nats-route://b:2", "nats-route://u:p@c:3"}
	if d := cmp.Diff(want, hosts(got)); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{
		"", "host", "host:", "host:x", "host:65536", "nats-route://", "a b:1", "::1:4",
	} {
		_, err := parseRoutes([]string{bad})
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "route") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestRoutesAreInTheOrderOfAReload: those of the file among the others, so that a reload moves none in place.
func TestRoutesAreInTheOrderOfAReload(t *testing.T) {
	t.Parallel()
	p, err := newPlan(Config{ConfigFile: write(t, "hub.conf", `server_name: b
		cluster { name: c, listen: "127.0.0.1:-1", routes: ["nats-route://127.0.0.1:7000", "nats-route://127.0.0.1:5000"] }`)})
	if err != nil {
		t.Fatal(err)
	}
	urls, err := parseRoutes([]string{"127.0.0.1:6000", "127.0.0.1:4000"})
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.options(urls)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range o.Routes {
		got = append(got, u.Host)
	}
	want := []string{"127.0.0.1:4000", "127.0.0.1:5000", "127.0.0.1:6000", "127.0.0.1:7000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
