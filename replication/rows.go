package replication

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Keys of group 0. Values are JSON; fields a build does not know are kept out of
// its way by the feature level in the cluster row.
const (
	// ClusterKey is the row of the cluster itself, a ClusterRow.
	ClusterKey = "cluster"
	// NodePrefix starts the keys of the node registry; the node id follows; NodeRow.
	NodePrefix = "node/"
	// GroupPrefix starts the keys of the groups; the number follows; GroupRow.
	GroupPrefix = "group/"
	// StreamPrefix starts the keys of the stream directory; record.StreamRow.
	StreamPrefix = "stream/"
)

// NodeKey is the key of a node's row.
func NodeKey(node string) string { return NodePrefix + node }

// GroupKey is the key of a group's row.
func GroupKey(group uint32) string { return GroupPrefix + strconv.FormatUint(uint64(group), 10) }

// StreamKey is the key of a stream's directory row. Account names hold no slash.
func StreamKey(account, name string) string { return StreamPrefix + account + "/" + name }

// FeatureLevel is the highest feature level that this build can do. It rises with every kind of entry, or format
// on disk, that a build before it does not know; leaders propose only what the level of the cluster allows.
const FeatureLevel = 1

// ClusterRow describes the cluster.
type ClusterRow struct {
	ID string `json:"id"`
	// Feature is the level of what leaders may propose: 1 at first, raised when every member can do more.
	Feature int `json:"feature"`
	// Groups is the number of event groups.
	Groups int `json:"groups"`
}

// NodeRow is how a node can be reached; each node writes its own.
type NodeRow struct {
	ID    string `json:"id"`
	Raft  string `json:"raft"`            // address of its transport
	Serf  string `json:"serf,omitempty"`  // gossip
	NATS  string `json:"nats,omitempty"`  // clients
	Route string `json:"route,omitempty"` // other hubs
	Admin string `json:"admin,omitempty"`
	// Servers are its replicas: group number to "nodeID/incarnation".
	Servers map[uint32]string `json:"servers,omitempty"`
	// Incarnation is that of its data directory: Host.Incarnation.
	Incarnation string `json:"incarnation,omitempty"`
	Version     string `json:"version,omitempty"`
	Feature     int    `json:"feature,omitempty"` // highest level the node knows
}

// GroupRow is what the leader of a group last said of it, and what its members
// should be.
type GroupRow struct {
	Group   uint32   `json:"group"`
	Leader  string   `json:"leader"` // node id
	Term    uint64   `json:"term"`
	Members []Member `json:"members"`
	// Desired is the membership to reconcile towards; the membership controller's.
	Desired json.RawMessage `json:"desired,omitempty"`
	// Epoch rises with every change of the row.
	Epoch uint64 `json:"epoch"`
}

func decodeRow[T any](row record.MetaRow) (T, error) {
	var v T
	if err := json.Unmarshal(row.Value, &v); err != nil {
		return v, fmt.Errorf("%w: row %q: %w", record.ErrFormat, row.Key, err)
	}
	return v, nil
}

// Row reads a row of group 0 as a T; Version 0 = there is none, and the zero T.
func Row[T any](m *Meta, key string) (v T, row record.MetaRow, err error) {
	row, err = m.Get(key)
	if err != nil || row.Version == 0 {
		return v, row, err
	}
	v, err = decodeRow[T](row)
	return v, row, err
}
