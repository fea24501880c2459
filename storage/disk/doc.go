// Package disk keeps a node off the end of its disk. It watches the room that the
// data directory has left, says when the node has to refuse what makes its data
// grow, and holds a reserve for everything that must go on then.
//
// # Rules
//
// usable = free bytes − what the ballast lacks of its size
//
//	usable < MinFree                          refuse (and make no ballast)
//	while refusing: usable ≥ MinFree + margin  accept again; margin = MinFree/8, at least MinMargin
//	a write met a full disk (ENOSPC, EDQUOT)  give the ballast back, refuse, write again
//	accepting, ballast not whole              make it, in the background
//
// So after a full disk publishes come back only with room for the ballast, too. With
// MinFree 0 and without a ballast nothing is refused before a write meets a full disk.
//
// Refusing is advice to whoever admits new data. What goes on: acknowledgements,
// deletes, votes, flushes, compactions, and replication from another leader. They
// need little room and are what makes more of it.
//
// # Ballast
//
// The file BALLAST in the data directory, of Config.Ballast bytes that no file system
// can compress. It holds nothing, its loss costs nothing. Every write that finds the
// disk full waits until it is removed and is tried once more (vfs.OnDiskFull). That
// matters most for Pebble's MANIFEST: to fail there ends the process.
//
// A database whose flush fails tries again at once, for ever. FS lets it create a table
// no earlier than RetryAfter after one that could not be written.
//
// # Goroutines
//
// Run, which the owner calls and ends by its context.
package disk
