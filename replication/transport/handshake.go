package transport

import (
	"encoding/binary"
	"fmt"
)

// Protocol is the version of the wire protocol that this package speaks. Both
// sides must speak the same.
const Protocol = 1

// magic opens a handshake, so that a stranger is told apart at once.
const magic = "HFRT"

// connKind says what a connection is for.
type connKind uint8

const (
	kindControl  connKind = 1 // everything but snapshots; the newest of a peer replaces the one before
	kindSnapshot connKind = 2 // one install; the newest of a peer and group replaces the one before
)

// handshake is the first frame of a connection, from its dialer.
type handshake struct {
	version uint16
	kind    connKind
	cluster string
	from    string
	to      string
	// boot and dial order a node's connections: a random number of its process and a
	// counter, so that a late one does not replace a newer one.
	boot, dial uint64
}

// welcome is the answer; a refusal has a reason.
type welcome struct {
	version uint16
	cluster string
	node    string
	boot    uint64 // of the acceptor's process
	twin    string // where another process of the dialer's node id is heard, if it is refused for that
	refusal string
}

func appendHandshake(dst []byte, h handshake) []byte {
	dst = append(dst, magic...)
	dst = binary.BigEndian.AppendUint16(dst, h.version)
	dst = append(dst, byte(h.kind))
	dst = appendShort(dst, h.cluster)
	dst = appendShort(dst, h.from)
	dst = appendShort(dst, h.to)
	dst = binary.BigEndian.AppendUint64(dst, h.boot)
	return binary.BigEndian.AppendUint64(dst, h.dial)
}

func parseHandshake(b []byte) (handshake, error) {
	d := decoder{b: b}
	if string(d.take(uint64(len(magic)))) != magic {
		return handshake{}, fmt.Errorf(
			"%w: not a peer: want a handshake that starts with %q",
			ErrProtocol,
			magic,
		)
	}
	h := handshake{version: d.u16()}
	if d.err == nil && h.version != Protocol {
		return h, fmt.Errorf("%w: peer speaks version %d, this node %d", ErrProtocol, h.version, Protocol)
	}
	h.kind = connKind(d.u8())
	h.cluster, h.from, h.to = string(d.short()), string(d.short()), string(d.short())
	h.boot, h.dial = d.u64(), d.u64()
	if d.err == nil && h.kind != kindControl && h.kind != kindSnapshot {
		d.fail("connection of kind %d, want %d or %d", h.kind, kindControl, kindSnapshot)
	}
	if err := d.end(); err != nil {
		return handshake{}, err
	}
	if err := checkNodeID(h.from); err != nil {
		return handshake{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return h, nil
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func appendWelcome(dst []byte, w welcome) []byte {
	dst = append(dst, magic...)
	dst = binary.BigEndian.AppendUint16(dst, w.version)
	dst = appendShort(dst, w.cluster)
	dst = appendShort(dst, w.node)
	dst = binary.BigEndian.AppendUint64(dst, w.boot)
	dst = appendShort(dst, cut(w.twin, maxID))
	return appendShort(dst, cut(w.refusal, maxID))
}

func parseWelcome(b []byte) (welcome, error) {
	d := decoder{b: b}
	if string(d.take(uint64(len(magic)))) != magic {
		return welcome{}, fmt.Errorf("%w: not a peer: want an answer that starts with %q", ErrProtocol, magic)
	}
	w := welcome{
		version: d.u16(),
		cluster: string(d.short()),
		node:    string(d.short()),
		boot:    d.u64(),
		twin:    string(d.short()),
		refusal: string(d.short()),
	}
	return w, d.end()
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

// checkIdentity says why the other side is not whom this node talks to, if so.
// A side that does not know its cluster yet is accepted for that one connection;
// conn.provisional makes it end when this side learns its own.
func checkIdentity(ownCluster, theirCluster, meant, got string) error {
	if ownCluster != "" && theirCluster != "" && ownCluster != theirCluster {
		return fmt.Errorf("%w: other side is of cluster %q, this node of %q",
			ErrOtherCluster, theirCluster, ownCluster)
	}
	if meant != got {
		return fmt.Errorf("node %q answers where %q was meant", got, meant)
	}
	return nil
}
