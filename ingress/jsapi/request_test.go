package jsapi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRequest(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]Request{
		"INFO":                         {Verb: VerbInfo},
		"STREAM.CREATE.S":              {Verb: VerbStreamCreate, Stream: "S"},
		"STREAM.UPDATE.S":              {Verb: VerbStreamUpdate, Stream: "S"},
		"STREAM.INFO.S":                {Verb: VerbStreamInfo, Stream: "S"},
		"STREAM.NAMES":                 {Verb: VerbStreamNames},
		"STREAM.LIST":                  {Verb: VerbStreamList},
		"STREAM.DELETE.S":              {Verb: VerbStreamDelete, Stream: "S"},
		"STREAM.PURGE.S":               {Verb: VerbStreamPurge, Stream: "S"},
		"STREAM.MSG.GET.S":             {Verb: VerbStreamMsgGet, Stream: "S"},
		"STREAM.MSG.DELETE.S":          {Verb: VerbStreamMsgDelete, Stream: "S"},
		"STREAM.SNAPSHOT.S":            {Verb: VerbStreamSnapshot, Stream: "S"},
		"STREAM.RESTORE.S":             {Verb: VerbStreamRestore, Stream: "S"},
		"STREAM.LEADER.STEPDOWN.S":     {Verb: VerbStreamLeaderStepdown, Stream: "S"},
		"STREAM.PEER.REMOVE.S":         {Verb: VerbStreamPeerRemove, Stream: "S"},
		"STREAM.PEER.EVACUATE.S":       {Verb: VerbStreamPeerEvacuate, Stream: "S"},
		"STREAM.CANCEL_MOVE.S":         {Verb: VerbStreamCancelMove, Stream: "S"},
		"DIRECT.GET.S":                 {Verb: VerbDirectGet, Stream: "S"},
		"DIRECT.GET.S.$KV.b.k":         {Verb: VerbDirectGet, Stream: "S", Rest: "$KV.b.k"},
		"CONSUMER.CREATE.S":            {Verb: VerbConsumerCreate, Stream: "S"},
		"CONSUMER.CREATE.S.C":          {Verb: VerbConsumerCreate, Stream: "S", Consumer: "C"},
		"CONSUMER.CREATE.S.C.a":        {Verb: VerbConsumerCreate, Stream: "S", Consumer: "C", Rest: "a"},
		"CONSUMER.CREATE.S.C.a.*.>":    {Verb: VerbConsumerCreate, Stream: "S", Consumer: "C", Rest: "a.*.>"},
		"CONSUMER.DURABLE.CREATE.S.C":  {Verb: VerbConsumerDurableCreate, Stream: "S", Consumer: "C"},
		"CONSUMER.INFO.S.C":            {Verb: VerbConsumerInfo, Stream: "S", Consumer: "C"},
		"CONSUMER.NAMES.S":             {Verb: VerbConsumerNames, Stream: "S"},
		"CONSUMER.LIST.S":              {Verb: VerbConsumerList, Stream: "S"},
		"CONSUMER.DELETE.S.C":          {Verb: VerbConsumerDelete, Stream: "S", Consumer: "C"},
		"CONSUMER.PAUSE.S.C":           {Verb: VerbConsumerPause, Stream: "S", Consumer: "C"},
		"CONSUMER.RESET.S.C":           {Verb: VerbConsumerReset, Stream: "S", Consumer: "C"},
		"CONSUMER.UNPIN.S.C":           {Verb: VerbConsumerUnpin, Stream: "S", Consumer: "C"},
		"CONSUMER.MSG.NEXT.S.C":        {Verb: VerbConsumerNext, Stream: "S", Consumer: "C"},
		"CONSUMER.LEADER.STEPDOWN.S.C": {Verb: VerbConsumerLeaderStepdown, Stream: "S", Consumer: "C"},
		"CONSUMER.PEER.REMOVE.S.C":     {Verb: VerbConsumerPeerRemove, Stream: "S", Consumer: "C"},
		"CONSUMER.PEER.EVACUATE.S.C":   {Verb: VerbConsumerPeerEvacuate, Stream: "S", Consumer: "C"},
		"STREAM.INFO.MSG":              {Verb: VerbStreamInfo, Stream: "MSG"},
		"CONSUMER.CREATE.DURABLE.NEXT": {Verb: VerbConsumerCreate, Stream: "DURABLE", Consumer: "NEXT"},
		"STREAM.INFO.*":                {Verb: VerbStreamInfo, Stream: "*"},
	} {
		for _, prefix := range []string{DefaultPrefix, DomainPrefix("d"), "my.api"} {
			got, ok := ParseRequest(prefix, prefix+"."+subject)
			if !ok {
				t.Errorf("%s.%s is not a request", prefix, subject)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s.%s (-want +got):\n%s", prefix, subject, diff)
			}
		}
		if !strings.HasPrefix(subject, want.Verb.String()) {
			t.Errorf("the verb of %s calls itself %s", subject, want.Verb)
		}
	}
}

