package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clockTicks is USER_HZ, the unit of times below /proc: 100 on every Linux architecture that Go runs on.
const clockTicks = 100

func ticks(n uint64) time.Duration { return time.Duration(n) * time.Second / clockTicks }

// serversCPU returns user plus system time of the processes together.
func serversCPU(pids []int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		t, err := parseProcessStat(stat)
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		total += t
	}
	return total, nil
}

// parseProcessStat reads utime and stime, fields 14 and 15 of proc_pid_stat(5). The name in field 2 may hold
// anything, so fields are counted from its closing bracket.
func parseProcessStat(stat []byte) (time.Duration, error) {
	const utime, stime = 14 - 3, 15 - 3 // the bracket ends field 2, so index 0 is field 3
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0, fmt.Errorf("unknown format %q", stat)
	}
	u, uErr := strconv.ParseUint(string(fields[utime]), 10, 64)
	s, sErr := strconv.ParseUint(string(fields[stime]), 10, 64)
	return ticks(u + s), errors.Join(uErr, sErr)
}

// machineCPU returns the time that all CPUs together have been busy since the machine started.
func machineCPU() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseMachineStat(stat)
}

// parseMachineStat reads the first line of proc_stat(5): everything but idle and iowait, fields 4 and 5. What
// a hypervisor took away (steal, field 8) counts as busy; guest time is part of user time already.
func parseMachineStat(stat []byte) (time.Duration, error) {
	const idle, iowait, steal = 4, 5, 8
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) <= steal || string(fields[0]) != "cpu" {
		return 0, fmt.Errorf("unknown format %q", line)
	}
	var total uint64
	for i, f := range fields[1 : steal+1] {
		n, err := strconv.ParseUint(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("unknown format %q", line)
		}
		if i+1 != idle && i+1 != iowait {
			total += n
		}
	}
	return ticks(total), nil
}

// ownCPU returns user plus system time of this process and of its children that have ended.
func ownCPU() (time.Duration, error) {
	var total time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			return 0, fmt.Errorf("own CPU time: %w", err)
		}
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total, nil
}

// A meter measures what the rest of the machine does meanwhile.
type meter struct {
	pids      []int
	began     time.Time
	all, ours time.Duration
}

// newMeter starts a meter; the servers with these ids, this process and its ended children are not the rest.
func newMeter(pids []int) (*meter, error) {
	m := &meter{pids: pids, began: time.Now()}
	var err error
	m.all, m.ours, err = m.read()
	return m, err
}

func (m *meter) read() (all, ours time.Duration, err error) {
	all, allErr := machineCPU()
	servers, serversErr := serversCPU(m.pids)
	own, ownErr := ownCPU()
	return all, servers + own, errors.Join(allErr, serversErr, ownErr)
}

// others is the share of the machine's CPU time, 0 to 1, that others used since the meter started.
func (m *meter) others() (float64, error) {
	all, ours, err := m.read()
	there := float64(time.Since(m.began)) * float64(runtime.NumCPU())
	used := float64((all - m.all) - (ours - m.ours))
	return min(max(used/there, 0), 1), err
}

// fileSystem names the file system of a directory.
func fileSystem(dir string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "", fmt.Errorf("file system of %s: %w", dir, err)
	}
	switch s.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4", nil
	case unix.XFS_SUPER_MAGIC:
		return "xfs", nil
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs", nil
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs", nil
	case unix.TMPFS_MAGIC:
		return tmpfs, nil
	}
	return fmt.Sprintf("file system %#x", s.Type), nil
}

// tmpfs has no disk: fsync costs nothing there.
const tmpfs = "tmpfs"

// shape says what kind of machine this is, by what matters to the numbers and by nothing else.
func shape(fs string) (string, error) {
	mem, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return "", err
	}
	gib, err := parseMemTotal(mem)
	if err != nil {
		return "", err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	release, _, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), "-")
	return fmt.Sprintf("%d CPUs (%s), %d GiB of memory, one %s disk for all nodes, Linux %s",
		runtime.NumCPU(), runtime.GOARCH, gib, fs, release), nil
}

// parseMemTotal reads the first line of /proc/meminfo and rounds to GiB.
func parseMemTotal(mem []byte) (int, error) {
	fields := strings.Fields(string(mem))
	if len(fields) < 2 || fields[0] != "MemTotal:" {
		return 0, errors.New("unknown format of /proc/meminfo")
	}
	kib, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("unknown format of /proc/meminfo: %w", err)
	}
	return int(math.Round(float64(kib) / (1 << 20))), nil
}
