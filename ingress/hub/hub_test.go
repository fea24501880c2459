package hub

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
)

const noResponders = "nats: no responders available for request"

func quietLog(t *testing.T) *zap.Logger {
	t.Helper()
	core, _ := observer.New(zap.ErrorLevel)
	return zap.New(core)
}

func TestNoAccounts(t *testing.T) {
	t.Parallel()
	h := start(t, Config{ServerName: "n1"})
	if got, want := h.Accounts(), []Account{{Name: "$G", JetStream: true}}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	nc := connect(t, h.ClientURL())
	if on, _ := nc.ConnectedServerJetStream(); on || nc.ConnectedServerName() != "n1" || nc.AuthRequired() {
		t.Errorf("jetstream %v, name %q, auth %v; want false, n1, false",
			on, nc.ConnectedServerName(), nc.AuthRequired())
	}
	for _, s := range []string{"$JS.API.INFO", "$JS.API.STREAM.CREATE.x", "$JS.ACK.a.b.1.1.1.1.1", "orders"} {
		if got := request(nc, s); got != noResponders {
			t.Errorf("%s: %q, want no responders", s, got)
		}
	}
	answer(t, service(t, h, "$G"), "$JS.API.>", "ours")
	if got := request(nc, "$JS.API.INFO"); got != "ours" {
		t.Errorf("with the service: %q", got)
	}
	if got := leafAccount(t, h, "$G"); got != "$G" {
		t.Errorf("link is in %q, want $G", got)
	}
	a, err := h.Leaf("$G")
	if err != nil {
		t.Fatal(err)
	}
	a.Password += "x"
	if got := leafHello(t, a); got != "'Authorization Violation'" {
		t.Errorf("link with a wrong password: %q", got)
	}
	if _, _, err := h.ConnectClient("A"); !errors.Is(err, ErrNoAccount) {
		t.Errorf("unknown account: %v", err)
	}
	if _, err := h.Leaf("A"); !errors.Is(err, ErrNoAccount) {
		t.Errorf("unknown account: %v", err)
	}
	if err := h.SetRoutes([]string{"127.0.0.1:1"}); !errors.Is(err, ErrNoRoutes) {
		t.Errorf("SetRoutes without listener: %v", err)
	}
}

// A server with routes and only $G would import the JetStream API from the system account into $G.
func TestNoAccountsWithRoutes(t *testing.T) {
	t.Parallel()
	h := start(t, Config{ServerName: "n1", ClusterName: "c", RouteListen: "127.0.0.1:0"})
	nc := connect(t, h.ClientURL())
	if got := request(nc, "$JS.API.INFO"); got != noResponders {
		t.Errorf("%q, want no responders", got)
	}
	svc := service(t, h, "$G")
	got := make(chan *nats.Msg, 1)
	if _, err := svc.ChanSubscribe("$JS.API.INFO", got); err != nil {
		t.Fatal(err)
	}
	if err := svc.FlushTimeout(testTimeout); err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("$JS.API.INFO", "my.reply", nil); err != nil {
		t.Fatal(err)
	}
	if m := <-got; m.Reply != "my.reply" {
		t.Errorf("reply is %q, want the client's own", m.Reply)
	}
	answer(t, svc, "$JS.API.STREAM.>", "ours")
	for range 100 {
		if got := request(nc, "$JS.API.STREAM.NAMES"); got != "ours" {
			t.Fatalf("%q, want our answer", got)
		}
	}
	if got := jsImports(t, h, "$G"); len(got) != 0 {
		t.Errorf("$G imports %q", got)
	}
}

