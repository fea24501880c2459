package jsapi

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Error is an error of the JetStream API, as it goes over the wire. Functions of this package
// that judge input return it as *Error, nil when all is well; compare with nil before storing it
// in an error.
type Error struct {
	// Code is HTTP-like.
	Code int `json:"code"`
	// ErrCode is the reason.
	ErrCode ErrCode `json:"err_code,omitempty"`
	// Description is for people; some clients match its text.
	Description string `json:"description,omitempty"`
}

// Error returns the description and the reason's number.
func (e *Error) Error() string {
	return e.Description + " (" + strconv.Itoa(int(e.ErrCode)) + ")"
}

// Is reports whether target is an Error with the same reason, so that errors.Is works on values
// made by NewError.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.ErrCode == e.ErrCode
}

// AppendJSON appends the error's JSON form.
func (e *Error) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Code), 10)
	if e.ErrCode != 0 {
		dst = append(dst, `,"err_code":`...)
		dst = strconv.AppendInt(dst, int64(e.ErrCode), 10)
	}
	if e.Description != "" {
		dst = append(dst, `,"description":`...)
		dst = appendJSONString(dst, e.Description)
	}
	return append(dst, '}')
}

// errorRow is one line of the error table; {name} in text is a placeholder.
type errorRow struct {
	errCode ErrCode
	code    int
	text    string
}

// NewError returns the error of a code with the placeholders of its text replaced by args in
// order; each arg is formatted as fmt.Sprint does. A code that is not in the table gives a 500
// that says so.
func NewError(code ErrCode, args ...any) *Error {
	i, ok := slices.BinarySearchFunc(errorRows[:], code, func(r errorRow, c ErrCode) int {
		return int(r.errCode) - int(c)
	})
	if !ok {
		return &Error{Code: 500, ErrCode: code, Description: "unknown error " + strconv.Itoa(int(code))}
	}
	row := &errorRows[i]
	return &Error{Code: row.code, ErrCode: code, Description: fillPlaceholders(row.text, args)}
}

// WithText returns the error of a code with its description replaced: same code, other words.
func WithText(code ErrCode, description string) *Error {
	e := NewError(code)
	e.Description = description
	return e
}

func fillPlaceholders(text string, args []any) string {
	if len(args) == 0 {
		return text
	}
	var b strings.Builder
	for _, arg := range args {
		open := strings.IndexByte(text, '{')
		end := strings.IndexByte(text, '}')
		if open < 0 || end < open {
			break
		}
		b.WriteString(text[:open])
		fmt.Fprint(&b, arg)
		text = text[end+1:]
	}
	b.WriteString(text)
	return b.String()
}

// IsCode reports whether err is or wraps an Error with that code.
func IsCode(err error, code ErrCode) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e != nil && e.ErrCode == code
}

// AsError returns err itself when it is or wraps an Error, else an error of code whose first
// placeholder is err's text: the way JetStream hides other errors behind a general code.
func AsError(err error, code ErrCode) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return NewError(code, err)
}

// ErrWrongLastSequence is 10071: actual is the sequence that is there.
func ErrWrongLastSequence(actual uint64) *Error {
	return NewError(CodeStreamWrongLastSequence, actual)
}

// ErrWrongLastMsgID is 10070: actual is the id that is there.
func ErrWrongLastMsgID(actual string) *Error {
	return NewError(CodeStreamWrongLastMsgID, actual)
}

// ErrInvalidJSON is 10025 with the decoder's words.
func ErrInvalidJSON(err error) *Error {
	return NewError(CodeInvalidJSON, err)
}

// ErrInvalidConfig is 10052, the general refusal of a stream or consumer configuration.
func ErrInvalidConfig(text string) *Error {
	return NewError(CodeStreamInvalidConfig, text)
}

// ErrPedantic is 10157: the configuration would have to be adjusted and the request forbids it.
func ErrPedantic(text string) *Error {
	return NewError(CodePedantic, text)
}

// ErrStoreFailed is 10077, a refusal by the stream's limits or its store.
func ErrStoreFailed(text string) *Error {
	return NewError(CodeStreamStoreFailed, text)
}

// The texts of 10077 that a stream's limits give.
const (
	TextMaxMsgs           = "maximum messages exceeded"
	TextMaxBytes          = "maximum bytes exceeded"
	TextMaxMsgsPerSubject = "maximum messages per subject exceeded"
	TextMsgTooLarge       = "message too large"
)
