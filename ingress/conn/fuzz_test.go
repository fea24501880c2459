package conn

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// FuzzParseArgs: what is accepted can be written again and reads the same.
func FuzzParseArgs(f *testing.F) {
	for _, s := range []string{
		"x 1 0", "x 1 reply 5", "$JS.ACK.S.C.1.2.3.4.5 99 _INBOX.a 0", "x 1 12 12", "x 1 r 12 15", "x  1   5",
		"", "x", "x 1", "x a 5", "x 1 -5", "x 1 5 4", "x 1 r q 1 2", "x 1 99999999999999999999",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, headers bool) {
		b = bytes.TrimSpace(b) // as split does
		m, err := parseArgs(b, headers)
		if err != nil {
			return
		}
		if m.header > m.total || m.total > MaxMessage || !headers && m.header != 0 || m.header < 0 {
			t.Fatalf("accepted %q as %+v", b, m)
		}
		line := m.subject + " " + fmt.Sprint(m.sid)
		if m.reply != "" {
			line += " " + m.reply
		}
		if headers {
			line += " " + fmt.Sprint(m.header)
		}
		again, err := parseArgs([]byte(line+" "+fmt.Sprint(m.total)), headers)
		if err != nil || again != m {
			t.Fatalf("%q is %+v, written again %+v, %v", b, m, again, err)
		}
	})
}

// FuzzRead feeds a connection whatever a server may send: it ends with an error,
// and every message handed on lies within what was sent.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		"MSG x 1 2\r\nhi\r\n", "HMSG x 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", "PING\r\nPONG\r\n+OK\r\n",
		"INFO {\"max_payload\":10}\r\n", "-ERR 'x'\r\n", "MSG x 1 r 0\r\n\r\nMSG x 2 0\r\n\r\n", "MSG x 1 5\r\nhi\r\n",
		"HMSG x 1 0 0\r\n\r\n", "\r\n\r\n", "MSG x 1 67108864\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if strings.Contains(string(b), "0000000") {
			return // sizes that only cost memory
		}
		c := &Conn{cfg: Config{Logger: zap.NewNop()}, subs: make(map[uint64]*subscription)}
		c.st.wake = make(chan struct{}, 1)
		c.subs[1] = &subscription{subject: "x", h: func(subject, reply string, header, data []byte) {
			if !bytes.Contains(b, []byte(subject)) || !bytes.Contains(b, []byte(reply)) ||
				!bytes.Contains(b, append(bytes.Clone(header), data...)) {
				t.Fatalf("from %q came %q %q %q %q", b, subject, reply, header, data)
			}
			if header != nil && len(header) == 0 {
				t.Fatal("an empty header is nil")
			}
		}}
		if err := c.read(bufio.NewReaderSize(bytes.NewReader(b), MaxLine)); err == nil {
			t.Fatal("the end of a connection is an error")
		}
	})
}
