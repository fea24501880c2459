package hub

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Defaults of Config.
const (
	// DefaultListen is where clients connect if neither Config nor the file says otherwise.
	DefaultListen = "127.0.0.1:4222"
	// DefaultStartTimeout bounds Start.
	DefaultStartTimeout = 10 * time.Second
	// DefaultLameDuck is how long Drain takes at most to send the clients away.
	DefaultLameDuck = 10 * time.Second
	// MinLameDuck is the shortest duration nats-server can spread the disconnects over.
	MinLameDuck = 100 * time.Millisecond
)

// Config says how the embedded server runs. An empty field means that the configuration file decides, or the
// default if it is silent; the composition root therefore passes a flag only if it was given.
type Config struct {
	// ServerName is the node id. Empty: server_name of the file, else a random one.
	ServerName string
	// Listen is the client address, host:port; port 0 is an ephemeral one. Empty: the file's, else
	// DefaultListen.
	Listen string

	// ClusterName is the name all nodes of the route cluster share. Needed with RouteListen.
	ClusterName string
	// RouteListen is the address for routes, host:port; port 0 is an ephemeral one. Empty: the file's cluster
	// block, else no routes. It must be a loopback address unless RouteTLS is set.
	RouteListen string
	// RouteAdvertise is the address other nodes are told to dial, host:port. Empty: the listen address.
	RouteAdvertise string
	// Routes are the first explicit routes, as for SetRoutes. Routes of the file are kept in addition.
	Routes []string
	// RouteTLS secures routes, on both the accepting and the dialing side. Nil: the file's cluster.tls.
	RouteTLS *tls.Config

	// ConfigFile is the path of a nats-server configuration file; see the package comment. Empty: none.
	ConfigFile string

	// StartTimeout bounds Start. Zero: DefaultStartTimeout.
	StartTimeout time.Duration
	// LameDuck is how long Drain spreads the disconnects over. Zero: DefaultLameDuck; at least MinLameDuck.
	LameDuck time.Duration

	// Log receives the server's log lines. Needed.
	Log *zap.Logger
	// OnFatal is told of a failure that nats-server calls fatal after it was ready. It must not block and
	// must not call into the Hub. Nil: the failure is only logged.
	OnFatal func(error)
}

func (c Config) withDefaults() Config {
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.LameDuck == 0 {
		c.LameDuck = DefaultLameDuck
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Log == nil:
		return fmt.Errorf("%w: Log is nil, a logger is needed", ErrConfig)
	case c.StartTimeout < 0:
		return fmt.Errorf("%w: StartTimeout %v, must not be negative", ErrConfig, c.StartTimeout)
	case c.LameDuck < MinLameDuck:
		return fmt.Errorf("%w: LameDuck %v, must be at least %v", ErrConfig, c.LameDuck, MinLameDuck)
	case strings.ContainsAny(c.ServerName, " \t\r\n"):
		return fmt.Errorf("%w: server name %q contains white space", ErrConfig, c.ServerName)
	case strings.ContainsAny(c.ClusterName, " \t\r\n"):
		return fmt.Errorf("%w: cluster name %q contains white space", ErrConfig, c.ClusterName)
	case c.RouteListen != "" && c.ClusterName == "":
		return fmt.Errorf("%w: route listen %s needs a cluster name", ErrConfig, c.RouteListen)
	}
	return c.validateAddresses()
}

func (c Config) validateAddresses() error {
	if c.Listen != "" {
		if _, err := parseAddr("listen", c.Listen); err != nil {
			return err
		}
	}
	if c.RouteAdvertise != "" {
		if _, err := parseAddr("route advertise", c.RouteAdvertise); err != nil {
			return err
		}
	}
	if c.RouteListen == "" {
		return nil
	}
	a, err := parseAddr("route listen", c.RouteListen)
	if err != nil {
		return err
	}
	if c.RouteTLS == nil && !isLoopback(a.host) {
		return fmt.Errorf("%w: route listen %s can be reached from the network, which needs route TLS; "+
			"use a loopback address without", ErrConfig, c.RouteListen)
	}
	return nil
}

// addr is a listen address. nats-server means an ephemeral port by -1 and the default one by 0; here 0 is the
// ephemeral port, as everywhere else.
type addr struct {
	host string
	port int
}

func (a addr) String() string { return net.JoinHostPort(a.host, strconv.Itoa(a.port)) }

// natsPort is the port in nats-server's terms.
func (a addr) natsPort() int {
	if a.port == 0 {
		return -1
	}
	return a.port
}

func parseAddr(setting, s string) (addr, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return addr{}, fmt.Errorf("%w: %s %q is not host:port: %w", ErrConfig, setting, s, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return addr{}, fmt.Errorf("%w: %s %q: port %q is not a number from 0 to 65535",
			ErrConfig, setting, s, port)
	}
	return addr{host: host, port: int(n)}, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
