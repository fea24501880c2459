package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"
)

// placeholderAccount is registered so that the server never has only $G and the system account: in that
// state, with routes, nats-server imports the JetStream API of its system account into $G.
const placeholderAccount = "HOLDFAST_PLACEHOLDER"

// readyPoll is how long one look at the server's readiness may take; nats-server polls every 25 ms.
const readyPoll = 26 * time.Millisecond

// Hub is a running embedded nats-server. Its methods may be called from any goroutine.
type Hub struct {
	plan *plan
	log  *zap.Logger
	srv  *server.Server
	opts *server.Options // as at start, with the ports nats-server chose; read only

	mu      sync.Mutex
	routes  []string    // explicit routes in force, sorted
	leafTLS *tls.Config // of the leafnode listener, as of the last reload; nil without TLS
	stopped bool
}

// Start starts the server and returns when it accepts connections. It fails if ctx ends or
// Config.StartTimeout passes first, with ErrConfig or with ErrStart; then nothing is left running. The
// caller owns the Hub and must call Stop; ctx does not end the server.
func Start(ctx context.Context, cfg Config) (*Hub, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	for _, name := range p.skipped {
		cfg.Log.Warn("account has no users and authorization is off: nobody can be in it, it is not served",
			zap.String("account", name))
	}
	if p.file.opts.LogFile != "" || p.file.opts.Syslog || p.file.opts.RemoteSyslog != "" {
		cfg.Log.Warn("log_file and syslog of the configuration file have no effect: the server logs here")
	}
	if len(cfg.Routes) > 0 && !p.routing {
		return nil, fmt.Errorf("%w: %w", ErrConfig, ErrNoRoutes)
	}
	urls, err := parseRoutes(cfg.Routes)
	if err != nil {
		return nil, err
	}
	h := &Hub{plan: p, log: cfg.Log, routes: hosts(urls)}
	if h.opts, err = p.options(urls); err != nil {
		return nil, err
	}
	if h.srv, err = server.NewServer(h.opts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	h.leafTLS = h.opts.LeafNode.TLSConfig
	if err := h.run(ctx); err != nil {
		h.srv.Shutdown()
		h.srv.WaitForShutdown()
		return nil, err
	}
	return h, nil
}

// run starts the server and waits until it is ready.
func (h *Hub) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.plan.cfg.StartTimeout)
	defer cancel()
	lg := newLogger(h.log, h.plan.cfg.OnFatal)
	h.srv.SetLoggerV2(lg, h.opts.Debug, h.opts.Trace, h.opts.TraceVerbose)
	if _, err := h.srv.RegisterAccount(placeholderAccount); err != nil {
		return fmt.Errorf("%w: account %s: %w", ErrConfig, placeholderAccount, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStart, err)
	}
	h.srv.Start()
	for {
		if err := lg.failed(); err != nil {
			return fmt.Errorf("%w: %w", ErrStart, err)
		}
		if h.srv.ReadyForConnections(readyPoll) {
			break
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: not ready: %w", ErrStart, err)
		}
	}
	if err := lg.setReady(); err != nil {
		return fmt.Errorf("%w: %w", ErrStart, err)
	}
	return nil
}

// Stop ends the server at once: clients are disconnected, listeners closed. It returns when that is done
// and may be called more than once.
func (h *Hub) Stop() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.srv.Shutdown()
	h.srv.WaitForShutdown()
}

// Drain sends the clients away before it ends the server: no new connections, clients are told to look for
// another server and are closed one by one over Config.LameDuck. It returns when the server has ended,
// which it does at once when ctx ends; the error then is ctx's.
func (h *Hub) Drain(ctx context.Context) error {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.srv.LameDuckShutdown()
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	h.srv.Shutdown()
	h.srv.WaitForShutdown()
	<-done
	return err
}

