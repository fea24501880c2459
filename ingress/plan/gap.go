package plan

// gap is what a search of the index found: no planned message of subject has a sequence
// above low up to high.
type gap struct {
	subject   string
	low, high uint64
}

// prevStored is prev for what is below the tail. The store goes over the rows of
// deleted messages one by one for long; they are passed once, not with each search
// that begins above them.
func (s *Stream) prevStored(subject string, upTo, low uint64) uint64 {
	found := uint64(0)
	for at := upTo; at >= low && found == 0; {
		floor := low
		if g := &s.passed; g.subject == subject && at > g.low {
			if at <= g.high {
				at = g.low
				continue
			}
			floor = max(low, g.high+1)
		}
		seq, ok, err := s.p.store.PrevBySubject(s.ID, subject, floor, at)
		if err != nil {
			s.p.Fatal(err)
			return 0
		}
		if !ok {
			at = floor - 1
			continue
		}
		at = seq - 1
		if _, gone := s.deleted.Get(seq); !gone {
			found = seq
		}
	}
	if upTo >= low {
		s.passed = gap{subject, max(found, low-1), upTo}
	}
	return found
}