func TestParseRequestNoReply(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{
		"", "$JS", "$JS.API", "$JS.API.", "$JS.APIX.INFO", "$JS.API.INFO.X", "$JS.API.INFOX",
		"$JS.d.API.INFO",
		"$JS.API.STREAM", "$JS.API.STREAM.CREATE", "$JS.API.STREAM.CREATE.", "$JS.API.STREAM.CREATE.A.B",
		"$JS.API.STREAM.FOO.X", "$JS.API.STREAM.NAMES.X", "$JS.API.STREAM.LIST.X", "$JS.API.STREAM.CREATEX.A",
		"$JS.API.CONSUMER.CREATE", "$JS.API.CONSUMER.CREATE.S.", "$JS.API.CONSUMER.CREATE.S.C.",
		"$JS.API.CONSUMER.CREATE.S..x", "$JS.API.CONSUMER.CREATE..C", "$JS.API.CONSUMER.CREATE.S.C.a..b",
		"$JS.API.CONSUMER.DURABLE.CREATE.S", "$JS.API.CONSUMER.DURABLE.CREATE.S.C.X",
		"$JS.API.CONSUMER.INFO.S", "$JS.API.CONSUMER.INFO.S.C.X", "$JS.API.CONSUMER.MSG.NEXT.S",
		"$JS.API.CONSUMER.MSG.NEXT.S.", "$JS.API.CONSUMER.MSG.NEXT.S.C.X", "$JS.API.CONSUMER.NAMES.S.C",
		"$JS.API.DIRECT.GET", "$JS.API.DIRECT.GET.", "$JS.API.DIRECT.GET.S.", "$JS.API.unknown",
		"$JS.API.META.LEADER.STEPDOWN", "$JS.API.META.RESCUE", "$JS.API.SERVER.REMOVE",
		"$JS.API.SERVER.EVACUATE",
		"$JS.API.ACCOUNT.PURGE.A", "$JS.API.ACCOUNT.STREAM.MOVE.A.S",
		"$JS.API.ACCOUNT.STREAM.CANCEL_MOVE.A.S",
	} {
		if r, ok := ParseRequest(DefaultPrefix, subject); ok {
			t.Errorf("%s is %+v", subject, r)
		}
	}
}

func TestVerbs(t *testing.T) {
	t.Parallel()
	for i := range verbRows {
		if verbRows[i].verb != Verb(i) {
			t.Errorf("row %d is of verb %d", i, verbRows[i].verb)
		}
	}
	for v, want := range map[Verb]string{
		VerbUnknown:              "io.nats.jetstream.api.v1.system_response",
		Verb(200):                "io.nats.jetstream.api.v1.system_response",
		VerbStreamCreate:         "io.nats.jetstream.api.v1.stream_create_response",
		VerbConsumerCreate:       "io.nats.jetstream.api.v1.consumer_create_response",
		VerbStreamPeerRemove:     "io.nats.jetstream.api.v1.stream_remove_peer_response",
		VerbConsumerPeerEvacuate: "io.nats.jetstream.api.v1.consumer_evacuate_peer_response",
		VerbConsumerNext:         "",
		VerbDirectGet:            "",
	} {
		if got := v.ResponseType(); got != want {
			t.Errorf("%s.ResponseType() = %q", v, got)
		}
	}
	if got := VerbUnknown.String(); got != "unknown" {
		t.Error(got)
	}
}

func TestSnapshotSubjects(t *testing.T) {
	t.Parallel()
	ack := SnapshotSubject{Stream: "S", ID: "x1", Size: 131072, Index: 3}
	subject := string(AppendSnapshotAck(nil, &ack))
	if subject != "$JS.SNAPSHOT.ACK.S.x1.131072.3" {
		t.Error(subject)
	}
	if got, ok := ParseSnapshotAck(subject); !ok || got != ack {
		t.Errorf("%+v %v", got, ok)
	}
	restore := SnapshotRestoreSubject("S", "x1")
	if got, ok := ParseSnapshotRestore(restore); !ok || got != (SnapshotSubject{Stream: "S", ID: "x1"}) ||
		restore != "$JS.SNAPSHOT.RESTORE.S.x1" {
		t.Errorf("%s: %+v %v", restore, got, ok)
	}
	for _, bad := range []string{
		"", "$JS.SNAPSHOT.ACK.S.x1.1", "$JS.SNAPSHOT.ACK.S.x1.1.2.3", "$JS.SNAPSHOT.ACK.S.x1.a.3",
		"$JS.SNAPSHOT.ACK.S.x1.1.b", "$JS.SNAPSHOT.ACK.S..1.3", "$JS.SNAPSHOT.RESTORE.S.x.1.3",
	} {
		if got, ok := ParseSnapshotAck(bad); ok {
			t.Errorf("%s: %+v", bad, got)
		}
	}
	for _, bad := range []string{
		"", "$JS.SNAPSHOT.RESTORE.S", "$JS.SNAPSHOT.RESTORE.S.", "$JS.SNAPSHOT.RESTORE.S.a.b",
	} {
		if got, ok := ParseSnapshotRestore(bad); ok {
			t.Errorf("%s: %+v", bad, got)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	for i := range verbRows {
		f.Add(DefaultPrefix, DefaultPrefix+"."+verbRows[i].name+".S.C.a.>")
		f.Add(DefaultPrefix, DefaultPrefix+"."+verbRows[i].name)
	}
	f.Fuzz(func(t *testing.T, prefix, subject string) {
		ParseSnapshotAck(subject)
		ParseSnapshotRestore(subject)
		r, ok := ParseRequest(prefix, subject)
		if !ok {
			return
		}
		parts := []string{prefix, r.Verb.String()}
		for _, s := range []string{r.Stream, r.Consumer, r.Rest} {
			if s != "" {
				parts = append(parts, s)
			}
		}
		if back := strings.Join(parts, "."); back != subject {
			t.Errorf("%q parsed to %+v, which is %q", subject, r, back)
		}
	})
}
