package netcut

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// ErrNoListener says that this process does not listen on a port.
var ErrNoListener = errors.New("netcut: this process does not listen on the port")

// Sever takes the listener of a TCP port, and every connection that it accepted, from this process: for the other
// ends they are gone, and new connections are refused. Who accepts there is not told and waits for ever, so a port is
// healed by a new listener, of whoever is started in its place. It is for nodes within the test's process and for
// connections within one, where a proxy cannot tell who dialled, or nobody can be made to dial one.
func Sever(port int) error {
	sockets, err := socketsAt(port)
	if err != nil {
		return err
	}
	if len(sockets.listening) == 0 {
		return fmt.Errorf("%w: %d", ErrNoListener, port)
	}
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("netcut: %w", err)
	}
	// In the place of a descriptor, its number stays taken until its owner closes it.
	for _, fd := range sockets.listening {
		if err := syscall.Dup3(int(nothing.Fd()), fd, syscall.O_CLOEXEC); err != nil {
			return errors.Join(fmt.Errorf("netcut: replace the listener of port %d: %w", port, err), nothing.Close())
		}
	}
	// Accepted before the listener was gone.
	if sockets, err = socketsAt(port); err != nil {
		return errors.Join(err, nothing.Close())
	}
	for _, fd := range sockets.accepted {
		if err := syscall.Shutdown(fd, syscall.SHUT_RDWR); err != nil && !errors.Is(err, syscall.ENOTCONN) {
			return errors.Join(fmt.Errorf("netcut: end a connection to port %d: %w", port, err), nothing.Close())
		}
	}
	return nothing.Close()
}

// ownSockets are descriptors of this process.
type ownSockets struct{ listening, accepted []int }

// socketsAt finds the sockets of this process whose own port it is.
func socketsAt(port int) (ownSockets, error) {
	const listen, established, closeWait = "0A", "01", "08"
	var out ownSockets
	text, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return out, fmt.Errorf("netcut: %w", err)
	}
	byState := make(map[string][]string)
	for row := range tcpRows(text) {
		if row.localPort == port {
			byState[row.state] = append(byState[row.state], "socket:["+row.inode+"]")
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return out, fmt.Errorf("netcut: %w", err)
	}
	for _, f := range fds {
		to, err := os.Readlink("/proc/self/fd/" + f.Name())
		if err != nil {
			continue // closed meanwhile
		}
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		if slices.Contains(byState[listen], to) {
			out.listening = append(out.listening, fd)
		}
		if slices.Contains(byState[established], to) || slices.Contains(byState[closeWait], to) {
			out.accepted = append(out.accepted, fd)
		}
	}
	return out, nil
}
