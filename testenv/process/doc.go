// Package process runs nodes as real processes of the product's own binary, for
// tests that kill, stop and restart them.
//
// A Cluster owns its processes and their data directories; Close ends what is
// left, by process id. Nothing here sleeps: every wait is for a condition, with a
// deadline, and says what it saw when the deadline comes.
package process
