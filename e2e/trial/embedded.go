package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/platform/telemetry"
)

// embedded is a Billhook in this process, on the stand-ins.
type embedded struct {
	*devstack.Stack
	log e2e.Log

	mu   sync.Mutex
	sent map[string]time.Time
}

// embed starts one until the end of the run, or of its part. What it does not know of its config it fills in.
func embed(r *run, config devstack.Config) *embedded {
	e := &embedded{sent: map[string]time.Time{}}
	config.ProjectID, config.WebhookPort, config.WorkerPort, config.ServicePort = "trial", "0", "0", "0"
	config.Secrets = map[string][]string{"paynow": {e2e.Secret}, "generic": {e2e.Secret}}
	config.StorePath, config.Log = filepath.Join(r.TempDir(), "store.db"), telemetry.NewLogger(&e.log, nil)
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

func (e *embedded) note(id string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent[id] = at
}

// send sends one event's webhook until it is accepted. It returns how often it was refused.
func (e *embedded) send(r *run, id string, body []byte) (refused int) {
	sent, refused, err := e2e.Accept(r.ctx, e.WebhookURL, body)
	require.NoError(r, err, "event %s", id)
	e.note(id, sent)
	return refused
}

// end is what became of one event: how often it was processed and became a dead letter, and how long the first took.
type end struct {
	processed, buried int
	took              time.Duration
}

// ends are those of all that was sent, and how many deliveries were not acknowledged.
func (e *embedded) ends() (ended map[string]end, nacked int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ended = map[string]end{}
	for _, d := range e.log.Deliveries("") {
		if d.Status >= 300 {
			nacked++
		}
		sent, ours := e.sent[d.EventID]
		of, before := ended[d.EventID]
		switch {
		case !ours: // it was emitted
			continue
		case d.Outcome == "processed":
			of.processed++
		case d.Outcome == "dead_lettered":
			of.buried++
		default:
			continue
		}
		if !before {
			of.took = d.Time.Sub(sent)
		}
		ended[d.EventID] = of
	}
	return ended, nacked
}

// await waits until so many of the events that were sent have come to their end.
func (e *embedded) await(r *run, many int) (ended map[string]end, nacked int) {
	r.until("ends", func() bool {
		ended, nacked = e.ends()
		return len(ended) >= many
	})
	return ended, nacked
}

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

func quantile(waits []time.Duration, share float64) time.Duration {
	slices.Sort(waits)
	return waits[int(share*float64(len(waits)-1))]
}
