package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// judged makes a demo in which two publishers of each stream had so many messages acked.
func judged(t *testing.T, acked int64) (*demo, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	d := &demo{env: &environment{ctx: t.Context(), stdout: &out}, queue: newTally(), logged: newTally()}
	for i := range 4 {
		p := &publisher{number: i, subject: queueSubject + ".x", withID: i/2 == 0}
		if i%2 == 1 {
			p.subject = logSubject + ".x"
		}
		p.acked.Store(acked)
		d.pubs = append(d.pubs, p)
	}
	return d, &out
}

// results counts as judge does, with all that was read in one tally.
func (d *demo) results(read *tally) []count {
	var out []count
	for _, k := range []struct{ queue, id bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
		out = append(out, d.count(fmt.Sprint(k), read,
			func(p *publisher) bool { return p.onQueue() == k.queue && p.withID == k.id }))
	}
	return out
}

func TestDemoCounts(t *testing.T) {
	t.Parallel()
	whole := func() *tally {
		read := newTally()
		seq := uint64(0)
		for pub := range 4 {
			for n := range 3 {
				seq++
				read.saw(seq, fmt.Appendf(nil, "%d/%d    ", pub, n))
			}
		}
		return read
	}
	for _, tt := range []struct {
		name    string
		acked   int64
		change  func(*tally)
		problem string
		text    string
	}{
		{"all there", 3, func(*tally) {}, "", "12 acked, 12 read back"},
		{
			"delivered again is not stored twice", 3, func(r *tally) { r.saw(1, []byte("0/0 ")) }, "",
			"12 acked",
		},
		{"twice without id", 3, func(r *tally) { r.saw(99, []byte("2/1 ")) }, "", "12 acked"},
		{
			"twice with id", 3, func(r *tally) { r.saw(99, []byte("0/1 ")) },
			"1 messages with a Nats-Msg-Id were stored twice", "",
		},
		{
			"stored without an ack", 3, func(r *tally) { r.saw(99, []byte("0/3 ")) }, "",
			"stored without an ack: 1.",
		},
		{"one lost at the end", 4, func(r *tally) {
			for pub := range 3 {
				r.saw(uint64(100+pub), fmt.Appendf(nil, "%d/3 ", pub))
			}
		}, "1 acked messages are LOST", ""},
		{"lost with a gap", 3, func(r *tally) { r.mu.copies[1][1] = 0 }, "1 acked messages are LOST", ""},
		{
			"a publisher that nobody read", 3, func(r *tally) { delete(r.mu.copies, 3) },
			"3 acked messages are LOST", "",
		},
		{"nothing acked", 0, func(r *tally) { clear(r.mu.copies) }, "nothing was acked", ""},
	} {
		d, out := judged(t, tt.acked)
		read := whole()
		tt.change(read)
		err := d.report(d.results(read))
		switch {
		case tt.problem == "" && err != nil, tt.problem != "" &&
			(err == nil || err.Error() != tt.problem && !strings.HasPrefix(err.Error(), tt.problem)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.problem)
		case !strings.Contains(out.String(), tt.text):
			t.Errorf("%s: %q does not say %q", tt.name, out, tt.text)
		}
	}
}

func TestTally(t *testing.T) {
	t.Parallel()
	r := newTally()
	r.saw(1, []byte("0/0 "))
	r.saw(1, []byte("0/0 "))
	r.settled(1)
	r.saw(1, []byte("0/0 "))
	r.saw(2, []byte("0/5 "))
	if r.mu.again != 2 || r.mu.afterAck != 1 || r.mu.confirmed != 1 || r.distinct() != 2 ||
		len(r.mu.copies[0]) != 6 {
		t.Errorf("again %d, after ack %d, confirmed %d, distinct %d, copies %v", r.mu.again, r.mu.afterAck,
			r.mu.confirmed,
			r.distinct(), r.mu.copies)
	}
	for _, bad := range []string{"", "x/1 ", "1/y ", "1 "} {
		r.mu.alien = nil
		if r.saw(3, []byte(bad)); r.mu.alien == nil {
			t.Errorf("%q was taken for a message of the demo", bad)
		}
	}
}

func TestMessageIdentity(t *testing.T) {
	t.Parallel()
	p := &publisher{number: 63}
	pub, n, err := parseID([]byte(p.id(1 << 40)))
	if pub != 63 || n != 1<<40 || err != nil {
		t.Errorf("%d/%d, %v", pub, n, err)
	}
}
