package jsapi

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// block builds a header block from its lines.
func block(lines ...string) []byte {
	return []byte("NATS/1.0" + strings.Join(append([]string{""}, append(lines, "", "")...), "\r\n"))
}

func TestHeaderGet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, key string
		hdr       []byte
		want      string
		missing   bool
	}{
		{name: "plain", hdr: block("Nats-Msg-Id: x"), key: HdrMsgID, want: "x"},
		{name: "last", hdr: block("A: b", "Nats-Msg-Id: x"), key: HdrMsgID, want: "x"},
		{name: "no blank", hdr: block("Nats-Msg-Id:x"), key: HdrMsgID, want: "x"},
		{name: "many blanks", hdr: block("Nats-Msg-Id:   x  "), key: HdrMsgID, want: "x  "},
		{name: "tab is value", hdr: block("Nats-Msg-Id:\tx"), key: HdrMsgID, want: "\tx"},
		{name: "empty", hdr: block("Nats-Msg-Id:"), key: HdrMsgID},
		{name: "empty with blank", hdr: block("Nats-Msg-Id: "), key: HdrMsgID},
		{name: "first of two", hdr: block("Nats-Msg-Id: x", "Nats-Msg-Id: y"), key: HdrMsgID, want: "x"},
		{name: "another key ends so", hdr: block("Orig-Nats-Msg-Id: x"), key: HdrMsgID, missing: true},
		{
			name: "that and the key", hdr: block("Orig-Nats-Msg-Id: x", "Nats-Msg-Id: y"),
			key: HdrMsgID, want: "y",
		},
		{
			name: "another key starts so", hdr: block("Nats-Msg-Id-2: x", "Nats-Msg-Id: y"),
			key: HdrMsgID, want: "y",
		},
		{name: "in a value", hdr: block("X: Nats-TTL: 5"), key: HdrTTL, missing: true},
		{name: "in a value after LF", hdr: block("X: a\nNats-TTL: 5"), key: HdrTTL, missing: true},
		{name: "in a value after CR", hdr: block("X: a\rNats-TTL: 5"), key: HdrTTL, missing: true},
		{name: "LF in the value", hdr: block("Nats-Msg-Id: a\nb"), key: HdrMsgID, want: "a\nb"},
		{name: "case counts", hdr: block("nats-msg-id: x"), key: HdrMsgID, missing: true},
		{name: "blank before colon", hdr: block("Nats-Msg-Id : x"), key: HdrMsgID, missing: true},
		{name: "colon in the value", hdr: block("Nats-Msg-Id: a:b"), key: HdrMsgID, want: "a:b"},
		{name: "status line", hdr: []byte("NATS/1.0 503\r\nA: b\r\n\r\n"), key: "A", want: "b"},
		{name: "first line is no header", hdr: []byte("A: b\r\n\r\n"), key: "A", missing: true},
		{name: "cut off", hdr: []byte("NATS/1.0\r\nA: b"), key: "A", want: "b"},
		{name: "only the key", hdr: []byte("NATS/1.0\r\nA"), key: "A", missing: true},
		{name: "no block", key: "A", missing: true},
		{name: "no key", hdr: block(": x"), key: "", missing: true},
	} {
		got, ok := HeaderGet(tc.hdr, tc.key)
		if ok == tc.missing || string(got) != tc.want {
			t.Errorf("%s: %q, %v", tc.name, got, ok)
		}
	}
}

