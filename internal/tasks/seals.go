package tasks

import (
	"context"
	"time"

	"billhook/internal/ledger/seal"
)

// sealJournal seals what is posted and has no seal, of all tenants, as far as the run's time goes.
func (s *Service) sealJournal(ctx context.Context) (seal.Sealed, error) {
	sealed, err := seal.Sealer{Store: s.Store, Now: s.Now}.Run(ctx)
	s.Metrics.Sealed(sealed.Entries, sealed.Unreadable, time.Duration(sealed.OldestSeconds)*time.Second)
	return sealed, err
}
