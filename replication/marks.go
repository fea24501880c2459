package replication

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-mq/holdfast/replication/marks"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

const (
	// sealedVersion is the version of what is kept with seals; 1 was a clock alone.
	sealedVersion = 2
	sealedFixed   = 1 + 2
	// markEvery is how often, at most, changed marks are handed to the log.
	markEvery = 50 * time.Millisecond
)

// sealed is what a replica keeps with the seals of its log: its clock and the marks.
type sealed struct {
	log *seglog.Log

	mu           sync.Mutex // guards what follows
	clock, marks []byte
}

// splitSealed takes apart what was kept with a seal; doc.go has the form.
func splitSealed(b []byte) (clock, vector []byte, err error) {
	if len(b) == 0 || b[0] != sealedVersion {
		return b, nil, nil // a clock judges its own version
	}
	if len(b) < sealedFixed || len(b) < sealedFixed+int(binary.BigEndian.Uint16(b[1:])) {
		return nil, nil, fmt.Errorf("%w: %d bytes kept with a seal", record.ErrFormat, len(b))
	}
	n := sealedFixed + int(binary.BigEndian.Uint16(b[1:]))
	return b[sealedFixed:n], b[n:], nil
}

func joinSealed(clock, vector []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{sealedVersion}, uint16(len(clock)))
	return append(append(b, clock...), vector...)
}

func (s *sealed) keepClock(clock []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = clock
	return s.log.SetSealPayload(joinSealed(s.clock, s.marks))
}

func (s *sealed) keepMarks(vector []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = vector
	return s.log.SetSealPayload(joinSealed(s.clock, s.marks))
}

// markBook holds the marks that a replica has heard of and made; see package marks.
type markBook struct {
	self string
	kept *sealed

	mu     sync.Mutex // guards what follows
	v      marks.Vector
	form   []byte // of v; nil = not made yet. Never changed, only replaced.
	heard  []byte // what was merged last
	voters []string
	fresh  bool // v is not what was handed to the log
	handed time.Time
}

func newMarkBook(self string, kept *sealed, vector []byte) (*markBook, error) {
	b := &markBook{self: self, kept: kept, v: marks.Vector{}}
	_, _, err := b.v.Merge(vector)
	return b, err
}

// of returns the mark of a replica.
func (b *markBook) of(server string) marks.Mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.v[server]
}

// setVoters forgets the marks of all but the voters and this replica.
func (b *markBook) setVoters(voters []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.voters = slices.Clone(voters)
	if len(voters) == 0 {
		return
	}
	before := len(b.v)
	b.v.Keep(append(slices.Clone(voters), b.self))
	if len(b.v) != before {
		b.form, b.fresh = nil, true
	}
}

// raise makes a mark of a voter.
func (b *markBook) raise(server string, m marks.Mark) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.voters, server) && b.v.Raise(server, m) {
		b.form, b.fresh = nil, true
		b.hand()
	}
}

// merge takes over the marks that another replica has.
func (b *markBook) merge(vector []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(vector) == 0 || bytes.Equal(vector, b.heard) {
		return nil
	}
	same, changed, err := b.v.Merge(vector)
	if err != nil {
		return err
	}
	b.heard = vector
	if changed {
		b.form, b.fresh = nil, true
	}
	if same {
		b.form = vector
	}
	b.hand()
	return nil
}

// vector is the form of all marks, which must not be changed.
func (b *markBook) vector() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.formed()
}

func (b *markBook) formed() []byte {
	if b.form == nil {
		b.form = marks.Append(nil, b.v)
	}
	return b.form
}

// hand gives changed marks to the log, which keeps them with its next seal or batch;
// b.mu is held.
func (b *markBook) hand() {
	if !b.fresh || time.Since(b.handed) < markEvery {
		return
	}
	b.give()
}

func (b *markBook) give() {
	// Marks that are too many to be kept are still in memory, here and elsewhere.
	if b.kept.keepMarks(b.formed()) == nil {
		b.fresh, b.handed = false, time.Now()
	}
}

// tend hands over what changed since, and says whether anything did.
func (b *markBook) tend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fresh {
		return false
	}
	b.give()
	return true
}
