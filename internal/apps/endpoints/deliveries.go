package endpoints

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// deliveryType is the type of the events that Handler delivers. Their ordering key is the endpoint's id.
const deliveryType = "webhook_delivery"

// DeliveriesOf asks for the newest deliveries to an endpoint.
type DeliveriesOf struct {
	EndpointOf
	Limit int `json:"-" query:"limit" default:"50" validate:"min=1,max=200" help:"how many deliveries, at most"`
}

// Sent is an event that was to be delivered to an endpoint, by its record.
type Sent struct {
	EventID  string        `json:"event_id" show:"Event" link:"events/{event_id}?queue={queue}"`
	Queue    string        `json:"queue"`
	At       time.Time     `json:"at" show:"At"`
	Status   dedupe.Status `json:"status" show:"Status"`
	Result   string        `json:"result,omitempty" show:"Result"`
	Attempts int64         `json:"attempts" show:"Attempts"`
	// Failure is the code of the last attempt that failed; empty: none did.
	Failure string `json:"failure,omitempty" show:"Failed with"`
	// Milliseconds is how long the last attempt took, with the request.
	Milliseconds int64 `json:"milliseconds" show:"Took ms"`
}

// Deliveries are the newest deliveries to an endpoint, on one page, and what became of their attempts.
type Deliveries struct {
	console.List[Sent]
	// Attempts are those that have ended and made a request; Succeeded were answered with 2xx.
	Attempts  int64 `json:"attempts"`
	Succeeded int64 `json:"succeeded"`
	// MedianMilliseconds and MaxMilliseconds are of these attempts.
	MedianMilliseconds int64 `json:"median_milliseconds"`
	MaxMilliseconds    int64 `json:"max_milliseconds"`
	// Failures counts the others by their codes.
	Failures map[string]int64 `json:"failures"`
}

// Notes say how many attempts succeeded, how long they took, and why the others failed.
func (d Deliveries) Notes() []string {
	if d.Attempts == 0 {
		return nil
	}
	notes := []string{fmt.Sprintf("%d of %d attempts succeeded (%d %%). An attempt took %d ms in the median, %d ms at most.",
		d.Succeeded, d.Attempts, d.Succeeded*100/d.Attempts, d.MedianMilliseconds, d.MaxMilliseconds)}
	var failed []string
	for _, code := range slices.Sorted(maps.Keys(d.Failures)) {
		failed = append(failed, fmt.Sprintf("%s %d", code, d.Failures[code]))
	}
	if len(failed) > 0 {
		notes = append(notes, "The others failed with: "+strings.Join(failed, ", ")+".")
	}
	return notes
}

func (ed *Editor) deliveries(ctx context.Context, _ audit.Author, in DeliveriesOf) (Deliveries, error) {
	e, err := read(ctx, ed.Store, in.ID)
	if err != nil {
		return Deliveries{}, err
	}
	records, _, err := dedupe.List(ctx, ed.Store, dedupe.Listing{
		Equal: map[string]any{"ordering_key": e.ID, "event_type": deliveryType}, Limit: in.Limit,
	})
	if err != nil {
		return Deliveries{}, err
	}
	found := Deliveries{Failures: map[string]int64{}}
	var lines []Sent
	var took []int64
	for _, r := range records {
		if r.Tenant != e.Tenant { // which has no such endpoint
			continue
		}
		line := Sent{EventID: r.EventID, Queue: r.Queue, At: r.CreatedAt, Status: r.Status, Result: r.Result, Attempts: r.Attempts}
		for _, a := range r.Log {
			if a.Ended.IsZero() {
				continue
			}
			line.Milliseconds = a.Ended.Sub(a.Begun).Milliseconds()
			switch {
			case a.Reason != "":
				line.Failure = a.Reason
				found.Failures[a.Reason]++
			case a.Outcome == retry.Processed && r.Result == Delivered:
				found.Succeeded++
			default: // done without a request
				continue
			}
			took = append(took, line.Milliseconds)
		}
		lines = append(lines, line)
	}
	slices.Sort(took)
	if found.Attempts = int64(len(took)); len(took) > 0 {
		found.MedianMilliseconds, found.MaxMilliseconds = took[len(took)/2], took[len(took)-1]
	}
	found.List = console.ListOf(lines, store.Cursor{})
	return found, nil
}
