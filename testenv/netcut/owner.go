package netcut

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// findFor is how long a dialler is looked for: its process may have been started this moment.
	findFor   = 2 * time.Second
	findEvery = 20 * time.Millisecond
)

// dialler returns the node whose process opened the connection, empty if none did.
func (n *Net) dialler(c net.Conn) string {
	remote, ok1 := c.RemoteAddr().(*net.TCPAddr)
	local, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return ""
	}
	for end := time.Now().Add(findFor); time.Now().Before(end); {
		inode := socketInode(remote.Port, local.Port)
		if inode == "" {
			return ""
		}
		n.mu.Lock()
		pids := maps.Clone(n.pids)
		n.mu.Unlock()
		for node, pid := range pids {
			if holds(pid, inode) {
				return node
			}
		}
		if !wait(findEvery, n.ctx.Done()) {
			return ""
		}
	}
	return ""
}

// socketInode finds the socket of a TCP connection by its two ports; empty if it has ended.
func socketInode(local, remote int) string {
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	return findInode(text, local, remote)
}

// findInode reads the format of /proc/net/tcp: proc_net_tcp.txt of the kernel's documentation.
func findInode(text []byte, local, remote int) string {
	const inodeField = 9
	wantLocal, wantRemote := fmt.Sprintf(":%04X", local), fmt.Sprintf(":%04X", remote)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) <= inodeField || !strings.HasSuffix(f[1], wantLocal) || !strings.HasSuffix(f[2], wantRemote) {
			continue
		}
		if f[inodeField] == "0" { // no process has it any more
			return ""
		}
		return f[inodeField]
	}
	return ""
}

// holds says whether a process has the socket open.
func holds(pid int, inode string) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	want := "socket:[" + inode + "]"
	for _, fd := range fds {
		if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && to == want {
			return true
		}
	}
	return false
}
