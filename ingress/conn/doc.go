// Package conn is the CLIENT connection of an account: everything inbound (stream
// subjects, $JS.API, acks) comes over it.
//
// # Why not nats.go
//
// A stream stores and delivers header blocks as the publisher sent them: order,
// duplicate keys, case and spacing included. nats.go turns every block into a map
// on its way in, which loses all of that (and costs an allocation a key). The
// client protocol without it is a page of text, so it is spoken here.
//
// # Contract
//
// One goroutine reads and calls the handlers, in the order of the wire, so
// publishes, acks and API calls of a client keep their order; a handler must not
// block. One goroutine writes; what is queued together goes out in one write.
// A Conn reconnects for ever, subscribing again before anything else, and ends
// with Close. Messages published while it is down are refused with ErrDown.
//
// A cancelled subscription gets what the server had sent for it, until the PONG that
// follows its UNSUB. Nothing is ever dropped for a slow reader: back-pressure is the handler's (it
// answers "too many requests"), and behind that TCP's.
package conn
