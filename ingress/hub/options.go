package hub

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// globalAccount is the account of clients for which the configuration names none.
const globalAccount = "$G"

// login is a user of our own; empty where no credentials are needed.
type login struct{ user, password string }

// leafListener says which leafnode listener our links use.
type leafListener int

const (
	leafOwn       leafListener = iota // one we add
	leafWithUsers                     // the user's, with our users in its authorization block
	leafOfClients                     // the user's, which accepts the users of the accounts
)

// plan is the configuration of one hub. It makes server.Options again and again, because nats-server keeps
// and changes those it gets.
type plan struct {
	cfg      Config
	file     *file
	text     string // the stripped file
	listen   addr
	routing  bool // there is a route listener
	auth     bool // clients must authenticate
	accounts []Account
	clients  map[string]login // by account
	leafs    map[string]login // by account
	leaf     leafListener
	skipped  []string // accounts nobody can be in
}

func newPlan(cfg Config) (*plan, error) {
	f, err := readFile(cfg.ConfigFile)
	if err != nil {
		return nil, err
	}
	p := &plan{cfg: cfg, file: f, clients: map[string]login{}, leafs: map[string]login{}}
	if err := p.mergeAddresses(); err != nil {
		return nil, err
	}
	if p.text, err = render(f.raw); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, f.path, err)
	}
	p.findAccounts()
	p.makeLogins()
	return p, nil
}

// mergeAddresses decides the listen address and finds settings given differently in Config and file.
func (p *plan) mergeAddresses() error {
	f, c := p.file, p.cfg
	cluster := lookupMap(f.raw, "cluster")
	inFile := addr{host: f.opts.Host, port: f.opts.Port}
	listens := has(f.raw, "listen", "port", "host", "net")
	if listens {
		inFile = fileAddr(inFile.host, inFile.port, server.DEFAULT_PORT)
	}
	p.routing = c.RouteListen != "" || f.opts.Cluster.Port != 0
	routes := fileAddr(f.opts.Cluster.Host, f.opts.Cluster.Port, 0)

	for _, s := range []struct {
		key, setting   string
		fileHas        bool
		fromFile, flag string
		same           func(a, b string) bool
	}{
		{"listen", "listen address", listens, inFile.String(), c.Listen, sameAddr},
		{
			"server_name", "server name (node id)", f.opts.ServerName != "",
			f.opts.ServerName, c.ServerName, sameText,
		},
		{
			"cluster.name", "cluster name", f.opts.Cluster.Name != "",
			f.opts.Cluster.Name, c.ClusterName, sameText,
		},
		{
			"cluster.listen", "route listen address", has(cluster, "listen", "port", "host", "net"),
			routes.String(), c.RouteListen, sameAddr,
		},
		{
			"cluster.advertise", "route advertise address", f.opts.Cluster.Advertise != "",
			f.opts.Cluster.Advertise, c.RouteAdvertise, sameText,
		},
	} {
		if !s.fileHas || s.flag == "" || s.same(s.fromFile, s.flag) {
			continue
		}
		return fmt.Errorf("%w: %q is %s in %s, but the %s is given as %s; remove one of them",
			ErrConfig, s.key, s.fromFile, f.path, s.setting, s.flag)
	}
	switch {
	case c.Listen != "":
		inFile, _ = parseAddr("listen", c.Listen) // validated with Config
	case !listens:
		inFile, _ = parseAddr("listen", DefaultListen)
	}
	p.listen = inFile
	return nil
}

// fileAddr translates an address of a configuration file, where an absent host means all interfaces, -1 an
// ephemeral port and 0 the default one.
func fileAddr(host string, port, defaultPort int) addr {
	if host == "" {
		host = server.DEFAULT_HOST
	}
	switch port {
	case 0:
		port = defaultPort
	case server.RANDOM_PORT:
		port = 0
	}
	return addr{host: host, port: port}
}

func sameText(a, b string) bool { return a == b }