// jsImports lists the JetStream subjects that nats-server itself imports into an account.
func jsImports(t *testing.T, h *Hub, account string) []string {
	t.Helper()
	az, err := h.srv.Accountz(&server.AccountzOptions{Account: account})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, i := range az.Account.Imports {
		if strings.HasPrefix(string(i.Subject), "$JS.") && i.Account == h.srv.SystemAccount().Name {
			out = append(out, string(i.Subject))
		}
	}
	return out
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	file := write(t, "hub.conf", `
		PW: secret
		jetstream { domain: hub, max_mem: 1GB, limits { max_ack_pending: 77 } }
		no_auth_user: user1
		system_account: SYS
		accounts {
			SYS { users: [{user: sys, password: $PW}] }
			USERS1 {
				jetstream: enabled
				users: [{user: user1, password: $PW}]
				exports: [{service: "$JS.API.>", response: stream}, {service: ask}]
			}
			LIMITED {
				jetstream { max_mem: 1KB, max_streams: 3 }
				users: [{user: lim, password: $PW}]
				limits { max_connections: 1, max_leafnodes: 0, max_payload: 2000 }
			}
			NOJS { users: [{user: nojs, password: $PW}] }
			IMPORTER {
				jetstream: disabled
				users: [{user: imp, password: $PW}]
				imports: [
					{service: {account: USERS1, subject: "$JS.API.>"}}
					{service: {account: USERS1, subject: ask}, to: "their.ask"}
				]
			}
		}`)
	h := start(t, Config{ServerName: "n1", ConfigFile: file})

	wantAccounts := []Account{
		{Name: "IMPORTER", Imports: []string{"$JS.API.>"}},
		{
			Name: "LIMITED", JetStream: true, MaxPayload: 2000,
			Limits: map[string]any{"max_mem": int64(1024), "max_streams": int64(3)},
		},
		{Name: "NOJS"},
		{Name: "USERS1", JetStream: true},
	}
	if d := cmp.Diff(wantAccounts, h.Accounts()); d != "" {
		t.Error(d)
	}
	wantJS := JetStream{Configured: true, Enabled: true, Domain: "hub", Settings: map[string]any{
		"domain": "hub", "max_mem": int64(1 << 30), "limits": map[string]any{"max_ack_pending": int64(77)},
	}}
	if d := cmp.Diff(wantJS, h.JetStream()); d != "" {
		t.Error(d)
	}

	anon := connect(t, h.ClientURL())
	if anon.AuthRequired() {
		t.Error("auth_required although there is a no_auth_user")
	}
	users := map[string]*nats.Conn{"USERS1": anon}
	for acc, user := range map[string]string{"NOJS": "nojs", "LIMITED": "lim", "IMPORTER": "imp"} {
		users[acc] = connect(t, h.ClientURL(), nats.UserInfo(user, "secret"))
	}
	for _, acc := range []string{"USERS1", "NOJS", "LIMITED", "IMPORTER"} {
		if got := request(users[acc], "$JS.API.INFO"); got != noResponders {
			t.Errorf("%s without service: %q", acc, got)
		}
		if got := jsImports(t, h, acc); len(got) != 0 {
			t.Errorf("%s imports %q", acc, got)
		}
	}
	for acc := range users {
		// LIMITED allows one connection and no leafnode of the user's own; ours come on top.
		answer(t, service(t, h, acc), "who", acc)
		if got := leafAccount(t, h, acc); got != acc {
			t.Errorf("link of %s: %q", acc, got)
		}
		if got := request(users[acc], "who"); got != acc {
			t.Errorf("%s is answered by %q", acc, got)
		}
	}
	answer(t, service(t, h, "USERS1"), "$JS.API.INFO", "from USERS1")
	if got := request(users["IMPORTER"], "$JS.API.INFO"); got != "from USERS1" {
		t.Errorf("import: %q", got)
	}
	if a, err := h.Leaf("LIMITED"); err != nil || a.MaxPayload != 2000 {
		t.Errorf("max payload %d, %v; want 2000", a.MaxPayload, err)
	}
	if a, err := h.Leaf("NOJS"); err != nil || a.MaxPayload != 1<<20 || a.MaxControlLine != 65536 {
		t.Errorf("limits %d %d, %v", a.MaxPayload, a.MaxControlLine, err)
	}
	_, err := nats.Connect(h.ClientURL(), nats.UserInfo("user1", "wrong"))
	if !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("wrong password: %v", err)
	}
	if _, _, err := h.ConnectClient("SYS"); !errors.Is(err, ErrNoAccount) {
		t.Errorf("system account: %v", err)
	}
}

