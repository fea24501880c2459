package jsapi

import (
	"fmt"
	"strings"
	"time"
)

// StreamEnv is what judging a stream's configuration needs to know besides it. The zero value
// knows no limits and sees no other streams.
type StreamEnv struct {
	// MaxVoters bounds num_replicas by the nodes there are; 0 is no bound.
	MaxVoters int
	// MaxDuplicates bounds duplicate_window; 0 is no bound.
	MaxDuplicates time.Duration
	// MaxBytesRequired demands max_bytes of every stream.
	MaxBytesRequired bool
	// MaxStreamBytesFile and MaxStreamBytesMemory bound max_bytes by storage; 0 or less is no
	// bound.
	MaxStreamBytesFile   int64
	MaxStreamBytesMemory int64
	// Lookup returns another stream of the account, nil when there is none; it may be nil.
	Lookup func(name string) *StreamConfig
	// Pedantic turns silent adjustments into errors.
	Pedantic bool
}

func (e *StreamEnv) lookup(name string) *StreamConfig {
	if e.Lookup == nil {
		return nil
	}
	return e.Lookup(name)
}

// streamCheck is one judgement: cfg is adjusted in place.
type streamCheck struct {
	cfg *StreamConfig
	env *StreamEnv
}

// CheckStreamRequest judges what a STREAM.CREATE says before its configuration is looked at:
// stream is the subject's token. The errors are 10056, 10128 and 10052.
func CheckStreamRequest(stream string, cfg *StreamConfig) *Error {
	switch {
	case cfg.Name != stream:
		return NewError(CodeStreamMismatch)
	case strings.ContainsAny(stream, `\/`):
		return NewError(CodeStreamNameContainsPathSeparators)
	case cfg.Sealed:
		return ErrInvalidConfig("stream configuration for create can not be sealed")
	case cfg.MirrorDirect && cfg.Mirror == nil:
		return ErrInvalidConfig("stream has no mirror but does have mirror direct")
	}
	return nil
}

