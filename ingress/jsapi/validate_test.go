package jsapi

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStreamEnv checks the rules that depend on the surroundings, which the real server of the
// other tests does not have.
func TestStreamEnv(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		cfg  StreamConfig
		env  StreamEnv
		want *Error
	}{
		{name: "replicas fit", cfg: StreamConfig{Replicas: 3}, env: StreamEnv{MaxVoters: 3}},
		{name: "no bound", cfg: StreamConfig{Replicas: 5}},
		{
			name: "one voter", cfg: StreamConfig{Replicas: 2}, env: StreamEnv{MaxVoters: 1},
			want: NewError(CodeStreamReplicasNotSupported),
		},
		{
			name: "too few voters", cfg: StreamConfig{Replicas: 5}, env: StreamEnv{MaxVoters: 3},
			want: NewError(CodeClusterNoPeers,
				"no suitable peers for placement, num_replicas 5 exceeds the 3 voters"),
		},
		{
			name: "window at the limit", cfg: StreamConfig{Duplicates: time.Minute},
			env: StreamEnv{MaxDuplicates: time.Minute},
		},
		{
			name: "window past the limit", cfg: StreamConfig{Duplicates: time.Minute + 1},
			env:  StreamEnv{MaxDuplicates: time.Minute},
			want: ErrInvalidConfig("duplicates window can not be larger then server limit of 1m0s"),
		},
		{name: "default window above the limit", env: StreamEnv{MaxDuplicates: time.Minute}},
		{
			name: "pedantic", env: StreamEnv{MaxDuplicates: time.Minute, Pedantic: true},
			want: ErrPedantic("duplicate window limits are higher than current limits"),
		},
		{
			name: "max bytes demanded", env: StreamEnv{MaxBytesRequired: true},
			want: NewError(CodeStreamMaxBytesRequired),
		},
		{name: "max bytes given", cfg: StreamConfig{MaxBytes: 5}, env: StreamEnv{MaxBytesRequired: true}},
		{
			name: "max bytes at the limit", cfg: StreamConfig{MaxBytes: 5},
			env: StreamEnv{MaxStreamBytesFile: 5},
		},
		{
			name: "max bytes past the limit", cfg: StreamConfig{MaxBytes: 6},
			env:  StreamEnv{MaxStreamBytesFile: 5},
			want: NewError(CodeStreamMaxStreamBytesExceeded),
		},
		{
			name: "another storage", cfg: StreamConfig{MaxBytes: 6, Storage: MemoryStorage},
			env: StreamEnv{MaxStreamBytesFile: 5},
		},
		{
			name: "memory past the limit", cfg: StreamConfig{MaxBytes: 6, Storage: MemoryStorage},
			env:  StreamEnv{MaxStreamBytesMemory: 5},
			want: NewError(CodeStreamMaxStreamBytesExceeded),
		},
		{name: "bad retention", cfg: StreamConfig{Retention: 9}, want: ErrInvalidConfig("invalid retention")},
		{
			name: "bad discard", cfg: StreamConfig{Discard: 9},
			want: ErrInvalidConfig("invalid discard policy"),
		},
		{
			name: "bad compression", cfg: StreamConfig{Compression: 9},
			want: ErrInvalidConfig("invalid compression"),
		},
		{name: "bad storage", cfg: StreamConfig{Storage: 9}, want: ErrInvalidConfig("invalid storage type")},
	} {
		tc.cfg.Name = "S"
		got, err := CheckStreamConfig(&tc.cfg, &tc.env)
		if diff := cmp.Diff(tc.want, err); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if tc.name == "default window above the limit" && got.Duplicates != time.Minute {
			t.Errorf("the default window is %v", got.Duplicates)
		}
		if tc.cfg.Subjects != nil || tc.cfg.Metadata != nil {
			t.Errorf("%s: the request was written to", tc.name)
		}
	}
}

