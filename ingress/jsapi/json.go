package jsapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendJSONString appends s quoted as encoding/json does, HTML escapes included.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if jsonPlain(c) {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = appendJSONEscape(dst, c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\ufffd`...)
			start = i + size
		case r == '\u2028' || r == '\u2029':
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\u202`...)
			dst = append(dst, hexDigits[r&0xf])
			start = i + size
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// jsonPlain reports whether an ASCII byte stands for itself in a JSON string.
func jsonPlain(c byte) bool {
	return c >= ' ' && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

func appendJSONEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}

// DecodeStrict decodes a request body into v as JetStream does: unknown fields are refused, an
// empty body leaves v as it is. The error is 10025 with the decoder's words.
func DecodeStrict(body []byte, v any) *Error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	for {
		err := dec.Decode(v)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			err = fmt.Errorf("%w at offset %d", err, syntax.Offset)
		}
		if err != nil {
			return ErrInvalidJSON(err)
		}
	}
}

// DecodeLoose decodes a request body into v, unknown fields ignored, for the calls that JetStream
// decodes so (CONSUMER.RESET, CONSUMER.UNPIN, DIRECT.GET). The error is 10025.
func DecodeLoose(body []byte, v any) *Error {
	if err := json.Unmarshal(body, v); err != nil {
		return ErrInvalidJSON(err)
	}
	return nil
}

// DecodeOptional decodes as DecodeStrict when the body looks like JSON, an object or an array, and
// ignores any other body: the rule of the INFO, NAMES, LIST, STREAM.INFO, PAUSE and PURGE calls.
func DecodeOptional(body []byte, v any) *Error {
	if !LooksLikeJSON(body) {
		return nil
	}
	return DecodeStrict(body, v)
}

// LooksLikeJSON reports whether the first byte after white space is '{' or '['.
func LooksLikeJSON(body []byte) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && (body[0] == '{' || body[0] == '[')
}

// IsEmptyRequest reports whether a body says nothing: no bytes, or an empty JSON object. Calls
// without a body answer 10038 to any other.
func IsEmptyRequest(body []byte) bool {
	if len(body) == 0 {
		return true
	}
	var fields map[string]json.RawMessage
	return json.Unmarshal(body, &fields) == nil && fields != nil && len(fields) == 0
}
