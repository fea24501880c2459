package jepsen

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestFullDiskRefuses: what Holdfast has no room for is not stored, so that one which is stored all the same is
// found. nats-server does not promise that.
func TestFullDiskRefuses(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("publish: %w", &jetstream.APIError{Code: 503, ErrorCode: 10023, Description: "insufficient resources"})
	unknown := &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "outcome unknown"}
	for _, tt := range []struct {
		kind Kind
		err  error
		want Outcome
	}{
		{Holdfast, full, Refused},
		{Default, full, Unknown},
		{Always, full, Unknown},
		{Holdfast, unknown, Unknown},
		{Holdfast, nil, Acked},
		{Holdfast, nats.ErrTimeout, Unknown},
		{Holdfast, errors.New("anything else"), Unknown},
	} {
		if got := tt.kind.judge(tt.err); got != tt.want {
			t.Errorf("%s: %v is %s, want %s", tt.kind, tt.err, got, tt.want)
		}
	}
}
