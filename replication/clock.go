package replication

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/clock"
	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

func (c *Config) clockDefaults() error {
	if c.Boottime == nil {
		c.Boottime = clock.Boottime
	}
	if c.BootID == "" {
		id, err := clock.BootID()
		if err != nil {
			return err
		}
		c.BootID = id
	}
	return nil
}

type groupClock struct {
	mu   sync.Mutex
	base int64
	at   time.Duration
	boot func() time.Duration
	wall func() int64
}

func newGroupClock(c Config, _ *seglog.Log) (*groupClock, error) {
	return &groupClock{boot: c.Boottime, wall: c.Wall, base: c.Wall(), at: c.Boottime()}, nil
}

// Now is the cluster time.
func (c *groupClock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base + int64(c.boot()-c.at)
}
func (c *groupClock) observe(transport.Beat) {}
func (c *groupClock) beat() transport.Beat   { return transport.Beat{Clock: c.Now(), Wall: c.wall()} }
func (c *groupClock) follow(b transport.Beat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.base + int64(c.boot()-c.at)
	c.base, c.at = max(now, b.Clock), c.boot()
}
func (c *groupClock) heard(raft.ServerAddress, transport.Beat) {}
