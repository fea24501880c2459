package jsapi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAckReply(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		subject string
		want    AckReply
		again   string // What formatting gives, when it is not the subject.
	}{
		{
			subject: "$JS.ACK.S.C1.1.2.3.1795966605389681344.4",
			want: AckReply{
				Stream: "S", Consumer: "C1", Delivered: 1, StreamSeq: 2, ConsumerSeq: 3,
				Timestamp: 1795966605389681344, Pending: 4,
			},
		},
		{
			subject: "$JS.ACK._.h4sh1234.S.C.1.2.3.4.5",
			want: AckReply{
				Account: "h4sh1234", Stream: "S", Consumer: "C",
				Delivered: 1, StreamSeq: 2, ConsumerSeq: 3, Timestamp: 4, Pending: 5,
			},
		},
		{
			subject: "$JS.ACK.hub.h4sh1234.S.C.1.2.3.4.5.random",
			again:   "$JS.ACK.hub.h4sh1234.S.C.1.2.3.4.5",
			want: AckReply{
				Domain: "hub", Account: "h4sh1234", Stream: "S", Consumer: "C",
				Delivered: 1, StreamSeq: 2, ConsumerSeq: 3, Timestamp: 4, Pending: 5,
			},
		},
		{
			subject: "$JS.ACK.S.C.18446744073709551615.18446744073709551615.0.0.18446744073709551615",
			want: AckReply{
				Stream: "S", Consumer: "C", Delivered: 1<<64 - 1, StreamSeq: 1<<64 - 1, Pending: 1<<64 - 1,
			},
		},
		{
			subject: "$JS.ACK.S.C.x.18446744073709551616.-3.9223372036854775808.+5",
			again:   "$JS.ACK.S.C.0.18446744073709551615.0.0.0",
			want:    AckReply{Stream: "S", Consumer: "C", StreamSeq: NoSequence},
		},
	} {
		got, ok := ParseAckReply(tc.subject)
		if !ok {
			t.Errorf("%s is no ack subject", tc.subject)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.subject, diff)
		}
		if tc.again == "" {
			tc.again = tc.subject
		}
		if back := string(AppendAckReply(nil, &got)); back != tc.again {
			t.Errorf("%s formats to %s", tc.subject, back)
		}
	}
	for _, bad := range []string{
		"", "$JS.ACK", "$JS.ACK.", "$JS.ACK.S.C", "$JS.ACK.S.C.1.2.3.4", "$JS.ACK.S.C.1.2.3.4.5.6",
		"$JS.ACK..C.1.2.3.4.5", "$JS.ACK.S..1.2.3.4.5", "$JS.FC.S.C.1.2.3.4.5", "$JS.ACKS.S.C.1.2.3.4.5",
	} {
		if got, ok := ParseAckReply(bad); ok {
			t.Errorf("%s: %+v", bad, got)
		}
	}
}

func TestAppendDelivery(t *testing.T) {
	t.Parallel()
	r := AckReply{
		Stream: "S", Consumer: "C", Delivered: 1, StreamSeq: 2, ConsumerSeq: 3, Timestamp: 4, Pending: 5,
	}
	got := string(AppendDelivery([]byte("x "), &r, "$KV.b.k"))
	if want := "x $JS.ACK.S.C.1.2.3.4.5@$KV.b.k"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestFlowControl(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]FlowControl{
		"$JS.FC.S.C.BHLO":          {Stream: "S", Consumer: "C", ID: "BHLO"},
		"$JS.FC._.h4sh.S.C.BHLO":   {Account: "h4sh", Stream: "S", Consumer: "C", ID: "BHLO"},
		"$JS.FC.hub.h4sh.S.C.BHLO": {Domain: "hub", Account: "h4sh", Stream: "S", Consumer: "C", ID: "BHLO"},
	} {
		got, ok := ParseFlowControl(subject)
		if !ok || got != want {
			t.Errorf("%s: %+v %v", subject, got, ok)
		}
		if back := string(AppendFlowControl(nil, &got)); back != subject {
			t.Errorf("%s formats to %s", subject, back)
		}
	}
	for _, bad := range []string{
		"", "$JS.FC.S.C", "$JS.FC.S.C.", "$JS.FC.S.C.x.y", "$JS.FC._.a.S.C.x.y", "$JS.ACK.S.C.x",
	} {
		if got, ok := ParseFlowControl(bad); ok {
			t.Errorf("%s: %+v", bad, got)
		}
	}
}

func TestAckReplyAllocs(t *testing.T) {
	buf := make([]byte, 0, 256)
	subject := "$JS.ACK.hub.h4sh1234.STREAM.CONSUMER.1.2000.3000.1795966605389681344.45"
	n := testing.AllocsPerRun(100, func() {
		r, ok := ParseAckReply(subject)
		buf = AppendDelivery(buf[:0], &r, "orders.eu")
		if !ok {
			t.Fail()
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseAckReply(f *testing.F) {
	f.Add("$JS.ACK.S.C1.1.2.3.1795966605389681344.4")
	f.Add("$JS.ACK._.h4sh1234.S.C.1.2.3.4.5")
	f.Add("$JS.ACK.hub.h4sh1234.S.C.1.2.3.4.5.random")
	f.Add("$JS.ACK.S.C.x.18446744073709551616.-3.4.5")
	f.Add("$JS.FC.hub.h4sh.S.C.BHLO")
	f.Fuzz(func(t *testing.T, subject string) {
		if fc, ok := ParseFlowControl(subject); ok {
			again, ok := ParseFlowControl(string(AppendFlowControl(nil, &fc)))
			if !ok || again != fc {
				t.Errorf("%q: %+v became %+v", subject, fc, again)
			}
		}
		r, ok := ParseAckReply(subject)
		if !ok {
			return
		}
		again, ok := ParseAckReply(string(AppendAckReply(nil, &r)))
		if !ok || again != r {
			t.Errorf("%q: %+v became %+v", subject, r, again)
		}
	})
}
