package storage

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markerFS makes a directory durable before a marker file appears in it. Pebble
// 2.1 syncs a new manifest's content, not its name, before it moves the marker
// that points to it: a power cut may then leave a marker without its manifest,
// and a database that does not open.
type markerFS struct{ vfs.FS }

const markerPrefix = "marker."

// Create creates a file, after a sync of its directory if it is a marker.
func (m markerFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(m.PathBase(name), markerPrefix) {
		if err := syncDir(m.FS, m.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return m.FS.Create(name, category)
}

// Unwrap returns the file system underneath.
func (m markerFS) Unwrap() vfs.FS { return m.FS }
