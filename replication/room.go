package replication

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// stateRoom is what the state of a group may need to be opened or made: a new manifest, and small files.
const stateRoom = 1 << 20

// startRoom is what a start may need: a state for every group, and the first segment of its log.
func (c *Config) startRoom() int64 {
	segment := c.Log.SegmentSize
	if segment == 0 {
		segment = seglog.DefaultSegmentSize
	}
	groups := int64(c.Groups)
	return groups*segment + c.MetaSegmentSize + (groups+1)*stateRoom
}

// noRoom says of a start that met a full disk which disk that is, and how much room it wants.
func (c *Config) noRoom(err error) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	free := "an unknown number of"
	if u, err := c.FS.GetDiskUsage(c.Dir); err == nil {
		free = fmt.Sprint(u.AvailBytes)
	}
	return fmt.Errorf("the disk of %s is full: %s bytes are free, a start wants up to %d: %w",
		c.Dir, free, c.startRoom(), err)
}