func TestConsumerEnv(t *testing.T) {
	t.Parallel()
	stream := &StreamConfig{Name: "S", Replicas: 3}
	for _, tc := range []struct {
		name string
		cfg  ConsumerConfig
		env  ConsumerEnv
		want *Error
	}{
		{
			name: "ack pending at the limit", cfg: ConsumerConfig{MaxAckPending: 5},
			env: ConsumerEnv{MaxAckPending: 5},
		},
		{
			name: "ack pending past the limit", cfg: ConsumerConfig{MaxAckPending: 6},
			env:  ConsumerEnv{MaxAckPending: 5},
			want: NewError(CodeConsumerMaxPendingAckExcess, 5),
		},
		{
			name: "past the account's limit", cfg: ConsumerConfig{MaxAckPending: 6},
			env:  ConsumerEnv{MaxAckPending: 9, AccountMaxAckPending: 5},
			want: NewError(CodeConsumerMaxPendingAckExcess, 5),
		},
		{
			name: "batch past the limit", cfg: ConsumerConfig{MaxRequestBatch: 6},
			env:  ConsumerEnv{MaxRequestBatch: 5},
			want: NewError(CodeConsumerMaxRequestBatchExceeded, 5),
		},
		{
			name: "batch not said", env: ConsumerEnv{MaxRequestBatch: 5, Pedantic: true},
			want: ErrPedantic("max_request_batch must be set if it's JetStream limits are set"),
		},
		{name: "replicas fit", cfg: ConsumerConfig{Replicas: 3}},
		{
			name: "more replicas than the stream", cfg: ConsumerConfig{Replicas: 4},
			want: NewError(CodeConsumerReplicasExceedsStream),
		},
		{
			name: "bad ack policy", cfg: ConsumerConfig{AckPolicy: 9},
			want: NewError(CodeConsumerAckPolicyInvalid),
		},
		{
			name: "bad replay policy", cfg: ConsumerConfig{ReplayPolicy: 9},
			want: NewError(CodeConsumerReplayPolicyInvalid),
		},
	} {
		tc.env.Stream = stream
		_, err := CheckConsumerConfig(&tc.cfg, &tc.env)
		if diff := cmp.Diff(tc.want, err); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	got, err := CheckConsumerConfig(&ConsumerConfig{AckPolicy: AckExplicit},
		&ConsumerEnv{Stream: stream, MaxAckPending: 300, AccountMaxAckPending: 200, MaxRequestBatch: 7})
	if err != nil || got.MaxAckPending != 200 || got.MaxRequestBatch != 7 {
		t.Errorf("%+v %v", got, err)
	}
	interest := &StreamConfig{Name: "S", Replicas: 3, Retention: InterestPolicy}
	_, err = CheckConsumerConfig(&ConsumerConfig{Replicas: 1}, &ConsumerEnv{Stream: interest})
	if diff := cmp.Diff(NewError(CodeConsumerReplicasShouldMatchStream), err); diff != "" {
		t.Error(diff)
	}
}

func TestConsumerUpdateBound(t *testing.T) {
	t.Parallel()
	old := &ConsumerConfig{DeliverSubject: "d"}
	moved := &ConsumerConfig{DeliverSubject: "e"}
	if err := CheckConsumerUpdate(old, moved, false); err != nil {
		t.Error(err)
	}
	if err := CheckConsumerUpdate(old, moved, true); err == nil || err.ErrCode != CodeConsumerNameExist {
		t.Error(err)
	}
	for text, n := range map[string]*ConsumerConfig{
		"direct can not be updated":   {DeliverSubject: "d", Direct: true},
		"sourcing can not be updated": {DeliverSubject: "d", Sourcing: true},
	} {
		if err := CheckConsumerUpdate(old, n, false); err == nil || err.Description != text {
			t.Error(err)
		}
	}
}

func TestCheckWorkQueueUpdate(t *testing.T) {
	t.Parallel()
	others := []*ConsumerConfig{{Name: "o", FilterSubject: "a.x"}}
	for filter, want := range map[string]bool{"a.y": true, "a.*": false, "": false} {
		cfg := &ConsumerConfig{FilterSubject: filter, AckPolicy: AckAll, DeliverPolicy: DeliverNew}
		err := CheckWorkQueue(cfg, slices.Values(others), true)
		if (err == nil) != want || err != nil && err.ErrCode != CodeConsumerWQConsumerNotUnique {
			t.Errorf("%q: %v", filter, err)
		}
	}
	if err := CheckWorkQueue(&ConsumerConfig{}, slices.Values([]*ConsumerConfig(nil)), true); err != nil {
		t.Error(err)
	}
}

func TestCheckConsumerLimits(t *testing.T) {
	t.Parallel()
	consumers := slices.Values([]*ConsumerConfig{
		{Name: "b", MaxAckPending: 9}, {Name: "a", InactiveThreshold: 9}, {Name: "c"},
	})
	limits := func(threshold time.Duration, pending int) *StreamConfig {
		return &StreamConfig{
			ConsumerLimits: ConsumerLimits{InactiveThreshold: threshold, MaxAckPending: pending},
		}
	}
	for _, tc := range []struct {
		old, n *StreamConfig
		want   string
	}{
		{old: limits(0, 0), n: limits(9, 9)},
		{old: limits(0, 0), n: limits(8, 8), want: "change to limits violates consumers: a, b"},
		{old: limits(0, 0), n: limits(0, 8), want: "change to limits violates consumers: b"},
		{old: limits(8, 8), n: limits(8, 8)},
		{old: limits(8, 8), n: limits(0, 0)},
	} {
		err := CheckConsumerLimits(tc.old, tc.n, consumers)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Description != tc.want ||
			err.ErrCode != CodeStreamUpdate) {
			t.Errorf("%+v to %+v: %v", tc.old.ConsumerLimits, tc.n.ConsumerLimits, err)
		}
	}
}

