package link

import "errors"

var (
	// ErrTooLarge refuses a message that exceeds the hub's max_payload or its longest protocol line.
	ErrTooLarge = errors.New("link: message is larger than the hub takes")

	// ErrOverflow refuses a message because Config.PendingLimit bytes already wait to be written.
	ErrOverflow = errors.New("link: too many bytes wait for the hub")

	// ErrDown refuses a message because the link is down: a delivery at once, another message after
	// Config.HoldFor. Flush returns it if the connection breaks before the answer.
	ErrDown = errors.New("link: not connected")

	// ErrBadSubject refuses a message whose subject, reply or queue name is empty where it may not be, or
	// contains white space or a control character.
	ErrBadSubject = errors.New("link: subject, reply or queue name is not one token")

	// ErrBadHeader refuses a header block that does not start with NATS/1.0 or does not end with an empty
	// line.
	ErrBadHeader = errors.New("link: header block is malformed")

	// ErrNoHeaders refuses a message with headers because the hub has them switched off.
	ErrNoHeaders = errors.New("link: the hub does not take headers")

	// ErrConfig marks an error in Config.
	ErrConfig = errors.New("link: configuration")

	// ErrProtocol means the hub sent what the protocol does not allow, or something longer than this package
	// takes. The connection is closed.
	ErrProtocol = errors.New("link: protocol")

	// ErrStale means the hub did not answer pings. The connection is closed.
	ErrStale = errors.New("link: the hub does not answer")

	// ErrHub carries the text of an -ERR line.
	ErrHub = errors.New("link: hub says")
)
