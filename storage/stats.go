package storage

// Stats are the numbers of one store for metrics and health.
type Stats struct {
	DiskBytes      uint64 // files of the database
	MemTableBytes  uint64 // not written out yet
	CompactionDebt uint64 // bytes that compactions still have to move
	Flushes        int64
	Compactions    int64
	L0Files        int64
	ReadAmp        int // tables that a read may have to look at
}

// Stats reads the numbers; zeros once the store is closed.
func (s *Store) Stats() Stats {
	h, err := s.acquire()
	if err != nil {
		return Stats{}
	}
	defer s.release(h)
	m := h.db.Metrics()
	return Stats{
		DiskBytes:      m.DiskSpaceUsage(),
		MemTableBytes:  m.MemTable.Size,
		CompactionDebt: m.Compact.EstimatedDebt,
		Flushes:        m.Flush.Count,
		Compactions:    m.Compact.Count,
		L0Files:        m.Levels[0].TablesCount,
		ReadAmp:        m.ReadAmp(),
	}
}
