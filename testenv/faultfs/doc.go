// Package faultfs holds disks with faults.
//
// A Quota is a disk of a size: a file system that has no room for more than a
// given number of bytes, and says so as a real one does (ENOSPC), whatever it is made of.
//
// What counts is what files were written to or what was preallocated for them, once
// for all their names, until the last name has gone; directories and names are free.
// Files that are there already count from the first time they are seen by New.
// GetDiskUsage answers by the same book.
//
// A Switch is a disk whose syncs fail or hang while a file says so, for nodes that are
// processes of their own.
package faultfs
