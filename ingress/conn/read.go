package conn

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"
)

// MaxLine is the longest protocol line that is read, in bytes.
const MaxLine = 64 << 10

// MaxMessage is the largest message that is read, in bytes: nats-server's own
// ceiling for max_payload.
const MaxMessage = 64 << 20

var errProtocol = errors.New("protocol error")

// readLine returns the next line without its end. The result is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("%w: line longer than %d bytes", errProtocol, MaxLine)
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// split cuts a line into its operation and the rest.
func split(line []byte) (op, args []byte) {
	op, args, _ = bytes.Cut(line, []byte{' '})
	return op, bytes.TrimSpace(args)
}

// read handles what the server sends until the connection ends.
func (c *Conn) read(r *bufio.Reader) error {
	for {
		line, err := readLine(r)
		if err != nil {
			return err
		}
		switch op, args := split(line); string(op) {
		case "MSG", "HMSG":
			if err := c.message(r, len(op) == len("HMSG"), args); err != nil {
				return err
			}
		case "PING":
			_ = c.queue(func(out []byte) []byte { return append(out, "PONG\r\n"...) })
		case "PONG":
			c.pong()
		case "INFO":
			if err := c.info(args); err != nil {
				return err
			}
		case "-ERR":
			c.cfg.Logger.Warn("server reports", zap.String("name", c.cfg.Name), zap.ByteString("error", args))
		case "+OK", "":
		default:
			return fmt.Errorf("%w: unknown operation %.40q", errProtocol, line)
		}
	}
}

func (c *Conn) pong() {
	c.mu.Lock()
	var p func(error)
	if len(c.st.pongs) > 0 {
		p, c.st.pongs = c.st.pongs[0], c.st.pongs[1:]
	}
	c.mu.Unlock()
	if p != nil {
		p(nil)
	}
}

// msgArgs is the head of a message.
type msgArgs struct {
	subject, reply string
	sid            uint64
	header, total  int
}

// parseArgs reads "<subject> <sid> [reply] [header length] <length>".
//
//nolint:revive // headers is what the operation is, not a choice.
func parseArgs(args []byte, headers bool) (m msgArgs, err error) {
	var f [5][]byte
	n := 0
	for rest := args; len(rest) > 0; {
		var tok []byte
		tok, rest, _ = bytes.Cut(rest, []byte{' '})
		rest = bytes.TrimLeft(rest, " ")
		if n == len(f) {
			return m, fmt.Errorf("%w: message head %.80q", errProtocol, args)
		}
		f[n] = tok
		n++
	}
	sizes := 1
	if headers {
		sizes = 2
	}
	if n != 2+sizes && n != 3+sizes {
		return m, fmt.Errorf("%w: message head %.80q", errProtocol, args)
	}
	sid, ok := number(f[1])
	m.subject, m.sid = string(f[0]), uint64(sid)
	if n == 3+sizes {
		m.reply = string(f[2])
	}
	var ok2 bool
	m.total, ok2 = number(f[n-1]) //nolint:gosec // n was judged above
	ok3 := true
	if headers {
		m.header, ok3 = number(f[n-2]) //nolint:gosec // n was judged above
	}
	if !ok || !ok2 || !ok3 || m.header > m.total || m.total > MaxMessage {
		return m, fmt.Errorf("%w: message head %.80q", errProtocol, args)
	}
	return m, nil
}

// number parses a decimal of at most 15 digits.
func number(b []byte) (int, bool) {
	if len(b) == 0 || len(b) > 15 {
		return 0, false
	}
	n := 0
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + int(d-'0')
	}
	return n, true
}

func (c *Conn) message(r *bufio.Reader, headers bool, args []byte) error {
	m, err := parseArgs(args, headers)
	if err != nil {
		return err
	}
	body := make([]byte, m.total)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	for _, want := range []byte("\r\n") {
		if b, err := r.ReadByte(); err != nil || b != want {
			return fmt.Errorf("%w: message without its end", errProtocol)
		}
	}
	c.subsMu.RLock()
	s := c.subs[m.sid]
	c.subsMu.RUnlock()
	if s == nil {
		return nil
	}
	var header []byte
	if m.header > 0 {
		header = body[:m.header:m.header]
	}
	s.h(m.subject, m.reply, header, body[m.header:])
	return nil
}
