package jsapi

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

func TestValidName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"": false, "a": true, "ORDERS_1-x": true, "ä": true, "a@b": true, `a"b`: true, "$x": true,
		"a b": false, "a\tb": false, "a\r": false, "a\n": false, "a\fb": false,
		"a.b": false, "*": false, "a*": false, ">": false, "a/b": false, `a\b`: false,
		strings.Repeat("x", MaxNameLen+1): true,
	} {
		if got := ValidName(name); got != want {
			t.Errorf("ValidName(%q) = %v", name, got)
		}
	}
}

func TestValidGroupName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"": false, "g": true, "aZ09/_=-": true, "a b": false, "a.b": false, "a+b": false, "a)": false,
		strings.Repeat("x", 16): true, strings.Repeat("x", 17): false,
	} {
		if got := ValidGroupName(name); got != want {
			t.Errorf("ValidGroupName(%q) = %v", name, got)
		}
	}
}

func TestValidSubject(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		s           string
		valid, wild bool
		tokens      int
	}{
		{s: ""},
		{s: "a", valid: true, tokens: 1},
		{s: "a.b.c", valid: true, tokens: 3},
		{s: "a.*.c", valid: true, wild: true, tokens: 3},
		{s: "a.>", valid: true, wild: true, tokens: 2},
		{s: ">", valid: true, wild: true, tokens: 1},
		{s: "*", valid: true, wild: true, tokens: 1},
		{s: "a*.>b", valid: true, tokens: 2},
		{s: ">.a", wild: true, tokens: 2},
		{s: "a..b", tokens: 3},
		{s: ".a", tokens: 2},
		{s: "a.", tokens: 2},
		{s: ".", tokens: 2},
		{s: "a b", tokens: 1},
		{s: "a.\tb", tokens: 2},
		{s: "$KV.b.k", valid: true, tokens: 3},
	} {
		if got := ValidSubject(tc.s); got != tc.valid {
			t.Errorf("ValidSubject(%q) = %v", tc.s, got)
		}
		if got := ValidLiteral(tc.s); got != (tc.valid && !tc.wild) {
			t.Errorf("ValidLiteral(%q) = %v", tc.s, got)
		}
		if got := HasWildcards(tc.s); got != tc.wild {
			t.Errorf("HasWildcards(%q) = %v", tc.s, got)
		}
		if got := TokenCount(tc.s); got != tc.tokens {
			t.Errorf("TokenCount(%q) = %d, want %d", tc.s, got, tc.tokens)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"a", "", "c", "", ""} {
		if got := Token("a..c", i); got != want {
			t.Errorf("Token(a..c, %d) = %q, want %q", i, got, want)
		}
	}
	if got := Token("a", -1); got != "" {
		t.Errorf("Token(a, -1) = %q", got)
	}
}

func TestSubjectRelations(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b                     string
		overlap, aInB, bInA, lit bool // lit: b is literal, so a matching it is overlap.
	}{
		{a: "a", b: "a", overlap: true, aInB: true, bInA: true, lit: true},
		{a: "a", b: "b", lit: true},
		{a: "a", b: "a.b", lit: true},
		{a: "a.*", b: "a.b", overlap: true, bInA: true, lit: true},
		{a: "a.*", b: "a", lit: true},
		{a: "a.>", b: "a", lit: true},
		{a: "a.>", b: "a.b.c", overlap: true, bInA: true, lit: true},
		{a: ">", b: "a.b", overlap: true, bInA: true, lit: true},
		{a: "a.*.c", b: "a.b.*", overlap: true},
		{a: "a.*", b: "a.>", overlap: true, aInB: true},
		{a: "a.*.*", b: "a.>", overlap: true, aInB: true},
		{a: "*.b", b: "a.*", overlap: true},
		{a: "*.b", b: "*.c"},
		{a: "*", b: "*.*"},
		{a: ">", b: ">", overlap: true, aInB: true, bInA: true},
		{a: "a.>", b: ">", overlap: true, aInB: true},
		{a: "a.*", b: "b.>"},
	} {
		if got := SubjectsOverlap(tc.a, tc.b); got != tc.overlap {
			t.Errorf("SubjectsOverlap(%q, %q) = %v", tc.a, tc.b, got)
		}
		if got := SubjectsOverlap(tc.b, tc.a); got != tc.overlap {
			t.Errorf("SubjectsOverlap(%q, %q) = %v", tc.b, tc.a, got)
		}
		if got := SubjectIsSubset(tc.a, tc.b); got != tc.aInB {
			t.Errorf("SubjectIsSubset(%q, %q) = %v", tc.a, tc.b, got)
		}
		if got := SubjectIsSubset(tc.b, tc.a); got != tc.bInA {
			t.Errorf("SubjectIsSubset(%q, %q) = %v", tc.b, tc.a, got)
		}
		if got := SubjectMatches(tc.a, tc.b); tc.lit && got != tc.overlap {
			t.Errorf("SubjectMatches(%q, %q) = %v", tc.a, tc.b, got)
		}
	}
}

func TestSubjectAllocs(t *testing.T) {
	filter, literal := "orders.*.created.>", "orders.eu.created.today.42"
	n := testing.AllocsPerRun(100, func() {
		if !SubjectMatches(filter, literal) || !SubjectsOverlap(filter, "orders.>") ||
			SubjectIsSubset("orders.>", filter) || !ValidSubject(filter) || TokenCount(literal) != 5 {
			t.Fail()
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzSubjects compares the relations between subjects with those of the real server.
func FuzzSubjects(f *testing.F) {
	for _, s := range []string{
		"a", "a.b", "a.*", "a.>", ">", "*", "*.b", "a..b", "", ".", "a b", ">.a", "$JS.API.>",
	} {
		f.Add(s, "a.b")
		f.Add("a.*", s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		valid := ValidSubject(a)
		if valid != server.IsValidSubject(a) {
			t.Errorf("ValidSubject(%q) = %v", a, valid)
		}
		if !valid || !ValidSubject(b) {
			SubjectsOverlap(a, b)
			SubjectIsSubset(a, b)
			SubjectMatches(a, b)
			return
		}
		if got := SubjectsOverlap(a, b); got != server.SubjectsCollide(a, b) {
			t.Errorf("SubjectsOverlap(%q, %q) = %v", a, b, got)
		}
		subset := SubjectIsSubset(a, b)
		if subset != server.SubjectMatchesFilter(a, b) {
			t.Errorf("SubjectIsSubset(%q, %q) = %v", a, b, subset)
		}
		if subset && !SubjectsOverlap(a, b) {
			t.Errorf("%q is in %q and does not overlap it", a, b)
		}
		if !HasWildcards(b) && SubjectMatches(a, b) != server.SubjectsCollide(a, b) {
			t.Errorf("SubjectMatches(%q, %q) = %v", a, b, SubjectMatches(a, b))
		}
	})
}