// SetRoutes replaces the explicit routes, host:port or nats-route URLs; those of the configuration file
// stay. New ones are dialed at once and for ever, removed ones are closed if this side dialed them. Its own
// address among them does no harm. It is a no-op if nothing changes; see the package comment for the cost
// if something does.
func (h *Hub) SetRoutes(routes []string) error {
	urls, err := parseRoutes(routes)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stopped:
		return ErrStopped
	case !h.plan.routing:
		return ErrNoRoutes
	case slices.Equal(h.routes, hosts(urls)):
		return nil
	}
	opts, err := h.plan.options(urls)
	if err != nil {
		return err
	}
	if err := h.srv.ReloadOptions(opts); err != nil {
		if errors.Is(err, server.ErrServerNotRunning) {
			return ErrStopped
		}
		return fmt.Errorf("hub: set routes: %w", err)
	}
	h.routes, h.leafTLS = hosts(urls), opts.LeafNode.TLSConfig
	return nil
}

// Accounts lists the accounts the hub serves, ordered by name; the system account is not among them.
func (h *Hub) Accounts() []Account { return slices.Clone(h.plan.accounts) }

// JetStream is what the configuration file said about JetStream.
func (h *Hub) JetStream() JetStream { return h.plan.file.js }

// Domain is the JetStream domain of the configuration file, or empty.
func (h *Hub) Domain() string { return h.plan.file.js.Domain }

// ServerName is the server's name: the node id, unless the configuration file or nats-server chose it.
func (h *Hub) ServerName() string { return h.srv.Name() }

// ServerID is the server's id; it is new at every start.
func (h *Hub) ServerID() string { return h.srv.ID() }

// MaxPayload is the largest message the server takes, header included, in bytes.
func (h *Hub) MaxPayload() int { return int(h.opts.MaxPayload) }

// MaxControlLine is the longest protocol line the server takes on a leafnode connection, in bytes.
func (h *Hub) MaxControlLine() int { return int(h.opts.MaxControlLine) * leafControlLineFactor }

// leafControlLineFactor is how much longer a protocol line of a leafnode may be than max_control_line.
const leafControlLineFactor = 16

// ClientAddr is the address clients connect to, with the port in use.
func (h *Hub) ClientAddr() string { return boundAddr(h.opts.Host, h.opts.Port).String() }

// ClientURL is the URL clients connect to, with the port in use. An unspecified address appears as loopback.
func (h *Hub) ClientURL() string {
	scheme := "nats"
	if h.opts.TLSConfig != nil {
		scheme = "tls"
	}
	return scheme + "://" + h.ClientAddr()
}

// RouteAddr is the address other nodes' routes connect to: the advertised one if there is one, else the
// listen address with the port in use. It is empty without a route listener.
func (h *Hub) RouteAddr() string {
	if !h.plan.routing {
		return ""
	}
	if h.opts.Cluster.Advertise != "" {
		return h.opts.Cluster.Advertise
	}
	a := h.srv.ClusterAddr()
	if a == nil {
		return ""
	}
	return boundAddr(h.opts.Cluster.Host, a.Port).String()
}

// NumClients is the number of connected clients, our own connections included.
func (h *Hub) NumClients() int { return h.srv.NumClients() }

// RouteNames lists the names of the servers with an established route, ordered.
func (h *Hub) RouteNames() ([]string, error) {
	rz, err := h.srv.Routez(nil)
	if err != nil {
		return nil, fmt.Errorf("hub: routes: %w", err)
	}
	var out []string
	for _, r := range rz.Routes {
		if !slices.Contains(out, r.RemoteName) {
			out = append(out, r.RemoteName)
		}
	}
	slices.Sort(out)
	return out, nil
}

// boundAddr is how to dial a listener: an unspecified host is replaced by loopback.
func boundAddr(host string, port int) addr {
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return addr{host: host, port: port}
}

// hosts returns the routes' URLs as text, to compare sets of routes.
func hosts(urls []*url.URL) []string {
	out := make([]string, 0, len(urls))
	for _, u := range urls {
		out = append(out, u.String())
	}
	slices.Sort(out)
	return out
}

func (h *Hub) leafAddr() string {
	a := boundAddr(h.opts.LeafNode.Host, h.opts.LeafNode.Port)
	return net.JoinHostPort(a.host, strconv.Itoa(a.port))
}
