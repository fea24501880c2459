package clock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ErrFormat is returned for bytes that Persist did not write.
var ErrFormat = errors.New("clock: malformed persisted clock")

const (
	persistVersion = 1
	persistFixed   = 1 + 1 + 8 + 8 + 8 + 1
)

// Persist returns the clock as Restore reads it.
func (c *Clock) Persist() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Boottime()
	b := make([]byte, 0, persistFixed+len(c.cfg.BootID))
	b = append(b, persistVersion, byte(len(c.cfg.BootID)))
	b = append(b, c.cfg.BootID...)
	b = binary.BigEndian.AppendUint64(b, uint64(now))
	b = binary.BigEndian.AppendUint64(b, uint64(c.now(now)))
	b = binary.BigEndian.AppendUint64(b, uint64(c.wait(now)))
	if c.running {
		return append(b, 1)
	}
	return append(b, 0)
}

// Restore continues a clock that Persist wrote, if that was within this boot and it
// ran. Otherwise its time is taken as a stored one and the clock does not run. Empty
// input is a clock that was never persisted. ErrFormat leaves the clock as it was.
func (c *Clock) Restore(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	p, err := parse(b)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Boottime()
	c.stored = max(c.stored, p.time)
	if !p.ran || c.cfg.BootID == "" || p.boot != c.cfg.BootID || now < p.at {
		return nil
	}
	c.running, c.base, c.baseAt = true, p.time, p.at
	c.hold = p.at + p.wait
	return nil
}

type persisted struct {
	boot string
	at   time.Duration
	time int64
	wait time.Duration
	ran  bool
}

func parse(b []byte) (persisted, error) {
	if len(b) < persistFixed || b[0] != persistVersion {
		return persisted{}, fmt.Errorf(
			"%w: %d bytes, first %#x, want version %d",
			ErrFormat,
			len(b),
			b[:min(len(b), 1)],
			persistVersion,
		)
	}
	n := int(b[1])
	if len(b) != persistFixed+n {
		return persisted{}, fmt.Errorf("%w: %d bytes, want %d", ErrFormat, len(b), persistFixed+n)
	}
	w := b[2+n:]
	p := persisted{
		boot: string(b[2 : 2+n]),
		at:   time.Duration(binary.BigEndian.Uint64(w)),
		time: int64(binary.BigEndian.Uint64(w[8:])),
		wait: time.Duration(binary.BigEndian.Uint64(w[16:])),
		ran:  w[24] == 1,
	}
	if p.at < 0 || p.time < 0 || p.wait < 0 || w[24] > 1 {
		return persisted{}, fmt.Errorf("%w: a field is out of range", ErrFormat)
	}
	return p, nil
}