func sameAddr(a, b string) bool {
	x, errX := parseAddr("", a)
	y, errY := parseAddr("", b)
	if y.host == "" {
		y.host = server.DEFAULT_HOST
	}
	return errX == nil && errY == nil && x == y
}

// findAccounts lists the accounts that clients can be in.
func (p *plan) findAccounts() {
	f := p.file
	o := f.opts
	p.auth = len(o.Users)+len(o.Nkeys) > 0 || o.Username != "" || o.Authorization != ""
	var declared []string
	for _, a := range o.Accounts {
		if a.Name != o.SystemAccount && a.Name != server.DEFAULT_SYSTEM_ACCOUNT {
			declared = append(declared, a.Name)
		}
	}
	slices.Sort(declared)

	off := f.js.Configured && !f.js.Enabled
	if len(declared) == 0 || !p.auth || usersOfGlobal(o) {
		p.accounts = append(p.accounts, Account{Name: globalAccount, JetStream: !off && len(declared) == 0})
	}
	if !p.auth {
		p.skipped = declared
		return
	}
	for _, name := range declared {
		facts := f.accs[name]
		p.accounts = append(p.accounts, Account{
			Name: name, JetStream: !off && facts.jetStream, Limits: facts.limits,
			Imports: facts.imports, MaxPayload: facts.maxPayload,
		})
	}
}

// usersOfGlobal reports whether some user is in $G, as those without an account are.
func usersOfGlobal(o *server.Options) bool {
	inGlobal := func(a *server.Account) bool { return a == nil || a.Name == globalAccount }
	return o.Username != "" || o.Authorization != "" ||
		slices.ContainsFunc(o.Users, func(u *server.User) bool { return inGlobal(u.Account) }) ||
		slices.ContainsFunc(o.Nkeys, func(u *server.NkeyUser) bool { return inGlobal(u.Account) })
}

// makeLogins invents the credentials of our connections.
func (p *plan) makeLogins() {
	o := p.file.opts
	switch {
	case o.LeafNode.Port == 0:
		p.leaf = leafOwn
	case o.LeafNode.Username != "" || len(o.LeafNode.Users) > 0:
		p.leaf = leafWithUsers
	default:
		p.leaf = leafOfClients
	}
	for _, a := range p.accounts {
		var client login
		if p.auth {
			client = newLogin("service", a.Name)
		}
		p.clients[a.Name] = client
		p.leafs[a.Name] = client
		if p.leaf != leafOfClients {
			p.leafs[a.Name] = newLogin("link", a.Name)
		}
	}
}

// newLogin makes a user name that says whose it is, and cannot collide, and a password of 192 random bits.
func newLogin(kind, account string) login {
	var b [32]byte
	rand.Read(b[:])
	return login{
		user:     "holdfast-" + kind + "." + account + "." + hex.EncodeToString(b[:8]),
		password: hex.EncodeToString(b[8:]),
	}
}

// options makes fresh server options with the given explicit routes.
func (p *plan) options(routes []*url.URL) (*server.Options, error) {
	o := &server.Options{}
	if p.text != "" {
		if err := onlyErrors(o.ProcessConfigString(p.text)); err != nil {
			return nil, fmt.Errorf("%w: %s without its jetstream keys: %w", ErrConfig, p.file.path, err)
		}
	}
	c := p.cfg
	o.JetStream = false
	o.NoSigs = true
	o.Host, o.Port = p.listen.host, p.listen.natsPort()
	o.LogFile, o.Syslog, o.RemoteSyslog = "", false, ""
	o.LameDuckDuration, o.LameDuckGracePeriod = c.LameDuck, c.LameDuck/10
	if c.ServerName != "" {
		o.ServerName = c.ServerName
	}
	p.cluster(o, routes)
	p.users(o)
	p.leafUsers(o)
	return o, nil
}

// onlyErrors drops an error that consists of warnings only.
func onlyErrors(err error) error {
	var list interface{ Errors() []error }
	if errors.As(err, &list) && len(list.Errors()) == 0 {
		return nil
	}
	return err
}

