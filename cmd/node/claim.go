package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// LockFile lies in the data directory; whoever uses the directory holds an flock on it. It contains the
	// process id of the last one that did.
	LockFile = "LOCK"
	// claimWait is how long a start waits for a predecessor to let go of the data directory and of addresses.
	claimWait = 5 * time.Second
	// claimRetry is the pause between two tries.
	claimRetry = 50 * time.Millisecond
)

// ErrInUse says that another process uses the data directory; the text names it, if it is known.
var ErrInUse = errors.New("in use")

// DirLock is the right to use a data directory. The operating system takes it back when the process ends.
type DirLock struct{ file *os.File }

// LockDir takes the lock of a data directory that exists, or says at once that another process has it
// (ErrInUse).
func LockDir(dir string) (*DirLock, error) {
	file, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%w by %s", ErrInUse, holder(file))
	}
	if err == nil {
		err = errors.Join(file.Truncate(0), writePID(file))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &DirLock{file}, nil
}

func writePID(file *os.File) error {
	_, err := file.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	return err
}

// holder names the process that wrote its id into the file.
func holder(file *os.File) string {
	b, err := io.ReadAll(io.LimitReader(file, 20))
	if _, perr := strconv.Atoi(strings.TrimSpace(string(b))); err != nil || perr != nil {
		return "another process"
	}
	return "process " + strings.TrimSpace(string(b))
}

// Release gives the directory back. The file stays: to remove it would let two processes hold it.
func (l *DirLock) Release() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}

// claim is the first step of a start.
func (n *Node) claim(ctx context.Context) (err error) {
	n.lock, err = n.cfg.claim(ctx)
	return err
}

// claim makes the data directory, takes its lock, and waits until every address can be listened on. Both may
// still be held by a predecessor that was just killed, so it tries for claimWait.
func (c *Config) claim(ctx context.Context) (*DirLock, error) {
	if err := makeDataDir(c.DataDir); err != nil {
		return nil, &ConfigError{"--data-dir", err.Error(), "give a directory that can be made and written"}
	}
	ctx, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	var lock *DirLock
	err := retry(ctx, func() (again bool, err error) {
		lock, err = LockDir(c.DataDir)
		return errors.Is(err, ErrInUse), err
	})
	switch {
	case errors.Is(err, ErrInUse):
		return nil, &ConfigError{
			"--data-dir", c.DataDir + " is " + err.Error(),
			"stop it, or give another directory",
		}
	case err != nil:
		return nil, &ConfigError{"--data-dir", err.Error(), "give a directory that can be written"}
	}
	for _, l := range c.listeners() {
		if err := l.await(ctx); err != nil {
			return nil, errors.Join(err, lock.Release())
		}
	}
	return lock, nil
}

// makeDataDir makes a directory whose name survives a power cut, as what is stored in it will.
func makeDataDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := makeDataDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	d, err := os.Open(parent)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// retry calls f until it says that another try makes no sense, or ctx ends; it returns f's last error.
func retry(ctx context.Context, f func() (again bool, err error)) error {
	tick := time.NewTicker(claimRetry)
	defer tick.Stop()
	for {
		again, err := f()
		if !again {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// await returns once the address can be listened on.
func (l *listener) await(ctx context.Context) error {
	if a, err := parseAddress(l.value); err != nil || a.port == 0 {
		return nil //nolint:nilerr // Validate has judged it, or nothing can be in use
	}
	err := retry(ctx, func() (bool, error) {
		err := l.probe(context.WithoutCancel(ctx)) // once at least, however long the lock took
		return errors.Is(err, syscall.EADDRINUSE), err
	})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &ConfigError{
			l.setting, l.value + " is in use by another process",
			"stop it, or give another address",
		}
	case err != nil:
		return &ConfigError{
			l.setting, err.Error(),
			"give an address of this machine that this user may listen on",
		}
	}
	return nil
}

// probe listens for a moment.
func (l *listener) probe(ctx context.Context) error {
	var lc net.ListenConfig
	tcp, err := lc.Listen(ctx, "tcp", l.value)
	if err != nil {
		return err
	}
	if !l.udp {
		return tcp.Close()
	}
	udp, err := lc.ListenPacket(ctx, "udp", l.value)
	if err != nil {
		return errors.Join(err, tcp.Close())
	}
	return errors.Join(tcp.Close(), udp.Close())
}
