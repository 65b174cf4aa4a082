package seal

import (
	"context"
	"errors"
	"time"

	"billhook/internal/store"
)

// Sealer seals what is posted and has no seal.
type Sealer struct {
	Store store.Store
	Now   func() time.Time
}

// Sealed is what one run did.
type Sealed struct {
	Entries int `json:"entries"`
	Seals   int `json:"seals"`
	// Raced counts the seals that another sealer made first.
	Raced int `json:"raced"`
	// Unreadable counts the entries that cannot be sealed; verify names them.
	Unreadable int `json:"unreadable"`
	// More: the run's time was over; another would find more.
	More bool `json:"more"`
	// OldestSeconds is the age of the oldest entry that was seen and is left without a seal; 0: none.
	OldestSeconds int64 `json:"oldest_seconds"`
}

// Run seals until nothing is left or the context is done. An error is the first that occurred; the
// other tenants were sealed nevertheless. Any number of sealers may run at once.
func (s Sealer) Run(context.Context) (Sealed, error) {
	return Sealed{}, errors.ErrUnsupported
}
