package jsapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

// TestOracleEmptyRequest compares what counts as an empty body.
func TestOracleEmptyRequest(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	for _, body := range []string{
		"", "{}", " {} ", "{ }", " ", "\r\n", "null", "[]", "x", `{"a":1}`, "{", `""`, "0",
	} {
		o.createOrigins(`{"name":"S"}`)
		theirs := decodeAnswer(t, o.call("STREAM.DELETE.S", body))
		want := theirs.Error == nil
		if !want && theirs.Error.ErrCode != CodeNotEmptyRequest {
			t.Fatal(theirs.Error)
		}
		if got := IsEmptyRequest([]byte(body)); got != want {
			t.Errorf("IsEmptyRequest(%q) = %v", body, got)
		}
		o.call("STREAM.DELETE.S", "")
	}
}

// TestOracleResponseBytes decodes real answers strictly into our types and encodes them again: the
// bytes must be the same, so names, order and what is left out are.
func TestOracleResponseBytes(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	steps := []struct {
		verb, body string
		into       any
	}{
		{"INFO", "", &AccountInfoResponse{}},
		{"STREAM.NAMES", "", &StreamNamesResponse{}},
		{"STREAM.LIST", "", &StreamListResponse{}},
		{"STREAM.CREATE.S", `{"name":"S","subjects":["s.>"],"allow_direct":true}`, &StreamCreateResponse{}},
		{"STREAM.CREATE.S", `{"name":"S","subjects":["t"]}`, &StreamCreateResponse{}},
		{"STREAM.CREATE.M", `{"name":"M","mirror":{"name":"S"}}`, &StreamCreateResponse{}},
		{
			"STREAM.CREATE.A", `{"name":"A","sources":[{"name":"S","subject_transforms":[{"src":"s.>","dest":"x.>"}]}]}`,
			&StreamCreateResponse{},
		},
		{
			"STREAM.UPDATE.S", `{"name":"S","subjects":["s.>"],"description":"<&>","allow_direct":true}`,
			&StreamUpdateResponse{},
		},
		{"PUB", "s.a", nil},
		{"PUB", "s.b", nil},
		{"PUB", "s.c", nil},
		{"STREAM.MSG.GET.S", `{"seq":2}`, &MsgGetResponse{}},
		{"STREAM.MSG.GET.S", `{"seq":9}`, &MsgGetResponse{}},
		{"STREAM.MSG.DELETE.S", `{"seq":2}`, &SuccessResponse{}},
		{"STREAM.MSG.DELETE.S", `{"seq":2}`, &SuccessResponse{}},
		{"STREAM.INFO.S", `{"deleted_details":true,"subjects_filter":">"}`, &StreamInfoResponse{}},
		{"STREAM.INFO.M", "", &StreamInfoResponse{}},
		{"STREAM.INFO.A", "", &StreamInfoResponse{}},
		{"STREAM.INFO.X", "", &StreamInfoResponse{}},
		{"CONSUMER.NAMES.S", "", &ConsumerNamesResponse{}},
		{"CONSUMER.LIST.S", "", &ConsumerListResponse{}},
		{
			"CONSUMER.CREATE.S.C", `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`,
			&ConsumerResponse{},
		},
		{"CONSUMER.CREATE.S.P", `{"stream_name":"S","config":{"name":"P","ack_policy":"explicit",` +
			`"priority_policy":"pinned_client","priority_groups":["g"],"metadata":{"k":"v"}}}`, &ConsumerResponse{}},
		{
			"CONSUMER.CREATE.S.Q", `{"stream_name":"S","config":{"name":"Q","deliver_subject":"d"}}`,
			&ConsumerResponse{},
		},
		{"NEXT", "S.C", nil},
		{"CONSUMER.INFO.S.C", "", &ConsumerResponse{}},
		{"CONSUMER.INFO.S.P", "", &ConsumerResponse{}},
		{"CONSUMER.INFO.S.X", "", &ConsumerResponse{}},
		{"CONSUMER.PAUSE.S.C", `{"pause_until":"2036-01-01T00:00:00Z"}`, &PauseResponse{}},
		{"CONSUMER.INFO.S.C", "", &ConsumerResponse{}},
		{"CONSUMER.PAUSE.S.C", ``, &PauseResponse{}},
		{"CONSUMER.RESET.S.C", ``, &ResetResponse{}},
		{"CONSUMER.UNPIN.S.P", `{"group":"g"}`, &Response{}},
		{"CONSUMER.NAMES.S", `{"offset":1}`, &ConsumerNamesResponse{}},
		{"CONSUMER.LIST.S", "", &ConsumerListResponse{}},
		{"STREAM.NAMES", `{"subject":"s.a"}`, &StreamNamesResponse{}},
		{"STREAM.LIST", "", &StreamListResponse{}},
		{"STREAM.LIST", `{"limit":3}`, &StreamListResponse{}},
		{"STREAM.LEADER.STEPDOWN.S", "", &SuccessResponse{}},
		{"CONSUMER.DELETE.S.C", "", &SuccessResponse{}},
		{"STREAM.PURGE.S", `{"keep":1}`, &PurgeResponse{}},
		{"STREAM.PURGE.S", `{"keep":1,"seq":2}`, &PurgeResponse{}},
		{"STREAM.SNAPSHOT.S", `{"deliver_subject":"snap"}`, &SnapshotResponse{}},
		{"STREAM.DELETE.M", "", &SuccessResponse{}},
		{"INFO", "", &AccountInfoResponse{}},
	}
	for _, step := range steps {
		switch step.verb {
		case "PUB":
			msg := nats.NewMsg(step.body)
			msg.Header.Set("K", "v")
			msg.Data = []byte("x")
			if _, err := o.nc.RequestMsg(msg, 5*time.Second); err != nil {
				t.Fatal(err)
			}
		case "NEXT":
			if _, err := o.nc.Request(DefaultPrefix+".CONSUMER.MSG.NEXT."+step.body, nil, 5*time.Second); err != nil {
				t.Fatal(err)
			}
		default:
			checkBytes(t, o, step.verb, step.body, step.into)
		}
	}
}

