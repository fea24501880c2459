package process

import (
	"fmt"
	"strings"
)

// StreamServer is what the configuration of one nats-server with JetStream says, for
// tests that compare; everything else is its default.
type StreamServer struct {
	Name, Client, Store string
	// Always is sync_interval: always.
	Always bool
	// Cluster is the name of the cluster; Route is the port for routes, empty without a
	// cluster; Advertise is where others reach it, if that differs; Routes are those of
	// the nodes.
	Cluster, Route, Advertise string
	Routes                    []string
	// Monitor is the monitoring port; empty: none.
	Monitor string
	// SystemUser and SystemPassword make a user of the system account; clients without
	// credentials then use the account of streams. Empty: no accounts.
	SystemUser, SystemPassword string
}

// Text is the configuration file.
func (c *StreamServer) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "server_name: %q\nlisten: %q\njetstream {\n  store_dir: %q\n", c.Name, c.Client, c.Store)
	if c.Always {
		b.WriteString("  sync_interval: always\n")
	}
	b.WriteString("}\n")
	if c.Monitor != "" {
		fmt.Fprintf(&b, "http: %q\n", c.Monitor)
	}
	if c.SystemUser != "" {
		fmt.Fprintf(&b, "accounts {\n  $SYS { users: [ { user: %q, password: %q } ] }\n"+
			"  APP { jetstream: enabled, users: [ { user: app, password: app } ] }\n}\nno_auth_user: app\n",
			c.SystemUser, c.SystemPassword)
	}
	if c.Route == "" {
		return b.String()
	}
	fmt.Fprintf(&b, "cluster {\n  name: %q\n  listen: %q\n", c.Cluster, c.Route)
	if c.Advertise != "" {
		fmt.Fprintf(&b, "  cluster_advertise: %q\n", c.Advertise)
	}
	b.WriteString("  routes: [\n")
	for _, r := range c.Routes {
		fmt.Fprintf(&b, "    %q\n", "nats-route://"+r)
	}
	b.WriteString("  ]\n}\n")
	return b.String()
}
