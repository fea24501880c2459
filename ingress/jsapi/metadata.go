package jsapi

import (
	"maps"
	"strconv"
)

// MaxAPILevel is the JetStream API level whose configuration this package can express.
const MaxAPILevel = 5

// Metadata that the server keeps. The level that an asset needs is stored with it; version and
// level of the server are only added to answers.
const (
	MetaRequiredLevel = "_nats.req.level"
	MetaServerVersion = "_nats.ver"
	MetaServerLevel   = "_nats.level"
)

// API levels at which features came.
const (
	levelTTL      = 1
	levelPriority = 1
	levelBatch    = 2
	levelFast     = 4
	levelAckFC    = 4
)

// RequiredLevel returns the lowest API level that can host the stream.
func (c *StreamConfig) RequiredLevel() int {
	level := 0
	if c.AllowMsgTTL || c.DeleteMarkerTTL > 0 {
		level = levelTTL
	}
	if c.AllowMsgCounter || c.AllowAtomic || c.AllowSchedules || c.PersistMode == PersistAsync {
		level = levelBatch
	}
	if c.AllowBatched {
		level = levelFast
	}
	return level
}

// RequiredLevel returns the lowest API level that can host the consumer.
func (c *ConsumerConfig) RequiredLevel() int {
	if c.AckPolicy == AckFlowControl {
		return levelAckFC
	}
	if c.PauseUntil != nil && !c.PauseUntil.IsZero() ||
		c.PriorityPolicy != PriorityNone || c.PinnedTTL != 0 || len(c.PriorityGroups) > 0 {
		return levelPriority
	}
	return 0
}

// staticMetadata returns a copy of m with the required level and without the dynamic keys, which
// a client may send back from an earlier answer.
func staticMetadata(m map[string]string, level int) map[string]string {
	n := make(map[string]string, len(m)+1)
	maps.Copy(n, m)
	delete(n, MetaServerVersion)
	delete(n, MetaServerLevel)
	n[MetaRequiredLevel] = strconv.Itoa(level)
	return n
}

// dynamicMetadata returns a copy of m with the server's version and level.
func dynamicMetadata(m map[string]string, version string, level int) map[string]string {
	n := make(map[string]string, len(m)+2)
	maps.Copy(n, m)
	n[MetaServerVersion] = version
	n[MetaServerLevel] = strconv.Itoa(level)
	return n
}

// WithStaticMetadata returns a shallow copy whose metadata is what is stored: with the required
// level, without the dynamic keys.
func (c *StreamConfig) WithStaticMetadata() *StreamConfig {
	n := *c
	n.Metadata = staticMetadata(c.Metadata, c.RequiredLevel())
	return &n
}

// WithDynamicMetadata returns a shallow copy whose metadata has the server's version and API level:
// what create, update and info answers show. LIST and snapshots do not.
func (c *StreamConfig) WithDynamicMetadata(version string, level int) *StreamConfig {
	n := *c
	n.Metadata = dynamicMetadata(c.Metadata, version, level)
	return &n
}

// WithStaticMetadata is as for streams.
func (c *ConsumerConfig) WithStaticMetadata() *ConsumerConfig {
	n := *c
	n.Metadata = staticMetadata(c.Metadata, c.RequiredLevel())
	return &n
}

// WithDynamicMetadata is as for streams.
func (c *ConsumerConfig) WithDynamicMetadata(version string, level int) *ConsumerConfig {
	n := *c
	n.Metadata = dynamicMetadata(c.Metadata, version, level)
	return &n
}

// metadataLen is the size that MaxMetadataLen bounds.
func metadataLen(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}
