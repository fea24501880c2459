package jsapi

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ConsumerEnv is what judging a consumer's configuration needs to know besides it.
type ConsumerEnv struct {
	// Stream is the stream's configuration as stored.
	Stream *StreamConfig
	// MaxAckPending and AccountMaxAckPending bound max_ack_pending; 0 or less is no bound.
	MaxAckPending        int
	AccountMaxAckPending int
	// MaxRequestBatch bounds max_batch; 0 is no bound.
	MaxRequestBatch int
	// Pedantic turns silent adjustments into errors.
	Pedantic bool
}

type consumerCheck struct {
	cfg *ConsumerConfig
	env *ConsumerEnv
}

// CheckConsumerConfig judges a configuration in JetStream's order and returns it with the defaults
// applied and its static metadata: what is stored. cfg is not changed. Rules against the stream's
// other consumers are CheckWorkQueue's part.
func CheckConsumerConfig(cfg *ConsumerConfig, env *ConsumerEnv) (*ConsumerConfig, *Error) {
	c := consumerCheck{cfg: cfg.Clone(), env: env}
	steps := [...]func() *Error{
		c.negatives, c.defaults, c.names, c.replicas, c.policies, c.ackFlowControl, c.backoff,
		c.push, c.pull, c.limits, c.direct, c.filters, c.start, c.sampling, c.rest, c.priority, c.holdfast,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if !c.cfg.IsDurable() && c.cfg.InactiveThreshold == 0 {
		c.cfg.InactiveThreshold = DefaultInactiveThreshold
	}
	// The level is the request's: JetStream takes it before it adjusts negative values.
	c.cfg.Metadata = staticMetadata(c.cfg.Metadata, cfg.RequiredLevel())
	return c.cfg, nil
}

// negatives turns what is below its least value into it.
func (c *consumerCheck) negatives() *Error {
	cfg := c.cfg
	if cfg.MaxDeliver < -1 {
		if c.env.Pedantic {
			return ErrPedantic("max_deliver must be set to -1")
		}
		cfg.MaxDeliver = -1
	}
	if cfg.MaxDeliver == 0 {
		cfg.MaxDeliver = -1
	}
	if err := notNegative(&cfg.MaxWaiting, "max_waiting", c.env.Pedantic); err != nil {
		return err
	}
	if cfg.MaxAckPending < -1 {
		if c.env.Pedantic {
			return ErrPedantic("max_ack_pending must be set to -1")
		}
		cfg.MaxAckPending = -1
	}
	if err := notNegative(&cfg.MaxRequestBatch, "max_batch", c.env.Pedantic); err != nil {
		return err
	}
	if err := notNegative(&cfg.MaxRequestExpires, "max_expires", c.env.Pedantic); err != nil {
		return err
	}
	if err := notNegative(&cfg.MaxRequestMaxBytes, "max_bytes", c.env.Pedantic); err != nil {
		return err
	}
	if err := notNegative(&cfg.Heartbeat, "idle_heartbeat", c.env.Pedantic); err != nil {
		return err
	}
	if err := notNegative(&cfg.InactiveThreshold, "inactive_threshold", c.env.Pedantic); err != nil {
		return err
	}
	return notNegative(&cfg.PinnedTTL, "priority_timeout", c.env.Pedantic)
}

// notNegative turns a negative value into 0.
//
//nolint:revive // flag-parameter: the request's own flag.
func notNegative[T int | time.Duration](v *T, name string, pedantic bool) *Error {
	if *v < 0 && pedantic {
		return ErrPedantic(name + " must not be negative")
	}
	*v = max(*v, 0)
	return nil
}

func (c *consumerCheck) defaults() *Error {
	cfg := c.cfg
	if !cfg.IsPush() && cfg.MaxWaiting == 0 {
		cfg.MaxWaiting = DefaultMaxWaiting
	}
	if cfg.AckWait == 0 && (cfg.AckPolicy == AckExplicit || cfg.AckPolicy == AckAll) {
		cfg.AckWait = DefaultAckWait
	}
	if len(cfg.BackOff) > 0 {
		if c.env.Pedantic && cfg.AckWait != cfg.BackOff[0] {
			return ErrPedantic("first backoff value has to equal batch AckWait")
		}
		cfg.AckWait = cfg.BackOff[0]
	}
	if err := c.streamDefaults(); err != nil {
		return err
	}
	if cfg.MaxAckPending == 0 && cfg.AckPolicy != AckNone {
		cfg.MaxAckPending = leastLimit(DefaultMaxAckPending, c.env.MaxAckPending, c.env.AccountMaxAckPending)
	}
	return c.policyDefaults()
}

func (c *consumerCheck) policyDefaults() *Error {
	cfg := c.cfg
	if !cfg.IsPush() && cfg.MaxRequestBatch == 0 && c.env.MaxRequestBatch > 0 {
		if c.env.Pedantic {
			return ErrPedantic("max_request_batch must be set if it's JetStream limits are set")
		}
		cfg.MaxRequestBatch = c.env.MaxRequestBatch
	}
	if cfg.PriorityPolicy == PriorityPinnedClient && cfg.PinnedTTL == 0 {
		cfg.PinnedTTL = DefaultPinnedTTL
	}
	if cfg.AckPolicy == AckFlowControl && !c.env.Pedantic {
		cfg.FlowControl = true
		cfg.Heartbeat = FlowControlHeartbeat
	}
	return nil
}

func (c *consumerCheck) streamDefaults() *Error {
	cfg, limits := c.cfg, c.env.Stream.ConsumerLimits
	if cfg.MaxAckPending == 0 {
		if c.env.Pedantic && limits.MaxAckPending > 0 {
			return ErrPedantic("max_ack_pending must be set if it's configured in stream limits")
		}
		cfg.MaxAckPending = limits.MaxAckPending
	}
	if cfg.InactiveThreshold == 0 {
		if c.env.Pedantic && limits.InactiveThreshold > 0 {
			return ErrPedantic("inactive_threshold must be set if it's configured in stream limits")
		}
		cfg.InactiveThreshold = limits.InactiveThreshold
	}
	return nil
}

// leastLimit returns the least of n and the limits that are set.
func leastLimit(n int, limits ...int) int {
	for _, l := range limits {
		if l > 0 && l < n {
			n = l
		}
	}
	return n
}

func (c *consumerCheck) names() *Error {
	if c.cfg.Name != "" && !ValidName(c.cfg.Name) {
		return ErrInvalidConfig(`consumer name can not contain '.', '*', '>', '\', '/'`)
	}
	if c.cfg.Durable != "" && !ValidName(c.cfg.Durable) {
		return ErrInvalidConfig(`consumer durable name can not contain '.', '*', '>', '\', '/'`)
	}
	return nil
}

func (c *consumerCheck) replicas() *Error {
	switch n, s := c.cfg.Replicas, c.env.Stream; {
	case n > 0 && n > s.Replicas:
		return NewError(CodeConsumerReplicasExceedsStream)
	case n < 0:
		return NewError(CodeReplicasCountCannotBeNegative)
	case s.Retention != LimitsPolicy && n != 0 && n != s.Replicas:
		return NewError(CodeConsumerReplicasShouldMatchStream)
	}
	return nil
}

func (c *consumerCheck) policies() *Error {
	if c.cfg.AckPolicy > AckFlowControl {
		return NewError(CodeConsumerAckPolicyInvalid)
	}
	if c.cfg.ReplayPolicy > ReplayOriginal {
		return NewError(CodeConsumerReplayPolicyInvalid)
	}
	for _, b := range c.cfg.BackOff {
		if b < 0 {
			return NewError(CodeConsumerBackOffNegative)
		}
	}
	if c.cfg.AckWait < 0 {
		return NewError(CodeConsumerAckWaitNegative)
	}
	return nil
}

func (c *consumerCheck) ackFlowControl() *Error {
	switch cfg := c.cfg; {
	case cfg.AckPolicy != AckFlowControl:
	case !cfg.IsPush():
		return NewError(CodeConsumerAckFCRequiresPush)
	case !cfg.FlowControl:
		return NewError(CodeConsumerAckFCRequiresFC)
	case cfg.Heartbeat != FlowControlHeartbeat:
		return ErrInvalidConfig("flow control ack policy heartbeat needs to be 1s")
	case cfg.MaxAckPending <= 0:
		return NewError(CodeConsumerAckFCRequiresMaxAckPending)
	case cfg.AckWait != 0 || len(cfg.BackOff) > 0:
		return NewError(CodeConsumerAckFCRequiresNoAckWait)
	case cfg.MaxDeliver > 0:
		return NewError(CodeConsumerAckFCRequiresNoMaxDeliver)
	}
	return nil
}

func (c *consumerCheck) backoff() *Error {
	if err := checkBackoff(c.cfg); err != nil {
		return err
	}
	if len(c.cfg.Description) > MaxDescriptionLen {
		return NewError(CodeConsumerDescriptionTooLong, MaxDescriptionLen)
	}
	return nil
}

func checkBackoff(cfg *ConsumerConfig) *Error {
	if n := len(cfg.BackOff); n > 0 && cfg.MaxDeliver != -1 && n > cfg.MaxDeliver {
		return NewError(CodeConsumerMaxDeliverBackoff)
	}
	return nil
}

func (c *consumerCheck) push() *Error {
	cfg := c.cfg
	if !cfg.IsPush() {
		return nil
	}
	if HasWildcards(cfg.DeliverSubject) {
		return NewError(CodeConsumerDeliverToWildcards)
	}
	if !ValidSubject(cfg.DeliverSubject) || reservedDestination(cfg.DeliverSubject) {
		return NewError(CodeConsumerInvalidDeliverSubject)
	}
	for _, s := range c.env.Stream.Subjects {
		if SubjectIsSubset(cfg.DeliverSubject, s) {
			return NewError(CodeConsumerDeliverCycle)
		}
	}
	switch {
	case cfg.MaxWaiting != 0:
		return NewError(CodeConsumerPushMaxWaiting)
	case cfg.MaxAckPending > 0 && cfg.AckPolicy == AckNone:
		return NewError(CodeConsumerMaxPendingAckPolicyRequired)
	case cfg.Heartbeat > 0 && cfg.Heartbeat < MinWindow:
		return NewError(CodeConsumerSmallHeartbeat)
	}
	return nil
}

// reservedDestination reports whether messages to a subject would do something to the server:
// service replies, gateway routes and JetStream's own subjects.
func reservedDestination(s string) bool {
	if strings.HasPrefix(s, "_R_.") || strings.HasPrefix(s, "_GR_.") || strings.HasPrefix(s, "$GR.") {
		return true
	}
	if !strings.HasPrefix(s, "$JS.") {
		return false
	}
	switch Token(s, 1) {
	case "API", "ACK", "FC", "SNAPSHOT", "EVENT":
		return true
	}
	return Token(s, 2) == "API"
}

func (c *consumerCheck) pull() *Error {
	cfg := c.cfg
	if cfg.IsPush() {
		return nil
	}
	switch {
	case cfg.AckPolicy == AckNone && c.env.Stream.Retention == WorkQueuePolicy:
		return NewError(CodeConsumerPullRequiresAck)
	case cfg.RateLimit > 0:
		return NewError(CodeConsumerPullWithRateLimit)
	case cfg.Heartbeat > 0:
		return NewError(CodeConsumerHBRequiresPush)
	case cfg.FlowControl:
		return NewError(CodeConsumerFCRequiresPush)
	case cfg.MaxRequestExpires != 0 && cfg.MaxRequestExpires < time.Millisecond:
		return NewError(CodeConsumerMaxRequestExpiresTooSmall)
	case c.env.MaxRequestBatch > 0 && cfg.MaxRequestBatch > c.env.MaxRequestBatch:
		return NewError(CodeConsumerMaxRequestBatchExceeded, c.env.MaxRequestBatch)
	}
	return nil
}

func (c *consumerCheck) limits() *Error {
	limits := c.env.Stream.ConsumerLimits
	for _, l := range [...]int{c.env.MaxAckPending, c.env.AccountMaxAckPending, limits.MaxAckPending} {
		if l > 0 && c.cfg.MaxAckPending > l {
			return NewError(CodeConsumerMaxPendingAckExcess, l)
		}
	}
	if limits.InactiveThreshold > 0 && c.cfg.InactiveThreshold > limits.InactiveThreshold {
		return NewError(CodeConsumerInactiveThresholdExcess, limits.InactiveThreshold)
	}
	return nil
}

func (c *consumerCheck) direct() *Error {
	switch {
	case !c.cfg.Direct:
	case !c.cfg.IsPush():
		return NewError(CodeConsumerDirectRequiresPush)
	case c.cfg.IsDurable():
		return NewError(CodeConsumerDirectRequiresEphemeral)
	}
	return nil
}

func (c *consumerCheck) filters() *Error {
	cfg := c.cfg
	if cfg.FilterSubject != "" && len(cfg.FilterSubjects) > 0 {
		return NewError(CodeConsumerDuplicateFilterSubjects)
	}
	if slices.Contains(cfg.FilterSubjects, "") {
		return NewError(CodeConsumerEmptyFilter)
	}
	filters := cfg.Filters()
	for i, f := range filters {
		if !ValidSubject(f) {
			return ErrInvalidConfig(ErrBadSubject.Error())
		}
		for j, g := range filters {
			if i != j && SubjectIsSubset(f, g) {
				return NewError(CodeConsumerOverlappingSubjectFilters)
			}
		}
	}
	return nil
}

func (c *consumerCheck) rest() *Error {
	switch cfg := c.cfg; {
	case cfg.FlowControl && cfg.Heartbeat == 0:
		return NewError(CodeConsumerWithFlowControlNeedsHeartbeats)
	case cfg.Durable != "" && cfg.Name != "" && cfg.Name != cfg.Durable:
		return NewError(CodeConsumerCreateDurableAndNameMismatch)
	case metadataLen(cfg.Metadata) > MaxMetadataLen:
		return NewError(CodeConsumerMetadataLength, fmt.Sprintf("%dKB", MaxMetadataLen/1024))
	}
	return nil
}

func (c *consumerCheck) priority() *Error {
	cfg := c.cfg
	if cfg.PriorityPolicy == PriorityNone {
		if len(cfg.PriorityGroups) > 0 {
			return NewError(CodeConsumerPriorityGroupWithPolicyNone)
		}
		if cfg.PinnedTTL > 0 {
			return NewError(CodeConsumerPinnedTTLWithoutPriorityPolicyNone)
		}
		return nil
	}
	if cfg.IsPush() {
		return NewError(CodeConsumerPushWithPriorityGroup)
	}
	if len(cfg.PriorityGroups) == 0 {
		return NewError(CodeConsumerPriorityPolicyWithoutGroup)
	}
	for _, g := range cfg.PriorityGroups {
		if g == "" {
			return NewError(CodeConsumerEmptyGroupName)
		}
		if !ValidGroupName(g) {
			return NewError(CodeConsumerInvalidGroupName)
		}
	}
	return nil
}

func (c *consumerCheck) holdfast() *Error {
	return checkConsumerMetadata(c.cfg.Metadata)
}
