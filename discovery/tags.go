package discovery

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// Tags is what a node says about itself; the table of its encoding is in the package comment.
type Tags struct {
	ClusterID string // empty before the cluster is bootstrapped
	NodeID    string
	Expect    int    // founders the node waits for; 0: none
	RaftAddr  string // host:port, as all addresses here
	RouteAddr string
	AdminAddr string
	// ClientAddr is where NATS clients reach the node.
	ClientAddr string
	Version    string
	// Incarnations names the incarnation of each of the node's replicas, in the form the bootstrap agrees on.
	Incarnations string
	Draining     bool
	// Feature is the highest feature level that the node can do, Level that of its cluster as far as it knows;
	// 0: not said.
	Feature, Level int
}

// Names of the tags on the wire. They are short because MaxTagBytes is.
const (
	tagClusterID    = "cid"
	tagNodeID       = "id"
	tagExpect       = "expect"
	tagRaftAddr     = "raft"
	tagRouteAddr    = "route"
	tagAdminAddr    = "admin"
	tagClientAddr   = "client"
	tagVersion      = "ver"
	tagIncarnations = "inc"
	tagDraining     = "drain"
	tagFeature      = "feat"
	tagLevel        = "level"
)

// tagsMark is the byte with which Serf begins an encoded set of tags (tagMagicByte in its serf.go).
const tagsMark = 0xff

// encode returns the tags as Serf wants them. Empty ones are left out.
func (t *Tags) encode() (map[string]string, error) {
	numbers := []struct {
		key   string
		value int
	}{{tagExpect, t.Expect}, {tagFeature, t.Feature}, {tagLevel, t.Level}}
	m := make(map[string]string)
	set := func(key, value string) {
		if value != "" {
			m[key] = value
		}
	}
	set(tagClusterID, t.ClusterID)
	set(tagNodeID, t.NodeID)
	for _, n := range numbers {
		if n.value < 0 {
			return nil, fmt.Errorf("%w: %s is %d: want 0 or more", ErrConfig, n.key, n.value)
		}
		if n.value > 0 {
			set(n.key, strconv.Itoa(n.value))
		}
	}
	set(tagRaftAddr, t.RaftAddr)
	set(tagRouteAddr, t.RouteAddr)
	set(tagAdminAddr, t.AdminAddr)
	set(tagClientAddr, t.ClientAddr)
	set(tagVersion, t.Version)
	set(tagIncarnations, t.Incarnations)
	if t.Draining {
		set(tagDraining, "1")
	}
	return m, checkTagSize(m)
}

// checkTagSize refuses tags that Serf could not send.
func checkTagSize(m map[string]string) error {
	var buf bytes.Buffer
	if err := codec.NewEncoder(&buf, &codec.MsgpackHandle{}).Encode(m); err != nil {
		return fmt.Errorf("%w: %w", ErrTagsTooLong, err)
	}
	size := buf.Len() + 1 // and Serf's mark
	if size <= MaxTagBytes {
		return nil
	}
	longest := ""
	for k, v := range m {
		if len(v) > len(m[longest]) || (len(v) == len(m[longest]) && k < longest) {
			longest = k
		}
	}
	return fmt.Errorf("%w: %d bytes, at most %d; the longest is %q with %d",
		ErrTagsTooLong, size, MaxTagBytes, longest, len(m[longest]))
}

// decodeTags reads the tags of the member name. Without our node id in them the member is no node of ours.
func decodeTags(name string, m map[string]string) (Tags, error) {
	t := Tags{
		ClusterID: m[tagClusterID], NodeID: m[tagNodeID],
		RaftAddr: m[tagRaftAddr], RouteAddr: m[tagRouteAddr],
		AdminAddr: m[tagAdminAddr], ClientAddr: m[tagClientAddr],
		Version: m[tagVersion], Incarnations: m[tagIncarnations],
		Draining: m[tagDraining] == "1",
	}
	if t.NodeID != name {
		return Tags{}, fmt.Errorf("%w: %q is not a Holdfast node: its tags name the node %q",
			ErrOtherCluster, name, t.NodeID)
	}
	for key, into := range map[string]*int{tagExpect: &t.Expect, tagFeature: &t.Feature, tagLevel: &t.Level} {
		s, ok := m[key]
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return Tags{}, fmt.Errorf("%w: node %q has the tag %s=%q: want a number", ErrOtherCluster, name, key, s)
		}
		*into = int(n)
	}
	return t, nil
}

// decodeMeta reads the tags of the member name from the bytes that memberlist carries, which Serf's delegates
// pass on only without the member's state.
func decodeMeta(name string, meta []byte) (Tags, error) {
	if len(meta) == 0 || meta[0] != tagsMark {
		return Tags{}, fmt.Errorf("%w: %q is not a Holdfast node: it has no tags", ErrOtherCluster, name)
	}
	m := make(map[string]string)
	if err := codec.NewDecoderBytes(meta[1:], &codec.MsgpackHandle{}).Decode(&m); err != nil {
		return Tags{}, fmt.Errorf("%w: tags of %q: %w", ErrOtherCluster, name, err)
	}
	return decodeTags(name, m)
}
