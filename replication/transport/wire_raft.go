package transport

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// route opens every frame of a group: who sends it, for whom. Both are full
// addresses, so that a frame never reaches another incarnation.
type route struct {
	version  raft.ProtocolVersion
	from, to raft.ServerAddress
}

func appendRoute(dst []byte, r route) []byte {
	dst = append(dst, byte(r.version))
	dst = appendShort(dst, r.from)
	return appendShort(dst, r.to)
}

func (d *decoder) route() route {
	return route{
		version: raft.ProtocolVersion(d.u8()),
		from:    raft.ServerAddress(d.short()),
		to:      raft.ServerAddress(d.short()),
	}
}

// header rebuilds Raft's header: id and address are the same string here.
func (r route) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: r.version, ID: []byte(r.from), Addr: []byte(r.from)}
}

func appendBeat(dst []byte, b Beat) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(b.Clock))
	dst = binary.BigEndian.AppendUint64(dst, uint64(b.AgeWait))
	dst = binary.BigEndian.AppendUint64(dst, uint64(b.Wall))
	return appendLong(dst, b.Marks)
}

// beat copies the marks: whoever keeps them must not keep a whole append frame.
func (d *decoder) beat() Beat {
	return Beat{Clock: d.i64(), AgeWait: d.i64(), Wall: d.i64(), Marks: slices.Clone(d.long())}
}

func beatSize(b Beat) int { return 3*8 + 4 + len(b.Marks) }

func appendHello(dst []byte, h Hello) []byte {
	for _, v := range [...]uint64{h.Term, h.LastIndex, h.LastTerm, h.TruncTerm} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	return appendBeat(dst, h.Beat)
}

func (d *decoder) hello() Hello {
	return Hello{Term: d.u64(), LastIndex: d.u64(), LastTerm: d.u64(), TruncTerm: d.u64(), Beat: d.beat()}
}

// entryFixed: u64 index, u64 term, u8 type, i64 appended at, u32 extensions, u32 data.
const entryFixed = 8 + 8 + 1 + 8 + 4 + 4

func entrySize(e *raft.Log) int { return entryFixed + len(e.Extensions) + len(e.Data) }

// noTime stands for a zero time.Time in an entry.
const noTime = math.MinInt64

func appendEntry(dst []byte, e *raft.Log) []byte {
	dst = binary.BigEndian.AppendUint64(dst, e.Index)
	dst = binary.BigEndian.AppendUint64(dst, e.Term)
	dst = append(dst, byte(e.Type))
	at := int64(noTime)
	if !e.AppendedAt.IsZero() {
		at = e.AppendedAt.UnixNano()
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(at))
	dst = appendLong(dst, e.Extensions)
	return appendLong(dst, e.Data)
}

func (d *decoder) entry(e *raft.Log) {
	e.Index, e.Term, e.Type = d.u64(), d.u64(), raft.LogType(d.u8())
	if at := d.i64(); at != noTime {
		e.AppendedAt = time.Unix(0, at)
	}
	e.Extensions, e.Data = d.long(), d.long()
}

// trimEntries returns how many of the entries go into one frame: as many as fit
// limit, at least one.
func trimEntries(entries []*raft.Log, limit int) (n, size int) {
	for i, e := range entries {
		s := entrySize(e)
		if i > 0 && size+s > limit {
			return i, size
		}
		size += s
	}
	return len(entries), size
}

// lastOf is up to where a follower that accepted an append has the leader's log.
func lastOf(args *raft.AppendEntriesRequest) uint64 {
	if n := len(args.Entries); n > 0 {
		return args.Entries[n-1].Index
	}
	return args.PrevLogEntry
}

func appendAppend(dst []byte, r route, a *raft.AppendEntriesRequest, b Beat) []byte {
	dst = appendRoute(dst, r)
	for _, v := range [...]uint64{a.Term, a.PrevLogEntry, a.PrevLogTerm, a.LeaderCommitIndex} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	dst = appendBeat(dst, b)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(a.Entries)))
	for _, e := range a.Entries {
		dst = appendEntry(dst, e)
	}
	return dst
}

func (d *decoder) appendEntries() (route, *raft.AppendEntriesRequest, Beat) {
	r := d.route()
	a := &raft.AppendEntriesRequest{
		RPCHeader: r.header(),
		Term:      d.u64(), PrevLogEntry: d.u64(), PrevLogTerm: d.u64(), LeaderCommitIndex: d.u64(),
	}
	b := d.beat()
	n := d.u32()
	if uint64(n)*entryFixed > uint64(len(d.b)) {
		d.fail("%d entries in %d bytes", n, len(d.b))
		return r, a, b
	}
	if n > 0 {
		logs := make([]raft.Log, n)
		a.Entries = make([]*raft.Log, n)
		for i := range logs {
			d.entry(&logs[i])
			a.Entries[i] = &logs[i]
		}
	}
	return r, a, b
}

