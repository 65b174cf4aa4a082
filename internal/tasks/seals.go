package tasks

import (
	"context"
	"time"

	"billhook/internal/journal"
	"billhook/internal/ledger/seal"
)

// origins is what stands behind the entries of the books.
func (s *Service) origins() journal.Origins {
	return journal.Origins{Catalog: s.Catalog, Store: s.Store}
}

// sealJournal seals what is posted and has no seal, of all tenants, as far as the run's time goes.
func (s *Service) sealJournal(ctx context.Context) (seal.Sealed, error) {
	sealed, err := seal.Sealer{Store: s.Store, Origins: s.origins(), Now: s.Now}.Run(ctx)
	s.Metrics.Sealed(sealed.Entries, sealed.Unreadable, sealed.Unfounded, time.Duration(sealed.OldestSeconds)*time.Second)
	return sealed, err
}
