package jsapi

import (
	"fmt"
	"slices"
	"strings"
)

func (c *streamCheck) mirror() *Error {
	cfg, m := c.cfg, c.cfg.Mirror
	if m == nil {
		return nil
	}
	if err := c.mirrorConflicts(); err != nil {
		return err
	}
	if !m.validConsumer() {
		return NewError(CodeMirrorDurableConsumerCfgInvalid)
	}
	if m.FilterSubject != "" && len(m.SubjectTransforms) != 0 {
		return NewError(CodeMirrorMultipleFiltersNotAllowed)
	}
	if cfg.DeleteMarkerTTL > 0 {
		return ErrInvalidConfig("subject delete markers forbidden on mirrors")
	}
	for i := range m.SubjectTransforms {
		t := &m.SubjectTransforms[i]
		err := checkTransform(t, CodeMirrorInvalidSubjectFilter, CodeMirrorInvalidTransformDestination)
		if err != nil {
			return err
		}
		for j := range m.SubjectTransforms {
			if i != j && SubjectsOverlap(t.Source, m.SubjectTransforms[j].Source) {
				return NewError(CodeMirrorOverlappingSubjectFilters)
			}
		}
	}
	if m.External != nil {
		return nil
	}
	return c.mirrorOrigin()
}

func (c *streamCheck) mirrorConflicts() *Error {
	switch cfg := c.cfg; {
	case cfg.FirstSeq > 0:
		return NewError(CodeMirrorWithFirstSeq)
	case len(cfg.Subjects) > 0:
		return NewError(CodeMirrorWithSubjects)
	case len(cfg.Sources) > 0:
		return NewError(CodeMirrorWithSources)
	case cfg.AllowMsgCounter:
		return NewError(CodeMirrorWithCounters)
	case cfg.AllowAtomic:
		return NewError(CodeMirrorWithAtomicPublish)
	case cfg.AllowBatched:
		return NewError(CodeMirrorWithBatchPublish)
	case cfg.AllowSchedules:
		return NewError(CodeMirrorWithMsgSchedules)
	}
	return nil
}

// mirrorOrigin compares with the origin, if it is there: it may also come later.
func (c *streamCheck) mirrorOrigin() *Error {
	cfg := c.cfg
	if !ValidName(cfg.Mirror.Name) {
		return NewError(CodeMirrorInvalidStreamName)
	}
	origin := c.env.lookup(cfg.Mirror.Name)
	if origin == nil {
		return nil
	}
	if c.smallerMessages(origin) {
		return NewError(CodeMirrorMaxMessageSizeTooBig)
	}
	if c.env.Pedantic && cfg.MirrorDirect != origin.AllowDirect {
		return ErrPedantic("origin stream has direct get set, mirror has it disabled")
	}
	cfg.MirrorDirect = origin.AllowDirect
	return nil
}

// validConsumer judges the durable consumer of a source, if one is named.
func (s *StreamSource) validConsumer() bool {
	c := s.Consumer
	if c == nil {
		return true
	}
	return ValidName(c.Name) && ValidLiteral(c.DeliverSubject) &&
		s.OptStartSeq == 0 && s.OptStartTime == nil && s.FilterSubject == ""
}

func (c *streamCheck) sources() *Error {
	if len(c.cfg.Sources) > 0 && c.cfg.AllowSchedules {
		return NewError(CodeSourceWithMsgSchedules)
	}
	seen := make(map[string]bool)
	consumers := make(map[string]bool)
	for _, s := range c.cfg.Sources {
		if s == nil || !ValidName(s.Name) {
			return NewError(CodeSourceInvalidStreamName)
		}
		if !addNew(seen, s.identity()) {
			return NewError(CodeSourceDuplicateDetected)
		}
		if err := s.checkFilters(); err != nil {
			return err
		}
		if !s.validConsumer() {
			return NewError(CodeSourceDurableConsumerCfgInvalid)
		}
		if s.Consumer != nil && !addNew(consumers, s.Name+"\x00"+s.Consumer.Name+"\x00"+s.apiPrefix()) {
			return NewError(CodeSourceDurableConsumerDuplicateDetected)
		}
		if s.External == nil && c.smallerMessages(c.env.lookup(s.Name)) {
			return NewError(CodeSourceMaxMessageSizeTooBig)
		}
	}
	return nil
}

