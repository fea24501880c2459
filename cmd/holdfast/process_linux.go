package main

import "syscall"

// processAttributes: signals of the terminal are for the parent, which passes them on; if it dies, so does
// the child.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
