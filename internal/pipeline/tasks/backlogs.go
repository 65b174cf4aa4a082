package tasks

import (
	"context"
	"time"

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
