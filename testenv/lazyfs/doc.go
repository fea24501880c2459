// Command lazyfs mounts a file system that forgets, when told to, what was not
// synced: kill a process that has its files on it, say cut, and it is as if the
// machine had lost its power. It also has full, slow, hung and failing disks. It works
// for any program, unchanged, and is modelled on LazyFS, which the Jepsen tests
// use. It needs Linux, /dev/fuse and the right to mount, and is a module of its own so
// that nothing else needs FUSE.
//
//	lazyfs [--strict] MOUNTPOINT
//
// All files are in the memory of this process. They are twice there: as programs
// see them, and as they would be after a loss of power.
//
// # What survives
//
//	bytes and size of a file    as of its last fsync, fdatasync or write through O_SYNC
//	names (create, rename, …)   at once; with --strict, as of the last fsync of the directory
//
// At once is what LazyFS does, and more than POSIX promises; a program that loses
// data here is not to be excused by a forgotten sync of a directory.
//
// # Commands
//
// One a line on standard input; each is answered by a line, "ok" or "error: …".
// The end of the input unmounts and ends the command.
//
//	cut              unmount, forget what was not synced, mount again; nobody may have files open
//	delay DURATION   every sync takes that long; 0 for none. Those that wait end at once
//	hang, unhang     no sync returns in between
//	quota BYTES      writes beyond it get ENOSPC; 0 for none
//	eio WHAT         sync, write: those fail with EIO; off: none
package main
