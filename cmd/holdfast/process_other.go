//go:build !linux

package main

import "syscall"

// processAttributes: signals of the terminal are for the parent, which passes them on.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
