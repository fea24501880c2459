//go:build !planted_earlyack

package replication

import "github.com/holdfast-mq/holdfast/storage/record"

// plantEarlyAck is the place of a planted bug: a proposal is done when the leader alone
// has it. The simulation must catch it.
func plantEarlyAck(p *record.Proposal) *record.Proposal { return p }
