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
// so that none of those sits on a port between its reservation and its use. They come in blocks of portBlock.
const (
	portLow   = 10000
	portHigh  = 20000
	portBlock = 50
)

// ErrNoPort says that every port of the range is reserved or in use.
var ErrNoPort = errors.New("testenv: no free loopback port")

// Ports hands out loopback ports. Its zero value is ready; it may be used from any goroutine. Ports are tried before
// they are handed out, but not held; what keeps others from taking those of a node that is down for a while is that
// they come from blocks, each of one Ports as long as it lives: it is bound to the first UDP port of each of its own,
// which is not handed out, and so are the Ports of other processes.
type Ports struct {
	mu     sync.Mutex
	used   map[int]bool
	blocks map[int]net.PacketConn // by first port
}

// Reserve returns a port that nobody listens on and that was not reserved before, or ErrNoPort.
func (p *Ports) Reserve() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used == nil {
		p.used, p.blocks = make(map[int]bool), make(map[int]net.PacketConn)
	}
	for block := range p.blocks {
		if port, ok := p.in(block); ok {
			return port, nil
		}
	}
	for _, i := range rand.Perm((portHigh - portLow) / portBlock) {
		block := portLow + i*portBlock
		if p.blocks[block] != nil {
			continue
		}
		//nolint:noctx // at once or not at all
		own, err := net.ListenPacket("udp", loopback(block))
		if err != nil {
			continue // another's
		}
		if port, ok := p.in(block); ok {
			p.blocks[block] = own
			return port, nil
		}
		if err := own.Close(); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w from %d to %d", ErrNoPort, portLow, portHigh-1)
}

// in reserves a port of a block.
func (p *Ports) in(block int) (port int, ok bool) {
	for port := block + 1; port < block+portBlock; port++ {
		if !p.used[port] && free(port) {
			p.used[port] = true
			return port, true
		}
	}
	return 0, false
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
