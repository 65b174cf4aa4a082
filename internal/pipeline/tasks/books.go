package tasks

import (
	"context"
	"time"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger/seal"
)

func (s *Service) origins() journal.Origins {
	return journal.Origins{Catalog: s.Catalog, Store: s.Store}
}

const logged = 100

// Watched is how far the verification of the books is, or what the last has found where none runs.
type Watched struct {
	seal.Verdict
	Running bool `json:"running"`
}

func (s *Service) verifyBooks(ctx context.Context) (any, error) {
	lines := 0
	watch := seal.Watch{
		Verifier: seal.Verifier{From: s.Store, Origins: s.origins()}, Store: s.Store, Now: s.Now,
		Report: func(f seal.Finding) {
			if lines++; lines <= logged {
				f.Log(ctx, s.Log)
			}
		},
	}
	state, err := watch.Step(ctx)
	if err != nil {
		return nil, err
	}
	s.Metrics.BooksFindings(state.Worst().Found)
	done := Watched{Verdict: state.Running, Running: !state.Running.BegunAt.IsZero()}
	if !done.Running {
		done.Verdict = state.Last
	}
	done.Findings = nil // they have lines of their own
	return done, nil
}

func (s *Service) sealJournal(ctx context.Context) (any, error) {
	sealed, err := seal.Sealer{Store: s.Store, Origins: s.origins(), Now: s.Now, Lag: s.SealLag}.Run(ctx)
	s.Metrics.Sealed(sealed.Entries, sealed.Unreadable, sealed.Unfounded, time.Duration(sealed.OldestSeconds)*time.Second)
	return sealed, err
}