// bcryptOfSecret is the password "secret".
const bcryptOfSecret = "$2a$04$7NQbg5bKF1KiZuoaS.HleewJOq3qg/dP932SLi0JWW8lFx3iTxfEu"

func TestAuthorization(t *testing.T) {
	t.Parallel()
	joe := []nats.Option{nats.UserInfo("joe", "secret")}
	global := []Account{{Name: "$G", JetStream: true}}
	for _, c := range []struct {
		name, conf string
		good       []nats.Option
		anonymous  bool // everybody may connect
		want       []Account
	}{
		{
			name: "token", conf: `authorization { token: secret }`,
			good: []nats.Option{nats.Token("secret")}, want: global,
		},
		{
			name: "bcrypt token", conf: `authorization { token: "` + bcryptOfSecret + `" }`,
			good: []nats.Option{nats.Token("secret")}, want: global,
		},
		{
			name: "single user", conf: `authorization { user: joe, password: secret, timeout: 3 }`,
			good: joe, want: global,
		},
		{
			name: "bcrypt user", conf: `authorization { user: joe, password: ` + bcryptOfSecret + ` }`,
			good: joe, want: global,
		},
		{
			name: "users",
			conf: `authorization { users: [{user: joe, password: secret}, {user: jim, password: x}] }`,
			good: joe, want: global,
		},
		{
			name: "users beside accounts", conf: `authorization { users: [{user: joe, password: secret}] }
				accounts { A { users: [{user: a, password: b}] } }`,
			good: joe, want: []Account{{Name: "$G"}, {Name: "A"}},
		},
		{
			name: "jetstream disabled", conf: `jetstream: disabled
				authorization { users: [{user: joe, password: secret}] }`,
			good: joe, want: []Account{{Name: "$G"}},
		},
		{
			name: "auth callout", conf: `authorization {
				users: [{user: joe, password: secret}]
				auth_callout {
					issuer: ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA
					auth_users: [joe] } }`,
			good: joe, want: global,
		},
		{
			name: "system account only", conf: `system_account: S
				accounts { S { users: [{user: s, password: s}] } }`,
			good: []nats.Option{}, anonymous: true, want: global,
		},
		{
			name: "accounts without users", conf: `accounts { A { jetstream: enabled } }`,
			good: []nats.Option{}, anonymous: true, want: []Account{{Name: "$G"}},
		},
		{
			name: "list of accounts", conf: `accounts: [A, B]`,
			good: []nats.Option{}, anonymous: true, want: []Account{{Name: "$G"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := start(t, Config{ServerName: "n", ConfigFile: write(t, "hub.conf", c.conf)})
			if d := cmp.Diff(c.want, h.Accounts()); d != "" {
				t.Error(d)
			}
			user := connect(t, h.ClientURL(), c.good...)
			answer(t, service(t, h, "$G"), "$JS.API.INFO", "ours")
			if got := request(user, "$JS.API.INFO"); got != "ours" {
				t.Errorf("answer %q", got)
			}
			for _, a := range c.want {
				if got := leafAccount(t, h, a.Name); got != a.Name {
					t.Errorf("link of %s is in %q", a.Name, got)
				}
			}
			if c.name == "auth callout" {
				return // nobody answers it here: each refusal would take its timeout
			}
			nc, err := nats.Connect(h.ClientURL(), nats.Timeout(testTimeout))
			if (err == nil) != c.anonymous {
				t.Errorf("without credentials: %v", err)
			}
			if err == nil {
				nc.Close()
			}
			if c.anonymous {
				return
			}
			for _, o := range []nats.Option{
				nats.UserInfo("joe", "wrong"), nats.UserInfo("nobody", "secret"), nats.Token("x"),
			} {
				if nc, err := nats.Connect(h.ClientURL(), o, nats.Timeout(testTimeout)); err == nil {
					nc.Close()
					t.Error("wrong credentials were accepted")
				}
			}
		})
	}
}

func TestFixedPortsAreReused(t *testing.T) {
	t.Parallel()
	cfg := Config{
		ServerName: "n", ClusterName: "c", Listen: fixedAddr(t), RouteListen: fixedAddr(t), Log: quietLog(t),
	}
	h := start(t, cfg)
	down, up := make(chan struct{}, 10), make(chan struct{}, 10)
	nc := connect(t, h.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { down <- struct{}{} }),
		nats.ReconnectHandler(func(*nats.Conn) { up <- struct{}{} }))
	h.Stop()
	<-down
	for i := range 3 {
		h, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		<-up
		if h.ClientAddr() != cfg.Listen || h.RouteAddr() != cfg.RouteListen {
			t.Fatalf("addresses changed: %s %s", h.ClientAddr(), h.RouteAddr())
		}
		answer(t, service(t, h, "$G"), "ping", strconv.Itoa(i))
		if got := request(nc, "ping"); got != strconv.Itoa(i) {
			t.Errorf("start %d: %q", i, got)
		}
		h.Stop()
		h.Stop()
		<-down
		if err := h.SetRoutes([]string{"127.0.0.1:1"}); !errors.Is(err, ErrStopped) {
			t.Errorf("SetRoutes after Stop: %v", err)
		}
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	busy := ln.Addr().String()
	for _, cfg := range []Config{
		{Listen: busy},
		{Listen: "127.0.0.1:0", ClusterName: "c", RouteListen: busy},
		{Listen: "127.0.0.1:0", ConfigFile: write(t, "x.conf", `leafnodes { listen: "`+busy+`" }`)},
		{Listen: "127.0.0.1:0", ConfigFile: write(t, "x.conf", `http: "`+busy+`"`)},
	} {
		begin := time.Now()
		err := startError(t, cfg)
		if !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%+v: %v", cfg, err)
		}
		if d := time.Since(begin); d > DefaultStartTimeout/2 {
			t.Errorf("took %v", d)
		}
	}
}

func TestStartStopsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h, err := Start(ctx, Config{Listen: "127.0.0.1:0", Log: quietLog(t)})
	if err == nil {
		h.Stop()
		t.Fatal("Start succeeded although its context has ended")
	}
	if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrStart) {
		t.Error(err)
	}
}

func TestFatalAfterReady(t *testing.T) {
	t.Parallel()
	var got []error
	l := newLogger(zaptest.NewLogger(t), func(err error) { got = append(got, err) })
	if err := l.setReady(); err != nil {
		t.Fatal(err)
	}
	l.Fatalf("broken: %d", 7)
	if len(got) != 1 || got[0].Error() != "broken: 7" || l.failed() != nil {
		t.Errorf("callback got %v, failed is %v", got, l.failed())
	}
	l = newLogger(zaptest.NewLogger(t), func(error) { t.Error("called before ready") })
	l.Fatalf("first")
	l.Fatalf("second")
	if err := l.setReady(); err == nil || err.Error() != "first" {
		t.Errorf("setReady: %v", err)
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	l := newLogger(zap.New(core), nil)
	l.Noticef("a %d", 1)
	l.Warnf("b")
	l.Errorf("c %s", "x")
	l.Debugf("d")
	l.Tracef("e")
	l.Fatalf("f")
	var got []string
	for _, e := range logs.All() {
		got = append(got, e.Level.String()+" "+e.Message)
	}
	want := []string{"info a 1", "warn b", "error c x", "error f"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	h := start(t, Config{LameDuck: MinLameDuck})
	ldm, closed := make(chan struct{}), make(chan struct{})
	connect(t, h.ClientURL(), nats.NoReconnect(),
		nats.LameDuckModeHandler(func(*nats.Conn) { close(ldm) }),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err := h.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ldm
	<-closed

	h = start(t, Config{LameDuck: time.Hour})
	connect(t, h.ClientURL(), nats.NoReconnect())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := h.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain past its deadline: %v", err)
	}
	if nc, err := nats.Connect(h.ClientURL()); err == nil {
		nc.Close()
		t.Error("still accepts clients")
	}
}