// CheckStreamConfig judges a configuration in JetStream's order and returns it with the defaults
// applied and its static metadata: what is stored. cfg is not changed.
func CheckStreamConfig(cfg *StreamConfig, env *StreamEnv) (*StreamConfig, *Error) {
	c := streamCheck{cfg: cfg.Clone(), env: env}
	steps := [...]func() *Error{
		c.names, c.enums, c.replicas, c.limits, c.age, c.window, c.denied, c.counter, c.discardPer,
		c.markers, c.schedules, c.persist, c.mirror, c.sources, c.externals, c.cycles, c.subjects,
		c.maxBytes, c.transform, c.republish, c.placement, c.voters, c.holdfast,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c.cfg.WithStaticMetadata(), nil
}

func (c *streamCheck) names() *Error {
	switch cfg := c.cfg; {
	case !ValidName(cfg.Name):
		return ErrInvalidConfig(`stream name is required and can not contain '.', '*', '>', '\', '/'`)
	case len(cfg.Name) > MaxNameLen:
		return ErrInvalidConfig(fmt.Sprintf("stream name is too long, maximum allowed is %d", MaxNameLen))
	case len(cfg.Description) > MaxDescriptionLen:
		return ErrInvalidConfig(fmt.Sprintf("stream description is too long, maximum allowed is %d",
			MaxDescriptionLen))
	case metadataLen(cfg.WithStaticMetadata().Metadata) > MaxMetadataLen:
		return ErrInvalidConfig(fmt.Sprintf("stream metadata exceeds maximum size of %d bytes",
			MaxMetadataLen))
	}
	return nil
}

func (c *streamCheck) enums() *Error {
	cfg := c.cfg
	if cfg.Storage == StorageUnset {
		cfg.Storage = FileStorage
	}
	switch {
	case cfg.Retention > WorkQueuePolicy:
		return ErrInvalidConfig("invalid retention")
	case cfg.Discard > DiscardNew:
		return ErrInvalidConfig("invalid discard policy")
	case cfg.Compression > S2Compression:
		return ErrInvalidConfig("invalid compression")
	case cfg.Storage > MemoryStorage:
		return ErrInvalidConfig("invalid storage type")
	}
	return nil
}

func (c *streamCheck) replicas() *Error {
	if c.cfg.Replicas == 0 {
		c.cfg.Replicas = 1
	}
	if c.cfg.Replicas > MaxReplicas {
		return ErrInvalidConfig(fmt.Sprintf("maximum replicas is %d", MaxReplicas))
	}
	if c.cfg.Replicas < 0 {
		return NewError(CodeReplicasCountCannotBeNegative)
	}
	return nil
}

func (c *streamCheck) limits() *Error {
	cfg, pedantic := c.cfg, c.env.Pedantic
	if err := unlimited(&cfg.MaxMsgs, "max_msgs", pedantic); err != nil {
		return err
	}
	if err := unlimited(&cfg.MaxMsgsPer, "max_msgs_per_subject", pedantic); err != nil {
		return err
	}
	if err := unlimited(&cfg.MaxBytes, "max_bytes", pedantic); err != nil {
		return err
	}
	if err := unlimited(&cfg.MaxMsgSize, "max_msg_size", pedantic); err != nil {
		return err
	}
	return unlimited(&cfg.MaxConsumers, "max_consumers", pedantic)
}

// unlimited turns 0 and less into -1; below -1 that is an adjustment.
//
//nolint:revive // flag-parameter: the request's own flag.
func unlimited[T int | int32 | int64](v *T, name string, pedantic bool) *Error {
	if *v < -1 && pedantic {
		return ErrPedantic(name + " must be set to -1")
	}
	if *v <= 0 {
		*v = -1
	}
	return nil
}

func (c *streamCheck) age() *Error {
	if c.cfg.MaxAge < 0 {
		return ErrInvalidConfig("max age can not be negative")
	}
	if c.cfg.MaxAge != 0 && c.cfg.MaxAge < MinWindow {
		return ErrInvalidConfig("max age needs to be >= 100ms")
	}
	return nil
}

func (c *streamCheck) window() *Error {
	cfg, limit := c.cfg, c.env.MaxDuplicates
	if cfg.Duplicates == 0 && cfg.Mirror == nil && len(cfg.Sources) == 0 {
		if err := c.defaultWindow(); err != nil {
			return err
		}
	}
	switch {
	case cfg.Duplicates < 0:
		return ErrInvalidConfig("duplicates window can not be negative")
	case cfg.MaxAge != 0 && cfg.Duplicates > cfg.MaxAge:
		return ErrInvalidConfig("duplicates window can not be larger then max age")
	case limit > 0 && cfg.Duplicates > limit:
		return ErrInvalidConfig("duplicates window can not be larger then server limit of " + limit.String())
	case cfg.Duplicates > 0 && cfg.Duplicates < MinWindow:
		return ErrInvalidConfig("duplicates window needs to be >= 100ms")
	}
	return nil
}

func (c *streamCheck) defaultWindow() *Error {
	cfg, window := c.cfg, DefaultDuplicateWindow
	if limit := c.env.MaxDuplicates; limit > 0 && window > limit {
		if c.env.Pedantic {
			return ErrPedantic("duplicate window limits are higher than current limits")
		}
		window = limit
	}
	if cfg.MaxAge != 0 && cfg.MaxAge < window {
		if c.env.Pedantic {
			return ErrPedantic("duplicate window cannot be bigger than max age")
		}
		window = cfg.MaxAge
	}
	cfg.Duplicates = window
	return nil
}

func (c *streamCheck) denied() *Error {
	if c.cfg.DenyPurge && c.cfg.AllowRollup {
		return ErrInvalidConfig("roll-ups require the purge permission")
	}
	return nil
}

func (c *streamCheck) counter() *Error {
	cfg := c.cfg
	switch {
	case !cfg.AllowMsgCounter:
	case cfg.Discard == DiscardNew:
		return ErrInvalidConfig("counter stream cannot use discard new")
	case cfg.AllowMsgTTL:
		return ErrInvalidConfig("counter stream cannot use message TTLs")
	case cfg.AllowSchedules:
		return ErrInvalidConfig("counter stream cannot use message schedules")
	case cfg.Retention != LimitsPolicy:
		return ErrInvalidConfig("counter stream can only use limits retention")
	}
	return nil
}

func (c *streamCheck) discardPer() *Error {
	switch {
	case !c.cfg.DiscardNewPer:
	case c.cfg.Discard != DiscardNew:
		return ErrInvalidConfig("discard new per subject requires discard new policy to be set")
	case c.cfg.MaxMsgsPer <= 0:
		return ErrInvalidConfig("discard new per subject requires max msgs per subject > 0")
	}
	return nil
}

func (c *streamCheck) markers() *Error {
	cfg := c.cfg
	switch ttl := cfg.DeleteMarkerTTL; {
	case ttl == 0:
		return nil
	case ttl < 0:
		return ErrInvalidConfig("subject delete marker TTL must not be negative")
	case ttl < MinMarkerTTL:
		return ErrInvalidConfig("subject delete marker TTL must be at least 1 second")
	}
	if !cfg.AllowMsgTTL {
		if c.env.Pedantic {
			return ErrInvalidConfig("subject delete marker cannot be set if message TTLs are disabled")
		}
		cfg.AllowMsgTTL = true
	}
	return c.forceRollup("subject delete marker cannot be set if roll-ups are disabled")
}

func (c *streamCheck) forceRollup(pedantic string) *Error {
	if c.cfg.AllowRollup {
		return nil
	}
	if c.env.Pedantic {
		return ErrInvalidConfig(pedantic)
	}
	c.cfg.AllowRollup, c.cfg.DenyPurge = true, false
	return nil
}

func (c *streamCheck) schedules() *Error {
	if !c.cfg.AllowSchedules {
		return nil
	}
	if c.cfg.Discard == DiscardNew {
		return ErrInvalidConfig("message scheduling cannot use discard new")
	}
	return c.forceRollup("message scheduling cannot be set if roll-ups are disabled")
}

func (c *streamCheck) persist() *Error {
	switch cfg := c.cfg; {
	case cfg.PersistMode != PersistAsync:
	case cfg.Storage != FileStorage:
		return ErrInvalidConfig("async persist mode is only supported on file storage")
	case cfg.Replicas > 1:
		return ErrInvalidConfig("async persist mode is not supported on replicated streams")
	case cfg.AllowAtomic:
		return ErrInvalidConfig("async persist mode is not supported with atomic batch publish")
	}
	return nil
}

func (c *streamCheck) maxBytes() *Error {
	limit := c.env.MaxStreamBytesFile
	if c.cfg.Storage == MemoryStorage {
		limit = c.env.MaxStreamBytesMemory
	}
	if c.env.MaxBytesRequired && c.cfg.MaxBytes <= 0 {
		return NewError(CodeStreamMaxBytesRequired)
	}
	if limit > 0 && c.cfg.MaxBytes > limit {
		return NewError(CodeStreamMaxStreamBytesExceeded)
	}
	return nil
}

func (c *streamCheck) transform() *Error {
	t := c.cfg.SubjectTransform
	if t == nil {
		return nil
	}
	return checkTransform(t, CodeStreamTransformInvalidSource, CodeStreamTransformInvalidDestination)
}

// checkTransform judges a transform; an empty destination changes nothing.
func checkTransform(t *SubjectTransform, badSource, badDest ErrCode) *Error {
	if t.Source != "" && !ValidSubject(t.Source) {
		return NewError(badSource, fmt.Errorf("%w %s", ErrBadSubject, t.Source))
	}
	if t.Destination == "" {
		return nil
	}
	if err := checkDestination(t.Destination); err != nil {
		return NewError(badDest, err)
	}
	if _, err := ParseTransform(t.Source, t.Destination); err != nil {
		return NewError(badDest, err)
	}
	return nil
}

func (c *streamCheck) republish() *Error {
	cfg, r := c.cfg, c.cfg.RePublish
	if r == nil {
		return nil
	}
	if r.Source == "" {
		if c.env.Pedantic {
			return ErrPedantic("republish source can not be empty")
		}
		r.Source = ">"
	}
	// Everything to everything is a cycle, except where a transform moves the stream's only
	// subject away: then it stands for "under the transformed subject".
	if t := cfg.SubjectTransform; r.Destination == ">" && r.Source == ">" && t != nil &&
		len(cfg.Subjects) == 1 && t.Source == cfg.Subjects[0] {
		if c.env.Pedantic {
			return ErrPedantic("implicit republish based on subject transform")
		}
		r.Source, r.Destination = t.Destination, t.Destination
	}
	for _, s := range cfg.Subjects {
		if SubjectsOverlap(r.Destination, s) {
			return ErrInvalidConfig("stream configuration for republish destination forms a cycle")
		}
	}
	if r.Destination == "" {
		return nil
	}
	if _, err := ParseTransform(r.Source, r.Destination); err != nil {
		return ErrInvalidConfig(fmt.Sprintf(
			"stream configuration for republish with transform from '%s' to '%s' not valid",
			r.Source, r.Destination))
	}
	return nil
}

func (c *streamCheck) placement() *Error {
	p := c.cfg.Placement
	if p != nil && p.Preferred != "" {
		return ErrInvalidConfig("preferred server not permitted in placement")
	}
	if p != nil && p.Cluster == "" && p.Tags == nil {
		c.cfg.Placement = nil
	}
	return nil
}

// voters refuses replicas that there are no nodes for.
func (c *streamCheck) voters() *Error {
	switch n := c.env.MaxVoters; {
	case n <= 0 || c.cfg.Replicas <= n:
		return nil
	case n == 1:
		return NewError(CodeStreamReplicasNotSupported)
	default:
		return NewError(CodeClusterNoPeers, fmt.Sprintf(
			"no suitable peers for placement, num_replicas %d exceeds the %d voters", c.cfg.Replicas, n))
	}
}

func (c *streamCheck) holdfast() *Error {
	_, err := StreamAckLevels(c.cfg)
	return err
}
