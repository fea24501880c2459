package seglog

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrDamaged marks every *DamageError: bytes that were durable once are missing or wrong. The log must
	// not be used for votes, acknowledgements or service until its content came back from elsewhere.
	ErrDamaged = errors.New("seglog: damaged")

	// ErrVersion is returned by Open when an intact file carries a format version this build does not know.
	ErrVersion = errors.New("seglog: unknown format version")

	// ErrNotFound is returned by Get and Term for an index outside [FirstIndex, LastIndex].
	ErrNotFound = errors.New("seglog: no such entry")

	// ErrOutOfOrder refuses an append that does not continue the log and a term lower than the stored one.
	// Nothing was written.
	ErrOutOfOrder = errors.New("seglog: out of order")

	// ErrTooLarge refuses an entry, a candidate or a seal payload above its limit. Nothing was written.
	ErrTooLarge = errors.New("seglog: too large")

	// ErrNoSpace is returned when the disk has no room for what the call needs. Nothing of the call counts,
	// and the log stays usable.
	ErrNoSpace = errors.New("seglog: no space left")

	// ErrFailed is returned by every write after one whose outcome on disk is unknown (an I/O error, a
	// failed sync). It is final: the process must stop and recover from what the disk holds.
	ErrFailed = errors.New("seglog: failed, restart required")

	// ErrClosed is returned by calls on a closed log.
	ErrClosed = errors.New("seglog: closed")
)

// DamageError says where damage was found. It matches ErrDamaged.
type DamageError struct {
	// File is the full name of the damaged (or missing) file.
	File string
	// Offset is the position in File of the first thing that does not verify.
	Offset int64
	// Reason says what does not verify.
	Reason string
	// Cause is the I/O error behind it, if there was one.
	Cause error
}

// Error names the file, the offset and the reason.
func (e *DamageError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%v: %s at offset %d: %s: %v", ErrDamaged, e.File, e.Offset, e.Reason, e.Cause)
	}
	return fmt.Sprintf("%v: %s at offset %d: %s", ErrDamaged, e.File, e.Offset, e.Reason)
}

// Unwrap makes errors.Is find ErrDamaged and the cause.
func (e *DamageError) Unwrap() []error {
	if e.Cause != nil {
		return []error{ErrDamaged, e.Cause}
	}
	return []error{ErrDamaged}
}

func damaged(file string, offset int64, format string, args ...any) *DamageError {
	return &DamageError{File: file, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// isNoSpace tells a full disk (or quota) from an I/O error. Only the former leaves the disk in a known state.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func noSpace(what string, cause error) error {
	return fmt.Errorf("%w: %s: %w", ErrNoSpace, what, cause)
}
