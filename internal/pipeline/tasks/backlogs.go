package tasks

import (
	"context"
	"time"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/platform/backlog"
)

// Backlogs knows how many messages wait in the broker.
type Backlogs interface {
	// Backlogs returns what each subscription holds, by its id, as far as known, and when that was so.
	Backlogs(ctx context.Context) (held map[string]backlog.Held, at time.Time, err error)
}

// Waiting is what count-backlogs found: the queues that could be counted, and their messages.
type Waiting struct {
	Queues   int   `json:"queues"`
	Messages int64 `json:"messages"`
	// Kept counts the queues that do not run and whose subscription is still there.
	Kept int `json:"kept"`
	// PausesUndone counts the paused queues whose messages are pushed all the same.
	PausesUndone int `json:"pauses_undone"`
}

// countBacklogs writes down how many messages of each queue that has its subscription wait in the broker.
func (s *Service) countBacklogs(ctx context.Context) (Waiting, error) {
	var waiting Waiting
	if s.Backlogs == nil {
		return waiting, nil
	}
	all, at, err := s.Backlogs.Backlogs(ctx)
	if err != nil {
		return waiting, err
	}
	counted := map[string]backlog.Held{}
	for _, q := range s.Catalog.Queues {
		held, known := all[q.PushSubscription()]
		if !known {
			continue
		}
		if !q.Enabled {
			waiting.Kept++
		}
		counted[q.ID] = held
		s.Metrics.Backlog(q.ID, held.Messages)
		waiting.Queues++
		waiting.Messages += held.Messages
	}
	if len(counted) == 0 {
		return waiting, nil
	}
	return waiting, backlog.Write(ctx, s.Store, at, counted)
}

func (s *Service) origins() journal.Origins {
	return journal.Origins{Catalog: s.Catalog, Store: s.Store}
}

const logged = 100

// Watched is how far the verification of the books is, or what the last has found where none runs.
type Watched struct {
	seal.Verdict
	Running bool `json:"running"`
}

func (s *Service) verifyBooks(ctx context.Context) (Watched, error) {
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
		return Watched{}, err
	}
	s.Metrics.BooksFindings(state.Worst().Found)
	done := Watched{Verdict: state.Running, Running: !state.Running.BegunAt.IsZero()}
	if !done.Running {
		done.Verdict = state.Last
	}
	done.Findings = nil // they have lines of their own
	return done, nil
}

func (s *Service) sealJournal(ctx context.Context) (seal.Sealed, error) {
	sealed, err := seal.Sealer{Store: s.Store, Origins: s.origins(), Now: s.Now}.Run(ctx)
	s.Metrics.Sealed(sealed.Entries, sealed.Unreadable, sealed.Unfounded, time.Duration(sealed.OldestSeconds)*time.Second)
	return sealed, err
}
