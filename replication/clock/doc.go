// Package clock is the cluster clock of a replica: the time that messages get and
// that age is measured by. It is pure but for Boottime and BootID, which read the
// machine's.
package clock
