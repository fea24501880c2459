package jsapi

import "strings"

// CheckConsumerRequest judges the form of a consumer create call: r is its subject, req its body,
// whose configuration gets the name that the subject says. An empty name then asks for a
// generated one.
func CheckConsumerRequest(r Request, req *CreateConsumerRequest) *Error {
	name := r.Consumer
	legacyEphemeral := r.Verb == VerbConsumerCreate && name == ""
	if legacyEphemeral {
		name = req.Config.Name
	}
	if r.Stream != req.Stream {
		return NewError(CodeStreamMismatch)
	}
	if strings.ContainsAny(name, `\/`) {
		return NewError(CodeConsumerNameContainsPathSeparators)
	}
	switch durable := req.Config.Durable; {
	case r.Verb == VerbConsumerDurableCreate && durable == "":
		return NewError(CodeConsumerDurableNameNotSet)
	case legacyEphemeral && durable != "":
		return NewError(CodeConsumerEphemeralWithDurableName)
	case durable != "" && durable != name:
		return NewError(CodeConsumerDurableNameNotMatchSubject)
	}
	req.Config.Name = name
	if r.Rest != "" && len(req.Config.FilterSubjects) != 0 {
		return NewError(CodeConsumerMultipleFiltersNotAllowed)
	}
	if r.Rest != "" && req.Config.FilterSubject != r.Rest {
		return NewError(CodeConsumerCreateFilterSubjectMismatch)
	}
	return nil
}

// CheckDurableLen judges the length of a new consumer's durable name, 10102. It comes after the
// checks against the stream's other consumers.
func CheckDurableLen(cfg *ConsumerConfig) *Error {
	if len(cfg.Durable) > MaxNameLen {
		return NewError(CodeConsumerNameTooLong, MaxNameLen)
	}
	return nil
}
