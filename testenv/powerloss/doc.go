// Package powerloss is a file system that makes SIGKILL a power cut. What was not
// synced is held in the memory of the process, and dies with it.
//
// An FS covers one directory tree, Config.Root; other paths pass through to the
// operating system. Everything that goes through it sees its own changes at once:
//
//	change                                reaches the real tree at
//	bytes of a file                       Sync or SyncData of the file
//	Create, Link, Rename, Remove, mkdir   Sync of the directory that holds the name
//	SyncTo, Preallocate                   never: they promise nothing
//
// The real tree is at every moment one that a power cut could leave behind, and a
// new FS on it (or a plain one) continues from there. These are the semantics of
// CrashableMem in pebble/vfs with nothing unsynced kept, and a test compares the two.
// With Config.Leak, pages and names reach the real tree early by chance, as the
// write-back of a kernel does it, in no order that anybody may rely on.
//
// A sync does not wait for the medium: the page cache of the machine outlives the
// process, which is all that is asked of it here. Its pages are written in random
// order, so that a kill during a sync may leave any part of it.
//
// # Where what is durable and has no name yet lives
//
// Every file has a second, hard linked name in Config.Stage, a directory on the
// same file system, by which it is opened and to which it may be reduced: a file
// whose bytes are synced and whose name is not. A directory that no synced
// directory holds lies in the stage itself. New empties the stage.
//
// # Limits
//
// A directory that is renamed into another parent moves when either of the two is
// synced, never appears in both. A file without room on the real disk fails in its
// sync, not in its write. Locks exclude users of the same FS only. Nothing here is
// meant for production: cmd/holdfast uses it in builds with the tag powerloss alone.
package powerloss
