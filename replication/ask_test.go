package replication

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestTellingError: of what the nodes say that were asked, the leader's reason counts, whoever was asked last; without
// one everything does.
func TestTellingError(t *testing.T) {
	t.Parallel()
	remote := func(node string, err error) error {
		return fmt.Errorf("%s: %w", node, &transport.RemoteError{NodeID: node, Text: err.Error()})
	}
	leader := remote("n2", fmt.Errorf("%w: 1 of 3 voters are healthy without n1", record.ErrRefused))
	gone := fmt.Errorf("n3: %w", transport.ErrUnreachable)
	self := remote("n1", errTermOver)
	for _, c := range []struct {
		failed []error
		want   string
	}{
		{[]error{leader, gone, self}, leader.Error()},
		{[]error{gone, self, leader}, leader.Error()},
		{[]error{gone, remote("n2", errNoLease), self}, errors.Join(gone, remote("n2", errNoLease), self).Error()},
		{[]error{self}, self.Error()},
	} {
		if got := telling(c.failed); got.Error() != c.want {
			t.Errorf("of %v: %v, want %s", c.failed, got, c.want)
		}
	}
}
