package link

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	// readBuffer is the size of the read buffer, and the longest line taken, INFO excepted. A subject
	// cannot be longer than the hub's own max_control_line, 4 KiB by default.
	readBuffer = 64 << 10
	// maxInfo is the longest INFO line taken; it holds permission and URL lists.
	maxInfo = 1 << 20
	// maxSkip is the largest message skipped; nats-server allows max_payload up to 64 MiB and advises 8.
	maxSkip = 64 << 20
	// maxErrText bounds the text kept of an -ERR line.
	maxErrText = 512
)

// claimedVersion is the version of nats-server whose leafnode protocol is spoken; a hub may have a minimum.
const claimedVersion = "2.15.3"

// op is the kind of a protocol element.
type op int

const (
	opInfo op = iota + 1
	opPing
	opPong
	opOK
	opErr
	opSub
	opUnsub
	opMsg // and its payload, skipped
)

// element is one protocol element from the hub.
type element struct {
	op      op
	subject string // opSub, opUnsub
	queue   string // opSub, opUnsub; empty for none
	weight  int    // opSub with queue
	text    string // opErr
	info    info   // opInfo
}

// info is what matters of an INFO line.
type info struct {
	ServerName string `json:"server_name"`
	MaxPayload int    `json:"max_payload"`
	Headers    bool   `json:"headers"`
}

// connect is the CONNECT line's content.
type connect struct {
	Version  string `json:"version"`
	ServerID string `json:"server_id"`
	Name     string `json:"name"`
	Headers  bool   `json:"headers"`
	Protocol int    `json:"protocol"`
	User     string `json:"user,omitempty"`
	Password string `json:"pass,omitempty"`
}

// hello is the line that introduces the link, with a PING whose PONG says that it is accepted and that the
// whole interest table has been sent.
func hello(c Config) ([]byte, error) {
	j, err := json.Marshal(connect{ //nolint:gosec // the hub is who the password is for
		Version: claimedVersion, ServerID: c.Name, Name: c.Name, Headers: true, Protocol: 1,
		User: c.User, Password: c.Password,
	})
	if err != nil {
		return nil, fmt.Errorf("link: CONNECT: %w", err)
	}
	return fmt.Appendf(nil, "CONNECT %s\r\nPING\r\n", j), nil
}

// parser reads protocol elements. Whatever comes, it holds at most readBuffer and maxInfo bytes.
type parser struct{ r *bufio.Reader }

func newParser(r io.Reader) *parser { return &parser{r: bufio.NewReaderSize(r, readBuffer)} }

// next returns the next element. An error of the reader comes as it is, anything else is ErrProtocol.
func (p *parser) next() (element, error) {
	line, err := p.line()
	if err != nil {
		return element{}, err
	}
	name, arg, _ := bytes.Cut(line, []byte(" "))
	switch string(name) {
	case "PING":
		return element{op: opPing}, nil
	case "PONG":
		return element{op: opPong}, nil
	case "+OK":
		return element{op: opOK}, nil
	case "-ERR":
		return element{op: opErr, text: string(arg[:min(len(arg), maxErrText)])}, nil
	case "INFO":
		e := element{op: opInfo}
		if err := json.Unmarshal(arg, &e.info); err != nil {
			return element{}, fmt.Errorf("%w: INFO: %w", ErrProtocol, err)
		}
		return e, nil
	case "LS+", "LS-":
		return subscription(string(name), arg)
	case "LMSG", "HMSG":
		return element{op: opMsg}, p.skip(arg)
	default:
		return element{}, fmt.Errorf("%w: unknown operation %.32q", ErrProtocol, name)
	}
}

// line reads a line without its end. It is valid until the next read.
func (p *parser) line() ([]byte, error) {
	line, err := p.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		if !bytes.HasPrefix(line, []byte("INFO ")) {
			return nil, fmt.Errorf("%w: line longer than %d bytes: %.32q…", ErrProtocol, readBuffer, line)
		}
		line, err = p.longInfo(line)
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}

func (p *parser) longInfo(start []byte) ([]byte, error) {
	long := bytes.Clone(start)
	for {
		part, err := p.r.ReadSlice('\n')
		if len(long)+len(part) > maxInfo {
			return nil, fmt.Errorf("%w: INFO longer than %d bytes", ErrProtocol, maxInfo)
		}
		long = append(long, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return long, err
		}
	}
}

// subscription parses the rest of an LS+ or LS- line.
func subscription(name string, arg []byte) (element, error) {
	var f [4][]byte
	n := split(arg, f[:])
	e := element{op: opSub, weight: 1}
	if name == "LS-" {
		e.op = opUnsub
	}
	switch {
	case n == 1:
	case n == 2 && e.op == opUnsub:
		e.queue = string(f[1])
	case n == 3 && e.op == opSub:
		w, err := strconv.Atoi(string(f[2]))
		if err != nil || w < 1 {
			return element{}, fmt.Errorf("%w: %s: weight %.16q", ErrProtocol, name, f[2])
		}
		e.queue, e.weight = string(f[1]), w
	default:
		return element{}, fmt.Errorf("%w: %s with %d arguments", ErrProtocol, name, n)
	}
	e.subject = string(f[0])
	return e, nil
}

// split puts the words of b into f and returns their number, at most len(f).
func split(b []byte, f [][]byte) int {
	n := 0
	for n < len(f) {
		b = bytes.TrimLeft(b, " \t")
		if len(b) == 0 {
			break
		}
		end := bytes.IndexAny(b, " \t")
		if end < 0 {
			end = len(b)
		}
		f[n], b = b[:end], b[end:]
		n++
	}
	return n
}

// skip reads over the payload of a message; its size is the last word of the line.
func (p *parser) skip(arg []byte) error {
	size := arg[bytes.LastIndexByte(arg, ' ')+1:]
	n, err := strconv.ParseUint(string(size), 10, 32)
	if err != nil || n > maxSkip {
		return fmt.Errorf("%w: message of size %.16q", ErrProtocol, size)
	}
	if _, err := p.r.Discard(int(n)); err != nil {
		return err
	}
	var end [2]byte
	if _, err := io.ReadFull(p.r, end[:]); err != nil {
		return err
	}
	if string(end[:]) != "\r\n" {
		return fmt.Errorf("%w: message of %d bytes does not end there", ErrProtocol, n)
	}
	return nil
}
