package jsapi

import (
	"fmt"
	"slices"
)

// DeliverPolicy says where in the stream a consumer starts.
type DeliverPolicy uint8

// The deliver policies; the zero value is the default.
const (
	DeliverAll DeliverPolicy = iota
	DeliverLast
	DeliverNew
	DeliverByStartSequence
	DeliverByStartTime
	DeliverLastPerSubject
)

func deliverNames() []string {
	return []string{"all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"}
}

// String returns the wire name.
func (d DeliverPolicy) String() string { return enumName(deliverNames(), int(d)) }

// MarshalJSON writes the wire name, "undefined" for an unknown value.
func (d DeliverPolicy) MarshalJSON() ([]byte, error) {
	if int(d) >= len(deliverNames()) {
		return []byte(`"undefined"`), nil
	}
	return marshalEnum(deliverNames(), int(d))
}

// UnmarshalJSON reads the wire name; "undefined" is DeliverAll.
func (d *DeliverPolicy) UnmarshalJSON(data []byte) error {
	if string(data) == `"undefined"` {
		*d = DeliverAll
		return nil
	}
	v, err := unmarshalEnum(deliverNames(), data)
	*d = DeliverPolicy(v)
	return err
}

// AckPolicy says how a consumer's messages are acknowledged.
type AckPolicy uint8

// The ack policies; the zero value is what an absent field means.
const (
	AckNone AckPolicy = iota
	AckAll
	AckExplicit
	AckFlowControl
)

func ackNames() []string { return []string{"none", "all", "explicit", "flow_control"} }

// String returns the wire name.
func (a AckPolicy) String() string { return enumName(ackNames(), int(a)) }

// MarshalJSON writes the wire name; it fails on an unknown value.
func (a AckPolicy) MarshalJSON() ([]byte, error) { return marshalEnum(ackNames(), int(a)) }

// UnmarshalJSON reads the wire name.
func (a *AckPolicy) UnmarshalJSON(data []byte) error {
	v, err := unmarshalEnum(ackNames(), data)
	*a = AckPolicy(v)
	return err
}

// ReplayPolicy says how fast old messages are delivered.
type ReplayPolicy uint8

// The replay policies; the zero value is the default.
const (
	ReplayInstant ReplayPolicy = iota
	ReplayOriginal
)

func replayNames() []string { return []string{"instant", "original"} }

// String returns the wire name.
func (r ReplayPolicy) String() string { return enumName(replayNames(), int(r)) }

// MarshalJSON writes the wire name; it fails on an unknown value.
func (r ReplayPolicy) MarshalJSON() ([]byte, error) { return marshalEnum(replayNames(), int(r)) }

// UnmarshalJSON reads the wire name.
func (r *ReplayPolicy) UnmarshalJSON(data []byte) error {
	v, err := unmarshalEnum(replayNames(), data)
	*r = ReplayPolicy(v)
	return err
}

// PriorityPolicy says which waiting pull request a message goes to.
type PriorityPolicy uint8

// The priority policies; the zero value is the default and left out in JSON.
const (
	PriorityNone PriorityPolicy = iota
	PriorityOverflow
	PriorityPinnedClient
	PriorityPrioritized
)

func priorityNames() []string { return []string{"none", "overflow", "pinned_client", "prioritized"} }

// String returns the wire name.
func (p PriorityPolicy) String() string { return enumName(priorityNames(), int(p)) }

// MarshalJSON writes the wire name; it fails on an unknown value.
func (p PriorityPolicy) MarshalJSON() ([]byte, error) {
	if int(p) >= len(priorityNames()) {
		return nil, fmt.Errorf("unknown priority policy: %d", p)
	}
	return marshalEnum(priorityNames(), int(p))
}

// UnmarshalJSON reads the wire name.
func (p *PriorityPolicy) UnmarshalJSON(data []byte) error {
	v, err := unmarshalEnum(priorityNames(), data)
	if err != nil {
		return fmt.Errorf("unknown priority policy: %s", data)
	}
	*p = PriorityPolicy(v)
	return nil
}

// ConsumerAction narrows a consumer create request.
type ConsumerAction uint8

// The actions; the zero value creates or updates.
const (
	ActionCreateOrUpdate ConsumerAction = iota
	ActionUpdate
	ActionCreate
)

func actionNames() []string { return []string{"", "update", "create"} }

// String returns the wire name, which is empty for ActionCreateOrUpdate.
func (a ConsumerAction) String() string {
	if int(a) >= len(actionNames()) {
		return "unknown"
	}
	return actionNames()[a]
}

// MarshalJSON writes the wire name; it fails on an unknown value.
func (a ConsumerAction) MarshalJSON() ([]byte, error) {
	if int(a) >= len(actionNames()) {
		return nil, fmt.Errorf("can not marshal %d", a)
	}
	return []byte(`"` + actionNames()[a] + `"`), nil
}

// UnmarshalJSON reads the wire name.
func (a *ConsumerAction) UnmarshalJSON(data []byte) error {
	if len(data) >= 2 && data[0] == '"' {
		if i := slices.Index(actionNames(), string(data[1:len(data)-1])); i >= 0 {
			*a = ConsumerAction(i)
			return nil
		}
	}
	return fmt.Errorf("unknown consumer action: %s", data)
}
