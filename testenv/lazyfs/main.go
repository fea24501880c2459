package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const usage = "usage: lazyfs [--strict] MOUNTPOINT"

func main() {
	args := os.Args[1:]
	strict := slices.Contains(args, "--strict")
	args = slices.DeleteFunc(args, func(s string) bool { return s == "--strict" })
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	m, err := mount(newDisk(strict), args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lazyfs: mounting:", err)
		os.Exit(1)
	}
	fmt.Println("ok")
	serve(m, os.Stdin, os.Stdout)
	if err := m.unmount(); err != nil {
		fmt.Fprintln(os.Stderr, "lazyfs: unmounting:", err)
		os.Exit(1)
	}
}

// serve carries out commands until the input ends.
func serve(m *mounted, in io.Reader, out io.Writer) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := command(m, strings.Fields(lines.Text())); err != nil {
			fmt.Fprintf(out, "error: %v\n", err)
		} else {
			fmt.Fprintln(out, "ok")
		}
	}
}

var errCommand = errors.New("the commands are: cut, delay DURATION, hang, unhang, quota BYTES, eio sync|write|off")

func command(m *mounted, words []string) error {
	switch strings.Join(words, " ") {
	case "cut":
		return m.cut()
	case "hang", "unhang":
		m.disk.hang(words[0] == "hang")
		return nil
	case "eio sync", "eio write", "eio off":
		m.disk.set(func(f *faults) { f.failSync, f.failWrite = words[1] == "sync", words[1] == "write" })
		return nil
	}
	if len(words) != 2 {
		return errCommand
	}
	switch words[0] {
	case "delay":
		delay, err := time.ParseDuration(words[1])
		if err != nil || delay < 0 {
			return fmt.Errorf("%q is no duration, such as 0s or 1.5s", words[1])
		}
		m.disk.pace(delay)
	case "quota":
		quota, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil || quota < 0 {
			return fmt.Errorf("%q is no number of bytes", words[1])
		}
		m.disk.set(func(f *faults) { f.quota = quota })
	default:
		return errCommand
	}
	return nil
}
