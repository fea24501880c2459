package node

import (
	"context"
	"fmt"

	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/disk"
)

// checkDisk judges the settings of the disk.
func (c *Config) checkDisk(v *verdict) {
	const cure = "give a number of bytes, or 0 for none"
	if c.DiskMinFree < 0 {
		v.add("--disk-min-free", fmt.Sprintf("is %d", c.DiskMinFree), cure)
	}
	if c.DiskBallast < 0 {
		v.add("--disk-ballast", fmt.Sprintf("is %d", c.DiskBallast), cure)
	}
}

// watchDisk puts a guard between the data directory and everything that writes to
// it. It comes before the files are opened: that may need the ballast, too.
func (n *Node) watchDisk(context.Context) error {
	fs := n.cfg.FS
	if fs == nil {
		fs = storage.DefaultFS()
	}
	guard, err := disk.New(disk.Config{
		FS: fs, Dir: n.cfg.DataDir, MinFree: int64(n.cfg.DiskMinFree), Ballast: int64(n.cfg.DiskBallast),
		Logger: n.log.Named("disk"),
	})
	if err != nil {
		return err
	}
	n.disk = guard
	n.wg.Go(func() { guard.Run(n.ctx) })
	return nil
}

func collectDisk(e emitter, s disk.Status) {
	if s.Free >= 0 {
		e.gauge("disk_free_bytes", "Free bytes of the data directory's disk.", float64(s.Free))
	}
	e.gauge("disk_min_free_bytes", "Free bytes below which publishes are refused.", float64(s.MinFree))
	e.gauge("disk_ballast_bytes", "Size of the ballast at present.", float64(s.Ballast))
	e.gauge("disk_refusing", "Whether publishes are refused for want of space.", truth(s.Refusing))
	e.counter("disk_full_total", "Writes that met a full disk and used the ballast.", float64(s.Full))
}
