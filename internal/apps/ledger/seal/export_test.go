package seal

// Rehashed is the seal with the hash of what it says.
func (s Seal) Rehashed() Seal {
	s.Hash, _ = s.computed()
	return s
}

// Read is how many documents the part says it has read.
func (v Verified) Read() int64 { return v.reads }
