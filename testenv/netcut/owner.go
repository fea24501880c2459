package netcut

import (
	"bufio"
	"bytes"
	"iter"
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

func findInode(text []byte, local, remote int) string {
	for row := range tcpRows(text) {
		if row.localPort != local || row.remotePort != remote {
			continue
		}
		if row.inode == "0" { // no process has it any more
			return ""
		}
		return row.inode
	}
	return ""
}

// tcpRow is a socket in /proc/net/tcp.
type tcpRow struct {
	localPort, remotePort int
	state, inode          string
}

// tcpRows reads the format of /proc/net/tcp: proc_net_tcp.txt of the kernel's documentation.
func tcpRows(text []byte) iter.Seq[tcpRow] {
	const stateField, inodeField = 3, 9
	port := func(addr string) int {
		_, digits, _ := strings.Cut(addr, ":")
		p, err := strconv.ParseUint(digits, 16, 16)
		if err != nil {
			return -1 // the line that names the columns
		}
		return int(p)
	}
	return func(yield func(tcpRow) bool) {
		lines := bufio.NewScanner(bytes.NewReader(text))
		for lines.Scan() {
			f := strings.Fields(lines.Text())
			if len(f) <= inodeField {
				continue
			}
			row := tcpRow{
				localPort: port(f[1]), remotePort: port(f[2]), state: f[stateField], inode: f[inodeField],
			}
			if !yield(row) {
				return
			}
		}
	}
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
