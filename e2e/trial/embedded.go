package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/platform/telemetry"

	"github.com/stretchr/testify/require"
)

// embedded is a Billhook in this process, on the stand-ins, which notes in real time what becomes of events.
type embedded struct {
	*devstack.Stack
	slog.Handler

	mu     sync.Mutex
	events map[string]*tracked
	// nacked counts the deliveries that were not acknowledged.
	nacked int
}

// tracked is what became of one event.
type tracked struct {
	sent time.Time
	// ended is closed when the event is processed or dead-lettered, at the time at.
	ended chan struct{}
	at    time.Time
	// processed and buried count the deliveries with these outcomes.
	processed, buried int
}

// embed starts one until the end of the run, or of its part. What it does not know of its config it fills in.
func embed(r *run, config devstack.Config) *embedded {
	e := &embedded{Handler: telemetry.NewLogger(io.Discard, nil).Handler(), events: map[string]*tracked{}}
	config.ProjectID, config.WebhookPort, config.WorkerPort, config.ServicePort = "trial", "0", "0", "0"
	config.Secrets = map[string][]string{"paynow": {e2e.Secret}, "generic": {e2e.Secret}}
	config.StorePath, config.Log = filepath.Join(r.TempDir(), "store.db"), slog.New(e)
	var err error
	e.Stack, err = devstack.Start(r.ctx, config)
	r.must(err)
	r.Cleanup(func() {
		if err := e.Close(); !errors.Is(err, context.DeadlineExceeded) { // what hangs at a target that means harm
			r.must(err)
		}
	})
	return e
}

// Handle implements slog.Handler: it notes the outcomes of deliveries.
func (e *embedded) Handle(ctx context.Context, line slog.Record) error {
	if line.Message == "delivery" {
		fields := map[string]slog.Value{}
		line.Attrs(func(a slog.Attr) bool {
			fields[a.Key] = a.Value
			return true
		})
		status, _ := fields["status"].Any().(int64)
		e.note(fields["event_id"].String(), fields["outcome"].String(), status, line.Time)
	}
	return e.Handler.Handle(ctx, line)
}

func (e *embedded) note(id, outcome string, status int64, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if status >= http.StatusMultipleChoices {
		e.nacked++
	}
	event := e.events[id]
	switch {
	case event == nil: // it was emitted, not sent
		return
	case outcome == "processed":
		event.processed++
	case outcome == "dead_lettered":
		event.buried++
	default:
		return
	}
	if event.processed+event.buried == 1 {
		event.at = at
		close(event.ended)
	}
}

// track notes from now on what becomes of an event.
func (e *embedded) track(id string) *tracked {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events[id] = &tracked{sent: time.Now(), ended: make(chan struct{})}
	return e.events[id]
}

// send sends one event's webhook until it is accepted. It returns how often it was refused.
func (e *embedded) send(r *run, id string, body []byte) (event *tracked, refused int) {
	event = e.track(id)
	var err error
	event.sent, refused, err = e2e.Accept(r.ctx, e.WebhookURL, body)
	require.NoError(r, err, "event %s", id)
	return event, refused
}

// await waits for the end of the event, and says whether it has come.
func (t *tracked) await(ctx context.Context) bool {
	select {
	case <-t.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// ends requires it of each.
func ends(r *run, events ...*tracked) {
	for _, event := range events {
		if !event.await(r.ctx) {
			r.must(r.ctx.Err())
		}
	}
}

// took returns the time from sending to the end.
func (t *tracked) took() time.Duration { return t.at.Sub(t.sent) }

// paid compares every user's points with the sum of the orders.
func (e *embedded) paid(r *run, want map[string]int64) {
	lost, doubled := 0, 0
	for uid, points := range want {
		have, err := e2e.Points(r.ctx, e.Store, uid)
		r.must(err)
		switch {
		case have < points:
			lost++
		case have > points:
			doubled++
		}
	}
	if lost+doubled > 0 {
		r.broken("of %d customers %d have lost points, %d have too many", len(want), lost, doubled)
	}
}

// quantile is the wait that this share of all did not exceed.
func quantile(waits []time.Duration, share float64) time.Duration {
	slices.Sort(waits)
	return waits[int(share*float64(len(waits)-1))]
}
