package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
)

// core is the feature of the tests that must never fail.
const core = "core"

// Outcomes of a test.
const (
	pass = "pass"
	fail = "fail"
	skip = "skip"
)

// id names a test: its package, below github.com/nats-io/nats.go, and its function.
type id struct{ pkg, test string }

// String is package.test.
func (i id) String() string { return i.pkg + "." + i.test }

// class is a row of classes.tsv.
type class struct {
	id
	needs    string
	features []string
}

func (c *class) core() bool { return slices.Contains(c.features, core) }

// quiet says that the test measures time so closely that no other may run beside it.
func (c *class) quiet() bool { return slices.Contains(strings.Split(c.needs, "+"), "quiet") }

type classes []class

// readRows reads a table of tab-separated values, header checked.
func readRows(path string, header ...string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows [][]string
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		row := strings.Split(s.Text(), "\t")
		if len(row) != len(header) {
			return nil, fmt.Errorf("%s:%d: %d columns, want %d: %s",
				path, n, len(row), len(header), strings.Join(header, ", "))
		}
		if n == 1 {
			if !slices.Equal(row, header) {
				return nil, fmt.Errorf("%s: the first line must be: %s", path, strings.Join(header, "\t"))
			}
			continue
		}
		rows = append(rows, row)
	}
	return rows, s.Err()
}

func readClasses(path string) (classes, error) {
	rows, err := readRows(path, "package", "test", "needs", "features")
	if err != nil {
		return nil, err
	}
	var out classes
	seen := make(map[id]bool)
	for _, r := range rows {
		c := class{id: id{r[0], r[1]}, needs: r[2], features: strings.Split(r[3], ",")}
		if seen[c.id] {
			return nil, fmt.Errorf("%s: %s is listed twice", path, c.id)
		}
		seen[c.id] = true
		out = append(out, c)
	}
	return out, nil
}

// find returns the row of a test, or nil.
func (l classes) find(i id) *class {
	for n := range l {
		if l[n].id == i {
			return &l[n]
		}
	}
	return nil
}

// selected returns the tests to run.
func (l classes) selected(o *options) classes {
	var out classes
	for _, c := range l {
		if (!o.core || c.core()) && o.run.MatchString(c.id.String()) {
			out = append(out, c)
		}
	}
	return out
}

// verdict is what expected.tsv says of a test.
type verdict struct{ result, reason string }

type expected map[id]verdict

var expectedHeader = []string{"package", "test", "expected", "reason"}

func readExpected(path string) (expected, error) {
	rows, err := readRows(path, expectedHeader...)
	if err != nil {
		return nil, err
	}
	out := make(expected)
	for _, r := range rows {
		i := id{r[0], r[1]}
		if _, twice := out[i]; twice {
			return nil, fmt.Errorf("%s: %s is listed twice", path, i)
		}
		if !slices.Contains([]string{pass, fail, skip}, r[2]) {
			return nil, fmt.Errorf("%s: %s is expected to %q; give pass, fail or skip", path, i, r[2])
		}
		if r[2] != pass && r[3] == "" {
			return nil, fmt.Errorf("%s: %s is expected to %s without a reason", path, i, r[2])
		}
		out[i] = verdict{r[2], r[3]}
	}
	return out, nil
}

// check compares the two tables: the same tests, and nothing of the core listed as anything but a pass.
func (e expected) check(list classes) error {
	for _, c := range list {
		v, ok := e[c.id]
		switch {
		case !ok:
			return fmt.Errorf("expected.tsv does not list %s, which classes.tsv does", c.id)
		case c.core() && v.result != pass:
			return fmt.Errorf("expected.tsv lists %s, a core test, as %s; fix the code", c.id, v.result)
		}
	}
	for i := range e {
		if list.find(i) == nil {
			return fmt.Errorf("expected.tsv lists %s, which classes.tsv does not", i)
		}
	}
	return nil
}

// update writes the table with what was found; reasons are kept where the result is the same, and are missing
// where they must be written.
func (e expected) update(path string, list classes, results []result) error {
	for _, r := range results {
		if old := e[r.id]; old.result != r.outcome {
			v := verdict{result: r.outcome}
			if r.outcome != pass {
				v.reason = "TODO: " + r.last()
			}
			e[r.id] = v
		}
	}
	var b strings.Builder
	b.WriteString(strings.Join(expectedHeader, "\t") + "\n")
	for _, c := range list {
		v := e[c.id]
		b.WriteString(strings.Join([]string{c.pkg, c.test, v.result, v.reason}, "\t") + "\n")
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
