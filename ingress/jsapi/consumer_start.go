package jsapi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// errSampleNegative refuses a negative sample_freq.
var errSampleNegative = errors.New("sample frequency must not be negative")

// start judges the deliver policy against the optional start fields.
func (c *consumerCheck) start() *Error {
	seq, at := c.cfg.OptStartSeq > 0, c.cfg.OptStartTime != nil
	policy := deliverWords(c.cfg.DeliverPolicy)
	switch c.cfg.DeliverPolicy {
	case DeliverByStartSequence:
		if !seq {
			return startMissing(policy, "start sequence")
		}
		if at {
			return startExtra(policy, "time")
		}
		return nil
	case DeliverByStartTime:
		if !at {
			return startMissing(policy, "start time")
		}
		if seq {
			return startExtra(policy, "start sequence")
		}
		return nil
	default:
	}
	switch {
	case seq:
		return startExtra(policy, "sequence")
	case at:
		return startExtra(policy, "time")
	case c.cfg.DeliverPolicy == DeliverLastPerSubject && len(c.cfg.Filters()) == 0:
		return startMissing(policy, "filter subject")
	}
	return nil
}

// deliverWords is how error texts spell a deliver policy.
func deliverWords(d DeliverPolicy) string {
	switch d {
	case DeliverByStartSequence:
		return "by start sequence"
	case DeliverByStartTime:
		return "by start time"
	case DeliverLastPerSubject:
		return "last per subject"
	default:
		return d.String()
	}
}

func startExtra(policy, field string) *Error {
	return NewError(CodeConsumerInvalidPolicy, fmt.Sprintf(
		"consumer delivery policy is deliver %s, but optional start %s is also set", policy, field))
}

func startMissing(policy, field string) *Error {
	return NewError(CodeConsumerInvalidPolicy, fmt.Sprintf(
		"consumer delivery policy is deliver %s, but optional %s is not set", policy, field))
}

func (c *consumerCheck) sampling() *Error {
	if _, err := ParseSampleFrequency(c.cfg.SampleFrequency); err != nil {
		return NewError(CodeConsumerInvalidSampling, err)
	}
	return nil
}

// ParseSampleFrequency parses sample_freq, "N" or "N%": how many of 100 acks are reported. Empty
// is 0. The error is the number parser's, whose text goes over the wire.
func ParseSampleFrequency(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(s, "%"))
	if err != nil {
		return 0, err //nolint:wrapcheck // The text goes over the wire as it is.
	}
	if n < 0 {
		return 0, errSampleNegative
	}
	return n, nil
}
