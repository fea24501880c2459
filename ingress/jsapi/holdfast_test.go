package jsapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAckLevel(t *testing.T) {
	t.Parallel()
	if LevelUnset >= LevelNone || LevelNone >= LevelLeader || LevelLeader >= LevelQuorum {
		t.Error("the levels are out of order")
	}
	for _, l := range []AckLevel{LevelNone, LevelLeader, LevelQuorum} {
		if got, err := ParseAckLevel(l.String()); got != l || err != nil {
			t.Errorf("%s: %v %v", l, got, err)
		}
		if got, err := ParseAckLevel([]byte(l.String())); got != l || err != nil {
			t.Errorf("%s: %v %v", l, got, err)
		}
	}
	for _, s := range []string{"", "Quorum", "quorum ", "all", "unset"} {
		got, err := ParseAckLevel(s)
		unknown, ok := errors.AsType[*UnknownLevelError](err)
		if got != LevelUnset || !ok || unknown.Value != s {
			t.Errorf("%q: %v %v", s, got, err)
			continue
		}
		for _, name := range []string{"quorum", "leader", "none"} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%q does not name %s", err, name)
			}
		}
	}
	if got := LevelUnset.String(); got != "unset" {
		t.Error(got)
	}
	if got := AckLevel(9).String(); got != "unknown" {
		t.Error(got)
	}
}

func TestStreamAckLevels(t *testing.T) {
	t.Parallel()
	type meta = map[string]string
	for _, tc := range []struct {
		name string
		cfg  StreamConfig
		want AckLevels
		text string
	}{
		{name: "nothing said", want: AckLevels{Default: LevelQuorum, Floor: LevelNone}},
		{
			name: "both",
			cfg:  StreamConfig{Metadata: meta{MetaAck: "leader", MetaMinAck: "leader", "other": "x"}},
			want: AckLevels{Default: LevelLeader, Floor: LevelLeader},
		},
		{
			name: "default none", cfg: StreamConfig{Metadata: meta{MetaAck: "none"}},
			want: AckLevels{Default: LevelNone, Floor: LevelNone},
		},
		{
			name: "roll-ups", cfg: StreamConfig{AllowRollup: true},
			want: AckLevels{Default: LevelQuorum, Floor: LevelNone, QuorumOnly: true},
		},
		{
			name: "unknown key", cfg: StreamConfig{Metadata: meta{"holdfast.foo": "x"}},
			text: `stream metadata "holdfast.foo": unknown key, known are holdfast.ack, holdfast.min_ack`,
		},
		{
			name: "unknown value", cfg: StreamConfig{Metadata: meta{MetaAck: "all"}},
			text: `stream metadata "holdfast.ack": unknown ack level "all", ` +
				`accepted are quorum, leader, none`,
		},
		{
			name: "unknown floor", cfg: StreamConfig{Metadata: meta{MetaMinAck: ""}},
			text: `stream metadata "holdfast.min_ack": unknown ack level "", ` +
				`accepted are quorum, leader, none`,
		},
		{
			name: "below its own floor",
			cfg:  StreamConfig{Metadata: meta{MetaAck: "none", MetaMinAck: "leader"}},
			text: `stream metadata: holdfast.ack "none" is weaker than holdfast.min_ack "leader"`,
		},
		{
			name: "weak with roll-ups",
			cfg:  StreamConfig{AllowRollup: true, Metadata: meta{MetaAck: "leader"}},
			text: `stream metadata: holdfast.ack "leader" is not possible on a stream with roll-ups ` +
				`or counters, accepted is quorum`,
		},
	} {
		got, err := StreamAckLevels(&tc.cfg)
		if tc.text != "" {
			if diff := cmp.Diff(ErrInvalidConfig(tc.text), err); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.name, diff)
			}
			tc.cfg.Name = "S"
			if _, err := CheckStreamConfig(&tc.cfg, &StreamEnv{}); err == nil || err.Description != tc.text {
				t.Errorf("%s: CheckStreamConfig says %v", tc.name, err)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v %v", tc.name, got, err)
		}
	}
}

func TestResolveAckLevel(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		levels AckLevels
		asked  string
		floor  AckLevel
		need   bool
		want   AckLevel
		text   string
	}{
		{name: "default", levels: AckLevels{Default: LevelQuorum}, want: LevelQuorum},
		{name: "weak default", levels: AckLevels{Default: LevelNone}, want: LevelNone},
		{
			name: "default raised by the server", levels: AckLevels{Default: LevelNone},
			floor: LevelLeader, want: LevelLeader,
		},
		{
			name: "default raised by need", levels: AckLevels{Default: LevelNone}, need: true,
			want: LevelQuorum,
		},
		{name: "asked", levels: AckLevels{Default: LevelQuorum}, asked: "none", want: LevelNone},
		{
			name: "stronger than needed", levels: AckLevels{Default: LevelNone}, asked: "quorum",
			want: LevelQuorum,
		},
		{
			name: "unknown", levels: AckLevels{Default: LevelQuorum}, asked: "two",
			text: `Holdfast-Ack: unknown ack level "two", accepted are quorum, leader, none`,
		},
		{
			name:   "below the stream's floor",
			levels: AckLevels{Default: LevelQuorum, Floor: LevelLeader}, asked: "none",
			text: `Holdfast-Ack: level "none" is weaker than the "leader" that this message needs`,
		},
		{
			name: "below the server's floor", levels: AckLevels{Default: LevelQuorum}, asked: "leader",
			floor: LevelQuorum,
			text:  `Holdfast-Ack: level "leader" is weaker than the "quorum" that this message needs`,
		},
		{
			name: "too weak for the headers", levels: AckLevels{Default: LevelQuorum}, asked: "leader",
			need: true,
			text: `Holdfast-Ack: level "leader" is weaker than the "quorum" that this message needs`,
		},
		{
			name: "too weak for the stream", levels: AckLevels{Default: LevelQuorum, QuorumOnly: true},
			asked: "leader",
			text:  `Holdfast-Ack: level "leader" is weaker than the "quorum" that this message needs`,
		},
	} {
		got, err := tc.levels.Resolve([]byte(tc.asked), tc.floor, tc.need)
		if tc.text != "" {
			want := &Error{Code: 400, ErrCode: CodeBadRequest, Description: tc.text}
			if diff := cmp.Diff(want, err); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.name, diff)
			}
			continue
		}
		if got != tc.want || err != nil {
			t.Errorf("%s: %v %v", tc.name, got, err)
		}
	}
}

func TestConsumerMetadata(t *testing.T) {
	t.Parallel()
	env := &ConsumerEnv{Stream: &StreamConfig{Name: "S", Replicas: 1}}
	cfg := &ConsumerConfig{Metadata: map[string]string{"holdfast.ack": "quorum"}}
	_, err := CheckConsumerConfig(cfg, env)
	want := ErrInvalidConfig(
		`consumer metadata "holdfast.ack": unknown key, consumers have no holdfast.* keys`)
	if diff := cmp.Diff(want, err); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
