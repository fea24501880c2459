package jsapi

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// ErrBadSubject is the cause of a transform whose source or destination is no subject, and
// JetStream's text for any other bad subject.
var ErrBadSubject = errors.New("invalid subject")

// Transform rewrites subjects. The destination's tokens may be $N or {{wildcard(N)}} for what
// wildcard N of the source matched, or one of the functions partition, split, splitFromLeft,
// splitFromRight, sliceFromLeft, sliceFromRight, left, right and random (ADR-8, ADR-36).
type Transform struct {
	src, dest string
	toks      []transformTok
	full      bool // Source and destination end in '>'.
	srcToks   int
}

type transformFn uint8

const (
	fnLiteral transformFn = iota
	fnWildcard
	fnPartition
	fnSplit
	fnSplitFromLeft
	fnSplitFromRight
	fnSliceFromLeft
	fnSliceFromRight
	fnLeft
	fnRight
	fnRandom
)

// transformTok is one token of a destination.
type transformTok struct {
	fn  transformFn
	lit string // The token itself, or the delimiter of split.
	pos []int  // Source tokens, counted from 0.
	n   int
}

// ParseTransform prepares the rewriting of subjects that match src (empty is all) to dest, which
// must not be empty. '>' must end both or neither, dest may not have '*'. The error's text is
// JetStream's.
func ParseTransform(src, dest string) (*Transform, error) {
	if src == "" {
		src = ">"
	}
	full := src == ">" || strings.HasSuffix(src, ".>")
	destFull := dest == ">" || strings.HasSuffix(dest, ".>")
	if !ValidSubject(src) || !validDestination(dest) || full != destFull {
		return nil, ErrBadSubject
	}
	t := &Transform{src: src, dest: dest, full: full, srcToks: TokenCount(src)}
	wild := wildcardPositions(src)
	for tok := range strings.SplitSeq(dest, ".") {
		tt, err := t.prepare(tok, wild)
		if err != nil {
			return nil, err
		}
		t.toks = append(t.toks, tt)
	}
	return t, nil
}

// prepare turns a token of the destination into what Apply runs.
func (t *Transform) prepare(tok string, wild []int) (transformTok, error) {
	tt, err := parseTransformTok(tok)
	if errors.Is(err, errTransformSubject) {
		return tt, err
	}
	if err != nil {
		return tt, fmt.Errorf("%w in %s", err, tok)
	}
	if len(wild) == 0 && !t.full {
		if tt.fn != fnLiteral && tt.fn != fnRandom && tt.fn != fnPartition {
			return tt, fmt.Errorf("%w in %s", errTransformIndex, tok)
		}
		tt.pos = nil // Partition takes the whole subject then.
	}
	if err := tt.resolve(wild); err != nil {
		return tt, fmt.Errorf("%w in %s: %w", errTransformIndex, tok, err)
	}
	return tt, nil
}

// resolve turns numbers of wildcards into source tokens. Numbers below 1 mean the first token.
func (t *transformTok) resolve(wild []int) error {
	for i, n := range t.pos {
		if n > len(wild) {
			return fmt.Errorf("[%d]", n)
		}
		t.pos[i] = 0
		if n > 0 {
			t.pos[i] = wild[n-1]
		}
	}
	return nil
}

// validDestination reports whether dest is a subject without '*', blanks in function tokens aside.
func validDestination(dest string) bool {
	ended := false
	for tok := range strings.SplitSeq(dest, ".") {
		if tok == "" || tok == "*" || ended {
			return false
		}
		ended = tok == ">"
	}
	return true
}

// checkDestination judges the outline of a transform's destination where JetStream has other words
// than ParseTransform for it: in stream configurations, transforms of republish apart.
func checkDestination(dest string) error {
	ended := false
	for tok := range strings.SplitSeq(dest, ".") {
		if tok == "" {
			return errTransformSubject
		}
		if ended {
			return fmt.Errorf("%w in %s", errTransformSubject, tok)
		}
		_, err := parseTransformTok(tok)
		if errors.Is(err, errTransformUnknown) {
			return fmt.Errorf("%w in %s", err, tok)
		}
		if errors.Is(err, errTransformSubject) {
			return err
		}
		ended = tok == ">"
	}
	return nil
}

