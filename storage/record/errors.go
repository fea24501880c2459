package record

import "errors"

// Errors that cross a layer. Each is wrapped with what happened; test with errors.Is.
var (
	// ErrFormat: bytes that do not have the form they should have.
	ErrFormat = errors.New("malformed")
	// ErrNotFound: the row, message, stream or consumer asked for is not there.
	ErrNotFound = errors.New("not found")
	// ErrNotLeader: this replica does not lead the group, and the request was
	// certainly not dispatched.
	ErrNotLeader = errors.New("not the leader")
	// ErrRefused: the proposal was certainly not dispatched (a transfer is running, the
	// queue is full); the planner rebuilds and plans its requests again.
	ErrRefused = errors.New("proposal refused")
	// ErrStalePlan: the entry was committed, and the fence made it a no-op on every replica.
	ErrStalePlan = errors.New("stale plan")
	// ErrUnknownOutcome: the entry was dispatched and may be committed or not.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrConflict: a group 0 row changed since its version was read.
	ErrConflict = errors.New("row version conflict")
	// ErrDamaged: local data fails its checks; the replica neither votes nor serves.
	ErrDamaged = errors.New("damaged")
	// ErrClosed: the component was closed.
	ErrClosed = errors.New("closed")
)
