package jsapi

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDocumentedAnswers builds the answers that a fresh stream and consumer give and compares
// every byte.
func TestDocumentedAnswers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 15, 36, 45, 389681344, time.UTC)
	cfg, err := CheckStreamConfig(&StreamConfig{Name: "S", Subjects: []string{"a.>"}}, &StreamEnv{})
	if err != nil {
		t.Fatal(err)
	}
	stream := StreamCreateResponse{
		Response: NewResponse(VerbStreamCreate),
		StreamInfo: &StreamInfo{
			Config: *cfg.WithDynamicMetadata("2.15.2", 5), Created: at, TimeStamp: at,
		},
		DidCreate: true,
	}
	ccfg, err := CheckConsumerConfig(&ConsumerConfig{Durable: "C1", Name: "C1", AckPolicy: AckExplicit},
		&ConsumerEnv{Stream: cfg})
	if err != nil {
		t.Fatal(err)
	}
	consumer := ConsumerResponse{
		Response: NewResponse(VerbConsumerCreate),
		ConsumerInfo: &ConsumerInfo{
			Stream: "S", Name: "C1", Created: at, Config: ccfg.WithDynamicMetadata("2.15.2", 5),
			NumPending: 2, TimeStamp: at,
		},
	}
	failed := StreamInfoResponse{Response: NewErrorResponse(VerbStreamInfo, NewError(CodeStreamNotFound))}
	msg := MsgGetResponse{
		Response: NewResponse(VerbStreamMsgGet),
		Message: &StoredMsg{
			Subject: "a.1", Sequence: 2, Header: block("Nats-Msg-Id: m1"), Data: []byte("x"), Time: at,
		},
	}
	account := AccountInfoResponse{
		Response: NewResponse(VerbInfo),
		AccountInfo: &AccountInfo{
			AccountTier: AccountTier{Limits: Unlimited()}, Domain: "d", API: APIStats{Level: 5, Inflight: 1},
		},
	}
	const ts = `"2026-11-29T15:36:45.389681344Z"`
	for want, v := range map[string]any{
		`{"type":"io.nats.jetstream.api.v1.stream_create_response","config":{"name":"S","subjects":["a.\u003e"],` +
			`"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,` +
			`"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,` +
			`"duplicate_window":120000000000,"compression":"none","allow_direct":false,"mirror_direct":false,` +
			`"sealed":false,"deny_delete":false,"deny_purge":false,"allow_rollup_hdrs":false,"consumer_limits":{},` +
			`"allow_msg_ttl":false,"metadata":{"_nats.level":"5","_nats.req.level":"0","_nats.ver":"2.15.2"}},` +
			`"created":` + ts + `,"state":{"messages":0,"bytes":0,"first_seq":0,"first_ts":"0001-01-01T00:00:00Z",` +
			`"last_seq":0,"last_ts":"0001-01-01T00:00:00Z","consumer_count":0},"ts":` + ts + `,"did_create":true}`: stream,
		`{"type":"io.nats.jetstream.api.v1.consumer_create_response","stream_name":"S","name":"C1","created":` + ts +
			`,"config":{"durable_name":"C1","name":"C1","deliver_policy":"all","ack_policy":"explicit",` +
			`"ack_wait":30000000000,"max_deliver":-1,"replay_policy":"instant","max_waiting":512,` +
			`"max_ack_pending":1000,"num_replicas":0,` +
			`"metadata":{"_nats.level":"5","_nats.req.level":"0","_nats.ver":"2.15.2"}},` +
			`"delivered":{"consumer_seq":0,"stream_seq":0},"ack_floor":{"consumer_seq":0,"stream_seq":0},` +
			`"num_ack_pending":0,"num_redelivered":0,"num_waiting":0,"num_pending":2,"ts":` + ts + `}`: consumer,
		`{"type":"io.nats.jetstream.api.v1.stream_info_response","error":{"code":404,"err_code":10059,` +
			`"description":"stream not found"},"total":0,"offset":0,"limit":0}`: failed,
		`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{"subject":"a.1","seq":2,` +
			`"hdrs":"TkFUUy8xLjANCk5hdHMtTXNnLUlkOiBtMQ0KDQo=","data":"eA==","time":` + ts + `}}`: msg,
		`{"type":"io.nats.jetstream.api.v1.account_info_response","memory":0,"storage":0,"reserved_memory":0,` +
			`"reserved_storage":0,"streams":0,"consumers":0,"limits":{"max_memory":-1,"max_storage":-1,` +
			`"max_streams":-1,"max_consumers":-1,"max_ack_pending":-1,"memory_max_stream_bytes":-1,` +
			`"storage_max_stream_bytes":-1,"max_bytes_required":false},"domain":"d",` +
			`"api":{"level":5,"total":0,"errors":0,"inflight":1}}`: account,
		`{"type":"io.nats.jetstream.advisory.v1.stream_action","id":"i","timestamp":` + ts +
			`,"stream":"S","action":"create"}`: StreamActionAdvisory{
			Event: NewEvent(AdvisoryStreamAction, "i", at.In(time.FixedZone("x", 3600))), Stream: "S",
			Action: ActionCreated,
		},
	} {
		got, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestEnums(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]json.Marshaler{
		`"limits"`: LimitsPolicy, `"interest"`: InterestPolicy, `"workqueue"`: WorkQueuePolicy,
		`"old"`: DiscardOld, `"new"`: DiscardNew, `"file"`: FileStorage, `"memory"`: MemoryStorage,
		`"s2"`: S2Compression, `"default"`: PersistDefault, `"async"`: PersistAsync,
		`"last"`: DeliverLast, `"by_start_sequence"`: DeliverByStartSequence,
		`"by_start_time"`:    DeliverByStartTime,
		`"last_per_subject"`: DeliverLastPerSubject, `"undefined"`: DeliverPolicy(99), `"all"`: AckAll,
		`"explicit"`: AckExplicit, `"flow_control"`: AckFlowControl, `"instant"`: ReplayInstant,
		`"original"`: ReplayOriginal, `"overflow"`: PriorityOverflow, `"pinned_client"`: PriorityPinnedClient,
		`"prioritized"`: PriorityPrioritized, `""`: ActionCreateOrUpdate, `"update"`: ActionUpdate,
		`"create"`: ActionCreate,
	} {
		if got, err := v.MarshalJSON(); string(got) != want || err != nil {
			t.Errorf("%s: %s %v", want, got, err)
		}
	}
	for _, v := range []json.Marshaler{
		Retention(9), Discard(9), StorageUnset, Storage(9), Compression(9), PersistMode(9), AckPolicy(9),
		ReplayPolicy(9), PriorityPolicy(9), ConsumerAction(9),
	} {
		if got, err := v.MarshalJSON(); err == nil {
			t.Errorf("%T %v became %s", v, v, got)
		}
	}
	for want, got := range map[string]string{
		"workqueue": WorkQueuePolicy.String(), "new": DiscardNew.String(), "memory": MemoryStorage.String(),
		"s2": S2Compression.String(), "async": PersistAsync.String(), "last": DeliverLast.String(),
		"explicit": AckExplicit.String(), "original": ReplayOriginal.String(),
		"overflow": PriorityOverflow.String(),
		"update":   ActionUpdate.String(), "unknown": Retention(9).String(),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := ConsumerAction(9).String(); got != "unknown" {
		t.Error(got)
	}
	if got := NewError(ErrCode(math.MaxInt32)).Code; got != 500 {
		t.Error(got)
	}
}
