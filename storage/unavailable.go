package storage

// Unavailable returns a store without a state: whatever it is asked for gives an
// error that wraps reason. It stands for one that is set aside.
func Unavailable(reason error) *Store {
	s := &Store{gone: reason, broken: make(chan struct{}), hurry: make(chan struct{})}
	s.cfg.defaults()
	s.fs, s.log = s.cfg.FS, s.cfg.Logger
	return s
}
