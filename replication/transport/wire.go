package transport

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// frameType is the first byte after a frame's length.
type frameType uint8

// Frame types; doc.go describes the payloads. Numbers are never re-used.
const (
	frameHandshake frameType = 1
	frameWelcome   frameType = 2
	framePing      frameType = 3
	framePong      frameType = 4
	frameReply     frameType = 5
	frameHello     frameType = 6
	frameAppend    frameType = 7
	frameVote      frameType = 8
	framePreVote   frameType = 9
	frameTimeout   frameType = 10
	frameSnapOpen  frameType = 11
	frameSnapChunk frameType = 12
	frameSnapAck   frameType = 13
	frameCall      frameType = 14
)

// status is the first byte of a reply's payload.
type status uint8

const (
	statusOK         status = 0
	statusRemote     status = 1 // the handler's or Raft's error, as text
	statusNoGroup    status = 2
	statusQuarantine status = 3
	statusReceiver   status = 4 // another incarnation is here
	statusSender     status = 5 // sender is not whom the connection's hello named
	statusNeedHello  status = 6
	statusHello      status = 7 // the hello was not accepted, as text
	statusEmbargo    status = 8
	statusBusy       status = 9
	statusNotLeader  status = 10 // TimeoutNow from another than the current leader
	statusNoHandler  status = 11
	statusMalformed  status = 12
	statusClosing    status = 13
)

const (
	// headerSize: u32 length of what follows, u8 type, u32 group, u64 request id.
	headerSize = 4 + 1 + 4 + 8
	// lengthBase is what the length field counts besides the payload.
	lengthBase = headerSize - 4
	// maxHandshake bounds the payload of frames before a connection is admitted.
	maxHandshake = 4 << 10
	// frameSlack is room for everything in a frame that is not entries or chunk bytes.
	frameSlack = 64 << 10
	// eagerRead is how much memory a length field may claim before its bytes arrive.
	eagerRead = 8 << 20
)

type frame struct {
	typ     frameType
	group   uint32
	req     uint64
	payload []byte
}

// beginFrame starts a frame in dst; endFrame fills in its length.
func beginFrame(dst []byte, typ frameType, group uint32, req uint64) []byte {
	dst = append(dst[:0], 0, 0, 0, 0, byte(typ))
	dst = binary.BigEndian.AppendUint32(dst, group)
	return binary.BigEndian.AppendUint64(dst, req)
}

func endFrame(b []byte) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// readHeader reads a frame's fixed part and returns the length of its payload.
func readHeader(r io.Reader, limit int) (frame, int, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, 0, err
	}
	n := int64(binary.BigEndian.Uint32(h[:])) - lengthBase
	if n < 0 {
		return frame{}, 0, fmt.Errorf(
			"%w: frame of %d bytes, want at least %d",
			ErrProtocol,
			n+lengthBase,
			lengthBase,
		)
	}
	if n > int64(limit) {
		return frame{}, 0, fmt.Errorf(
			"%w: %w: payload of %d bytes, the limit is %d",
			ErrProtocol,
			ErrTooLarge,
			n,
			limit,
		)
	}
	f := frame{
		typ:   frameType(h[4]),
		group: binary.BigEndian.Uint32(h[5:]),
		req:   binary.BigEndian.Uint64(h[9:]),
	}
	return f, int(n), nil
}

// readPayload reads n bytes into one fresh buffer, which entries will alias. A
// claim of more than eagerRead bytes gets its memory as the bytes arrive.
func readPayload(r io.Reader, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b := make([]byte, min(n, eagerRead))
	for got := 0; ; {
		m, err := io.ReadFull(r, b[got:])
		got += m
		if err != nil {
			return nil, unexpected(err)
		}
		if got == n {
			return b, nil
		}
		grown := make([]byte, min(n, 2*got))
		copy(grown, b)
		b = grown
	}
}

func unexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // io.ReadFull returns it bare
		return io.ErrUnexpectedEOF
	}
	return err
}

func readFrame(r *bufio.Reader, limit int) (frame, error) {
	f, n, err := readHeader(r, limit)
	if err != nil {
		return frame{}, err
	}
	f.payload, err = readPayload(r, n)
	return f, err
}

// appendShort appends a string with a one-byte length; callers have checked maxID.
func appendShort[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = append(dst, byte(len(s)))
	return append(dst, s...)
}

// appendLong appends bytes with a four-byte length.
func appendLong(dst, s []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// decoder reads a payload; the first failure sticks. Bytes it returns alias the payload.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n uint64) []byte {
	if d.err != nil {
		return nil
	}
	if n > uint64(len(d.b)) {
		d.err = fmt.Errorf("%w: payload ends %d bytes early", ErrProtocol, n-uint64(len(d.b)))
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) i64() int64 { return int64(d.u64()) }

// flag reads a byte that must be 0 or 1.
func (d *decoder) flag() bool {
	v := d.u8()
	if v > 1 {
		d.fail("flag is %d, want 0 or 1", v)
	}
	return v == 1
}

func (d *decoder) short() []byte { return d.take(uint64(d.u8())) }

// long reads bytes with a four-byte length; none are nil.
func (d *decoder) long() []byte {
	if b := d.take(uint64(d.u32())); len(b) > 0 {
		return b
	}
	return nil
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrProtocol}, args...)...)
	}
}

// end returns the first failure, or one for bytes that are left over.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes after the end", len(d.b))
	}
	return d.err
}
