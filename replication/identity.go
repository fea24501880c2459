package replication

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

const (
	identityFile    = "NODE"
	identityVersion = 1
)

// identity is who a data directory belongs to: the content of the file NODE.
type identity struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	// Cluster is empty until the node belongs to one.
	Cluster string `json:"cluster,omitempty"`
	// Incarnation is that of the first replica of every group.
	Incarnation string `json:"incarnation"`

	fs    storage.FS
	path  string
	fresh bool // the file is not written yet
}

// openIdentity reads the file NODE of a data directory, or prepares a new one,
// which settle writes when every group has its first replica.
func openIdentity(fsys storage.FS, dir, node string) (identity, error) {
	id := identity{Version: identityVersion, Node: node, fs: fsys, path: fsys.PathJoin(dir, identityFile)}
	b, ok, err := readFile(fsys, id.path)
	if err != nil {
		return id, err
	}
	if !ok {
		id.Incarnation, id.fresh = newIncarnation(), true
		// A crash before settle may have left replicas behind: they had this id.
		meta := fsys.PathJoin(dir, "groups", "0", incarnationFile)
		if left, there, err := readFile(fsys, meta); err != nil {
			return id, err
		} else if there && len(left) == 2*incarnationSize+1 {
			id.Incarnation = string(left[:2*incarnationSize])
		}
		return id, makeDirs(fsys, dir)
	}
	if err := json.Unmarshal(b, &id); err != nil {
		return id, fmt.Errorf("%w: %s: %w", record.ErrDamaged, id.path, err)
	}
	switch {
	case id.Version != identityVersion:
		return id, fmt.Errorf("%w: %s has version %d, this build knows %d",
			record.ErrFormat, id.path, id.Version, identityVersion)
	case id.Node != node:
		return id, fmt.Errorf("%w: %s belongs to node %q, this one is %q", errConfig, dir, id.Node, node)
	}
	return id, nil
}

// first is the incarnation for a replica that is made now: that of the directory
// while it is new, later (a replica was set aside, a group added) a random one.
func (id *identity) first() string {
	if id.fresh {
		return id.Incarnation
	}
	return ""
}

func (id *identity) settle() error {
	if !id.fresh {
		return nil
	}
	if err := id.write(); err != nil {
		return err
	}
	id.fresh = false
	return nil
}

func (id *identity) write() error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return replaceFile(id.fs, id.path, append(b, '\n'))
}

// join stores the cluster that the node belongs to from now on.
func (id *identity) join(cluster string) error {
	if id.Cluster == cluster {
		return nil
	}
	if id.Cluster != "" {
		return fmt.Errorf("%w: %s belongs to cluster %q, not %q", errConfig, id.path, id.Cluster, cluster)
	}
	id.Cluster = cluster
	return id.write()
}
