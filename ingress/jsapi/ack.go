package jsapi

import (
	"bytes"
	"encoding/json"
	"time"
)

// AckKind is what an acknowledgement asks for.
type AckKind uint8

// The kinds of acknowledgement. AckUnknown has no effect but is replied to.
const (
	AckUnknown AckKind = iota
	AckAck
	AckNak
	AckProgress
	AckNext
	AckTerm
)

// String returns the payload that asks for the kind.
func (k AckKind) String() string {
	switch k {
	case AckAck:
		return "+ACK"
	case AckNak:
		return "-NAK"
	case AckProgress:
		return "+WPI"
	case AckNext:
		return "+NXT"
	case AckTerm:
		return "+TERM"
	default:
		return "unknown"
	}
}

// Ack is a parsed acknowledgement.
type Ack struct {
	// Kind is what it asks for.
	Kind AckKind
	// HasDelay is set for a nak with a well-formed delay. A nak without one, or with one that
	// can not be read, is redelivered at once.
	HasDelay bool
	// Delay is how long the redelivery of a nak waits; it may be zero or negative.
	Delay time.Duration
	// Next is the pull request behind "+NXT", to be read by ParseNextRequest. It shares the
	// payload's memory.
	Next []byte
	// Reason is the text behind "+TERM".
	Reason string
}

// ParseAck parses the payload published to an ack subject. Every payload has a meaning; it
// allocates only for a delay or a reason.
//
//	empty, +ACK, +OK               ack
//	-NAK                           redeliver now
//	-NAK {"delay":ns}, -NAK 1m30s  redeliver after the delay
//	+WPI                           restart the ack timer
//	+NXT [pull request]            ack, then pull for the ack's own reply
//	+TERM [reason]                 do not redeliver
func ParseAck(payload []byte) Ack {
	if len(payload) == 0 {
		return Ack{Kind: AckAck}
	}
	switch payload[0] {
	case '-':
		if arg, ok := bytes.CutPrefix(payload, []byte("-NAK")); ok {
			return parseNak(arg)
		}
	case '+':
		return parsePlus(payload)
	}
	return Ack{}
}

func parsePlus(payload []byte) Ack {
	switch string(payload) {
	case "+ACK", "+OK":
		return Ack{Kind: AckAck}
	case "+WPI":
		return Ack{Kind: AckProgress}
	}
	if arg, ok := bytes.CutPrefix(payload, []byte("+NXT")); ok {
		return Ack{Kind: AckNext, Next: arg}
	}
	if arg, ok := bytes.CutPrefix(payload, []byte("+TERM")); ok {
		return Ack{Kind: AckTerm, Reason: string(bytes.TrimSpace(arg))}
	}
	return Ack{}
}

func parseNak(arg []byte) Ack {
	ack := Ack{Kind: AckNak}
	arg = bytes.TrimSpace(arg)
	if len(arg) == 0 {
		return ack
	}
	if arg[0] != '{' {
		d, err := time.ParseDuration(string(arg))
		if err == nil {
			ack.Delay, ack.HasDelay = d, true
		}
		return ack
	}
	var opt struct {
		Delay time.Duration `json:"delay"`
	}
	if json.Unmarshal(arg, &opt) == nil {
		ack.Delay, ack.HasDelay = opt.Delay, true
	}
	return ack
}
