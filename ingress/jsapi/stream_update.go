package jsapi

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// CheckStreamUpdate judges the change of a stream from old, as it is stored, to cfg, and returns
// what is to be stored. Limits against the consumers are CheckConsumerLimits' part, the overlap
// with other streams is SubjectListsOverlap's.
func CheckStreamUpdate(old, cfg *StreamConfig, env *StreamEnv) (*StreamConfig, *Error) {
	n, err := CheckStreamConfig(cfg, env)
	if err != nil {
		return nil, err
	}
	if n.Name != old.Name {
		return nil, ErrInvalidConfig("stream configuration name must match original")
	}
	if err := checkImmutable(old, n); err != nil {
		return nil, err
	}
	if n.Sealed {
		n.MaxAge = 0
		n.Discard = DiscardNew
		n.DenyDelete, n.DenyPurge = true, true
		n.AllowRollup = false
	}
	return n, nil
}

// update starts the texts of most refusals.
const update = "stream configuration update can not "

func checkImmutable(old, n *StreamConfig) *Error {
	switch {
	case n.Storage != old.Storage:
		return ErrInvalidConfig(update + "change storage type")
	case n.Retention != old.Retention && (n.Retention == WorkQueuePolicy || old.Retention == WorkQueuePolicy):
		return ErrInvalidConfig(update + "change retention policy to/from workqueue")
	case old.Sealed && !n.Sealed:
		return ErrInvalidConfig(update + "unseal a sealed stream")
	case old.DenyDelete && !n.DenyDelete:
		return ErrInvalidConfig(update + "cancel deny message deletes")
	case old.DenyPurge && !n.DenyPurge:
		return ErrInvalidConfig(update + "cancel deny purge")
	case n.Mirror != nil && !sameMirror(n.Mirror, old.Mirror):
		return NewError(CodeStreamMirrorNotUpdatable)
	}
	return checkFeatures(old, n)
}

// checkFeatures judges what may only be switched on, or not at all.
func checkFeatures(old, n *StreamConfig) *Error {
	switch {
	case old.AllowMsgTTL && !n.AllowMsgTTL:
		return ErrInvalidConfig("message TTL status can not be disabled")
	case old.AllowMsgCounter != n.AllowMsgCounter:
		return ErrInvalidConfig(update + "change message counter setting")
	case old.AllowSchedules && !n.AllowSchedules:
		return ErrInvalidConfig("message schedules can not be disabled")
	case old.PersistMode != n.PersistMode:
		return ErrInvalidConfig(update + "change persist mode")
	}
	return nil
}

// CheckConsumerLimits judges new consumer_limits against the stream's consumers: 10069 naming
// those above them.
func CheckConsumerLimits(old, n *StreamConfig, consumers iter.Seq[*ConsumerConfig]) *Error {
	was, is := old.ConsumerLimits, n.ConsumerLimits
	if (is.InactiveThreshold <= 0 || is.InactiveThreshold == was.InactiveThreshold) &&
		(is.MaxAckPending <= 0 || is.MaxAckPending == was.MaxAckPending) {
		return nil
	}
	var over []string
	for c := range consumers {
		if is.InactiveThreshold > 0 && c.InactiveThreshold > is.InactiveThreshold ||
			is.MaxAckPending > 0 && c.MaxAckPending > is.MaxAckPending {
			over = append(over, c.Name)
		}
	}
	if len(over) == 0 {
		return nil
	}
	slices.Sort(over)
	return NewError(CodeStreamUpdate, "change to limits violates consumers: "+strings.Join(over, ", "))
}

// AccountUsage is what an account's streams use, for CheckAccountLimits. The stream judged is not
// in it.
type AccountUsage struct {
	// Streams counts them.
	Streams int
	// ReservedMemory and ReservedStore are sums of max_bytes by storage.
	ReservedMemory int64
	ReservedStore  int64
}

// CheckAccountLimits judges a stream, new or changed, against the account's limits: 10027, 10028
// or 10047.
func CheckAccountLimits(cfg *StreamConfig, limits *AccountLimits, usage AccountUsage) *Error {
	if limits.MaxStreams > 0 && usage.Streams >= limits.MaxStreams {
		return NewError(CodeMaximumStreamsLimit)
	}
	replicas := int64(max(cfg.Replicas, 1))
	need := max(cfg.MaxBytes, 0) * replicas
	if cfg.Storage == MemoryStorage {
		if limits.MaxMemory >= 0 && usage.ReservedMemory+need > limits.MaxMemory {
			return NewError(CodeMemoryResourcesExceeded)
		}
		return nil
	}
	if limits.MaxStore >= 0 && usage.ReservedStore+need > limits.MaxStore {
		return NewError(CodeStorageResourcesExceeded)
	}
	return nil
}

// StreamConfigEqual reports whether two configurations, both with defaults applied, are the same;
// metadata that the server keeps is not compared.
func StreamConfigEqual(a, b *StreamConfig) bool {
	return reflect.DeepEqual(a.normal(), b.normal())
}

// normal returns a copy in which equal configurations are deeply equal.
func (c *StreamConfig) normal() *StreamConfig {
	n := c.Clone()
	n.Metadata = userMetadata(c.Metadata)
	n.Subjects = nilIfEmpty(n.Subjects)
	n.Sources = nilIfEmpty(n.Sources)
	n.Mirror.normalize()
	for _, s := range n.Sources {
		s.normalize()
	}
	if n.Placement != nil {
		n.Placement.Tags = nilIfEmpty(n.Placement.Tags)
	}
	return n
}

func (s *StreamSource) normalize() {
	if s == nil {
		return
	}
	utc(s.OptStartTime)
	s.SubjectTransforms = nilIfEmpty(s.SubjectTransforms)
}

// sameMirror compares mirrors as StreamConfigEqual does.
func sameMirror(a, b *StreamSource) bool {
	a, b = a.clone(), b.clone()
	a.normalize()
	b.normalize()
	return reflect.DeepEqual(a, b)
}

// userMetadata returns the metadata without the server's keys, nil when nothing is left.
func userMetadata(m map[string]string) map[string]string {
	n := maps.Clone(m)
	delete(n, MetaServerVersion)
	delete(n, MetaServerLevel)
	delete(n, MetaRequiredLevel)
	if len(n) == 0 {
		return nil
	}
	return n
}
