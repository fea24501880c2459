package jsapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

func TestAppendPubAck(t *testing.T) {
	t.Parallel()
	for want, ack := range map[string]PubAck{
		`{"stream":"S","seq":1}`:                                         {Stream: "S", Seq: 1},
		`{"stream":"S","domain":"d","seq":1}`:                            {Stream: "S", Domain: "d", Seq: 1},
		`{"stream":"S","seq":2,"duplicate": true}`:                       {Stream: "S", Seq: 2, Duplicate: true},
		`{"stream":"S","seq":2,"val":"3"}`:                               {Stream: "S", Seq: 2, Value: "3"},
		`{"stream":"S","seq":8,"batch":"uu","count":5}`:                  {Stream: "S", Seq: 8, BatchID: "uu", BatchSize: 5},
		`{"stream":"S","seq":0}`:                                         {Stream: "S"},
		`{"stream":"S\"\u003c","seq":18446744073709551615}`:              {Stream: `S"<`, Seq: 1<<64 - 1},
		`{"stream":"S","seq":3,"duplicate": true,"batch":"b","count":1}`: {Stream: "S", Seq: 3, Duplicate: true, BatchID: "b", BatchSize: 1},
	} {
		if diff := cmp.Diff(want, string(AppendPubAck(nil, &ack))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for want, got := range map[string][]byte{
		`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 2"},"stream":"S","seq":0}`: AppendPubError(
			nil, "S", ErrWrongLastSequence(2)),
		`{"type":"ack","seq":0,"msgs":2}`:     AppendBatchAck(nil, 0, 2),
		`{"type":"gap","last_seq":3,"seq":5}`: AppendBatchGap(nil, 3, 5),
		`{"type":"err","seq":4,"error":{"code":400,"err_code":10165,"description":"invalid per-message TTL"}}`: AppendBatchError(
			nil, 4, NewError(CodeMessageTTLInvalid)),
	} {
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestPubAckAllocs(t *testing.T) {
	buf := make([]byte, 0, 256)
	ack := PubAck{Stream: "ORDERS", Domain: "hub", Seq: 123456, Duplicate: true}
	refused := ErrWrongLastSequence(2)
	n := testing.AllocsPerRun(100, func() {
		buf = AppendPubAck(buf[:0], &ack)
		buf = AppendPubError(buf[:0], "ORDERS", refused)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestOraclePubAck compares the bytes of real answers with ours, and what headers are refused.
func TestOraclePubAck(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	o.createOrigins(
		`{"name":"S","subjects":["s.*"],"allow_msg_ttl":true}`,
		`{"name":"COUNT","subjects":["count.*"],"allow_msg_counter":true}`,
		`{"name":"BATCH","subjects":["batch.*"],"allow_atomic":true}`,
		`{"name":"FULL","subjects":["full.*"],"max_msgs":1,"discard":"new"}`,
	)
	ack := func(a PubAck) []byte { return AppendPubAck(nil, &a) }
	refused := func(stream string, e *Error) []byte { return AppendPubError(nil, stream, e) }
	for i, tc := range []struct {
		subject string
		headers []string // Key, value, …
		body    string
		want    []byte
	}{
		{subject: "s.1", body: "x", want: ack(PubAck{Stream: "S", Seq: 1})},
		{subject: "s.1", headers: []string{HdrMsgID, "m1"}, want: ack(PubAck{Stream: "S", Seq: 2})},
		{
			subject: "s.1", headers: []string{HdrMsgID, "m1"},
			want: ack(PubAck{Stream: "S", Seq: 2, Duplicate: true}),
		},
		{
			subject: "s.1", headers: []string{HdrExpectedLastSeq, "9"},
			want: refused("S", ErrWrongLastSequence(2)),
		},
		{
			subject: "s.1", headers: []string{HdrExpectedLastSeq, "x"},
			want: refused("S", ErrWrongLastSequence(2)),
		},
		{subject: "s.1", headers: []string{HdrExpectedLastSeq, ""}, want: ack(PubAck{Stream: "S", Seq: 3})},
		{
			subject: "s.2", headers: []string{HdrExpectedLastSubjectSeq, "9"},
			want: refused("S", ErrWrongLastSequence(0)),
		},
		{
			subject: "s.1", headers: []string{HdrExpectedLastSubject, "s.1"},
			want: refused("S", NewError(CodeStreamExpectedLastSeqPerSubjectInvalid)),
		},
		{
			subject: "s.1", headers: []string{HdrExpectedLastMsgID, "zz"},
			want: refused("S", ErrWrongLastMsgID("")),
		},
		{
			subject: "s.1", headers: []string{HdrExpectedStream, "Z"},
			want: refused("S", NewError(CodeStreamNotMatch)),
		},
		{
			subject: "s.1", headers: []string{HdrRollup, "sub"},
			want: refused("S", NewError(CodeStreamRollupFailed, "rollup not permitted")),
		},
		{
			subject: "s.1", headers: []string{HdrIncr, "1"},
			want: refused("S", NewError(CodeMessageIncrDisabled)),
		},
		{
			subject: "s.1", headers: []string{HdrStreamSource, "o 1"},
			want: refused("S", NewError(CodeMessageSourceHdrNotAllowed)),
		},
		{
			subject: "count.1", headers: []string{HdrIncr, "+3"},
			want: ack(PubAck{Stream: "COUNT", Seq: 1, Value: "3"}),
		},
		{
			subject: "count.1", headers: []string{HdrIncr, "-1"},
			want: ack(PubAck{Stream: "COUNT", Seq: 2, Value: "2"}),
		},
		{
			subject: "count.1", headers: []string{HdrIncr, "x"},
			want: refused("COUNT", NewError(CodeMessageIncrInvalid)),
		},
		{subject: "count.1", want: refused("COUNT", NewError(CodeMessageIncrMissing))},
		{subject: "batch.1", headers: []string{HdrBatchID, "b", HdrBatchSeq, "1"}, want: []byte{}},
		{
			subject: "batch.1", headers: []string{HdrBatchID, "b", HdrBatchSeq, "2", HdrBatchCommit, "1"},
			want: ack(PubAck{Stream: "BATCH", Seq: 2, BatchID: "b", BatchSize: 2}),
		},
		{
			subject: "batch.1", headers: []string{HdrBatchID, "b"},
			want: refused("BATCH", NewError(CodeAtomicPublishMissingSeq)),
		},
		{subject: "full.1", want: ack(PubAck{Stream: "FULL", Seq: 1})},
		{subject: "full.1", want: refused("FULL", ErrStoreFailed(TextMaxMsgs))},
	} {
		msg := nats.NewMsg(tc.subject)
		msg.Data = []byte(tc.body)
		for j := 0; j < len(tc.headers); j += 2 {
			msg.Header[tc.headers[j]] = []string{tc.headers[j+1]}
		}
		reply, err := o.nc.RequestMsg(msg, 5*time.Second)
		if err != nil {
			t.Fatal(i, err)
		}
		if diff := cmp.Diff(string(reply.Data), string(tc.want)); diff != "" {
			t.Errorf("%d %s %v (-real +ours):\n%s", i, tc.subject, tc.headers, diff)
		}
	}
	// Every TTL that we refuse is refused, and the other way round.
	for _, value := range []string{
		"", "1", "60", "1s", "999ms", "1500ms", "never", "Never", "0", "0s", "-1", "-1s", "x", "5x",
		"1.5", "1e3",
	} {
		msg := nats.NewMsg("s.ttl")
		msg.Header[HdrTTL] = []string{value}
		reply, err := o.nc.RequestMsg(msg, 5*time.Second)
		if err != nil {
			t.Fatal(value, err)
		}
		var resp struct{ Error *Error }
		if err := json.Unmarshal(reply.Data, &resp); err != nil {
			t.Fatal(err)
		}
		_, ours := ParseTTL([]byte(value))
		if diff := cmp.Diff(resp.Error, ours); diff != "" {
			t.Errorf("TTL %q (-real +ours):\n%s", value, diff)
		}
	}
}

func FuzzJSONString(f *testing.F) {
	f.Add("plain")
	f.Add("a\"b\\c\n\r\t\b\f\x00\x1f<>&\u2028\u2029\xff\xe2\x80ä\U0001F600")
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendJSONString(nil, s); !bytes.Equal(got, want) {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
		e := &Error{Code: 400, ErrCode: 10001, Description: s}
		want, err = json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.AppendJSON(nil); !bytes.Equal(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	if len(errorRows) != 227 {
		t.Errorf("%d rows", len(errorRows))
	}
	for i := 1; i < len(errorRows); i++ {
		if errorRows[i-1].errCode >= errorRows[i].errCode {
			t.Errorf("row %d is out of order", i)
		}
	}
	for want, e := range map[string]*Error{
		"404 stream not found (10059)":         NewError(CodeStreamNotFound),
		"400 wrong last sequence: 7 (10071)":   ErrWrongLastSequence(7),
		"400 wrong last msg ID: {x} (10070)":   ErrWrongLastMsgID("{x}"),
		"500 boom (10052)":                     ErrInvalidConfig("boom"),
		"400 pedantic mode: boom (10157)":      ErrPedantic("boom"),
		"503 maximum bytes exceeded (10077)":   ErrStoreFailed(TextMaxBytes),
		"400 invalid JSON: EOF (10025)":        ErrInvalidJSON(fmt.Errorf("EOF")),
		"500 unknown error 9 (9)":              NewError(9),
		"503 retry (10008)":                    WithText(CodeClusterNotAvail, "retry"),
		"400 sequence {seq} not found (10043)": NewError(CodeSequenceNotFound),
		"404 consumer not found (10014)":       NewError(CodeConsumerNotFound, "too", "many"),
		"400 stream external api prefix a must not overlap with {subject} (10021)": NewError(
			CodeStreamExternalAPIOverlap, "a"),
		"400 stream external api prefix {b} must not overlap with c (10021)": NewError(
			CodeStreamExternalAPIOverlap, "{b}", "c"),
	} {
		if got := fmt.Sprintf("%d %v", e.Code, e); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	wrapped := fmt.Errorf("x: %w", NewError(CodeStreamNotFound))
	if !IsCode(wrapped, CodeStreamNotFound) || IsCode(wrapped, CodeBadRequest) || IsCode(nil, CodeBadRequest) {
		t.Error("IsCode")
	}
	if got := AsError(wrapped, CodeStreamCreate); got.ErrCode != CodeStreamNotFound {
		t.Error(got)
	}
	if got := AsError(fmt.Errorf("disk"), CodeStreamCreate); got.Error() != "disk (10049)" {
		t.Error(got)
	}
}

func TestRequestBodies(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		"": true, "{}": true, " {} ": true, "{ }": true, " ": false, "null": false, "[]": false, "x": false,
		`{"a":1}`: false, "{": false,
	} {
		if got := IsEmptyRequest([]byte(body)); got != want {
			t.Errorf("IsEmptyRequest(%q) = %v", body, got)
		}
	}
	var req StreamInfoRequest
	if err := DecodeOptional([]byte("hello"), &req); err != nil {
		t.Error(err)
	}
	if err := DecodeOptional([]byte(` {"offset":3,"subjects_filter":">"}`), &req); err != nil || req.Offset != 3 ||
		req.SubjectsFilter != ">" {
		t.Error(req, err)
	}
	if err := DecodeOptional([]byte(`{"limit":3}`), &req); err == nil ||
		err.Description != `invalid JSON: json: unknown field "limit"` {
		t.Error(err)
	}
	var unpin UnpinRequest
	if err := DecodeLoose([]byte(`{"group":"g","x":1}`), &unpin); err != nil || unpin.Group != "g" {
		t.Error(unpin, err)
	}
	if err := DecodeLoose([]byte(`{`), &unpin); err == nil || err.ErrCode != CodeInvalidJSON {
		t.Error(err)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ total, offset, from, to int }{
		{0, 0, 0, 0},
		{10, 0, 0, 4},
		{10, 4, 4, 8},
		{10, 8, 8, 10},
		{10, 10, 10, 10},
		{10, 99, 10, 10},
		{10, -5, 0, 4},
	} {
		p, from, to := Page(tc.total, tc.offset, 4)
		if p != (Paged{Total: tc.total, Offset: tc.from, Limit: 4}) || from != tc.from || to != tc.to {
			t.Errorf("%+v: %+v %d %d", tc, p, from, to)
		}
	}
}
