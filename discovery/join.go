package discovery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/serf/serf"
	"go.uber.org/zap"
)

// seeds holds the addresses to try.
type seeds struct {
	mu    sync.Mutex
	addrs []string // guarded by mu
	wake  chan struct{}
}

func newSeeds(addrs []string) *seeds {
	return &seeds{addrs: slices.Clone(addrs), wake: make(chan struct{}, 1)}
}

func (s *seeds) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.addrs)
}

// add appends the addresses that are new.
func (s *seeds) add(addrs []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := slices.Clone(s.addrs)
	for _, a := range addrs {
		if !slices.Contains(next, a) {
			next = append(next, a)
		}
	}
	if err := validateSeeds(next); err != nil {
		return err
	}
	s.addrs = next
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// Join tries the addresses once, adds them to the seeds that are tried while this node is alone, and
// returns how many answered and let it in. The error is nil if at least one did; otherwise it holds each
// address's reason, among them ErrOtherCluster and ErrNodeIDInUse in words. It waits for up to 5 s an
// address.
func (d *Discovery) Join(addrs []string) (int, error) {
	if err := d.seeds.add(addrs); err != nil {
		return 0, err
	}
	return d.joinNow(addrs)
}

// joinNow tries the addresses once. A leave waits for it: Serf announces a join at its end, and one that is
// announced after the leave would take the leave back.
func (d *Discovery) joinNow(addrs []string) (int, error) {
	d.joinMu.Lock()
	defer d.joinMu.Unlock()
	if d.stopping() || d.serf.State() != serf.SerfAlive {
		return 0, ErrStopped
	}
	n, err := d.serf.Join(addrs, true)
	if err != nil {
		if c, ok := d.gate.twin(); ok {
			d.twin.CompareAndSwap(nil, &c)
		}
		return n, fmt.Errorf("discovery: join: %w", err)
	}
	return n, nil
}

// joinSeeds tries the seeds while this node knows no other live member, and while the others hold an old
// address for it. Contact with a seed is not enough: a seed may be this node itself.
func (d *Discovery) joinSeeds(ctx context.Context) {
	pause := d.t.firstRetry
	failures := 0
	for {
		wait := d.t.lastRetry
		if d.mustJoin() {
			if err := d.tryJoin(); err != nil {
				failures++
				d.reportJoin(failures, err)
			} else {
				failures = 0
			}
			// A little at random, so that nodes started together do not knock together for ever.
			wait = pause/2 + rand.N(pause) //nolint:gosec // Jitter, not a secret.
			pause = min(2*pause, d.t.lastRetry)
		} else {
			pause, failures = d.t.firstRetry, 0
		}
		select {
		case <-ctx.Done():
			return
		case <-d.seeds.wake:
			pause = d.t.firstRetry
		case <-time.After(wait):
		}
	}
}

// mustJoin says whether the seeds are to be tried.
func (d *Discovery) mustJoin() bool {
	if d.stopping() {
		return false
	}
	if d.gate.hasMoved() {
		return true
	}
	return !slices.ContainsFunc(d.serf.Members(), func(m serf.Member) bool {
		return m.Name != d.gate.self.name && m.Status == serf.StatusAlive
	})
}

// tryJoin tries all seeds once; after a move also the members, who are the ones to be told.
func (d *Discovery) tryJoin() error {
	addrs := d.seeds.all()
	if d.gate.hasMoved() {
		for _, m := range d.Members() {
			a := m.Addr.String()
			if m.NodeID != d.gate.self.name && m.Status == Alive && !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
	}
	if len(addrs) == 0 {
		return nil
	}
	_, err := d.joinNow(addrs)
	return err
}

// reportJoin logs the first failure in a row and then each that doubles the count.
func (d *Discovery) reportJoin(failures int, err error) {
	if failures&(failures-1) != 0 {
		return
	}
	d.log.Warn("no seed lets this node in yet, trying on", zap.Int("attempts", failures), zap.Error(err))
}
