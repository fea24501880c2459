package ingress

import (
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// enforceAll removes what a stream's limits, lowered, do not allow any more.
func enforceAll(s *plan.Stream, cfg *jsapi.StreamConfig) {
	if n := cfg.MaxMsgsPer; n > 0 {
		var over []string
		s.SubjectRows("", func(subject string, st record.SubjectStat) bool {
			if st.Count > uint64(n) {
				over = append(over, subject)
			}
			return true
		})
		for _, subject := range over {
			for st := s.SubjectStat(subject); st.Count > uint64(n); st = s.SubjectStat(subject) {
				if !s.Remove(s.FirstOf(subject, st.First)) {
					break
				}
			}
		}
	}
	for n := cfg.MaxMsgs; n > 0 && s.State().Messages > uint64(n); {
		if !s.Remove(s.State().FirstSeq) {
			return
		}
	}
	for n := cfg.MaxBytes; n > 0 && s.State().Bytes > uint64(n) && s.State().Messages > 0; {
		if !s.Remove(s.State().FirstSeq) {
			return
		}
	}
}
