package main

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

// stampSize is what a message says about itself: run u32, number u32, time u64, big-endian.
const stampSize = 16

// A stamp is the head of a message.
type stamp struct {
	run    uint32
	number uint32
	at     int64 // nanoseconds since the run began
}

// put writes the stamp to the head of data.
func (s stamp) put(data []byte) {
	binary.BigEndian.PutUint32(data[0:], s.run)
	binary.BigEndian.PutUint32(data[4:], s.number)
	binary.BigEndian.PutUint64(data[8:], uint64(s.at))
}

// readStamp reads the head of a message; ok is false if it is too short to have one.
func readStamp(data []byte) (s stamp, ok bool) {
	if len(data) < stampSize {
		return stamp{}, false
	}
	return stamp{
		run:    binary.BigEndian.Uint32(data[0:]),
		number: binary.BigEndian.Uint32(data[4:]),
		at:     int64(binary.BigEndian.Uint64(data[8:])),
	}, true
}

// A filler makes payloads. It may be shared.
type filler struct {
	size int
	pool []byte // at least twice size; payloads are windows of it
}

// fillerPool is large enough that random payloads do not repeat within a storage engine's block.
const fillerPool = 1 << 20

func newFiller(c *Config) *filler {
	f := &filler{size: c.Size}
	if c.Payload == "compressible" {
		f.pool = bytes.Repeat([]byte("x"), 2*c.Size)
		return f
	}
	f.pool = make([]byte, fillerPool+2*c.Size)
	source := rand.NewChaCha8([32]byte{'j', 's', 'b'}) // the same bytes for every server under test
	_, _ = source.Read(f.pool)                         // never fails
	return f
}

// payload returns a new payload with the stamp. Random ones differ from message to message.
func (f *filler) payload(s stamp) []byte {
	const step = 4099 // prime, so that windows do not line up with blocks
	data := make([]byte, f.size)
	copy(data, f.pool[int(s.number)*step%(len(f.pool)-f.size):])
	s.put(data)
	return data
}