func wildcardPositions(src string) []int {
	var pos []int
	i := 0
	for tok := range strings.SplitSeq(src, ".") {
		if tok == "*" {
			pos = append(pos, i)
		}
		i++
	}
	return pos
}

// Apply returns the subject rewritten, or false when the source does not match it.
func (t *Transform) Apply(subject string) (string, bool) {
	if !SubjectMatches(t.src, subject) {
		return "", false
	}
	if t.dest == ">" {
		return subject, true
	}
	toks := strings.Split(subject, ".")
	var b strings.Builder
	for i := range t.toks {
		tt := &t.toks[i]
		if i > 0 {
			b.WriteByte('.')
		}
		if t.full && i == len(t.toks)-1 {
			b.WriteString(strings.Join(toks[t.srcToks-1:], "."))
			continue
		}
		tt.write(&b, subject, toks)
	}
	return b.String(), true
}

func (t *transformTok) write(b *strings.Builder, subject string, toks []string) {
	switch t.fn {
	case fnLiteral:
		b.WriteString(t.lit)
		return
	case fnPartition:
		b.WriteString(t.partition(subject, toks))
		return
	case fnRandom:
		b.WriteString(strconv.Itoa(randomBelow(t.n)))
		return
	default: // The others take a token of the source.
	}
	tok := toks[t.pos[0]]
	small := t.n <= 0 || t.n >= len(tok)
	switch {
	case t.fn == fnSplit:
		writeSplit(b, strings.Split(tok, t.lit))
	case t.fn == fnWildcard, small:
		b.WriteString(tok)
	case t.fn == fnSplitFromLeft:
		b.WriteString(tok[:t.n] + "." + tok[t.n:])
	case t.fn == fnSplitFromRight:
		b.WriteString(tok[:len(tok)-t.n] + "." + tok[len(tok)-t.n:])
	case t.fn == fnSliceFromLeft:
		writeSlices(b, tok, 0, t.n)
	case t.fn == fnSliceFromRight:
		writeSlices(b, tok, len(tok)%t.n, t.n)
	case t.fn == fnLeft:
		b.WriteString(tok[:t.n])
	case t.fn == fnRight:
		b.WriteString(tok[len(tok)-t.n:])
	}
}

// partition hashes the chosen tokens, or the whole subject, into one of n buckets.
func (t *transformTok) partition(subject string, toks []string) string {
	if t.n <= 0 {
		return "0"
	}
	h := fnv.New32a()
	if len(t.pos) == 0 {
		_, _ = h.Write([]byte(subject))
	}
	for _, p := range t.pos {
		_, _ = h.Write([]byte(toks[p]))
	}
	return strconv.FormatUint(uint64(h.Sum32()%uint32(t.n)), 10)
}

func randomBelow(n int) int {
	if n <= 0 {
		return 0
	}
	return rand.IntN(n) //nolint:gosec // Spreads subjects; nothing secret.
}

// writeSplit writes the non-empty parts as tokens.
func writeSplit(b *strings.Builder, parts []string) {
	first := true
	for _, p := range parts {
		if p == "" {
			continue
		}
		if !first {
			b.WriteByte('.')
		}
		b.WriteString(p)
		first = false
	}
}

// writeSlices writes tok cut into pieces of n bytes, the first one of lead bytes if that is not 0.
func writeSlices(b *strings.Builder, tok string, lead, n int) {
	if lead > 0 {
		b.WriteString(tok[:lead] + ".")
		tok = tok[lead:]
	}
	for len(tok) > n {
		b.WriteString(tok[:n] + ".")
		tok = tok[n:]
	}
	b.WriteString(tok)
}

// The texts of JetStream for bad destinations.
var (
	errTransform        = errors.New("invalid mapping destination")
	errTransformUnknown = fmt.Errorf("%w: unknown function", errTransform)
	errTransformIndex   = fmt.Errorf("%w: wildcard index out of range", errTransform)
	errTransformFewArgs = fmt.Errorf("%w: not enough arguments passed to the function", errTransform)
	errTransformManyArg = fmt.Errorf("%w: too many arguments passed to the function", errTransform)
	errTransformBadArg  = fmt.Errorf("%w: function argument is invalid or in the wrong format", errTransform)
	errTransformSubject = fmt.Errorf("%w: invalid transform", errTransform)
)

