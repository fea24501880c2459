package faultfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What the control file of a Switch may say; anything else, and no file, is a disk that works.
const (
	// Fail makes every sync of a file fail with EIO.
	Fail = "fail"
	// Hang makes every sync of a file wait until the control file says something else.
	Hang = "hang"
	// Slow, with a duration behind it ("slow 200ms"), makes every sync of a file take that much longer.
	Slow = "slow "
)

// switchPoll is how often a sync that hangs looks at the control file.
const switchPoll = 50 * time.Millisecond

// Switch is a file system whose syncs a file outside of it controls: one for processes.
type Switch struct {
	vfs.FS

	control string
}

// NewSwitch puts the syncs of a file system under the control of a file, which need not exist.
func NewSwitch(under vfs.FS, control string) *Switch { return &Switch{under, control} }

// sync does what the control file says to the sync of a file.
func (s *Switch) sync(name string) error {
	for {
		b, err := os.ReadFile(s.control)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		says := strings.TrimSpace(string(b))
		if longer, slow := strings.CutPrefix(says, Slow); slow {
			d, err := time.ParseDuration(longer)
			<-time.After(d)
			return err
		}
		switch says {
		case Fail:
			return &os.PathError{Op: "sync", Path: name, Err: syscall.EIO}
		case Hang:
			<-time.After(switchPoll)
		default:
			return nil
		}
	}
}

// Create implements vfs.FS.
func (s *Switch) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.file(name)(s.FS.Create(name, c))
}

// OpenReadWrite implements vfs.FS.
func (s *Switch) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return s.file(name)(s.FS.OpenReadWrite(name, c, o...))
}

// ReuseForWrite implements vfs.FS.
func (s *Switch) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.file(newname)(s.FS.ReuseForWrite(oldname, newname, c))
}

func (s *Switch) file(name string) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		return switchFile{f, s, name}, nil
	}
}

// Unwrap implements vfs.FS.
func (s *Switch) Unwrap() vfs.FS { return s.FS }

// switchFile is a file that may be written to.
type switchFile struct {
	vfs.File

	s    *Switch
	name string
}

// Sync implements vfs.File.
func (f switchFile) Sync() error {
	if err := f.s.sync(f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f switchFile) SyncData() error {
	if err := f.s.sync(f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}
