//go:build powerloss

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/testenv/faultfs"
	"github.com/holdfast-mq/holdfast/testenv/powerloss"
)

// leakVariable holds the percentage of unsynced pages and names that survive a power cut.
const leakVariable = "HOLDFAST_POWERLOSS_LEAK"

// controlVariable names a file by which a test breaks the disk: see faultfs.Switch.
const controlVariable = "HOLDFAST_POWERLOSS_CONTROL"

// fileSystem makes SIGKILL a power cut: see testenv/powerloss.
func fileSystem(dir string) (storage.FS, error) { //nolint:ireturn // one of two
	leak := 0
	if s := os.Getenv(leakVariable); s != "" {
		var err error
		if leak, err = strconv.Atoi(s); err != nil {
			return nil, fmt.Errorf("%s=%q: want 0 to 100", leakVariable, s)
		}
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	// Gossip writes its file of addresses itself, and syncs nothing: no power cut needs to keep it.
	if err := os.Remove(filepath.Join(dir, "gossip")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	fsys, err := powerloss.New(powerloss.Config{Root: dir, Leak: leak})
	if control := os.Getenv(controlVariable); err == nil && control != "" {
		return faultfs.NewSwitch(fsys, control), nil
	}
	return fsys, err
}
