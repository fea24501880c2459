package jsapi

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseNextRequest(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]NextRequest{
		"":        {Batch: 1},
		"  \r\n ": {Batch: 1},
		"5":       {Batch: 5},
		" 5\n":    {Batch: 5},
		"-3":      {Batch: -3},
		"0":       {Batch: 0},
		"hello":   {Batch: 1},
		"5x":      {Batch: 1},
		"[5]":     {Batch: 1},
		"{}":      {HasPriority: true},
		`{"batch":2,"expires":300000000}`: {
			Batch: 2, Expires: 300 * time.Millisecond, HasPriority: true,
		},
		`{"batch":9,"max_bytes":1024,"no_wait":true,"expires":2000000000,"idle_heartbeat":1000000000,"foo":[1]}`: {
			Batch: 9, MaxBytes: 1024, NoWait: true, Expires: 2 * time.Second, Heartbeat: time.Second,
			HasPriority: true,
		},
		`{"batch":1,"group":"g","min_pending":3,"min_ack_pending":4,"id":"i","priority":5}`: {
			Batch: 1, HasPriority: true,
			Priority: PriorityGroup{Group: "g", MinPending: 3, MinAckPending: 4, ID: "i", Priority: 5},
		},
	} {
		got, err := ParseNextRequest([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	for body, want := range map[string]string{
		`{`: "unexpected end of JSON input",
		`{"batch":"x"}`: "json: cannot unmarshal string into Go struct field " +
			"JSApiConsumerGetNextRequest.batch of type int",
		`{"expires":1000,"idle_heartbeat":501}`: "heartbeat value too large",
		`{"idle_heartbeat":1}`:                  "heartbeat value too large",
	} {
		if got, err := ParseNextRequest([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("%s: %+v %v", body, got, err)
		}
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for want, got := range map[string][]byte{
		"NATS/1.0 404 No Messages\r\n\r\n": AppendStatus(nil, StatusNoMessages),
		"NATS/1.0 503\r\n\r\n":             AppendStatus(nil, StatusNoResponders),
		"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n": AppendPendingStatus(
			nil, StatusRequestTimeout, 1, 0),
		"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 3\r\n\r\n": AppendHeartbeat(
			nil, 2, 3, ""),
		"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 3\r\n" +
			"Nats-Consumer-Stalled: $JS.FC.FC.f.BHLO\r\n\r\n": AppendHeartbeat(nil, 2, 3, "$JS.FC.FC.f.BHLO"),
		"NATS/1.0 400 Bad Request - heartbeat value too large\r\n\r\n": AppendStatus(
			nil, StatusBadRequest("heartbeat value too large")),
		"NATS/1.0 409 Exceeded MaxRequestBatch of 5\r\n\r\n":       AppendStatus(nil, StatusMaxRequestBatch(5)),
		"NATS/1.0 409 Exceeded MaxRequestExpires of 1m0s\r\n\r\n":  AppendStatus(nil, StatusMaxRequestExpires(time.Minute)),
		"NATS/1.0 409 Exceeded MaxRequestMaxBytes of 1024\r\n\r\n": AppendStatus(nil, StatusMaxRequestMaxBytes(1024)),
		"NATS/1.0 500 broken\r\n\r\n":                              AppendStatus(nil, StatusError("broken")),
		"x NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n": EndHeader(
			AppendHeaderUint(AppendStatusLine([]byte("x "), StatusEOB), HdrNumPending, 0)),
	} {
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestParseAck(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]Ack{
		"":                         {Kind: AckAck},
		"+ACK":                     {Kind: AckAck},
		"+OK":                      {Kind: AckAck},
		"+ACK ":                    {},
		"ack":                      {},
		"-":                        {},
		"+":                        {},
		"-NAK":                     {Kind: AckNak},
		"-NAK ":                    {Kind: AckNak},
		"-NAKx":                    {Kind: AckNak},
		`-NAK {"delay":100000000}`: {Kind: AckNak, HasDelay: true, Delay: 100 * time.Millisecond},
		`-NAK {"delay": 0}`:        {Kind: AckNak, HasDelay: true},
		`-NAK {"delay":"1s"}`:      {Kind: AckNak},
		`-NAK {`:                   {Kind: AckNak},
		"-NAK 1m30s":               {Kind: AckNak, HasDelay: true, Delay: 90 * time.Second},
		"-NAK 5":                   {Kind: AckNak},
		"-NAK -1s":                 {Kind: AckNak, HasDelay: true, Delay: -time.Second},
		"+WPI":                     {Kind: AckProgress},
		"+WPI ":                    {},
		"+NXT":                     {Kind: AckNext, Next: []byte{}},
		"+NXT 5":                   {Kind: AckNext, Next: []byte(" 5")},
		`+NXT{"batch":2}`:          {Kind: AckNext, Next: []byte(`{"batch":2}`)},
		"+TERM":                    {Kind: AckTerm},
		"+TERM  bad order \r\n":    {Kind: AckTerm, Reason: "bad order"},
		"+TER":                     {},
	} {
		if diff := cmp.Diff(want, ParseAck([]byte(payload))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", payload, diff)
		}
	}
	for kind, want := range map[AckKind]string{
		AckAck: "+ACK", AckNak: "-NAK", AckProgress: "+WPI", AckNext: "+NXT", AckTerm: "+TERM",
		AckUnknown: "unknown",
	} {
		if got := kind.String(); got != want {
			t.Errorf("%d is %s", kind, got)
		}
	}
}

func TestPullAllocs(t *testing.T) {
	buf := make([]byte, 0, 256)
	payloads := [][]byte{nil, []byte("+ACK"), []byte("-NAK"), []byte("+WPI"), []byte("+NXT 5"), []byte("x")}
	n := testing.AllocsPerRun(100, func() {
		buf = AppendPendingStatus(buf[:0], StatusRequestTimeout, 100, 1000)
		buf = AppendHeartbeat(buf[:0], 1000, 2000, "")
		for _, p := range payloads {
			ParseAck(p)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseAck(f *testing.F) {
	for _, s := range []string{"", "+ACK", "-NAK 5s", `-NAK {"delay":5}`, "+NXT 3", "+TERM x", "+WPI"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		a := ParseAck(payload)
		if a.Kind > AckTerm || a.HasDelay && a.Kind != AckNak || a.Reason != "" && a.Kind != AckTerm {
			t.Errorf("%q: %+v", payload, a)
		}
		if _, err := ParseNextRequest(a.Next); err != nil && len(a.Next) == 0 {
			t.Errorf("%q: %v", payload, err)
		}
	})
}

func FuzzParseNextRequest(f *testing.F) {
	for _, s := range []string{
		"", "5", `{"batch":2,"expires":300000000}`, `{"group":"g","priority":3}`, "x", "{",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseNextRequest(body)
		if err == nil && r.Heartbeat > 0 && r.Heartbeat > r.Expires {
			t.Errorf("%q: %+v", body, r)
		}
	})
}
