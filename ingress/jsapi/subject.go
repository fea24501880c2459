package jsapi

import "strings"

// MaxNameLen is the longest stream or consumer name, in bytes.
const MaxNameLen = 255

// maxGroupNameLen is the longest priority group name, in bytes.
const maxGroupNameLen = 16

// ValidName reports whether s may name a stream or a consumer: not empty and without white space,
// '.', '*', '>', '/' and '\'. The length is judged apart, because it has an error of its own.
func ValidName(s string) bool {
	return s != "" && !strings.ContainsAny(s, " \t\r\n\f.*>\\/")
}

// ValidGroupName reports whether s may name a priority group: 1 to 16 of A-Z, a-z, 0-9 and "/_=-".
func ValidGroupName(s string) bool {
	if s == "" || len(s) > maxGroupNameLen {
		return false
	}
	for i := range len(s) {
		if !validGroupByte(s[i]) {
			return false
		}
	}
	return true
}

func validGroupByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '/' || c == '_' || c == '=' || c == '-'
}

// ValidSubject reports whether s is a subject, wildcards allowed: no empty token, no white space,
// '>' only as the last token. '*' and '>' inside a longer token are plain characters.
func ValidSubject(s string) bool {
	for i := 0; i >= 0; {
		tok, next := nextToken(s, i)
		if tok == "" || strings.ContainsAny(tok, " \t\r\n\f") || tok == ">" && next >= 0 {
			return false
		}
		i = next
	}
	return true
}

// ValidLiteral reports whether s is a subject without wildcard tokens.
func ValidLiteral(s string) bool {
	return ValidSubject(s) && !HasWildcards(s)
}

// HasWildcards reports whether any token of s is '*' or '>'.
func HasWildcards(s string) bool {
	for i := 0; i >= 0; {
		tok, next := nextToken(s, i)
		if tok == "*" || tok == ">" {
			return true
		}
		i = next
	}
	return false
}

// TokenCount returns the number of tokens of s; the empty string has none.
func TokenCount(s string) int {
	if s == "" {
		return 0
	}
	return strings.Count(s, ".") + 1
}

// Token returns token n of s, counted from 0, or "" when there are fewer.
func Token(s string, n int) string {
	for i := 0; i >= 0; n-- {
		tok, next := nextToken(s, i)
		if n == 0 {
			return tok
		}
		i = next
	}
	return ""
}

// nextToken returns the token that starts at i and the start of the one after it, -1 at the end.
func nextToken(s string, i int) (tok string, next int) {
	if j := strings.IndexByte(s[i:], '.'); j >= 0 {
		return s[i : i+j], i + j + 1
	}
	return s[i:], -1
}

// SubjectMatches reports whether filter, which may have wildcards, matches the literal subject.
// Wildcard characters in literal are plain characters. It does not allocate.
func SubjectMatches(filter, literal string) bool {
	if filter == literal || filter == ">" {
		return literal != ""
	}
	f, l := 0, 0
	for {
		ft, fn := nextToken(filter, f)
		lt, ln := nextToken(literal, l)
		if lt == "" {
			return false
		}
		if ft == ">" {
			return true
		}
		if ft != "*" && ft != lt {
			return false
		}
		if fn < 0 || ln < 0 {
			return fn < 0 && ln < 0
		}
		f, l = fn, ln
	}
}

// SubjectsOverlap reports whether some literal subject is matched by both a and b. It does not
// allocate.
func SubjectsOverlap(a, b string) bool {
	if a == b {
		return true
	}
	i, j := 0, 0
	for {
		at, an := nextToken(a, i)
		bt, bn := nextToken(b, j)
		if at == "" || bt == "" {
			return false
		}
		if at == ">" || bt == ">" {
			return true
		}
		if at != bt && at != "*" && bt != "*" {
			return false
		}
		if an < 0 || bn < 0 {
			return an < 0 && bn < 0
		}
		i, j = an, bn
	}
}

// SubjectIsSubset reports whether every literal subject matched by a is matched by b too. It does
// not allocate.
func SubjectIsSubset(a, b string) bool {
	i, j := 0, 0
	for {
		at, an := nextToken(a, i)
		bt, bn := nextToken(b, j)
		if at == "" || bt == "" {
			return false
		}
		if bt == ">" {
			return true
		}
		if at == ">" || bt != "*" && at != bt {
			return false
		}
		if an < 0 || bn < 0 {
			return an < 0 && bn < 0
		}
		i, j = an, bn
	}
}
