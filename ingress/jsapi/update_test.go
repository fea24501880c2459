package jsapi

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStreamUpdateRules checks the rules that the comparison with the real server does not reach.
func TestStreamUpdateRules(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		old, n StreamConfig
		want   *Error
	}{
		{
			name: "another name", old: StreamConfig{Name: "S"}, n: StreamConfig{Name: "T"},
			want: ErrInvalidConfig("stream configuration name must match original"),
		},
		{
			name: "unseal", old: StreamConfig{Name: "S", Sealed: true}, n: StreamConfig{Name: "S"},
			want: ErrInvalidConfig("stream configuration update can not unseal a sealed stream"),
		},
		{
			name: "invalid", old: StreamConfig{Name: "S"}, n: StreamConfig{Name: "S", MaxAge: -1},
			want: ErrInvalidConfig("max age can not be negative"),
		},
		{
			name: "mirror removed", old: StreamConfig{Name: "S", Mirror: &StreamSource{Name: "M"}},
			n: StreamConfig{Name: "S"},
		},
	} {
		tc.old.Storage = FileStorage
		_, err := CheckStreamUpdate(&tc.old, &tc.n, &StreamEnv{})
		if diff := cmp.Diff(tc.want, err); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	sealed, err := CheckStreamUpdate(&StreamConfig{Name: "S", Storage: FileStorage},
		&StreamConfig{Name: "S", Sealed: true, MaxAge: time.Second, AllowRollup: true}, &StreamEnv{})
	if err != nil {
		t.Fatal(err)
	}
	if sealed.MaxAge != 0 || sealed.Discard != DiscardNew || !sealed.DenyDelete || !sealed.DenyPurge ||
		sealed.AllowRollup {
		t.Errorf("sealing gave %+v", sealed)
	}
}

func TestConsumerNames(t *testing.T) {
	t.Parallel()
	env := &ConsumerEnv{Stream: &StreamConfig{Name: "S", Replicas: 1}}
	for _, tc := range []struct {
		cfg  ConsumerConfig
		want *Error
	}{
		{
			cfg:  ConsumerConfig{Name: "a.b"},
			want: ErrInvalidConfig(`consumer name can not contain '.', '*', '>', '\', '/'`),
		},
		{
			cfg:  ConsumerConfig{Durable: "a b"},
			want: ErrInvalidConfig(`consumer durable name can not contain '.', '*', '>', '\', '/'`),
		},
		{
			cfg:  ConsumerConfig{Name: "a", Durable: "b"},
			want: NewError(CodeConsumerCreateDurableAndNameMismatch),
		},
		{
			cfg: ConsumerConfig{
				DeliverSubject: "d", AckPolicy: AckFlowControl, FlowControl: true, Heartbeat: 2 * time.Second,
			},
			want: ErrInvalidConfig("flow control ack policy heartbeat needs to be 1s"),
		},
	} {
		env.Pedantic = tc.cfg.FlowControl // Else the heartbeat would be adjusted.
		_, err := CheckConsumerConfig(&tc.cfg, env)
		if diff := cmp.Diff(tc.want, err); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tc.cfg, diff)
		}
	}
	long := &ConsumerConfig{Durable: string(make([]byte, MaxNameLen))}
	if err := CheckDurableLen(long); err != nil {
		t.Error(err)
	}
	long.Durable += "x"
	if err := CheckDurableLen(long); !IsCode(err, CodeConsumerNameTooLong) {
		t.Error(err)
	}
}

func TestErrorIs(t *testing.T) {
	t.Parallel()
	wrapped := fmt.Errorf("x: %w", ErrWrongLastSequence(7))
	if !errors.Is(wrapped, NewError(CodeStreamWrongLastSequence)) ||
		errors.Is(wrapped, NewError(CodeBadRequest)) || errors.Is(wrapped, errors.ErrUnsupported) {
		t.Error("errors.Is does not compare codes")
	}
}

func TestDomainPrefix(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]string{"": "$JS.API", "hub": "$JS.hub.API"} {
		if got := DomainPrefix(domain); got != want {
			t.Errorf("%q: %s", domain, got)
		}
	}
}
