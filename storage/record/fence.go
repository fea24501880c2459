package record

import (
	"cmp"
	"encoding/binary"
	"fmt"
)

// FenceSize is the length of a serialized Fence.
const FenceSize = 24

// ProposalIDSize is the length of a ProposalID.
const ProposalIDSize = 16

// ProposalID identifies one proposal: 8 bytes of boot nonce, 8 bytes of a
// counter. It travels with the entry, so that its author recognises it.
type ProposalID [ProposalIDSize]byte

// NewProposalID makes the id of the nth proposal since this boot.
func NewProposalID(boot, n uint64) ProposalID {
	var id ProposalID
	binary.BigEndian.PutUint64(id[:], boot)
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

// Boot returns the boot nonce of the author.
func (id ProposalID) Boot() uint64 { return binary.BigEndian.Uint64(id[:]) }

// Fence is the triple that orders envelopes: the term they were planned in, the
// epoch within the term (counts rebuilds) and the ordinal within the epoch
// (1, 2, 3 …). The zero Fence stands before all others.
type Fence struct {
	Term, Epoch, Ordinal uint64
}

// Compare orders fences by term, epoch, ordinal.
func (f Fence) Compare(o Fence) int {
	return cmp.Or(cmp.Compare(f.Term, o.Term), cmp.Compare(f.Epoch, o.Epoch), cmp.Compare(f.Ordinal, o.Ordinal))
}

// Admits says whether an envelope fenced by next may be applied in an entry of
// the given Raft term after an envelope fenced by f was: its planning term is
// the entry's, and it is the next ordinal of f's epoch, or ordinal 1 of a higher
// epoch (or term) that was planned on exactly f.
//
// Raft may refuse one proposal and accept the next of the same term; without
// this rule the second, planned on top of the first, would be applied on a
// state that it was not planned for. The base of ordinal 1 makes a forgotten
// wait cost another rebuild, never a wrong state.
func (f Fence) Admits(next, base Fence, entryTerm uint64) bool {
	if next.Term != entryTerm {
		return false
	}
	if next.Ordinal == 1 {
		higher := next.Term > f.Term || (next.Term == f.Term && next.Epoch > f.Epoch)
		return higher && base == f
	}
	return next.Term == f.Term && next.Epoch == f.Epoch && next.Ordinal == f.Ordinal+1
}

// String gives term.epoch.ordinal.
func (f Fence) String() string { return fmt.Sprintf("%d.%d.%d", f.Term, f.Epoch, f.Ordinal) }

// AppendFence appends the binary form of f: three big-endian 64-bit words.
func AppendFence(dst []byte, f Fence) []byte {
	dst = binary.BigEndian.AppendUint64(dst, f.Term)
	dst = binary.BigEndian.AppendUint64(dst, f.Epoch)
	return binary.BigEndian.AppendUint64(dst, f.Ordinal)
}

// ParseFence reads what AppendFence wrote; b must have FenceSize bytes.
func ParseFence(b []byte) (Fence, error) {
	if len(b) != FenceSize {
		return Fence{}, fmt.Errorf("%w: fence of %d bytes, want %d", ErrFormat, len(b), FenceSize)
	}
	return Fence{
		Term:    binary.BigEndian.Uint64(b),
		Epoch:   binary.BigEndian.Uint64(b[8:]),
		Ordinal: binary.BigEndian.Uint64(b[16:]),
	}, nil
}
