package boltstore

// Looked is how many keys and documents the queries so far have read.
func (s *Store) Looked() int64 { return s.looked.Load() }

// MoveOften makes the store move documents to the file when there are more than some small ones.
func (s *Store) MoveOften(some int) { s.atOnce = some * leastBytes }
