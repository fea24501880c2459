package jsapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// AckLevel says what must have happened before a publish is acknowledged. Higher is stronger, so
// levels compare with < and max.
type AckLevel uint8

// The levels. LevelUnset is "not said".
const (
	LevelUnset AckLevel = iota
	// LevelNone promises only that the leader received the message; the PubAck has sequence 0.
	LevelNone
	// LevelLeader promises that the leader has it on disk; the PubAck's sequence is provisional.
	LevelLeader
	// LevelQuorum promises that a majority has it on disk and the leader has applied it.
	LevelQuorum
)

// knownLevels lists the levels for error texts.
const knownLevels = "quorum, leader, none"

func levelNames() []string { return []string{"", "none", "leader", "quorum"} }

// String returns the level's name in headers and metadata, "unset" for LevelUnset.
func (l AckLevel) String() string {
	if l == LevelUnset {
		return "unset"
	}
	return enumName(levelNames(), int(l))
}

// UnknownLevelError is what ParseAckLevel refuses a value with; it names the three levels.
type UnknownLevelError struct {
	// Value is what was said.
	Value string
}

// Error names the value and the levels that are accepted.
func (e *UnknownLevelError) Error() string {
	return fmt.Sprintf("unknown ack level %q, accepted are %s", e.Value, knownLevels)
}

// ParseAckLevel parses the name of a level, in lower case as String writes it. Any other value,
// the empty one included, is an *UnknownLevelError.
func ParseAckLevel[T string | []byte](s T) (AckLevel, error) {
	switch string(s) {
	case "quorum":
		return LevelQuorum, nil
	case "leader":
		return LevelLeader, nil
	case "none":
		return LevelNone, nil
	}
	return LevelUnset, &UnknownLevelError{Value: string(s)}
}

// Stream metadata that Holdfast reads. Other keys that start with MetaHoldfast are refused.
const (
	// MetaHoldfast starts every key of ours.
	MetaHoldfast = "holdfast."
	// MetaAck is the level of a publish that names none; quorum when the key is absent.
	MetaAck = "holdfast.ack"
	// MetaMinAck is the weakest level that the stream accepts; none when the key is absent.
	MetaMinAck = "holdfast.min_ack"
)

// AckLevels are the levels of one stream.
type AckLevels struct {
	// Default is the level of a publish that names none.
	Default AckLevel
	// Floor is the weakest level accepted.
	Floor AckLevel
	// QuorumOnly refuses every weaker level, whatever Floor says.
	QuorumOnly bool
}

// StreamAckLevels reads a stream's levels. Unknown holdfast.* keys, unknown values, and settings
// that no publish could satisfy are 10052, with what is accepted in the text.
func StreamAckLevels(cfg *StreamConfig) (AckLevels, *Error) {
	levels := AckLevels{
		Default:    LevelQuorum,
		Floor:      LevelNone,
		QuorumOnly: cfg.AllowRollup || cfg.AllowMsgCounter,
	}
	for _, key := range slices.Sorted(maps.Keys(cfg.Metadata)) {
		if !strings.HasPrefix(key, MetaHoldfast) {
			continue
		}
		var err error
		switch key {
		case MetaAck:
			levels.Default, err = ParseAckLevel(cfg.Metadata[key])
		case MetaMinAck:
			levels.Floor, err = ParseAckLevel(cfg.Metadata[key])
		default:
			err = fmt.Errorf("unknown key, known are %s, %s", MetaAck, MetaMinAck)
		}
		if err != nil {
			return AckLevels{}, ErrInvalidConfig(fmt.Sprintf("stream metadata %q: %v", key, err))
		}
	}
	if levels.Default < levels.Floor {
		return AckLevels{}, ErrInvalidConfig(fmt.Sprintf("stream metadata: %s %q is weaker than %s %q",
			MetaAck, levels.Default, MetaMinAck, levels.Floor))
	}
	if levels.QuorumOnly && levels.Default != LevelQuorum {
		return AckLevels{}, ErrInvalidConfig(fmt.Sprintf(
			"stream metadata: %s %q is not possible on a stream with roll-ups or counters, "+
				"accepted is quorum",
			MetaAck, levels.Default))
	}
	return levels, nil
}

// Resolve returns the level of one publish. asked is the value of Holdfast-Ack, empty when it is
// not there; floor is the server's; needQuorum is set for a message that may only be acknowledged
// by quorum (PublishHeaders.NeedsQuorum). Without a wish the level is the strongest that any rule
// asks for. An unknown or too weak wish is refused, 10003 with the reason.
//
//nolint:revive // flag-parameter: needQuorum is a fact about the message, not a mode.
func (l AckLevels) Resolve(asked []byte, floor AckLevel, needQuorum bool) (AckLevel, *Error) {
	least := max(l.Floor, floor, LevelNone)
	if needQuorum || l.QuorumOnly {
		least = LevelQuorum
	}
	if len(asked) == 0 {
		return max(l.Default, least), nil
	}
	level, err := ParseAckLevel(asked)
	if err != nil {
		return LevelUnset, WithText(CodeBadRequest, HdrHoldfastAck+": "+err.Error())
	}
	if level < least {
		return LevelUnset, WithText(CodeBadRequest, fmt.Sprintf(
			"%s: level %q is weaker than the %q that this message needs", HdrHoldfastAck, level, least))
	}
	return level, nil
}

// checkConsumerMetadata refuses holdfast.* keys on consumers, where none is known yet.
func checkConsumerMetadata(metadata map[string]string) *Error {
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if strings.HasPrefix(key, MetaHoldfast) {
			return ErrInvalidConfig(fmt.Sprintf(
				"consumer metadata %q: unknown key, consumers have no %s* keys", key, MetaHoldfast))
		}
	}
	return nil
}
