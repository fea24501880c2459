package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// clockTicks is USER_HZ, the unit of times in /proc/PID/stat: 100 on every Linux architecture that Go runs
// on.
const clockTicks = 100

// processCPU returns user plus system time of the processes together.
func processCPU(pids []int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		t, err := parseStat(stat)
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		total += t
	}
	return total, nil
}

// parseStat reads utime and stime, fields 14 and 15 of proc_pid_stat(5). The name in field 2 may hold
// anything, so fields are counted from its closing bracket.
func parseStat(stat []byte) (time.Duration, error) {
	const utime, stime = 14 - 3, 15 - 3 // the bracket ends field 2, so index 0 is field 3
	_, rest, ok := bytes.Cut(stat, []byte("("))
	end := bytes.LastIndexByte(rest, ')')
	if !ok || end < 0 {
		return 0, fmt.Errorf("unknown format %q", stat)
	}
	fields := bytes.Fields(rest[end+1:])
	if len(fields) <= stime {
		return 0, fmt.Errorf("unknown format %q", stat)
	}
	var ticks int64
	for _, f := range [][]byte{fields[utime], fields[stime]} {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("unknown format %q", stat)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks, nil
}

// ownCPU returns user plus system time of this process.
func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("own CPU time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
