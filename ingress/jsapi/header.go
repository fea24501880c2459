package jsapi

import (
	"bytes"
	"slices"
	"strconv"
)

// HeaderVersion is the first line of a header block.
const HeaderVersion = "NATS/1.0\r\n"

const (
	versionLen = len("NATS/1.0")
	crlf       = "\r\n"
)

// MaxHeaderLen is the largest header block that a stream stores, in bytes.
const MaxHeaderLen = 65535

// ValidHeader reports whether hdr has the outline of a header block: the version first, an empty
// line last.
func ValidHeader(hdr []byte) bool {
	return bytes.HasPrefix(hdr, []byte(HeaderVersion[:versionLen])) &&
		bytes.HasSuffix(hdr, []byte("\r\n\r\n"))
}

// HeaderGet returns the value of the first header of that key in a header block. The key counts
// exactly as spelled and only at the start of a line; spaces before the value are no part of it;
// the value ends at CRLF. False: no such header. The value shares hdr's memory.
func HeaderGet(hdr []byte, key string) ([]byte, bool) {
	start, ok := headerIndex(hdr, key)
	if !ok {
		return nil, false
	}
	value, _ := cutLine(hdr[start+len(key)+1:])
	value = trimSpaces(value)
	return slices.Clip(value), true
}

// headerIndex returns where the line of key starts.
func headerIndex(hdr []byte, key string) (int, bool) {
	if key == "" {
		return 0, false
	}
	for from := 0; ; {
		i := bytes.Index(hdr[from:], []byte(crlf))
		if i < 0 {
			return 0, false
		}
		from += i + len(crlf)
		line := hdr[from:]
		if len(line) > len(key) && line[len(key)] == ':' && string(line[:len(key)]) == key {
			return from, true
		}
	}
}

// cutLine returns s up to its first CRLF and what follows it.
func cutLine(s []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(s, []byte(crlf))
	return line, rest
}

func trimSpaces(s []byte) []byte {
	for len(s) > 0 && s[0] == ' ' {
		s = s[1:]
	}
	return s
}

// HeaderRemove returns the block without the headers of that key. It returns hdr itself when there
// are none, nil when nothing but the first line would be left, else a new block; hdr is never
// written to.
func HeaderRemove(hdr []byte, key string) []byte {
	return removeLines(hdr, func(line []byte) bool {
		return len(line) > len(key) && line[len(key)] == ':' && string(line[:len(key)]) == key
	})
}

// HeaderRemovePrefix is HeaderRemove for every key that starts with prefix.
func HeaderRemovePrefix(hdr []byte, prefix string) []byte {
	return removeLines(hdr, func(line []byte) bool {
		return len(line) >= len(prefix) && string(line[:len(prefix)]) == prefix
	})
}

func removeLines(hdr []byte, match func(line []byte) bool) []byte {
	first, rest := cutLine(hdr)
	var out []byte
	kept := len(first) + len(crlf)
	for len(rest) > 0 {
		line, next := cutLine(rest)
		whole := rest[:len(rest)-len(next)]
		hit := match(line) && len(whole) > len(line)
		if hit && out == nil {
			out = append(make([]byte, 0, len(hdr)), hdr[:kept]...)
		}
		if !hit {
			kept += len(whole)
			if out != nil {
				out = append(out, whole...)
			}
		}
		rest = next
	}
	if out == nil {
		return hdr
	}
	return emptyToNil(out)
}

// emptyToNil returns nil for a block that says nothing.
func emptyToNil(hdr []byte) []byte {
	if len(hdr) <= len(HeaderVersion)+len(crlf) {
		return nil
	}
	return hdr
}

// HeaderSet returns a new block in which the first header of that key has the value, added as the
// last header when there is none. hdr may be empty and is never written to. Neither key nor value
// may contain CR or LF.
func HeaderSet(hdr []byte, key, value string) []byte {
	start, ok := headerIndex(hdr, key)
	if !ok {
		out := make([]byte, 0, len(hdr)+len(HeaderVersion)+len(key)+len(value)+6)
		return EndHeader(AppendHeader(BeginHeader(out, hdr), key, value))
	}
	_, rest := cutLine(hdr[start:])
	out := make([]byte, 0, len(hdr)+len(value))
	out = append(out, hdr[:start]...)
	out = AppendHeader(out, key, value)
	return append(out, rest...)
}

// BeginHeader appends an open header block: the lines of hdr without its closing empty line, or
// just the version when hdr is empty. AppendHeader adds to it, EndHeader closes it. A last line that
// its sender did not end is ended, so that what is added is a line of its own.
func BeginHeader(dst, hdr []byte) []byte {
	lines, end := openHeader(hdr)
	return append(append(dst, lines...), end...)
}

// OpenHeaderLen is the number of bytes that BeginHeader appends.
func OpenHeaderLen(hdr []byte) int {
	lines, end := openHeader(hdr)
	return len(lines) + len(end)
}

// openHeader returns what of a block stands before an added line, and what is missing at its end.
func openHeader(hdr []byte) (lines []byte, end string) {
	switch {
	case len(hdr) <= len(crlf):
		return nil, HeaderVersion
	case bytes.HasSuffix(hdr, []byte(crlf+crlf)):
		return hdr[:len(hdr)-len(crlf)], ""
	case bytes.HasSuffix(hdr, []byte(crlf)):
		return hdr, ""
	default:
		return hdr, crlf
	}
}

// AppendHeader appends one header line.
func AppendHeader(dst []byte, key, value string) []byte {
	dst = append(dst, key...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, crlf...)
}

// AppendHeaderUint appends one header line with a number.
func AppendHeaderUint(dst []byte, key string, value uint64) []byte {
	dst = append(dst, key...)
	dst = append(dst, ": "...)
	dst = strconv.AppendUint(dst, value, 10)
	return append(dst, crlf...)
}

// EndHeader closes a block opened by BeginHeader.
func EndHeader(dst []byte) []byte { return append(dst, crlf...) }

// StripStatus returns the block without a status on its first line, which is never stored: hdr
// itself when there is none, nil when nothing else is in the block, else a new block.
func StripStatus(hdr []byte) []byte {
	end := bytes.IndexByte(hdr, '\r')
	if end <= versionLen || string(hdr[:versionLen]) != HeaderVersion[:versionLen] {
		return hdr
	}
	out := make([]byte, 0, len(hdr)-(end-versionLen))
	out = append(out, hdr[:versionLen]...)
	return emptyToNil(append(out, hdr[end:]...))
}

// HeaderStatus returns the status of a block's first line, as "408 Request Timeout"; empty when
// there is none.
func HeaderStatus(hdr []byte) string {
	line, _ := cutLine(hdr)
	if len(line) <= versionLen || string(line[:versionLen]) != HeaderVersion[:versionLen] {
		return ""
	}
	return string(bytes.TrimSpace(line[versionLen:]))
}
