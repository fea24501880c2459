package node

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/holdfast-mq/holdfast/ingress/hub"
)

// address is host:port in one spelling: lower case, addresses as numbers, localhost as 127.0.0.1.
type address struct {
	host string
	port int
}

// parseAddress reads host:port. An empty host means every interface; port 0 an ephemeral one.
func parseAddress(s string) (address, error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return address{}, fmt.Errorf("%q is not host:port", s)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return address{}, fmt.Errorf("%q has no port from 0 to 65535", s)
	}
	a := address{host: strings.ToLower(host), port: int(port)}
	if ip, err := netip.ParseAddr(host); err == nil {
		a.host = ip.Unmap().String()
	}
	if a.host == "localhost" {
		a.host = "127.0.0.1"
	}
	return a, nil
}

// String is host:port.
func (a address) String() string { return net.JoinHostPort(a.host, strconv.Itoa(a.port)) }

// unspecified: every interface, which is nothing others could dial.
func (a address) unspecified() bool {
	ip, err := netip.ParseAddr(a.host)
	return a.host == "" || err == nil && ip.IsUnspecified()
}

// loopback: only this machine can dial it. A name other than localhost may mean anything.
func (a address) loopback() bool {
	ip, err := netip.ParseAddr(a.host)
	return err == nil && ip.IsLoopback()
}

// clash: both cannot be listened on.
func (a address) clash(b address) bool {
	return a.port == b.port && a.port != 0 && (a.host == b.host || a.unspecified() || b.unspecified())
}

// canonical returns an address in one spelling; what is none, as it is.
func canonical(s string) string {
	if a, err := parseAddress(s); err == nil {
		return a.String()
	}
	return s
}

// dialable reads the address of another node, and says what is wrong with it.
func dialable(v *verdict, setting, s string) (address, bool) {
	a, err := parseAddress(s)
	switch {
	case err != nil:
		v.add(setting, err.Error(), "give host:port")
	case a.unspecified():
		v.add(setting, s+" means every interface, which nobody can dial", "give the address of the node")
	case a.port == 0:
		v.add(setting, s+" has port 0, which nobody can dial", "give the port of the node")
	default:
		return a, true
	}
	return a, false
}

// listener is an address that the node listens on.
type listener struct {
	setting   string
	value     string
	advertise string // setting of the address that others dial; empty: nobody is told one
	dialed    string // its value
	udp       bool   // beside TCP
}

// listeners returns what the node listens on; client and admin first, where it is
// open to others, then the three ports between nodes.
func (c *Config) listeners() []listener {
	plane := func(name, value, dialed string) listener {
		return listener{
			setting: "--" + name + "-listen", value: value,
			advertise: "--" + name + "-advertise", dialed: dialed,
		}
	}
	out := []listener{plane("raft", c.RaftListen, c.RaftAdvertise)}
	if len(c.Peers) == 0 && c.SerfListen != "" {
		serf := plane("serf", c.SerfListen, c.SerfAdvertise)
		serf.udp = true
		out = append(out, serf)
	}
	if c.RouteListen != "" {
		out = append(out, plane("route", c.RouteListen, c.RouteAdvertise))
	}
	client := c.Listen
	if client == "" && c.NATSConfig == "" {
		client = hub.DefaultListen
	}
	if client != "" {
		out = append(out, listener{setting: "--listen", value: client})
	}
	if c.AdminListen != "" {
		out = append(out, listener{setting: "--admin-listen", value: c.AdminListen})
	}
	return out
}

// checkListeners judges every address that is listened on, and what is advertised of it.
func (c *Config) checkListeners(v *verdict) {
	var taken []listener
	for _, l := range c.listeners() {
		a, err := parseAddress(l.value)
		if err != nil {
			v.add(l.setting, err.Error(), "give host:port, such as 127.0.0.1:7222")
			continue
		}
		for _, t := range taken {
			if b, _ := parseAddress(t.value); a.clash(b) {
				v.add(l.setting, fmt.Sprintf("%s is taken by %s %s", l.value, t.setting, t.value),
					"give each its own port")
			}
		}
		taken = append(taken, l)
		if l.advertise != "" {
			checkPlane(v, l, a)
		}
		if l.setting == "--admin-listen" && !a.loopback() && c.AdminTokenFile == "" {
			v.add(l.setting, l.value+" can be reached from the network, and anybody could remove nodes there",
				"give --admin-token-file, or a loopback address such as 127.0.0.1:8222")
		}
	}
}

// checkPlane judges a port between nodes.
func checkPlane(v *verdict, l listener, a address) {
	if !a.loopback() {
		v.add(l.setting,
			l.value+" can be reached from the network, and there is no cluster secret to keep strangers out",
			"give a loopback address such as 127.0.0.1 or localhost (this version supports no secret)")
	}
	switch {
	case l.dialed != "":
		dialable(v, l.advertise, l.dialed)
	case a.unspecified():
		v.add(l.setting, l.value+" means every interface, which other nodes cannot dial",
			"give "+l.advertise+" with the address at which they reach this node")
	}
}
