package record

import (
	"errors"
	"fmt"
)

// FileError is damage with the file it was found in. It matches ErrDamaged if its
// cause does; its text is that of the cause.
type FileError struct {
	File  string
	Cause error
}

// Error returns the text of the cause.
func (e *FileError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Cause }

// Damaged makes an error that says what is wrong with a file.
func Damaged(file, format string, args ...any) error {
	text := fmt.Errorf(format, args...)
	return &FileError{File: file, Cause: fmt.Errorf("%w: %s: %w", ErrDamaged, file, text)}
}

// DamagedFile returns the file that an error names, "" if it names none.
func DamagedFile(err error) string {
	if f, ok := errors.AsType[*FileError](err); ok {
		return f.File
	}
	return ""
}