// addNew adds id to the set and reports whether it was not there.
func addNew(set map[string]bool, id string) bool {
	if set[id] {
		return false
	}
	set[id] = true
	return true
}

// smallerMessages reports whether origin, if there is one, has messages that do not fit here.
func (c *streamCheck) smallerMessages(origin *StreamConfig) bool {
	return origin != nil && c.cfg.MaxMsgSize > 0 && origin.MaxMsgSize > 0 &&
		c.cfg.MaxMsgSize < origin.MaxMsgSize
}

func (s *StreamSource) apiPrefix() string {
	if s.External == nil {
		return ""
	}
	return s.External.APIPrefix
}

// identity is equal for two sources that would copy the same messages: same stream, filter,
// transforms and external API.
func (s *StreamSource) identity() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\x00%s\x00", s.Name, s.apiPrefix())
	if len(s.SubjectTransforms) == 0 {
		filter := s.FilterSubject
		if filter == "" {
			filter = ">"
		}
		fmt.Fprintf(&b, "%s\x00>", filter)
	}
	for _, t := range s.SubjectTransforms {
		if t.Source == "" {
			t.Source = ">"
		}
		if t.Destination == "" {
			t.Destination = ">"
		}
		fmt.Fprintf(&b, "%s\x00%s\x00", t.Source, t.Destination)
	}
	return b.String()
}

func (s *StreamSource) checkFilters() *Error {
	if s.FilterSubject != "" && len(s.SubjectTransforms) != 0 {
		return NewError(CodeSourceMultipleFiltersNotAllowed)
	}
	for i := range s.SubjectTransforms {
		err := checkTransform(&s.SubjectTransforms[i],
			CodeSourceInvalidSubjectFilter, CodeSourceInvalidTransformDestination)
		if err != nil {
			return err
		}
	}
	for i := range s.SubjectTransforms {
		for j := range s.SubjectTransforms {
			if i != j && SubjectIsSubset(s.SubjectTransforms[i].Source, s.SubjectTransforms[j].Source) {
				return NewError(CodeSourceOverlappingSubjectFilters)
			}
		}
	}
	return nil
}

// externals judges the prefixes of other JetStreams: deliveries must not be stored again, the API
// must not be our own.
func (c *streamCheck) externals() *Error {
	var origins []string // Subjects of the local streams copied from.
	var ext []*ExternalStream
	for _, s := range c.allSources() {
		if s.External != nil {
			ext = append(ext, s.External)
		} else if origin := c.env.lookup(s.Name); origin != nil {
			origins = append(origins, origin.Subjects...)
		}
	}
	for _, e := range ext {
		if err := e.checkDeliver(origins); err != nil {
			return err
		}
	}
	for _, e := range ext {
		if err := e.checkAPI(); err != nil {
			return err
		}
	}
	return nil
}

func (e *ExternalStream) checkDeliver(origins []string) *Error {
	if e.DeliverPrefix == "" {
		return nil
	}
	if !ValidLiteral(e.DeliverPrefix) {
		return NewError(CodeStreamInvalidExternalDeliverySubj, e.DeliverPrefix)
	}
	for _, s := range origins {
		if SubjectsOverlap(s, e.DeliverPrefix+"."+s) {
			return NewError(CodeStreamExternalDelPrefixOverlaps, e.DeliverPrefix, s)
		}
	}
	return nil
}

