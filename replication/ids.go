package replication

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// idSource hands out the proposal ids of one process.
type idSource struct {
	boot uint64
	last atomic.Uint64
}

// newIDSource draws the boot nonce that tells this process's proposals from all others'.
func newIDSource() *idSource {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return &idSource{boot: binary.BigEndian.Uint64(b[:])}
}

func (s *idSource) next() record.ProposalID { return record.NewProposalID(s.boot, s.last.Add(1)) }
