package replication

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

const (
	identityFile    = "NODE"
	identityVersion = 1
	groupsDir       = "groups"
	// checksumForm ends a JSON object; the sum is of the bytes before it.
	checksumForm = `,"checksum":"%08x"}` + "\n"
	checksumSize = len(`,"checksum":"01234567"}` + "\n")
)

// identity is who a data directory belongs to: the content of the file NODE.
type identity struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	// Cluster is empty until the node belongs to one.
	Cluster string `json:"cluster,omitempty"`
	// Incarnation is that of the first replica of every group.
	Incarnation string `json:"incarnation"`
	// New says that not every group has its first replica yet.
	New bool `json:"new,omitempty"`
	// Groups is how many event groups have had a replica here; 0 where nobody knows.
	Groups int `json:"groups,omitempty"`
	// Lost says that the file before this one was damaged, and that not every group has
	// a replica that came after it yet. No replica has Incarnation then.
	Lost bool `json:"lost,omitempty"`
	// GivenUp are the replicas that Recover left out, by server id.
	GivenUp []string `json:"given_up,omitempty"`

	fs   storage.FS
	path string
}

// Identity is what the file NODE of a data directory says.
type Identity struct {
	Node, Cluster, Incarnation string
}

// ReadIdentity reads the file NODE of a data directory that no node uses, and changes
// nothing. ok is false if there is none, and no data. An error that wraps
// record.ErrDamaged: it does not verify, or it is missing beside data.
func ReadIdentity(fsys storage.FS, dir string) (who Identity, ok bool, err error) {
	id, ok, err := readIdentity(fsys, dir)
	return Identity{id.Node, id.Cluster, id.Incarnation}, ok, err
}

func readIdentity(fsys storage.FS, dir string) (id identity, ok bool, err error) {
	path := fsys.PathJoin(dir, identityFile)
	b, ok, err := readFile(fsys, path)
	if err != nil {
		return id, false, err
	}
	if ok {
		id, err = parseIdentity(path, b)
		id.fs, id.path = fsys, path
		return id, err == nil, err
	}
	names, err := listDir(fsys, dir)
	for _, name := range names {
		// It is written before the first group is made, and is never removed.
		if name == groupsDir || strings.HasPrefix(name, asidePrefix) {
			err = record.Damaged(path, "is missing beside %s", name)
		}
	}
	return id, false, err
}

// parseIdentity reads the content of a file NODE. Files of older builds have no checksum:
// those must be what such a build writes, byte for byte.
func parseIdentity(path string, b []byte) (identity, error) {
	var id identity
	if err := json.Unmarshal(b, &id); err != nil {
		return identity{}, record.Damaged(path, "is unreadable: %w", err)
	}
	body := b[:max(len(b)-checksumSize, 0)]
	if whole := bytes.Equal(b, sealJSON(body)); whole && id.Version != identityVersion {
		return identity{}, fmt.Errorf("%w: %s has version %d, this build knows %d",
			record.ErrFormat, path, id.Version, identityVersion)
	} else if !whole {
		if old, err := json.Marshal(&id); err != nil || id.Version != identityVersion || !bytes.Equal(b, append(old, '\n')) {
			return identity{}, record.Damaged(path, "does not match its checksum")
		}
	}
	if id.Node == "" || !isIncarnation(id.Incarnation) {
		return identity{}, record.Damaged(path, "names node %q, incarnation %q", id.Node, id.Incarnation)
	}
	return id, nil
}

// sealJSON ends a JSON object, given without its last brace, with its checksum.
func sealJSON(body []byte) []byte {
	out := append([]byte(nil), body...)
	return fmt.Appendf(out, checksumForm, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// isIncarnation says whether a text is what newIncarnation makes.
func isIncarnation(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == incarnationSize && hex.EncodeToString(b) == s
}

// openIdentity reads the file NODE of the data directory, or writes the first one of an
// empty directory. Of a damaged one, see lose.
func openIdentity(c *Config) (identity, error) {
	id, ok, err := readIdentity(c.FS, c.Dir)
	switch {
	case isDamage(err):
		return c.lose(err)
	case err != nil:
		return id, err
	case ok && id.Node != c.NodeID:
		return id, otherNode(c.Dir, id.Node, c.NodeID)
	case ok:
		return id, nil
	}
	id = identity{
		Version: identityVersion, Node: c.NodeID, Incarnation: newIncarnation(), New: true,
		fs: c.FS, path: c.FS.PathJoin(c.Dir, identityFile),
	}
	if err := makeDirs(c.FS, c.Dir); err != nil {
		return id, err
	}
	err = id.write()
	return id, err
}

func otherNode(dir, owner, node string) error {
	return fmt.Errorf("%w: %s belongs to node %q, this one is %q", errConfig, dir, owner, node)
}

// without says that a group never had a replica in the directory, as where the node was first given a smaller
// number of groups than its cluster has.
func (id *identity) without(group uint32) bool {
	return id.New || !id.Lost && id.Groups != 0 && int(group) > id.Groups
}

// first is the incarnation for a replica that is made now: that of the directory for the first one of a group, as
// the others expect it, later (a replica was set aside) a random one.
func (id *identity) first(group uint32) string {
	if id.without(group) {
		return id.Incarnation
	}
	return ""
}

// settle notes that every group has its first replica.
func (id *identity) settle(groups int) error {
	if !id.New && id.Groups >= groups {
		return nil
	}
	settled := *id
	settled.New, settled.Groups = false, max(id.Groups, groups)
	if err := settled.write(); err != nil {
		return err
	}
	id.New, id.Groups = settled.New, settled.Groups
	return nil
}

// join stores the cluster that the node belongs to from now on.
func (id *identity) join(cluster string) error {
	if id.Cluster == cluster {
		return nil
	}
	if id.Cluster != "" {
		return fmt.Errorf("%w: %s belongs to cluster %q, not %q", errConfig, id.path, id.Cluster, cluster)
	}
	joined := *id
	joined.Cluster = cluster
	if err := joined.write(); err != nil {
		return err
	}
	id.Cluster = cluster // alone: the other fields are read at the same time
	return nil
}

func (id *identity) write() error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return replaceFile(id.fs, id.path, sealJSON(b[:len(b)-1]))
}
