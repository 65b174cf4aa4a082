package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/platform/telemetry"
)

// stack is a Billhook on the stand-ins and the fates of the events sent to it.
type stack struct {
	*devstack.Stack
	*journal
	folder string
}

// start starts a stack with the shipped catalog after change. limited says whether the webhook
// service has the catalog's rate limit, or none.
func start(ctx context.Context, limited bool, change func(*catalog.Queue)) (*stack, error) {
	c, err := catalog.Load("")
	if err != nil {
		return nil, err
	}
	for i := range c.Queues {
		if c.Queues[i].ID == e2e.Queue {
			change(&c.Queues[i])
		}
	}
	if !limited {
		source := c.Sources["paynow"]
		source.RatePerSecond = 0
		c.Sources["paynow"] = source
	}
	s := &stack{journal: &journal{Handler: telemetry.NewLogger(io.Discard, nil).Handler(), fates: map[string]*fate{}}}
	if s.folder, err = os.MkdirTemp("", "billhook-burst-"); err != nil {
		return nil, err
	}
	s.Stack, err = devstack.Start(ctx, devstack.Config{
		Catalog: c, ProjectID: "burst", Secrets: map[string][]string{"paynow": {e2e.Secret}, "generic": {e2e.Secret}},
		WebhookPort: "0", WorkerPort: "0", StorePath: filepath.Join(s.folder, "store.db"), Log: slog.New(s.journal),
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.folder))
	}
	return s, nil
}

func (s *stack) close() error { return errors.Join(s.Close(), os.RemoveAll(s.folder)) }

// fate is what became of one event.
type fate struct {
	// sent is when the accepted request was sent.
	sent time.Time
	// ended is closed when the event is processed or dead-lettered, at the time at.
	ended chan struct{}
	at    time.Time
	// processed and buried count the deliveries with these outcomes.
	processed, buried int
}

// journal is a log handler that records the outcomes of deliveries.
type journal struct {
	slog.Handler
	mu     sync.Mutex
	fates  map[string]*fate
	nacked int
}

// Handle implements slog.Handler.
func (j *journal) Handle(ctx context.Context, line slog.Record) error {
	if line.Message == "delivery" {
		fields := map[string]slog.Value{}
		line.Attrs(func(a slog.Attr) bool {
			fields[a.Key] = a.Value
			return true
		})
		status, _ := fields["status"].Any().(int64)
		j.note(fields["event_id"].String(), fields["outcome"].String(), status, line.Time)
	}
	return j.Handler.Handle(ctx, line)
}

func (j *journal) note(id, outcome string, status int64, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if status >= http.StatusMultipleChoices {
		j.nacked++
	}
	f := j.fates[id]
	switch {
	case f == nil: // the event was emitted, not sent
		return
	case outcome == "processed":
		f.processed++
	case outcome == "dead_lettered":
		f.buried++
	default:
		return
	}
	if f.processed+f.buried == 1 {
		f.at = at
		close(f.ended)
	}
}

// send sends one event's webhook until it is accepted. It returns how often it was refused.
func (s *stack) send(ctx context.Context, eventID string, body []byte) (f *fate, refused int, err error) {
	f = &fate{ended: make(chan struct{})}
	s.mu.Lock()
	s.fates[eventID] = f
	s.mu.Unlock()
	if f.sent, refused, err = e2e.Accept(ctx, s.WebhookURL, body); err != nil {
		err = fmt.Errorf("event %s: %w", eventID, err)
	}
	return f, refused, err
}

// end waits for the end of the event.
func (f *fate) end(ctx context.Context) error {
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// took returns the time from sending to the end.
func (f *fate) took() time.Duration { return f.at.Sub(f.sent) }

// check compares every user's points with the sum of the orders.
func (s *stack) check(ctx context.Context, want map[string]int64) error {
	lost, doubled := 0, 0
	for uid, points := range want {
		have, err := e2e.Points(ctx, s.Store, uid)
		switch {
		case err != nil:
			return err
		case have < points:
			lost++
		case have > points:
			doubled++
		}
	}
	if lost+doubled > 0 {
		return fmt.Errorf("the promise is broken: of %d customers %d have lost points, %d have too many", len(want), lost, doubled)
	}
	return nil
}