func checkBytes(t *testing.T, o *oracle, verb, body string, into any) {
	t.Helper()
	data := o.call(verb, body)
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		t.Errorf("%s: %v in %s", verb, err, data)
		return
	}
	again, err := json.Marshal(into)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(data), string(again)); diff != "" {
		t.Errorf("%s %s (-real +ours):\n%s", verb, body, diff)
	}
	r, ok := ParseRequest(DefaultPrefix, DefaultPrefix+"."+verb)
	if !ok {
		t.Fatalf("%s is no request", verb)
	}
	var resp Response
	_ = json.Unmarshal(data, &resp)
	if resp.Type != r.Verb.ResponseType() {
		t.Errorf("%s: type %q, ours %q", verb, resp.Type, r.Verb.ResponseType())
	}
	reflect.ValueOf(into).Elem().SetZero()
}

// TestOracleAdvisories does the same with the events of a short life.
func TestOracleAdvisories(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	sub, err := o.nc.SubscribeSync("$JS.EVENT.>")
	if err != nil {
		t.Fatal(err)
	}
	exceeded, err := o.nc.SubscribeSync(SubjectMaxDeliveries + "S.D")
	if err != nil {
		t.Fatal(err)
	}
	create := func(name, cfg string) {
		o.call("CONSUMER.CREATE.S."+name, `{"stream_name":"S","config":{"ack_policy":"explicit"`+cfg+`}}`)
	}
	o.createOrigins(`{"name":"S","subjects":["s.>"]}`)
	o.call("STREAM.UPDATE.S", `{"name":"S","subjects":["s.>"],"description":"x"}`)
	create("C", `,"durable_name":"C","sample_freq":"100"`)
	create("D", `,"durable_name":"D","max_deliver":1,"ack_wait":1000000`)
	create("P", `,"priority_policy":"pinned_client","priority_groups":["g"]`)
	for _, ack := range []string{"-NAK", "+TERM why", "+ACK"} {
		if _, err := o.nc.Request("s.x", nil, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		msg, err := o.nc.Request("$JS.API.CONSUMER.MSG.NEXT.S.C", nil, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.nc.Request(msg.Reply, []byte(ack), 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	// D's message is never acknowledged.
	if _, err := o.nc.Request("$JS.API.CONSUMER.MSG.NEXT.S.D", nil, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := o.nc.Request("$JS.API.CONSUMER.MSG.NEXT.S.P", []byte(`{"group":"g","batch":1}`), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	o.call("CONSUMER.UNPIN.S.P", `{"group":"g"}`)
	o.call("CONSUMER.PAUSE.S.C", `{"pause_until":"2036-01-01T00:00:00Z"}`)
	// Deleting the stream would stop the timer of D.
	if _, err := exceeded.NextMsg(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	o.call("STREAM.DELETE.S", "")

	want := map[string]func() any{
		SubjectStreamCreated + "S":     func() any { return &StreamActionAdvisory{} },
		SubjectStreamUpdated + "S":     func() any { return &StreamActionAdvisory{} },
		SubjectStreamDeleted + "S":     func() any { return &StreamActionAdvisory{} },
		SubjectConsumerCreated + "S.C": func() any { return &ConsumerActionAdvisory{} },
		SubjectConsumerDeleted + "S.C": func() any { return &ConsumerActionAdvisory{} },
		SubjectConsumerPause + "S.C":   func() any { return &ConsumerPauseAdvisory{} },
		SubjectMsgNaked + "S.C":        func() any { return &NakAdvisory{} },
		SubjectMsgTerminated + "S.C":   func() any { return &TerminatedAdvisory{} },
		SubjectMaxDeliveries + "S.D":   func() any { return &MaxDeliverAdvisory{} },
		SubjectMetricAck + "S.C":       func() any { return &AckMetric{} },
		SubjectPinned + "S.P":          func() any { return &PinnedAdvisory{} },
		SubjectUnpinned + "S.P":        func() any { return &UnpinnedAdvisory{} },
	}
	types := map[string]string{
		SubjectStreamCreated: AdvisoryStreamAction, SubjectConsumerDeleted: AdvisoryConsumerAction,
		SubjectConsumerPause: AdvisoryConsumerPause, SubjectMsgNaked: AdvisoryNak,
		SubjectMsgTerminated: AdvisoryTerminated, SubjectMaxDeliveries: AdvisoryMaxDeliver,
		SubjectMetricAck: MetricConsumerAck, SubjectPinned: AdvisoryPinned, SubjectUnpinned: AdvisoryUnpinned,
	}
	for len(want) > 0 {
		msg, err := sub.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatalf("%v, still waiting for %v", err, want)
		}
		makeEvent := want[msg.Subject]
		if makeEvent == nil {
			continue
		}
		delete(want, msg.Subject)
		event := makeEvent()
		dec := json.NewDecoder(strings.NewReader(string(msg.Data)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(event); err != nil {
			t.Errorf("%s: %v in %s", msg.Subject, err, msg.Data)
			continue
		}
		again, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(msg.Data), string(again)); diff != "" {
			t.Errorf("%s (-real +ours):\n%s", msg.Subject, diff)
		}
		for prefix, kind := range types {
			if got := reflect.ValueOf(event).Elem().FieldByName("Type").String(); strings.HasPrefix(msg.Subject, prefix) &&
				got != kind {
				t.Errorf("%s: type %s, ours %s", msg.Subject, got, kind)
			}
		}
	}
}