// parseTransformTok parses one token of a destination; pos holds the numbers of wildcards, from 1.
func parseTransformTok(tok string) (transformTok, error) {
	if len(tok) > 1 && tok[0] == '$' {
		if n, err := strconv.Atoi(tok[1:]); err == nil {
			return transformTok{fn: fnWildcard, pos: []int{n}}, nil
		}
	}
	if !strings.HasPrefix(tok, "{{") || !strings.HasSuffix(tok, "}}") || len(tok) <= 4 {
		if tok != ">" && strings.ContainsAny(tok, "\t\n\f\r ") {
			return transformTok{}, errTransformSubject
		}
		return transformTok{lit: tok}, nil
	}
	name, rest, ok := strings.Cut(strings.TrimSpace(tok[2:len(tok)-2]), "(")
	args, closed := strings.CutSuffix(rest, ")")
	if !ok || !closed {
		return transformTok{}, errTransformUnknown
	}
	return parseTransformFn(strings.ToLower(strings.TrimSpace(name)), strings.Split(args, ","))
}

func parseTransformFn(name string, args []string) (transformTok, error) {
	switch name {
	case "wildcard":
		return parseWildcard(args)
	case "partition":
		return parsePartition(args)
	case "random":
		return parseRandom(args)
	case "split":
		return parseSplit(args)
	case "splitfromleft":
		return parseIndexInt(fnSplitFromLeft, args)
	case "splitfromright":
		return parseIndexInt(fnSplitFromRight, args)
	case "slicefromleft":
		return parseIndexInt(fnSliceFromLeft, args)
	case "slicefromright":
		return parseIndexInt(fnSliceFromRight, args)
	case "left":
		return parseIndexInt(fnLeft, args)
	case "right":
		return parseIndexInt(fnRight, args)
	}
	return transformTok{}, errTransformUnknown
}

func transformArg(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n > math.MaxInt32 {
		return 0, errTransformBadArg
	}
	return n, nil
}

func parseWildcard(args []string) (transformTok, error) {
	if len(args) > 1 {
		return transformTok{}, errTransformManyArg
	}
	if args[0] == "" {
		return transformTok{}, errTransformFewArgs
	}
	n, err := transformArg(args[0])
	return transformTok{fn: fnWildcard, pos: []int{n}}, err
}

func parsePartition(args []string) (transformTok, error) {
	t := transformTok{fn: fnPartition}
	var err error
	if t.n, err = transformArg(args[0]); err != nil {
		return transformTok{}, err
	}
	for _, a := range args[1:] {
		n, err := transformArg(a)
		if err != nil {
			return transformTok{}, err
		}
		t.pos = append(t.pos, n)
	}
	return t, nil
}

func parseRandom(args []string) (transformTok, error) {
	if len(args) != 1 {
		return transformTok{}, errTransformFewArgs
	}
	n, err := transformArg(args[0])
	return transformTok{fn: fnRandom, n: n}, err
}

func twoArgs(args []string) error {
	switch {
	case len(args) < 2:
		return errTransformFewArgs
	case len(args) > 2:
		return errTransformManyArg
	}
	return nil
}

func parseSplit(args []string) (transformTok, error) {
	if err := twoArgs(args); err != nil {
		return transformTok{}, err
	}
	n, err := transformArg(args[0])
	delim := strings.TrimLeft(args[1], " \t")
	if err != nil || strings.ContainsAny(delim, " .") {
		return transformTok{}, errTransformBadArg
	}
	return transformTok{fn: fnSplit, pos: []int{n}, lit: delim}, nil
}

func parseIndexInt(fn transformFn, args []string) (transformTok, error) {
	if err := twoArgs(args); err != nil {
		return transformTok{}, err
	}
	index, err := transformArg(args[0])
	if err != nil {
		return transformTok{}, err
	}
	n, err := transformArg(args[1])
	return transformTok{fn: fn, pos: []int{index}, n: n}, err
}
