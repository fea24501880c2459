package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func table(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.tsv")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	classHead = "package\ttest\tneeds\tfeatures"
	wantHead  = "package\ttest\texpected\treason"
)

// The tables of the tree fit each other, and list nothing of the core as missing.
func TestTablesOfTheTree(t *testing.T) {
	t.Parallel()
	list, err := readClasses(filepath.Join("..", "..", "classes.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := readExpected(filepath.Join("..", "..", "expected.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	if err := want.check(list); err != nil {
		t.Error(err)
	}
	o := &options{core: true, run: regexp.MustCompile("")}
	if n := len(list.selected(o)); n != 86 {
		t.Errorf("%d core tests, want 86", n)
	}
	o.run = regexp.MustCompile(`^test\.TestPullSubscribeFetchDrain$`)
	if n := len(list.selected(o)); n != 1 {
		t.Errorf("%d tests of one name", n)
	}
}

func TestTablesRefuse(t *testing.T) {
	t.Parallel()
	list := table(t, classHead, "p\tA\tsingle\tcore,publish", "p\tB\tsingle\tpush")
	for _, tt := range []struct{ name, path, problem string }{
		{"columns", table(t, wantHead, "p\tA\tpass"), ":2: 3 columns, want 4"},
		{"header", table(t, "package\ttest\tresult\treason"), "the first line must be"},
		{"twice", table(t, wantHead, "p\tA\tpass\t", "p\tA\tpass\t"), "p.A is listed twice"},
		{"outcome", table(t, wantHead, "p\tA\tmaybe\t"), `expected to "maybe"; give pass, fail or skip`},
		{"no reason", table(t, wantHead, "p\tB\tfail\t"), "p.B is expected to fail without a reason"},
		{"core", table(t, wantHead, "p\tA\tfail\tx", "p\tB\tpass\t"), "p.A, a core test, as fail"},
		{"missing", table(t, wantHead, "p\tA\tpass\t"), "does not list p.B"},
		{"unknown", table(t, wantHead, "p\tA\tpass\t", "p\tB\tpass\t", "p\tC\tpass\t"), "lists p.C, which"},
	} {
		classes, err := readClasses(list)
		if err != nil {
			t.Fatal(err)
		}
		want, err := readExpected(tt.path)
		if err == nil {
			err = want.check(classes)
		}
		if err == nil || !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.problem)
		}
	}
}

// Every difference is an error, a pass that nobody expected as much as a failure.
func TestCompare(t *testing.T) {
	t.Parallel()
	path := table(t, wantHead,
		"p\tA\tpass\t", "p\tB\tfail\tpush consumers", "p\tC\tskip\tthe suite", "p\tD\tfail\told")
	want, err := readExpected(path)
	if err != nil {
		t.Fatal(err)
	}
	of := func(test, outcome, output string) result {
		return result{class: class{id: id{"p", test}}, outcome: outcome, output: output}
	}
	var out strings.Builder
	good := []result{of("A", pass, ""), of("B", fail, ""), of("C", skip, "")}
	if n := want.compare(&out, good); n != 0 || out.Len() > 0 {
		t.Errorf("%d differences: %s", n, out.String())
	}
	bad := []result{of("A", fail, "x\n    a_test.go:7: boom\n"), of("B", pass, ""), of("C", skip, "")}
	if n := want.compare(&out, bad); n != 2 {
		t.Errorf("%d differences, want 2", n)
	}
	for _, line := range []string{
		"UNEXPECTED fail, expected pass: p.A", "a_test.go:7: boom",
		"UNEXPECTED pass, expected fail: p.B", "change its line in expected.tsv to: p\tB\tpass\t",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in:\n%s", line, out.String())
		}
	}
	list := classes{{id: id{"p", "A"}}, {id: id{"p", "B"}}, {id: id{"p", "C"}}, {id: id{"p", "D"}}}
	if err := want.update(path, list, bad); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	updated := wantHead +
		"\np\tA\tfail\tTODO: a_test.go:7: boom\np\tB\tpass\t\np\tC\tskip\tthe suite\np\tD\tfail\told\n"
	if string(got) != updated {
		t.Errorf("updated to\n%s, want\n%s", got, updated)
	}
}