func appendAppendAnswer(dst []byte, a *raft.AppendEntriesResponse, b Beat) []byte {
	dst = append(dst, byte(a.ProtocolVersion))
	dst = binary.BigEndian.AppendUint64(dst, a.Term)
	dst = binary.BigEndian.AppendUint64(dst, a.LastLog)
	dst = append(dst, flagByte(a.Success), flagByte(a.NoRetryBackoff))
	return binary.BigEndian.AppendUint64(dst, uint64(b.Wall))
}

func (d *decoder) appendAnswer(peer raft.ServerAddress) (raft.AppendEntriesResponse, Beat) {
	a := raft.AppendEntriesResponse{
		RPCHeader: d.answerHeader(peer),
		Term:      d.u64(), LastLog: d.u64(), Success: d.flag(), NoRetryBackoff: d.flag(),
	}
	return a, Beat{Wall: d.i64()}
}

func (d *decoder) answerHeader(peer raft.ServerAddress) raft.RPCHeader {
	return route{version: raft.ProtocolVersion(d.u8()), from: peer}.header()
}

func appendVote(dst []byte, r route, v *raft.RequestVoteRequest) []byte {
	dst = appendRoute(dst, r)
	for _, x := range [...]uint64{v.Term, v.LastLogIndex, v.LastLogTerm} {
		dst = binary.BigEndian.AppendUint64(dst, x)
	}
	return append(dst, flagByte(v.LeadershipTransfer))
}

func (d *decoder) vote() (route, *raft.RequestVoteRequest) {
	r := d.route()
	return r, &raft.RequestVoteRequest{
		RPCHeader: r.header(),
		Term:      d.u64(), LastLogIndex: d.u64(), LastLogTerm: d.u64(), LeadershipTransfer: d.flag(),
	}
}

func appendPreVote(dst []byte, r route, v *raft.RequestPreVoteRequest) []byte {
	dst = appendRoute(dst, r)
	for _, x := range [...]uint64{v.Term, v.LastLogIndex, v.LastLogTerm} {
		dst = binary.BigEndian.AppendUint64(dst, x)
	}
	return dst
}

func (d *decoder) preVote() (route, *raft.RequestPreVoteRequest) {
	r := d.route()
	return r, &raft.RequestPreVoteRequest{
		RPCHeader: r.header(), Term: d.u64(), LastLogIndex: d.u64(), LastLogTerm: d.u64(),
	}
}

// ballot is the answer to a vote or a pre-vote.
type ballot struct {
	version raft.ProtocolVersion
	term    uint64
	granted bool
}

func appendBallot(dst []byte, b ballot) []byte {
	dst = append(dst, byte(b.version))
	dst = binary.BigEndian.AppendUint64(dst, b.term)
	return append(dst, flagByte(b.granted))
}

func (d *decoder) ballot() ballot {
	return ballot{version: raft.ProtocolVersion(d.u8()), term: d.u64(), granted: d.flag()}
}

func appendTimeoutNow(dst []byte, r route, term uint64) []byte {
	return binary.BigEndian.AppendUint64(appendRoute(dst, r), term)
}

func (d *decoder) timeoutNow() (route, uint64) { return d.route(), d.u64() }

func appendSnapOpen(dst []byte, r route, id SnapshotID, s *raft.InstallSnapshotRequest) []byte {
	dst = appendRoute(dst, r)
	dst = append(dst, id[:]...)
	dst = append(dst, byte(s.SnapshotVersion))
	fields := [...]uint64{s.Term, s.LastLogIndex, s.LastLogTerm, s.ConfigurationIndex, uint64(s.Size)}
	for _, v := range fields {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	return appendLong(dst, s.Configuration)
}

func (d *decoder) snapOpen() (route, SnapshotID, *raft.InstallSnapshotRequest) {
	r := d.route()
	var id SnapshotID
	copy(id[:], d.take(uint64(len(id))))
	s := &raft.InstallSnapshotRequest{
		RPCHeader:          r.header(),
		SnapshotVersion:    raft.SnapshotVersion(d.u8()),
		Term:               d.u64(),
		LastLogIndex:       d.u64(),
		LastLogTerm:        d.u64(),
		ConfigurationIndex: d.u64(),
		Size:               d.i64(),
		Configuration:      d.long(),
	}
	if s.Size < 0 {
		d.fail("snapshot of %d bytes", s.Size)
	}
	return r, id, s
}

func appendSnapAnswer(dst []byte, s *raft.InstallSnapshotResponse) []byte {
	dst = append(dst, byte(s.ProtocolVersion))
	dst = binary.BigEndian.AppendUint64(dst, s.Term)
	return append(dst, flagByte(s.Success))
}

func (d *decoder) snapAnswer(peer raft.ServerAddress) raft.InstallSnapshotResponse {
	return raft.InstallSnapshotResponse{RPCHeader: d.answerHeader(peer), Term: d.u64(), Success: d.flag()}
}

func flagByte(v bool) byte { //nolint:revive // it encodes the flag
	if v {
		return 1
	}
	return 0
}