func (p *plan) cluster(o *server.Options, routes []*url.URL) {
	c := p.cfg
	if c.RouteListen != "" {
		a, _ := parseAddr("route listen", c.RouteListen) // validated with Config
		o.Cluster.Host, o.Cluster.Port = a.host, a.natsPort()
	}
	if !p.routing {
		return
	}
	if c.ClusterName != "" {
		o.Cluster.Name = c.ClusterName
	}
	if c.RouteAdvertise != "" {
		o.Cluster.Advertise = c.RouteAdvertise
	}
	if c.RouteTLS != nil {
		o.Cluster.TLSConfig = c.RouteTLS.Clone()
	}
	for _, r := range routes {
		if !slices.ContainsFunc(o.Routes, func(u *url.URL) bool { return u.Host == r.Host }) {
			u := *r
			if u.User == nil && o.Cluster.Username != "" {
				u.User = url.UserPassword(o.Cluster.Username, o.Cluster.Password)
			}
			o.Routes = append(o.Routes, &u)
		}
	}
	// A reload sorts the routes in use, under no lock, while reconnects read them (nats-server 2.15): in this
	// order there is nothing for it to move.
	slices.SortFunc(o.Routes, func(a, b *url.URL) int { return cmp.Compare(a.String(), b.String()) })
}

// users adds the service users, if authorization is on.
func (p *plan) users(o *server.Options) {
	if !p.auth {
		return
	}
	// A single user is looked up only if there is no list of users, so it becomes part of the list. A token
	// needs no such care: it is compared for clients that send no user name.
	if o.Username != "" {
		o.Users = append(o.Users, &server.User{
			Username: o.Username, Password: o.Password, ProxyRequired: o.ProxyRequired,
		})
		o.Username, o.Password = "", ""
	}
	for _, a := range p.accounts {
		l := p.clients[a.Name]
		o.Users = append(o.Users, &server.User{
			Username: l.user, Password: l.password, Account: accountOf(o, a.Name),
		})
		if o.AuthCallout != nil {
			o.AuthCallout.AuthUsers = append(o.AuthCallout.AuthUsers, l.user)
		}
	}
}

// leafUsers makes sure that our links can connect, one user for each account.
func (p *plan) leafUsers(o *server.Options) {
	ln := &o.LeafNode
	switch p.leaf {
	case leafOfClients:
		return
	case leafOwn:
		ln.Host, ln.Port = "127.0.0.1", server.RANDOM_PORT
		ln.NoAdvertise = true
		ln.Compression.Mode = server.CompressionOff
	case leafWithUsers:
	}
	if ln.Username != "" {
		ln.Users = append(ln.Users, &server.User{
			Username: ln.Username, Password: ln.Password, ProxyRequired: ln.ProxyRequired,
			Account: accountOf(o, ln.Account),
		})
		ln.Username, ln.Password, ln.Account = "", "", ""
	}
	for _, a := range p.accounts {
		l := p.leafs[a.Name]
		ln.Users = append(ln.Users, &server.User{
			Username: l.user, Password: l.password, Account: accountOf(o, a.Name),
		})
	}
}

// accountOf finds an account of the options; nil is nats-server's word for $G.
func accountOf(o *server.Options, name string) *server.Account {
	for _, a := range o.Accounts {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// parseRoutes turns host:port or nats-route://… into URLs, sorted and without repetitions.
func parseRoutes(routes []string) ([]*url.URL, error) {
	routes = slices.Clone(routes)
	slices.Sort(routes)
	var out []*url.URL
	for _, r := range slices.Compact(routes) {
		if !strings.Contains(r, "://") {
			r = "nats-route://" + r
		}
		u, err := url.Parse(r)
		if err == nil {
			_, err = parseAddr("route", u.Host)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: route %q is not host:port: %w", ErrConfig, r, err)
		}
		out = append(out, u)
	}
	return out, nil
}
