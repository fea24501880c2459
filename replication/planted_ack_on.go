//go:build planted_earlyack

package replication

import (
	"sync/atomic"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// plantEarlyAck is the place of a planted bug: a proposal is done when the leader alone
// has it. The simulation must catch it.
func plantEarlyAck(p *record.Proposal) *record.Proposal {
	var said atomic.Bool
	done := func(err error) {
		if said.CompareAndSwap(false, true) {
			p.Done(err)
		}
	}
	return &record.Proposal{ID: p.ID, Entry: p.Entry, Done: done, Durable: func() {
		if p.Durable != nil {
			p.Durable()
		}
		done(nil)
	}}
}
