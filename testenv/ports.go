package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports that Ports hands out: below the range that systems take the ports of outgoing connections from,
// so that none of those sits on a port between its reservation and its use.
const (
	portLow  = 10000
	portHigh = 20000
)

// ErrNoPort says that every port of the range is reserved or in use.
var ErrNoPort = errors.New("testenv: no free loopback port")

// Ports hands out loopback TCP ports. Its zero value is ready; it may be used from any goroutine. Two
// Ports, or two processes, do not know of each other: a port is tried before it is handed out, but not
// held.
type Ports struct {
	mu   sync.Mutex
	used map[int]bool
}

// Reserve returns a port that nobody listens on and that was not reserved before, or ErrNoPort.
func (p *Ports) Reserve() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used == nil {
		p.used = make(map[int]bool)
	}
	start := rand.IntN(portHigh - portLow)
	for i := range portHigh - portLow {
		port := portLow + (start+i)%(portHigh-portLow)
		if !p.used[port] && free(port) {
			p.used[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("%w from %d to %d", ErrNoPort, portLow, portHigh-1)
}

// Release gives ports back.
func (p *Ports) Release(ports ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range ports {
		delete(p.used, port)
	}
}

// Address reserves a port and returns it as an address on loopback.
func (p *Ports) Address() (string, error) {
	port, err := p.Reserve()
	if err != nil {
		return "", err
	}
	return loopback(port), nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// free says whether the port can be listened on, on loopback as on every interface.
func free(port int) bool {
	for _, host := range []string{"127.0.0.1", ""} {
		//nolint:noctx // at once or not at all
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return false
		}
		if l.Close() != nil {
			return false
		}
	}
	return true
}
