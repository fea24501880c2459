package link

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

var elementOpt = cmp.AllowUnexported(element{})

// parseAll returns the elements up to the first error.
func parseAll(r io.Reader) ([]element, error) {
	p := newParser(r)
	var out []element
	for {
		e, err := p.next()
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

func TestParser(t *testing.T) {
	t.Parallel()
	const stream = "INFO {\"server_name\":\"n1\",\"max_payload\":1048576,\"headers\":true}\r\n" +
		"LS+ foo.bar\r\nLS+ foo.* q 3\r\nLS- foo.bar\r\nLS- foo.* q\r\nLS+  spaced\tqueue  2 \r\n" +
		"PING\r\nPONG\n+OK\r\n-ERR 'Authorization Violation'\r\n" +
		"LMSG a 5\r\nPING\r\r\nHMSG a + r q 12 13\r\nNATS/1.0\r\n\r\nx\r\nLMSG a | q 0\r\n\r\nPONG\r\n"
	want := []element{
		{op: opInfo, info: info{ServerName: "n1", MaxPayload: 1 << 20, Headers: true}},
		{op: opSub, subject: "foo.bar", weight: 1},
		{op: opSub, subject: "foo.*", queue: "q", weight: 3},
		{op: opUnsub, subject: "foo.bar", weight: 1},
		{op: opUnsub, subject: "foo.*", queue: "q", weight: 1},
		{op: opSub, subject: "spaced", queue: "queue", weight: 2},
		{op: opPing},
		{op: opPong},
		{op: opOK},
		{op: opErr, text: "'Authorization Violation'"},
		{op: opMsg},
		{op: opMsg},
		{op: opMsg},
		{op: opPong},
	}
	for _, r := range []io.Reader{
		strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream)),
	} {
		got, err := parseAll(r)
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if d := cmp.Diff(want, got, elementOpt); d != "" {
			t.Error(d)
		}
	}
}

func TestParserRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"MSG a 1 0\r\n":                  `unknown operation "MSG"`,
		"ping\r\n":                       `unknown operation "ping"`,
		"\r\n":                           `unknown operation ""`,
		"LS+\r\n":                        "LS+ with 0 arguments",
		"LS+ a q\r\n":                    "LS+ with 2 arguments",
		"LS+ a q 1 2\r\n":                "LS+ with 4 arguments",
		"LS+ a q x\r\n":                  `LS+: weight "x"`,
		"LS+ a q 0\r\n":                  `LS+: weight "0"`,
		"LS- a q 1\r\n":                  "LS- with 3 arguments",
		"INFO {\r\n":                     "INFO: unexpected end of JSON input",
		"INFO {\"max_payload\":\"1\"}\n": "INFO: json: cannot unmarshal string into Go struct field",
		"LMSG a\r\n":                     `message of size "a"`,
		"LMSG a -1\r\n":                  `message of size "-1"`,
		"LMSG a 67108865\r\n":            `message of size "67108865"`,
		"LMSG\r\n":                       `message of size ""`,
		"LMSG a 1\r\nxyz":                "message of 1 bytes does not end there",
		strings.Repeat("x", readBuffer):  "line longer than 65536 bytes",
	} {
		_, err := parseAll(strings.NewReader(in))
		if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", in, err, want)
		}
	}
	for _, in := range []string{"", "PIN", "LMSG a 3\r\nx", "LMSG a 1\r\nx", "INFO {}"} {
		_, err := parseAll(strings.NewReader(in))
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestParserLimits(t *testing.T) {
	t.Parallel()
	// A line that just fits the buffer, and one byte more.
	line := func(n int) string { return "LS+ " + strings.Repeat("x", n-len("LS+ \r\n")) + "\r\n" }
	if got, err := parseAll(strings.NewReader(line(readBuffer))); len(got) != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("longest line: %d elements, %v", len(got), err)
	}
	if _, err := parseAll(strings.NewReader(line(readBuffer + 1))); !errors.Is(err, ErrProtocol) {
		t.Errorf("longer line: %v", err)
	}
	// INFO may be longer.
	infoLine := func(n int) string {
		empty := "INFO {\"server_name\":\"\"}\r\n"
		return "INFO {\"server_name\":\"" + strings.Repeat("n", n-len(empty)) + "\"}\r\n"
	}
	got, err := parseAll(strings.NewReader(infoLine(maxInfo) + "PING\r\n"))
	if len(got) != 2 || got[0].op != opInfo || got[1].op != opPing || !errors.Is(err, io.EOF) {
		t.Errorf("longest INFO: %d elements, %v", len(got), err)
	}
	if _, err := parseAll(strings.NewReader(infoLine(maxInfo + 1))); !errors.Is(err, ErrProtocol) {
		t.Errorf("longer INFO: %v", err)
	}
	// The text of an error is cut.
	got, _ = parseAll(strings.NewReader("-ERR " + strings.Repeat("e", maxErrText+1) + "\r\n"))
	if len(got) != 1 || len(got[0].text) != maxErrText {
		t.Errorf("-ERR: %d bytes kept", len(got[0].text))
	}
	// The largest message is skipped.
	big := io.MultiReader(strings.NewReader(fmt.Sprintf("LMSG a %d\r\n", maxSkip)),
		io.LimitReader(zeros{}, maxSkip), strings.NewReader("\r\nPING\r\n"))
	if got, err := parseAll(big); len(got) != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("largest message: %d elements, %v", len(got), err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestHello(t *testing.T) {
	t.Parallel()
	b, err := hello(Config{Name: "n", User: "u\"", Password: "p>"})
	if err != nil {
		t.Fatal(err)
	}
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	if string(rest) != "PING\r\n" {
		t.Errorf("after CONNECT: %q", rest)
	}
	var got map[string]any
	if err := json.Unmarshal(bytes.TrimPrefix(line, []byte("CONNECT ")), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"version": claimedVersion, "server_id": "n", "name": "n", "headers": true, "protocol": 1.0,
		"user": "u\"", "pass": "p>",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func FuzzParser(f *testing.F) {
	for _, s := range []string{
		"INFO {\"server_id\":\"NA\",\"max_payload\":1048576,\"headers\":true}\r\nPING\r\n",
		"LS+ _INBOX.abc.*\r\nLS+ work.> q 12\r\nLS- work.> q\r\n",
		"LMSG a b 3\r\nabc\r\nHMSG a | q 12 12\r\nNATS/1.0\r\n\r\n\r\n", "-ERR 'x'\r\n+OK\r\nPONG\r\n",
		"LS+ $LDS.x\r\n", "LMSG a 99999999999\r\n", "INFO [1]\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseAll(bytes.NewReader(b))
		if err == nil {
			t.Fatal("no error at the end")
		}
		slow, slowErr := parseAll(iotest.OneByteReader(bytes.NewReader(b)))
		if d := cmp.Diff(got, slow, elementOpt); d != "" || err.Error() != slowErr.Error() {
			t.Fatalf("%s\n%v\n%v", d, err, slowErr)
		}
		for _, e := range got {
			if (e.op == opSub || e.op == opUnsub) && (!isSubject(e.subject) || e.weight < 1) {
				t.Fatalf("%+v", e)
			}
		}
	})
}

// isSubject reports whether s is something a table can hold.
func isSubject(s string) bool { return s != "" && !strings.ContainsAny(s, " \t\n") }
