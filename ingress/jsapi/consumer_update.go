package jsapi

import (
	"iter"
	"reflect"
	"time"
)

// CheckConsumerUpdate judges the change of a consumer from old to n, both as CheckConsumerConfig
// returns them. bound says that the old deliver subject has interest. n's pause_until must be
// old's already: create requests do not change it.
func CheckConsumerUpdate(old, n *ConsumerConfig, bound bool) *Error {
	if text := consumerImmutable(old, n); text != "" {
		return NewError(CodeConsumerCreate, text+" can not be updated")
	}
	if old.DeliverSubject != n.DeliverSubject {
		switch {
		case !old.IsPush():
			return NewError(CodeConsumerCreate, "can not update pull consumer to push based")
		case !n.IsPush():
			return NewError(CodeConsumerCreate, "can not update push consumer to pull based")
		case bound:
			return NewError(CodeConsumerNameExist)
		}
	}
	if old.MaxWaiting != n.MaxWaiting {
		return NewError(CodeConsumerCreate, "max waiting can not be updated")
	}
	return checkBackoff(n)
}

// consumerImmutable names the first field that differs and may not.
func consumerImmutable(old, n *ConsumerConfig) string {
	switch {
	case old.DeliverPolicy != n.DeliverPolicy:
		return "deliver policy"
	case old.MemoryStorage != n.MemoryStorage:
		return "storage type"
	case old.Direct != n.Direct:
		return "direct"
	case old.Sourcing != n.Sourcing:
		return "sourcing"
	case old.OptStartSeq != n.OptStartSeq:
		return "start sequence"
	case !sameTime(old.OptStartTime, n.OptStartTime):
		return "start time"
	case old.AckPolicy != n.AckPolicy:
		return "ack policy"
	case old.ReplayPolicy != n.ReplayPolicy:
		return "replay policy"
	case old.Heartbeat != n.Heartbeat:
		return "heart beats"
	case old.FlowControl != n.FlowControl:
		return "flow control"
	}
	return ""
}

func sameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}

// CheckWorkQueue judges a consumer against the others of a workqueue stream: 10098 to 10101. For
// the update of an existing consumer exists is set and only the uniqueness of its filters counts.
// others are the stream's consumers except the one judged and except direct and sourcing ones.
//
//nolint:revive // flag-parameter: exists is a fact from outside, not a mode.
func CheckWorkQueue(cfg *ConsumerConfig, others iter.Seq[*ConsumerConfig], exists bool) *Error {
	filters := cfg.Filters()
	if !exists {
		if cfg.AckPolicy != AckExplicit && cfg.AckPolicy != AckFlowControl {
			return NewError(CodeConsumerWQRequiresExplicitAck)
		}
		if cfg.DeliverPolicy != DeliverAll {
			return NewError(CodeConsumerWQConsumerNotDeliverAll)
		}
	}
	for other := range others {
		if len(filters) == 0 {
			if exists {
				return NewError(CodeConsumerWQConsumerNotUnique)
			}
			return NewError(CodeConsumerWQMultipleUnfiltered)
		}
		theirs := other.Filters()
		if len(theirs) == 0 || SubjectListsOverlap(filters, theirs) {
			return NewError(CodeConsumerWQConsumerNotUnique)
		}
	}
	return nil
}

// ConsumerConfigEqual reports whether two configurations, both with defaults applied, are the
// same; metadata that the server keeps is not compared.
func ConsumerConfigEqual(a, b *ConsumerConfig) bool {
	x, y := a.normal(), b.normal()
	return reflect.DeepEqual(x, y)
}

// normal returns a copy in which equal configurations are deeply equal.
func (c *ConsumerConfig) normal() *ConsumerConfig {
	n := c.Clone()
	n.Metadata = userMetadata(c.Metadata)
	utc(n.OptStartTime)
	utc(n.PauseUntil)
	n.BackOff = nilIfEmpty(n.BackOff)
	n.FilterSubjects = nilIfEmpty(n.FilterSubjects)
	n.PriorityGroups = nilIfEmpty(n.PriorityGroups)
	return n
}

func utc(t *time.Time) {
	if t != nil {
		*t = t.UTC()
	}
}

func nilIfEmpty[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}
