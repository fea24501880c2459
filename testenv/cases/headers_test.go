package cases

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
)

// block is a header block of lines as they are.
func block(lines ...string) string {
	return "NATS/1.0\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

// unusual are header blocks that some client sends.
var unusual = map[string]string{
	"no blank after the colon":   block("Key:value"),
	"blanks around the value":    block("Key:   value  "),
	"a key twice":                block("Key: 1", "Other: x", "Key: 2"),
	"keys that differ in case":   block("key: 1", "KEY: 2", "Key: 3"),
	"empty values":               block("Key:", "Other: ", "Third:"),
	"a form feed":                block("Key: a\fb"),
	"bytes above ASCII":          block("Schlüssel: \xff\x80ä"),
	"no colon":                   block("nothing"),
	"a line feed in a value":     block("Key: a\nNats-TTL: 1"),
	"a carriage return in one":   block("Key: a\rNats-TTL: 1"),
	"a name within a name":       block("Orig-Nats-Msg-Id: m", "Nats-Msg-Id-2: m"),
	"a name within a value":      block("Key: Nats-TTL: 1", "Other: Nats-Rollup: all"),
	"the name of a server's":     block("Nats-Stream: X", "Nats-Sequence: 7"),
	"a second block":             block("Key: a") + "Other: b\r\n\r\n",
	"something like a message":   block("Key: a") + "MSG x 1 0\r\n\r\n",
	"no end of the block":        "NATS/1.0\r\nKey: a",
	"one line end too few":       "NATS/1.0\r\nKey: a\r\n",
	"nothing but the first line": "NATS/1.0\r\n\r\n",
}

// A stream gives back header blocks as it got them, whatever is in them
// (https://github.com/nats-io/nats-server/issues/1787, https://github.com/nats-io/nats-server/issues/8103).
func headersComeBack(t *testing.T, e *env) {
	c, wire := e.client(t, 0), e.raw(t, 0)
	s := c.stream(&jetstream.StreamConfig{Name: "BLOCKS", Subjects: []string{"blocks"}})
	c.consumer(s, &jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	c.consumer(s, &jetstream.ConsumerConfig{Durable: "h", AckPolicy: jetstream.AckExplicitPolicy, HeadersOnly: true})
	seq := 0
	for name, header := range unusual {
		seq++
		body := "\r\n" + name + "\r\nMSG x 1 0\r\n"
		want := fmt.Sprintf(`{"stream":"BLOCKS","seq":%d}`, seq)
		if got := wire.request("blocks", header, body).body; got != want {
			t.Fatalf("%s: answered %s, want %s", name, got, want)
		}
		got := wire.request("$JS.API.CONSUMER.MSG.NEXT.BLOCKS.c", "", "")
		got.reply = ""
		if diff := cmp.Diff(rawMsg{"blocks", "", header, body}, got, cmp.AllowUnexported(rawMsg{})); diff != "" {
			t.Errorf("%s: delivered (-want +got):\n%s", name, diff)
		}
		var stored struct {
			Message struct {
				Header string `json:"hdrs"`
				Data   string `json:"data"`
			} `json:"message"`
		}
		answer := wire.request("$JS.API.STREAM.MSG.GET.BLOCKS", "", fmt.Sprintf(`{"seq":%d}`, seq)).body
		if err := json.Unmarshal([]byte(answer), &stored); err != nil {
			t.Fatal(err)
		}
		if stored.Message.Header != base64.StdEncoding.EncodeToString([]byte(header)) ||
			stored.Message.Data != base64.StdEncoding.EncodeToString([]byte(body)) {
			t.Errorf("%s: read as %s", name, answer)
		}
		// Where a header is added, nothing else changes.
		only := wire.request("$JS.API.CONSUMER.MSG.NEXT.BLOCKS.h", "", "")
		want = strings.TrimRight(header, "\r\n") + fmt.Sprintf("\r\nNats-Msg-Size: %d\r\n\r\n", len(body))
		if only.header != want || only.body != "" {
			t.Errorf("%s: without the body %q and %q, want %q", name, only.header, only.body, want)
		}
	}
}

// A header counts by its whole name, from the begin of its line, and by nothing else
// (https://github.com/nats-io/nats-server/issues/3645, https://github.com/nats-io/nats-server/issues/6505).
func exactNamesOnly(t *testing.T, e *env) {
	c, wire := e.client(t, 0), e.raw(t, 0)
	c.stream(&jetstream.StreamConfig{Name: "NAMES", Subjects: []string{"names"}, Duplicates: soon * 10})
	seq := uint64(0)
	publish := func(header string) (known uint64) {
		t.Helper()
		var ack struct {
			Seq       uint64
			Duplicate bool
			Error     any
		}
		answer := wire.request("names", header, "").body
		if err := json.Unmarshal([]byte(answer), &ack); err != nil || ack.Error != nil {
			t.Fatalf("%q: answered %s, %v", header, answer, err)
		}
		if ack.Duplicate {
			return ack.Seq
		}
		seq++
		if ack.Seq != seq {
			t.Fatalf("%q: stored as %d, want %d", header, ack.Seq, seq)
		}
		return 0
	}
	for _, line := range []string{
		"Orig-Nats-Msg-Id: m", "Nats-Msg-Id-2: m", "Key: Nats-Msg-Id: m", "nats-msg-id: m", "NATS-MSG-ID: m",
		"Key: a\nNats-Msg-Id: m", "Key: a\rNats-Msg-Id: m", "Nats-Msg-Id:", "Nats-Msg-Id : m", " Nats-Msg-Id: m",
		"Key: Nats-TTL: 1", "Orig-Nats-TTL: 1", "Key: Nats-Rollup: all", "nats-expected-last-sequence: 99",
		"Key: Nats-Expected-Stream: OTHER", "Orig-Nats-Expected-Stream: OTHER",
	} {
		for range 2 {
			if known := publish(block(line)); known != 0 {
				t.Errorf("%q is taken for an id: that of %d", line, known)
			}
		}
	}
	for _, tc := range []struct {
		first, again string
		same         bool
	}{
		{"Nats-Msg-Id:a", "Nats-Msg-Id: a", true},
		{"Nats-Msg-Id: b\f", "Nats-Msg-Id: b", false},
		{"Nats-Msg-Id: c\r\nNats-Msg-Id: d", "Nats-Msg-Id: c", true},
		{"Nats-Msg-Id: e\r\nNats-Msg-Id: f", "Nats-Msg-Id: f", false},
		{"Key: x\r\nOrig-Nats-Msg-Id: g\r\nNats-Msg-Id: h", "Nats-Msg-Id: h", true},
		{"Key: x\r\nOrig-Nats-Msg-Id: i\r\nNats-Msg-Id: j", "Nats-Msg-Id: i", false},
	} {
		if known := publish(block(tc.first)); known != 0 {
			t.Errorf("%q is that of %d", tc.first, known)
		}
		first := seq
		if known := publish(block(tc.again)); known != 0 != tc.same || tc.same && known != first {
			t.Errorf("%q after %q is that of %d, want it to be the same: %v", tc.again, tc.first, known, tc.same)
		}
	}
}

// What a client puts into a header, an id or a reason cannot become a line of the protocol, nor break an answer.
func headersCannotInject(t *testing.T, e *env) {
	c, wire := e.client(t, 0), e.raw(t, 0)
	s := c.stream(&jetstream.StreamConfig{
		Name: "INJECT", Subjects: []string{"inject"}, Retention: jetstream.WorkQueuePolicy,
	})
	c.consumer(s, &jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	evil, err := c.nc.SubscribeSync("evil.>")
	if err != nil {
		t.Fatal(err)
	}
	advisories, err := c.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.INJECT.c")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.nc.FlushWithContext(bounded(t)); err != nil {
		t.Fatal(err)
	}
	const line = "\r\nPUB evil.x 0\r\n\r\n"
	id := `a"b\` + "\x01" + line
	first := wire.request("inject", block(`Nats-Msg-Id: a"b\`+"\x01", "Key: "+id), "")
	if first.body != `{"stream":"INJECT","seq":1}` {
		t.Fatalf("answered %q", first.body)
	}
	refused := wire.request("inject", block("Nats-Expected-Last-Msg-Id: "+"x"+line), "")
	var answer struct {
		Error struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(refused.body), &answer); err != nil ||
		answer.Error.Description != `wrong last msg ID: a"b\`+"\x01" {
		t.Errorf("refused with %q, %v", refused.body, err)
	}
	got := wire.request("$JS.API.CONSUMER.MSG.NEXT.INJECT.c", "", "")
	if !strings.Contains(got.header, "Key: "+id) {
		t.Errorf("delivered with header %q", got.header)
	}
	wire.request(got.reply, "", "+TERM because"+line)
	m, err := advisories.NextMsgWithContext(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	var advisory struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(m.Data, &advisory); err != nil || !strings.HasPrefix(advisory.Reason, "because") {
		t.Errorf("told %q: %v", m.Data, err)
	}
	wire.publish("evil.end", "", "", "")
	if m, err := evil.NextMsgWithContext(bounded(t)); err != nil || m.Subject != "evil.end" {
		t.Errorf("got %v, %v, want evil.end alone", m, err)
	}
}

// Names and subjects that hold the end of a line are refused wherever they are sent in a body.
func namesWithLineEnds(t *testing.T, e *env) {
	c, wire := e.client(t, 0), e.raw(t, 0)
	s := c.stream(&jetstream.StreamConfig{Name: "ENDS", Subjects: []string{"ends"}})
	c.consumer(s, &jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	c.publish("ends", "")
	evil, err := c.nc.SubscribeSync("evil.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.nc.FlushWithContext(bounded(t)); err != nil {
		t.Fatal(err)
	}
	const line = `\r\nPUB evil.x 0\r\n\r\n`
	for _, tc := range []struct{ subject, body, want string }{
		{"STREAM.CREATE.LINE", `{"name":"LINE` + line + `","subjects":["line"]}`, `"err_code":`},
		{"STREAM.CREATE.LINE", `{"name":"LINE","subjects":["line` + line + `"]}`, `"err_code":10052`},
		{"CONSUMER.CREATE.ENDS", `{"stream_name":"ENDS` + line + `","config":{"ack_policy":"explicit"}}`, `"err_code":`},
		{
			"CONSUMER.CREATE.ENDS.x", `{"stream_name":"ENDS","config":{"name":"x` + line + `","ack_policy":"explicit"}}`,
			`"name":"x",`, // the name is that of the subject
		},
		{
			"CONSUMER.CREATE.ENDS.x",
			`{"stream_name":"ENDS","config":{"name":"x","ack_policy":"explicit","filter_subject":"ends` + line + `"}}`,
			`"err_code":10052`,
		},
		{
			"CONSUMER.CREATE.ENDS.x",
			`{"stream_name":"ENDS","config":{"name":"x","ack_policy":"explicit","deliver_subject":"d` + line + `"}}`,
			`"err_code":`,
		},
		{"STREAM.PURGE.ENDS", `{"filter":"ends` + line + `"}`, `"purged":0`},
		{"STREAM.MSG.GET.ENDS", `{"last_by_subj":"ends` + line + `"}`, `"err_code":10037`},
		{"STREAM.INFO.ENDS", `{"subjects_filter":"ends` + line + `"}`, `"messages":1`},
		{"STREAM.NAMES", `{"subject":"ends` + line + `"}`, `"streams":null`},
	} {
		got := wire.request("$JS.API."+tc.subject, "", tc.body)
		if !json.Valid([]byte(got.body)) || !strings.Contains(got.body, tc.want) {
			t.Errorf("%s %s: answered %q, want %s", tc.subject, tc.body, got.body, tc.want)
		}
	}
	wire.publish("evil.end", "", "", "")
	if m, err := evil.NextMsgWithContext(bounded(t)); err != nil || m.Subject != "evil.end" {
		t.Errorf("got %v, %v, want evil.end alone", m, err)
	}
	c.wantHeld(s, 1)
}
