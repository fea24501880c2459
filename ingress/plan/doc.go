// Package plan is the leader's plan of one event group: what the state will be
// when everything in flight has been applied, and the envelopes that make it so.
//
// # Contract
//
// A Planner belongs to one leadership term of one group and to one goroutine. It
// is fed operations (Op) in arrival order; each judges itself against the plan
// state and writes its consequences into the envelope that is forming. The
// envelope is proposed when the owner calls Flush and fewer than
// Config.InFlight are on their way: an envelope forms while earlier ones are in
// flight, nobody waits for a timer.
//
// Plan state = applied state + overlay of changes in flight. An overlay entry
// leaves when the envelope that made it is applied here (Overlay), and nothing
// that has one is read from the store.
//
// # Answers
//
// Op.Plan returns the tick of the envelope that the operation's answer rests on;
// Op.Done is called when that envelope is applied, so no answer ever shows a state
// that is not committed. Tick 0, or one already applied, is answered at once.
//
// # Rebuild
//
// A refusal, a stale plan or a proposal in doubt means that later envelopes were
// planned on something that may not be. The Planner then stops planning, waits
// until every proposal in flight has ended, runs a Barrier, forgets all planned
// state, starts the next epoch on the fence that is applied now, and plans the
// operations of failed envelopes again, in arrival order. Verdicts are redone;
// facts (deliveries sent, acks received) are proposed again by whoever holds
// them: Listener.Failed tells.
//
// # End of a term
//
// Stop answers every operation that is still open: certain (its envelope was
// refused, stale, or never proposed) or not.
//
// # Sweep rows
//
//	kind     work                       cursor: strings are uvarint length and bytes
//	1        dead rows of a purge       after string, subject string, seq uvarint; empty = the begin,
//	                                    a seq without a subject = the index of subjects is done
//	2        lowered limits             the same; seq 1 = the limits of subjects are applied
//	64..191  purge of a part, one each  filter string, from, up to, purged uvarint, reply string, deadline uvarint
package plan
