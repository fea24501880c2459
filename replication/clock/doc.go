// Package clock is the cluster clock of a replica: the time that messages get and
// that age is measured by. Neither a failover nor a step of some wall clock may
// change it, because a clock that jumps forward deletes messages by age.
//
// It is pure: CLOCK_BOOTTIME and the wall clock are injected (Boottime and BootID
// read the machine's). All times are nanoseconds since 1970.
//
// # Rules
//
//   - A follower's clock is set by its leader's frames and hellos (Observe), exactly,
//     and advanced by its own CLOCK_BOOTTIME. So a new leader continues the clock
//     that the last one ran.
//   - Now is never below the last stored time (Stored). While a replica leads,
//     its clock never goes backwards.
//   - It is persisted with seals (Persist) as boot id, BOOTTIME and cluster time and
//     continued after a restart within the same boot (Restore). After a reboot it
//     does not run; the persisted time stays as a lower bound.
//   - Wall clocks count in two cases only, as the lower median of those of the voters that
//     were heard within Fresh, this one's included:
//     (a) where no clock runs, at the begin of a term (Lead): the median is believed
//     at once, so that messages get today's time;
//     (b) as a correction forward (Tick, of a leader): the median is ahead by more
//     than Tolerance for AcceptAfter without a break, or an operator says so (Accept).
//   - After (a), unless the store is empty, and after (b), nothing may be deleted by
//     age for AcceptAfter (AgeTrusted). The wait is part of what a leader tells its
//     followers, so a failover does not shorten it. Accept ends it.
//   - Never backwards: a clock that is ahead of the median stays ahead and is reported
//     (Health).
//   - A node whose own wall clock is off the median by more than Tolerance is reported
//     (Health.WallOff) and should not lead if another can.
//
// Limit: a correction (b) makes older messages look older by its size.
//
// # Persisted form, version 1
//
//	size  field
//	1     version
//	1     length of the boot id
//	n     boot id
//	8     BOOTTIME, nanoseconds
//	8     cluster time then, or the last stored time if no clock ran; 0 = neither
//	8     for how long from then nothing may be deleted by age, nanoseconds
//	1     1 if a clock ran
package clock