func TestCheckAccountLimits(t *testing.T) {
	t.Parallel()
	limits := Unlimited()
	limits.MaxStreams, limits.MaxStore, limits.MaxMemory = 2, 100, 10
	unlimited := Unlimited()
	for _, tc := range []struct {
		name   string
		cfg    StreamConfig
		limits *AccountLimits
		usage  AccountUsage
		want   ErrCode
	}{
		{
			name: "no limits", cfg: StreamConfig{MaxBytes: 1 << 60, Replicas: 1}, limits: &unlimited,
			usage: AccountUsage{Streams: 99},
		},
		{name: "last stream", limits: &limits, usage: AccountUsage{Streams: 1}},
		{
			name: "a stream too many", limits: &limits, usage: AccountUsage{Streams: 2},
			want: CodeMaximumStreamsLimit,
		},
		{
			name: "storage full", cfg: StreamConfig{MaxBytes: 50}, limits: &limits,
			usage: AccountUsage{ReservedStore: 50},
		},
		{
			name: "storage over", cfg: StreamConfig{MaxBytes: 51}, limits: &limits,
			usage: AccountUsage{ReservedStore: 50},
			want:  CodeStorageResourcesExceeded,
		},
		{
			name: "replicas count", cfg: StreamConfig{MaxBytes: 26, Replicas: 2}, limits: &limits,
			usage: AccountUsage{ReservedStore: 50}, want: CodeStorageResourcesExceeded,
		},
		{
			name: "memory over", cfg: StreamConfig{MaxBytes: 11, Storage: MemoryStorage}, limits: &limits,
			want: CodeMemoryResourcesExceeded,
		},
		{name: "memory full", cfg: StreamConfig{MaxBytes: 10, Storage: MemoryStorage}, limits: &limits},
	} {
		err := CheckAccountLimits(&tc.cfg, tc.limits, tc.usage)
		if tc.want == 0 && err != nil || tc.want != 0 && !IsCode(err, tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestConfigEqual(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	elsewhere := at.In(time.FixedZone("x", 3600))
	full := StreamConfig{
		Name: "S", Subjects: []string{"a"}, Metadata: map[string]string{"k": "v"},
		Placement: &Placement{Tags: []string{"t"}}, RePublish: &RePublish{Destination: "r"},
		SubjectTransform: &SubjectTransform{Source: "a"},
		Mirror:           &StreamSource{Name: "M", OptStartTime: &at},
		Sources: []*StreamSource{{
			Name: "O", OptStartTime: &at, SubjectTransforms: []SubjectTransform{{Source: "x"}},
			External: &ExternalStream{APIPrefix: "p"}, Consumer: &SourceConsumer{Name: "c"},
		}},
	}
	if !StreamConfigEqual(&full, full.Clone()) {
		t.Error("a clone differs")
	}
	clone := full.Clone()
	clone.Metadata[MetaServerVersion] = "1"
	clone.Metadata[MetaServerLevel] = "5"
	clone.Metadata[MetaRequiredLevel] = "2"
	clone.Mirror.OptStartTime = &elsewhere
	clone.Sources[0].OptStartTime = &elsewhere
	clone.Mirror.SubjectTransforms = []SubjectTransform{}
	if !StreamConfigEqual(&full, clone) || full.Metadata[MetaServerVersion] != "" {
		t.Error("what the server keeps, spelling of times or empty lists differ")
	}
	empty := &StreamConfig{Sources: []*StreamSource{}, Metadata: map[string]string{}}
	if !StreamConfigEqual(empty, &StreamConfig{}) {
		t.Error("nothing differs from nothing")
	}
	for i, change := range []func(*StreamConfig){
		func(c *StreamConfig) { c.Subjects[0] = "b" },
		func(c *StreamConfig) { c.Metadata["k"] = "w" },
		func(c *StreamConfig) { c.Placement.Tags[0] = "u" },
		func(c *StreamConfig) { c.RePublish.Destination = "s" },
		func(c *StreamConfig) { c.SubjectTransform.Source = "b" },
		func(c *StreamConfig) { *c.Mirror.OptStartTime = at.Add(1) },
		func(c *StreamConfig) { c.Sources[0].SubjectTransforms[0].Source = "y" },
		func(c *StreamConfig) { c.Sources[0].External.APIPrefix = "q" },
		func(c *StreamConfig) { c.Sources[0].Consumer.Name = "d" },
		func(c *StreamConfig) { c.MaxMsgs = 1 },
	} {
		clone := full.Clone()
		before, _ := json.Marshal(full)
		change(clone)
		if StreamConfigEqual(&full, clone) {
			t.Errorf("change %d is not seen", i)
		}
		if after, _ := json.Marshal(full); !bytes.Equal(before, after) {
			t.Errorf("change %d went through the clone", i)
		}
	}
	consumer := ConsumerConfig{
		Name: "C", OptStartTime: &at, PauseUntil: &at, BackOff: []time.Duration{1},
		FilterSubjects: []string{"a"},
		Metadata:       map[string]string{"k": "v"}, PriorityGroups: []string{"g"},
	}
	other := consumer.Clone()
	other.PauseUntil = &elsewhere
	other.Metadata[MetaServerVersion] = "1"
	if !ConsumerConfigEqual(&consumer, other) {
		t.Error("equal consumers differ")
	}
	for i, change := range []func(*ConsumerConfig){
		func(c *ConsumerConfig) { *c.OptStartTime = at.Add(1) },
		func(c *ConsumerConfig) { c.BackOff[0] = 2 },
		func(c *ConsumerConfig) { c.FilterSubjects[0] = "b" },
		func(c *ConsumerConfig) { c.Metadata["k"] = "w" },
		func(c *ConsumerConfig) { c.PriorityGroups[0] = "h" },
		func(c *ConsumerConfig) { *c.PauseUntil = at.Add(1) },
	} {
		other := consumer.Clone()
		change(other)
		if ConsumerConfigEqual(&consumer, other) {
			t.Errorf("change %d is not seen", i)
		}
	}
}

func TestRequiredLevel(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, cfgs := range map[int][]StreamConfig{
		0: {{}, {AllowDirect: true}},
		1: {{AllowMsgTTL: true}, {DeleteMarkerTTL: 1}},
		2: {
			{AllowMsgCounter: true},
			{AllowAtomic: true},
			{AllowSchedules: true},
			{PersistMode: PersistAsync, AllowMsgTTL: true},
		},
		4: {{AllowBatched: true, AllowAtomic: true}},
	} {
		for i := range cfgs {
			if got := cfgs[i].RequiredLevel(); got != want {
				t.Errorf("%+v: %d", cfgs[i], got)
			}
		}
	}
	for want, cfgs := range map[int][]ConsumerConfig{
		0: {{}, {PauseUntil: &time.Time{}}},
		1: {
			{PauseUntil: &now},
			{PriorityPolicy: PriorityOverflow},
			{PriorityGroups: []string{"g"}},
			{PinnedTTL: 1},
		},
		4: {{AckPolicy: AckFlowControl, PauseUntil: &now}},
	} {
		for i := range cfgs {
			if got := cfgs[i].RequiredLevel(); got != want {
				t.Errorf("%+v: %d", cfgs[i], got)
			}
		}
	}
}

func TestSampleFrequency(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int{"": 0, "0": 0, "50": 50, "100%": 100, "250": 250} {
		if got, err := ParseSampleFrequency(s); got != want || err != nil {
			t.Errorf("%q: %d %v", s, got, err)
		}
	}
	for _, s := range []string{"x", "%", "5.5", "-1", "5%%", " 5"} {
		if got, err := ParseSampleFrequency(s); err == nil {
			t.Errorf("%q: %d", s, got)
		}
	}
}

// FuzzStreamRequest decodes and judges bodies; what passes must pass again unchanged.
func FuzzStreamRequest(f *testing.F) {
	for _, body := range streamBodies() {
		if len(body) < 1000 {
			f.Add(body)
		}
	}
	f.Fuzz(func(t *testing.T, body string) {
		cfg, err := judgeCreate(body, "", nil)
		if err != nil {
			return
		}
		again, err := CheckStreamConfig(cfg, oracleEnv(nil))
		if err != nil {
			t.Fatalf("%s: accepted, then %v", body, err)
		}
		if !StreamConfigEqual(cfg, again) {
			t.Errorf("%s: %s", body, cmp.Diff(cfg, again))
		}
		if _, err := CheckStreamUpdate(cfg, again, oracleEnv(nil)); err != nil {
			t.Errorf("%s: an update with itself: %v", body, err)
		}
		data, jsonErr := json.Marshal(again)
		var back StreamConfig
		if jsonErr != nil || DecodeStrict(data, &back) != nil || !StreamConfigEqual(cfg, &back) {
			t.Errorf("%s became %s, %v", body, data, jsonErr)
		}
	})
}

// FuzzConsumerRequest is FuzzStreamRequest for consumers.
func FuzzConsumerRequest(f *testing.F) {
	for _, tc := range consumerCases() {
		if len(tc.body) < 1000 {
			f.Add(tc.body)
		}
	}
	stream := &StreamConfig{Name: "S", Subjects: []string{"a.>"}, Replicas: 1}
	f.Fuzz(func(t *testing.T, body string) {
		cfg, err := judgeConsumer("CONSUMER.CREATE.S.C", body, stream, noConsumers)
		if err != nil {
			return
		}
		again, err := CheckConsumerConfig(cfg, &ConsumerEnv{Stream: stream})
		if err != nil {
			t.Fatalf("%s: accepted, then %v", body, err)
		}
		if !ConsumerConfigEqual(cfg, again) {
			t.Errorf("%s: %s", body, cmp.Diff(cfg, again))
		}
		if err := CheckConsumerUpdate(cfg, again, true); err != nil {
			t.Errorf("%s: an update with itself: %v", body, err)
		}
		data, jsonErr := json.Marshal(again)
		var back ConsumerConfig
		if jsonErr != nil || DecodeStrict(data, &back) != nil || !ConsumerConfigEqual(cfg, &back) {
			t.Errorf("%s became %s, %v", body, data, jsonErr)
		}
	})
}
