package tasks

import (
	"context"
	"errors"
	"log/slog"

	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/backlog"
)

// countDeadLetters fails unless all queues are counted, because a missing count is an alert too.
func (s *Service) countDeadLetters(ctx context.Context) (any, error) {
	var counted struct {
		Queues int   `json:"queues"` // that keep dead letters
		Open   int64 `json:"open"`
	}
	for _, q := range s.Catalog.Queues {
		if q.DeadLetter.Drop {
			continue
		}
		now := s.Now()
		standing, err := deadletter.Look(ctx, s.Store, q, now)
		if err != nil {
			return counted, err
		}
		oldest := standing.Age(now)
		s.Log.LogAttrs(ctx, slog.LevelInfo, "open dead letters",
			slog.String("queue", q.ID), slog.Int64("open", standing.Open), slog.Bool("more", standing.More),
			slog.Int64("oldest_seconds", int64(oldest.Seconds())))
		s.Metrics.DeadLetters(q.ID, standing.Open, oldest)
		counted.Queues++
		counted.Open += standing.Open
	}
	return counted, nil
}

func (s *Service) countWaiting(ctx context.Context) (any, error) {
	waiting, err := s.countBacklogs(ctx)
	var unread error
	waiting.PausesUndone, unread = s.checkPauses(ctx)
	return waiting, errors.Join(err, unread)
}

type waiting struct {
	Queues       int   `json:"queues"` // that could be counted
	Messages     int64 `json:"messages"`
	Kept         int   `json:"kept"`          // disabled queues that still have a subscription
	PausesUndone int   `json:"pauses_undone"` // paused queues whose messages are pushed anyway
}

// countBacklogs stores how many messages wait in the broker, for each queue with a subscription.
func (s *Service) countBacklogs(ctx context.Context) (found waiting, err error) {
	if s.Backlogs == nil {
		return found, nil
	}
	held, at, err := s.Backlogs.Backlogs(ctx)
	if err != nil {
		return found, err
	}
	counted := map[string]backlog.Held{}
	for _, q := range s.Catalog.Queues {
		if one, known := held[q.PushSubscription()]; known {
			if !q.Enabled {
				found.Kept++
			}
			counted[q.ID] = one
			s.Metrics.Backlog(q.ID, one.Messages)
			found.Messages += one.Messages
		}
	}
	if found.Queues = len(counted); found.Queues > 0 {
		err = backlog.Write(ctx, s.Store, at, counted)
		if s.Ingest != nil {
			err = errors.Join(err, backlog.Write(ctx, s.Ingest.Copies, at, counted))
		}
	}
	return found, err
}
