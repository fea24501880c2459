package differential

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Kind is what an operation waits for.
type Kind string

// The kinds of operations.
const (
	// Call waits for one answer.
	Call Kind = "call"
	// Maybe waits for one answer or for silence on both sides.
	Maybe Kind = "maybe"
	// Quiet asks for no answer.
	Quiet Kind = "quiet"
	// Pull waits for the end of a pull request.
	Pull Kind = "pull"
	// Open is a pull request that stays open; what it gets is compared after every step.
	Open Kind = "open"
	// Await repeats a request until the answer contains Until, and compares that answer.
	Await Kind = "await"
)

// Op is one operation. Subject and Body may have placeholders, see expand.
type Op struct {
	Kind    Kind   `json:"kind"`
	Note    string `json:"note,omitempty"` // what it is about, for people
	Subject string `json:"subject"`
	Header  string `json:"header,omitempty"` // a whole header block
	Body    string `json:"body,omitempty"`
	// Raw is Body in a file, if it is no text.
	Raw []byte `json:"raw,omitempty"`
	// Batch is how many messages end a pull.
	Batch int `json:"batch,omitempty"`
	// Until ends Await.
	Until string `json:"until,omitempty"`
	// Ack addresses a delivery instead of Subject.
	Ack *AckRef `json:"ack,omitempty"`
	// Loose is set for a pull whose order or counts depend on timing: its messages are compared as a set.
	Loose bool `json:"loose,omitempty"`
	// Advised is the subject of an advisory that JetStream sends because of this. Its words are compared like
	// all others; it is named to be waited for.
	Advised string `json:"advised,omitempty"`
	// Undo is run on the JetStream side alone if Holdfast refused this as not supported.
	Undo string `json:"undo,omitempty"`
	// Streams are those that may have changed; their consumers are compared after the step.
	Streams []string `json:"streams,omitempty"`
}

// AckRef is the N-th delivery, from 0, that a consumer made in this script.
type AckRef struct {
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	N        int    `json:"n"`
}

// String is the operation in one line.
func (o Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s ", o.Kind)
	if o.Ack != nil {
		fmt.Fprintf(&b, "ack of delivery %d of %s > %s", o.Ack.N, o.Ack.Stream, o.Ack.Consumer)
	} else {
		b.WriteString(o.Subject)
	}
	if o.Header != "" {
		fmt.Fprintf(&b, " header %s", clip(o.Header))
	}
	if o.Body != "" {
		fmt.Fprintf(&b, " body %s", clip(o.Body))
	}
	if o.Until != "" {
		fmt.Fprintf(&b, " until %q", o.Until)
	}
	if o.Note != "" {
		fmt.Fprintf(&b, "  (%s)", o.Note)
	}
	return b.String()
}

func (o Op) deletesStream() bool { return strings.HasPrefix(o.Subject, apiPrefix+"STREAM.DELETE.") }

const clipAt = 300

func clip(s string) string {
	if len(s) > clipAt {
		return fmt.Sprintf("%q… (%d bytes)", s[:clipAt], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// A Script is the operations of one run.
type Script []Op

// MarshalLines encodes a script as one JSON object a line, which ParseScript reads.
func (s Script) MarshalLines() ([]byte, error) {
	var out []byte
	for _, op := range s {
		if !utf8.ValidString(op.Body) {
			op.Raw, op.Body = []byte(op.Body), ""
		}
		b, err := json.Marshal(op)
		if err != nil {
			return nil, err
		}
		out = append(append(out, b...), '\n')
	}
	return out, nil
}

// ParseScript reads what MarshalLines wrote.
func ParseScript(b []byte) (Script, error) {
	var s Script
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		var op Op
		if err := json.Unmarshal([]byte(line), &op); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if op.Raw != nil {
			op.Body, op.Raw = string(op.Raw), nil
		}
		s = append(s, op)
	}
	return s, nil
}
