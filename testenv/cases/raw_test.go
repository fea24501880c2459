package cases

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// raw is a client that sends what it is given, header blocks included, and shows what came, byte for byte.
type raw struct {
	t     *testing.T
	conn  net.Conn
	r     *bufio.Reader
	inbox string
	sent  int
}

// rawMsg is a message as it was on the wire.
type rawMsg struct{ subject, reply, header, body string }

func (e *env) raw(t *testing.T, i int) *raw {
	t.Helper()
	u, err := url.Parse(e.Nodes[i].URL())
	if err != nil {
		t.Fatal(err)
	}
	var d net.Dialer
	conn, err := d.DialContext(bounded(t), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := conn.SetDeadline(time.Now().Add(2 * soon)); err != nil {
		t.Fatal(err)
	}
	c := &raw{t: t, conn: conn, r: bufio.NewReader(conn), inbox: "_INBOX.raw." + strings.Map(token, t.Name())}
	c.write(`CONNECT {"verbose":false,"headers":true,"no_responders":true}` + "\r\nSUB " + c.inbox + ".> 1\r\n")
	return c
}

// token leaves of a name what a subject may hold.
func token(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return '-'
}

func (c *raw) write(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// publish sends a message; header may be any bytes, or empty.
func (c *raw) publish(subject, reply, header, body string) {
	c.t.Helper()
	if header == "" {
		c.write(fmt.Sprintf("PUB %s %s %d\r\n%s\r\n", subject, reply, len(body), body))
		return
	}
	c.write(fmt.Sprintf("HPUB %s %s %d %d\r\n%s%s\r\n", subject, reply, len(header), len(header)+len(body), header, body))
}

// request sends a message and returns the first that comes to its reply subject.
func (c *raw) request(subject, header, body string) rawMsg {
	c.t.Helper()
	c.sent++
	reply := fmt.Sprintf("%s.%d", c.inbox, c.sent)
	c.publish(subject, reply, header, body)
	return c.next()
}

func (c *raw) line() string {
	c.t.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil || !strings.HasSuffix(line, "\r\n") {
		c.t.Fatalf("read %q: %v", line, err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

// next returns the next message.
func (c *raw) next() rawMsg {
	c.t.Helper()
	for {
		line := c.line()
		words := strings.Fields(line)
		switch words[0] {
		case "PING":
			c.write("PONG\r\n")
		case "INFO", "PONG":
		case "MSG":
			size := c.size(words[len(words)-1])
			return c.message(words[1:len(words)-1], 0, size)
		case "HMSG":
			size, header := c.size(words[len(words)-1]), c.size(words[len(words)-2])
			return c.message(words[1:len(words)-2], header, size)
		default:
			c.t.Fatalf("the server said %q", line)
		}
	}
}

func (c *raw) size(word string) int {
	c.t.Helper()
	n, err := strconv.Atoi(word)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// message reads what follows the first line: subject, sid and maybe a reply subject.
func (c *raw) message(words []string, header, size int) rawMsg {
	c.t.Helper()
	b := make([]byte, size+2)
	if _, err := io.ReadFull(c.r, b); err != nil || string(b[size:]) != "\r\n" {
		c.t.Fatalf("%q does not end with its line: %q, %v", words, b, err)
	}
	m := rawMsg{subject: words[0], header: string(b[:header]), body: string(b[header:size])}
	if len(words) > 2 {
		m.reply = words[2]
	}
	return m
}