func TestHeaderRemove(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		hdr  []byte
		want []byte
	}{
		{name: "absent", hdr: block("A: b"), want: block("A: b")},
		{name: "only one", hdr: block("X: b")},
		{name: "first", hdr: block("X: b", "A: c"), want: block("A: c")},
		{name: "middle", hdr: block("B: c", "X: b", "A: c"), want: block("B: c", "A: c")},
		{name: "last", hdr: block("A: c", "X: b"), want: block("A: c")},
		{name: "all", hdr: block("X: b", "A: c", "X:"), want: block("A: c")},
		{name: "others", hdr: block("OX: b", "X2: c", "x: d"), want: block("OX: b", "X2: c", "x: d")},
		{name: "without end", hdr: []byte("NATS/1.0\r\nX: b"), want: []byte("NATS/1.0\r\nX: b")},
		{name: "none", hdr: nil},
	} {
		before := bytes.Clone(tc.hdr)
		if diff := cmp.Diff(string(tc.want), string(HeaderRemove(tc.hdr, "X"))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if !bytes.Equal(before, tc.hdr) {
			t.Errorf("%s: the block was written to", tc.name)
		}
	}
	hdr := block("Nats-Expected-Stream: S", "A: b", "Nats-Expected-Last-Sequence: 1")
	got := HeaderRemovePrefix(hdr, "Nats-Expected-")
	if diff := cmp.Diff(string(block("A: b")), string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestHeaderSet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		hdr  []byte
		want []byte
	}{
		{name: "none", want: block("X: new")},
		{name: "empty block", hdr: block(), want: block("X: new")},
		{name: "added", hdr: block("A: b"), want: block("A: b", "X: new")},
		{
			name: "replaced", hdr: block("A: b", "X: a longer old value", "C: d"),
			want: block("A: b", "X: new", "C: d"),
		},
		{name: "grown", hdr: block("X:", "C: d"), want: block("X: new", "C: d")},
		{name: "first of two", hdr: block("X: 1", "X: 2"), want: block("X: new", "X: 2")},
	} {
		before := bytes.Clone(tc.hdr)
		if diff := cmp.Diff(string(tc.want), string(HeaderSet(tc.hdr, "X", "new"))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if !bytes.Equal(before, tc.hdr) {
			t.Errorf("%s: the block was written to", tc.name)
		}
	}
}

func TestHeaderBuild(t *testing.T) {
	t.Parallel()
	b := BeginHeader([]byte("x"), block("A: b"))
	b = AppendHeader(b, HdrStream, "S")
	b = EndHeader(AppendHeaderUint(b, HdrSequence, 1<<64-1))
	want := "x" + string(block("A: b", "Nats-Stream: S", "Nats-Sequence: 18446744073709551615"))
	if string(b) != want {
		t.Errorf("%q", b)
	}
	if !ValidHeader(b[1:]) || ValidHeader(b) || ValidHeader(b[1:len(b)-2]) || ValidHeader(nil) {
		t.Error("ValidHeader")
	}
}

// TestBeginHeaderOfUnendedBlock: a block whose end a client left out loses nothing when a line is added.
func TestBeginHeaderOfUnendedBlock(t *testing.T) {
	t.Parallel()
	for hdr, want := range map[string]string{
		"":                         "NATS/1.0\r\nX: y\r\n\r\n",
		"NATS/1.0\r\n\r\n":         "NATS/1.0\r\nX: y\r\n\r\n",
		"NATS/1.0\r\n":             "NATS/1.0\r\nX: y\r\n\r\n",
		"NATS/1.0":                 "NATS/1.0\r\nX: y\r\n\r\n",
		"NATS/1.0\r\nA: b\r\n\r\n": "NATS/1.0\r\nA: b\r\nX: y\r\n\r\n",
		"NATS/1.0\r\nA: b\r\n":     "NATS/1.0\r\nA: b\r\nX: y\r\n\r\n",
		"NATS/1.0\r\nA: b":         "NATS/1.0\r\nA: b\r\nX: y\r\n\r\n",
		"NATS/1.0\r\nA: b\r":       "NATS/1.0\r\nA: b\r\r\nX: y\r\n\r\n",
	} {
		got := EndHeader(AppendHeader(BeginHeader(nil, []byte(hdr)), "X", "y"))
		if string(got) != want || OpenHeaderLen([]byte(hdr)) != len(want)-len("X: y\r\n\r\n") {
			t.Errorf("%q becomes %q, want %q; open it has %d bytes", hdr, got, want, OpenHeaderLen([]byte(hdr)))
		}
	}
}

func TestStripStatus(t *testing.T) {
	t.Parallel()
	for hdr, want := range map[string]string{
		"":                                  "",
		"NATS/1.0\r\nA: b\r\n\r\n":          "NATS/1.0\r\nA: b\r\n\r\n",
		"NATS/1.0 503\r\nA: b\r\n\r\n":      "NATS/1.0\r\nA: b\r\n\r\n",
		"NATS/1.0 503 Text\r\nA: b\r\n\r\n": "NATS/1.0\r\nA: b\r\n\r\n",
		"NATS/1.0 503\r\n\r\n":              "",
		"NATS/1.0\r\n\r\n":                  "NATS/1.0\r\n\r\n",
		"NATS/2.0 503\r\n\r\n":              "NATS/2.0 503\r\n\r\n",
	} {
		if got := string(StripStatus([]byte(hdr))); got != want {
			t.Errorf("StripStatus(%q) = %q", hdr, got)
		}
	}
	for hdr, want := range map[string]string{
		"":                                 "",
		"NATS/1.0\r\nA: b\r\n\r\n":         "",
		"NATS/1.0 503\r\n\r\n":             "503",
		"NATS/1.0 404 No Messages\r\n\r\n": "404 No Messages",
		"NATS/2.0 503\r\n\r\n":             "",
	} {
		if got := HeaderStatus([]byte(hdr)); got != want {
			t.Errorf("HeaderStatus(%q) = %q", hdr, got)
		}
	}
}

func TestPublishHeaders(t *testing.T) {
	t.Parallel()
	var h PublishHeaders
	h.Parse(block("Nats-Msg-Id: m1", "Nats-Expected-Stream: S", "Nats-Expected-Last-Sequence: 7",
		"Nats-Expected-Last-Subject-Sequence: 0", "Nats-Expected-Last-Subject-Sequence-Subject: a.*",
		"Nats-Expected-Last-Msg-Id: m0", "Nats-Rollup: SUB", "Nats-TTL: 5", "Nats-Incr: +3",
		"Nats-Batch-Id: b",
		"Nats-Batch-Sequence: 2", "Nats-Batch-Commit: eob", "Nats-Schedule: @daily",
		"Nats-Schedule-Time-Zone: UTC",
		"Nats-Schedule-TTL: 9", "Nats-Schedule-Rollup: sub", "Nats-Schedule-Target: t",
		"Nats-Schedule-Source: s",
		"Nats-Scheduler: x", "Nats-Schedule-Next: purge", "Nats-Stream-Source: o 1",
		"Nats-Required-Api-Level: 2",
		"Holdfast-Ack: leader", "Nats-Request-Info: {}", "Other: y", "Hold: z", "Nats-Msg-Id: m2"))
	type view struct {
		ID, Stream, Subject, LastID, Rollup, TTL, Incr, Batch, Commit, Ack string
		Schedule, Zone, SchedTTL, SchedRollup, Target, Source, Scheduler   string
		Next, StreamSource, Level                                          string
		Info, Status                                                       bool
	}
	got := view{
		string(h.MsgID), string(h.ExpectedStream), string(h.ExpectedLastSubject), string(h.ExpectedLastMsgID),
		string(h.Rollup), string(h.TTL), string(h.Incr), string(h.BatchID), string(h.BatchCommit),
		string(h.HoldfastAck), string(h.Schedule), string(h.ScheduleTimeZone), string(h.ScheduleTTL),
		string(h.ScheduleRollup), string(h.ScheduleTarget), string(h.ScheduleSource), string(h.Scheduler),
		string(h.ScheduleNext), string(h.StreamSource), string(h.RequiredLevel), h.RequestInfo, h.Status,
	}
	want := view{
		"m1", "S", "a.*", "m0", "SUB", "5", "+3", "b", "eob", "leader", "@daily", "UTC", "9", "sub",
		"t", "s", "x",
		"purge", "o 1", "2", true, false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n, ok := h.ExpectedLastSeq(); n != 7 || !ok {
		t.Errorf("ExpectedLastSeq %d %v", n, ok)
	}
	if n, ok := h.ExpectedLastSubjectSeq(); n != 0 || !ok {
		t.Errorf("ExpectedLastSubjectSeq %d %v", n, ok)
	}
	if n, ok := h.BatchSeq(); n != 2 || !ok {
		t.Errorf("BatchSeq %d %v", n, ok)
	}
	if !h.HasExpectation() || !h.HasSchedule() || !h.NeedsQuorum() {
		t.Error("headers without effect")
	}
	h.Parse([]byte("NATS/1.0 503\r\nNats-Expected-Last-Sequence: x\r\nNats-Batch-Sequence:\r\n\r\n"))
	if n, ok := h.ExpectedLastSeq(); n != math.MaxUint64 || !ok || !h.Status || len(h.MsgID) > 0 {
		t.Errorf("ExpectedLastSeq %d %v, status %v", n, ok, h.Status)
	}
	if n, ok := h.BatchSeq(); n != 0 || ok {
		t.Errorf("BatchSeq %d %v", n, ok)
	}
	h.Parse(nil)
	if h.HasExpectation() || h.HasSchedule() || h.NeedsQuorum() || h.Status {
		t.Errorf("%+v", h)
	}
}

func TestNeedsQuorum(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"Nats-Msg-Id: 1": false, "Nats-TTL: 1": false, "Nats-Schedule: @daily": false,
		"Holdfast-Ack: none":      false,
		"Nats-Expected-Stream: S": true, "Nats-Expected-Last-Sequence: 1": true, "Nats-Rollup: all": true,
		"Nats-Expected-Last-Subject-Sequence: 1": true, "Nats-Expected-Last-Msg-Id: 1": true,
		"Nats-Incr: 1":     true,
		"Nats-Batch-Id: 1": true, "Nats-Expected-Last-Subject-Sequence-Subject: a": true, "Nats-Incr:": false,
	} {
		var h PublishHeaders
		h.Parse(block(line))
		if got := h.NeedsQuorum(); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestRollupKind(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "", "sub": "sub", "SUB": "sub", "all": "all", "All": "all",
	} {
		h := PublishHeaders{Rollup: []byte(value)}
		if got, ok := h.RollupKind(); got != want || !ok {
			t.Errorf("%q: %q %v", value, got, ok)
		}
	}
	for _, value := range []string{"x", "subs", "su", " sub"} {
		h := PublishHeaders{Rollup: []byte(value)}
		if got, ok := h.RollupKind(); ok {
			t.Errorf("%q: %q", value, got)
		}
	}
}

func TestParseTTL(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"": 0, "1": time.Second, "60": time.Minute, "1s": time.Second, "1m30s": 90 * time.Second,
		"1500ms": time.Second, "never": TTLNever, "NEVER": TTLNever, "9223372036": 9223372036 * time.Second,
	} {
		if got, err := ParseTTL([]byte(value)); got != want || err != nil {
			t.Errorf("%q: %v %v", value, got, err)
		}
	}
	for _, value := range []string{
		"0", "0s", "999ms", "-1", "-5s", "x", " 5", "5 ", "1.5", "9223372037", "18446744073709551616",
	} {
		if got, err := ParseTTL([]byte(value)); err == nil || err.ErrCode != CodeMessageTTLInvalid {
			t.Errorf("%q: %v %v", value, got, err)
		}
	}
}

func TestAPILevelSupported(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"": true, "0": true, "5": true, "6": false, "x": false, "-1": true, "+5": true, "+6": false,
		"-":  false,
		"5x": false, "99999999999999999999": false,
	} {
		if got := APILevelSupported([]byte(value), 5); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

func TestHeaderAllocs(t *testing.T) {
	hdr := block("A: b", "Nats-Msg-Id: m1", "Nats-TTL: 60", "Nats-Expected-Last-Sequence: 12",
		"Holdfast-Ack: quorum")
	var h PublishHeaders
	n := testing.AllocsPerRun(100, func() {
		h.Parse(hdr)
		_, ok := HeaderGet(hdr, HdrTTL)
		seq, _ := h.ExpectedLastSeq()
		level, err := ParseAckLevel(h.HoldfastAck)
		ttl, ttlErr := ParseTTL(h.TTL)
		if !ok || seq != 12 || level != LevelQuorum || err != nil || ttl != time.Minute || ttlErr != nil ||
			len(HeaderRemove(hdr, "X")) != len(hdr) || len(StripStatus(hdr)) != len(hdr) {
			t.Fail()
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(block("Nats-Msg-Id: x", "Orig-Nats-Msg-Id: y", "Nats-TTL:5", "Nats-Msg-Id: z"), HdrMsgID)
	f.Add(block("X: Nats-TTL: 5\r"), HdrTTL)
	f.Add([]byte("NATS/1.0 404 No Messages\r\n\r\n"), "A")
	f.Add([]byte("NATS/1.0\r\n\r\r\nNats-Rollup:sub\r\n\r\n"), HdrRollup)
	f.Add([]byte(""), "")
	f.Fuzz(func(t *testing.T, hdr []byte, key string) {
		before := bytes.Clone(hdr)
		value, ok := HeaderGet(hdr, key)
		var h PublishHeaders
		h.Parse(hdr)
		for k, got := range map[string][]byte{HdrMsgID: h.MsgID, HdrTTL: h.TTL, HdrScheduler: h.Scheduler} {
			want, _ := HeaderGet(hdr, k)
			if !bytes.Equal(got, want) {
				t.Errorf("%q: Parse reads %q, HeaderGet %q", k, got, want)
			}
		}
		removed := HeaderRemove(hdr, key)
		if key != "" && !strings.ContainsAny(key, ":\r\n") && ValidHeader(hdr) {
			if _, still := HeaderGet(removed, key); still {
				t.Errorf("%q is still in %q", key, removed)
			}
			set := HeaderSet(hdr, key, "new")
			if got, _ := HeaderGet(set, key); string(got) != "new" || !ValidHeader(set) {
				t.Errorf("set to %q in %q", got, set)
			}
		}
		HeaderRemovePrefix(hdr, key)
		HeaderStatus(StripStatus(hdr))
		if !bytes.Equal(before, hdr) {
			t.Errorf("%q became %q", before, hdr)
		}
		if ok && !bytes.Contains(hdr, append([]byte(key+":"), value...)) && len(value) == 0 {
			t.Errorf("%q has no %q", hdr, key)
		}
	})
}

func FuzzParseTTL(f *testing.F) {
	for _, s := range []string{"", "60", "1m30s", "never", "0", "-1", "9223372037"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		ttl, err := ParseTTL(v)
		if err == nil && ttl != TTLNever && ttl != 0 && (ttl < time.Second || ttl%time.Second != 0) {
			t.Errorf("%q is %v", v, ttl)
		}
		APILevelSupported(v, 5)
	})
}
