package boltstore

// Looked is how many keys and documents the queries so far have read.
func (s *Store) Looked() int64 { return s.looked.Load() }
