package main

import (
	"bytes"
	"compress/flate"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

func TestStamp(t *testing.T) {
	t.Parallel()
	want := stamp{run: 1<<32 - 1, number: 7, at: 1 << 40}
	data := make([]byte, stampSize)
	want.put(data)
	if got, ok := readStamp(data); !ok || got != want {
		t.Errorf("got %+v, %t; want %+v", got, ok, want)
	}
	if _, ok := readStamp(data[:stampSize-1]); ok {
		t.Error("read a stamp from too few bytes")
	}
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	packed := func(kind string, size int) int {
		f := newFiller(&Config{Size: size, Payload: kind})
		var out bytes.Buffer
		w, err := flate.NewWriter(&out, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 100 {
			s := stamp{run: 1, number: uint32(n)}
			data := f.payload(s)
			if got, ok := readStamp(data); len(data) != size || !ok || got != s {
				t.Fatalf("payload of %d bytes with %+v; want %d and %+v", len(data), got, size, s)
			}
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Len()
	}
	for _, size := range []int{1 << 10, 1 << 16} {
		if n := packed("random", size); n < 95*size {
			t.Errorf("random payloads of %d bytes shrink to %d", 100*size, n)
		}
		if n := packed("compressible", size); n > 10*size {
			t.Errorf("compressible payloads of %d bytes shrink to %d only", 100*size, n)
		}
	}
	packed("random", minSize)
}

func TestNumberSet(t *testing.T) {
	t.Parallel()
	a, b := newNumberSet(130), newNumberSet(130)
	for _, n := range []uint32{0, 63, 64, 129} {
		if !a.add(n) {
			t.Errorf("%d is not new", n)
		}
	}
	if a.add(64) || a.add(130) || a.add(1<<32-1) {
		t.Error("a number again, or past the end, is new")
	}
	b.add(63)
	b.add(1)
	if a.len() != 4 || b.len() != 2 || a.missingIn(b) != 3 || b.missingIn(a) != 1 {
		t.Errorf("len %d, %d; missing %d, %d; want 4, 2; 3, 1",
			a.len(), b.len(), a.missingIn(b), b.missingIn(a))
	}
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	tl := newTally(&Config{Msgs: 1}, 1)
	if diff := cmp.Diff([]time.Duration{0, 0}, tl.percentiles(0.5, 1)); diff != "" {
		t.Error(diff)
	}
	for i := range 101 {
		tl.observe(time.Duration(100 - i))
	}
	if diff := cmp.Diff([]time.Duration{50, 99, 100}, tl.percentiles(0.5, 0.99, 1)); diff != "" {
		t.Error(diff)
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	const tail = " S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 8 0 1"
	for _, name := range []string{"(nats)", "(a b) c)", "(()"} {
		if got, err := parseStat([]byte("42 " + name + tail)); err != nil || got != 3*time.Second {
			t.Errorf("%s: %v, %v; want 3 s", name, got, err)
		}
	}
	const noNumber = "42 (nats) S 1 2 3 4 5 6 7 8 9 10 x 50 0"
	for _, bad := range []string{"", "42 nats", "42 (nats) S 1 2", noNumber} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if _, err := processCPU([]int{os.Getpid()}); err != nil {
		t.Error(err)
	}
	if _, err := processCPU([]int{os.Getpid(), 1 << 30}); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "process 1073741824") {
		t.Errorf("no such process: %v", err)
	}
}

func TestReadPubAck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		data, status string
		want         string // "" if it is a PubAck
	}{
		{data: `{"stream":"S","seq":1}`},
		{data: `{"type":"x","stream":"S","seq":0}`},
		{data: `{"error":{"code":503,"err_code":10008,"description":"no"},"stream":"S","seq":0}`, want: "no"},
		{data: `{}`, want: "no PubAck"},
		{data: `x`, want: "no PubAck"},
		{status: "503", want: "status 503"},
	}
	for _, tt := range tests {
		m := &nats.Msg{Data: []byte(tt.data), Header: nats.Header{"Status": []string{tt.status}}}
		err := readPubAck(m)
		if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q: %v; want %q", tt.data, err, tt.want)
		}
	}
}