func (e *ExternalStream) checkAPI() *Error {
	if e.APIPrefix == "" {
		return nil
	}
	if !ValidLiteral(e.APIPrefix) {
		return ErrInvalidConfig(fmt.Sprintf(
			"stream external api prefix %q must be a valid subject without wildcards", e.APIPrefix))
	}
	if SubjectsOverlap(e.APIPrefix, DefaultPrefix) {
		return NewError(CodeStreamExternalAPIOverlap, e.APIPrefix, DefaultPrefix)
	}
	return nil
}

func (c *streamCheck) allSources() []*StreamSource {
	if c.cfg.Mirror == nil {
		return c.cfg.Sources
	}
	return append([]*StreamSource{c.cfg.Mirror}, c.cfg.Sources...)
}

// cycles follows sources and mirrors through the account's streams.
func (c *streamCheck) cycles() *Error {
	visited := make(map[string]bool)
	for queue := []*StreamConfig{c.cfg}; len(queue) > 0; {
		cfg := queue[0]
		queue = queue[1:]
		visited[cfg.Name] = true
		for _, s := range cfg.Sources {
			if s.External != nil {
				continue
			}
			if !visited[s.Name] {
				queue = appendFound(queue, c.env.lookup(s.Name))
			} else if s.FilterSubject == "" || overlapsAny(cfg.Subjects, s.FilterSubject) {
				return ErrInvalidConfig("detected cycle")
			}
		}
		if m := cfg.Mirror; m != nil && m.External == nil {
			if visited[m.Name] {
				return ErrInvalidConfig("detected cycle")
			}
			queue = appendFound(queue, c.env.lookup(m.Name))
		}
	}
	return nil
}

func appendFound(queue []*StreamConfig, cfg *StreamConfig) []*StreamConfig {
	if cfg == nil {
		return queue
	}
	return append(queue, cfg)
}

func overlapsAny(subjects []string, s string) bool {
	return slices.ContainsFunc(subjects, func(t string) bool { return SubjectsOverlap(t, s) })
}

// SubjectListsOverlap reports whether any subject of a overlaps one of b: the test between two
// streams, refused by 10065, and of the subject in list requests.
func SubjectListsOverlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return overlapsAny(b, s) })
}

func (c *streamCheck) subjects() *Error {
	cfg := c.cfg
	if len(cfg.Subjects) == 0 {
		if cfg.Mirror == nil && len(cfg.Sources) == 0 {
			cfg.Subjects = []string{cfg.Name}
		}
		return nil
	}
	for i, s := range cfg.Subjects {
		if !ValidSubject(s) {
			return ErrInvalidConfig("invalid subject")
		}
		if slices.Contains(cfg.Subjects[:i], s) {
			return ErrInvalidConfig("duplicate subjects detected")
		}
		if err := c.checkReserved(s); err != nil {
			return err
		}
		for _, t := range cfg.Subjects[i+1:] {
			if SubjectsOverlap(t, s) {
				return ErrInvalidConfig(fmt.Sprintf("subject %q overlaps with %q", s, t))
			}
		}
	}
	return nil
}

// checkReserved refuses subjects under which the system itself talks, unless the stream never
// answers.
func (c *streamCheck) checkReserved(s string) *Error {
	cfg := c.cfg
	if s == ">" && !cfg.NoAck {
		return ErrInvalidConfig("capturing all subjects requires no-ack to be true")
	}
	if s == ">" && cfg.Replicas != 1 {
		return ErrInvalidConfig("capturing all subjects requires replicas of 1")
	}
	if cfg.NoAck {
		return nil
	}
	for _, space := range [...]string{"$JS.>", "$JSC.>", "$NRG.>"} {
		if SubjectsOverlap(s, space) && !SubjectIsSubset(s, "$JS.EVENT.>") {
			return ErrInvalidConfig("subjects that overlap with jetstream api require no-ack to be true")
		}
	}
	if SubjectsOverlap(s, "$SYS.>") && !SubjectIsSubset(s, "$SYS.ACCOUNT.>") {
		return ErrInvalidConfig("subjects that overlap with system api require no-ack to be true")
	}
	return nil
}
