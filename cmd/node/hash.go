package node

import (
	"context"
	"encoding/hex"
	"net/http"
)

// ReplicaHash sums up the state of one replica: an element of /hash. Replicas of a group
// hold the same rows if and only if they have the same Sum at the same Index.
type ReplicaHash struct {
	Group uint32 `json:"group"`
	Index uint64 `json:"index"` // of the last entry applied
	Rows  uint64 `json:"rows"`
	Sum   string `json:"sum"` // SHA-256, in hex
}

// onHash reads every row of every group, which takes a while and the disk.
func (n *Node) onHash(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), operateTimeout)
	defer cancel()
	out := make([]ReplicaHash, 0, len(n.host.Groups()))
	for _, g := range n.host.Groups() {
		h, err := g.Reader().StateHash(ctx)
		if err != nil {
			n.done(w, err)
			return
		}
		out = append(out, ReplicaHash{Group: g.ID(), Index: h.Index, Rows: h.Rows, Sum: hex.EncodeToString(h.Sum[:])})
	}
	answer(w, http.StatusOK, out)
}
