package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Handler is the name of the handler in the catalog.
const Handler = "webhooks.deliver"

// The results in a record. All are final: an endpoint that is enabled later does not get the event.
const (
	Delivered        = "delivered"         // the endpoint has answered 2xx
	Filtered         = "filtered"          // no pattern of the endpoint matches the type
	EndpointDisabled = "endpoint_disabled" // it is disabled, or was by this event
	EndpointUnknown  = "endpoint_unknown"  // the event's tenant has no such endpoint
)

// gone is the HTTP status of an address that was removed.
const gone = 410

// DisabledType is the type of the event that reports that an endpoint was disabled because it failed.
const DisabledType = "endpoint.disabled"

// Deliverer delivers events to endpoints.
type Deliverer struct {
	Store        store.GetCommitter
	Poster       Poster
	DisableAfter time.Duration // how long an endpoint may fail without a successful request
	Notices      []string      // the queues and topics that get the events of DisabledType
	Now          func() time.Time
}

// Delivery is the data of webhook_delivery.
type Delivery struct {
	EndpointID string `json:"endpoint_id"`
	EventType  string `json:"event_type"`
	SubjectID  string `json:"subject_id"`
}

// Register adds the handler. A repeated request has the same webhook-id: a second attempt is safe.
func Register(r *handler.Registry, d Deliverer) {
	handler.RegisterLeased[Delivery](r, Handler, handler.Leased{
		Do: handler.Typed(d.deliver), Plan: handler.Typed(d.plan), SafeToRepeat: true, ManyPlaces: true,
	}, d.Notices...)
}

// deliver posts the event to its endpoint. It stores the first failure with the endpoint. A failure
// DisableAfter later disables the endpoint in the commit that completes the event, and so does any 410.
func (d Deliverer) deliver(ctx context.Context, event handler.Event, of Delivery) (handler.Effect, error) {
	e, body, unsent, err := d.find(ctx, event, of)
	if err != nil || unsent != "" {
		return handler.Effect{Result: unsent}, err
	}
	status, failure := d.Poster.Post(ctx, e.address(d.Now()), event.CalleeKey(), body)
	now := d.Now().UTC().Truncate(time.Microsecond)
	switch {
	case failure == nil:
		if err := d.heal(ctx, e); err != nil {
			return handler.Effect{}, err
		}
		return handler.Effect{Result: Delivered}, nil
	case status == gone:
		return d.giveUp(event, e, Gone, now)
	case !retry.Decide(failure).Counts: // nothing was sent
	case e.FailingSince.IsZero():
		// If this write fails, the next failure counts as the first.
		e.FailingSince, e.Failure = now, retry.Decide(failure).Reason
		_, _ = d.Store.Commit(ctx, []store.Write{e.write()})
	case now.Sub(e.FailingSince) >= d.DisableAfter:
		return d.giveUp(event, e, Failing, now)
	}
	return handler.Effect{}, failure
}

func (d Deliverer) plan(ctx context.Context, event handler.Event, of Delivery) (handler.Plan, error) {
	e, body, unsent, err := d.find(ctx, event, of)
	if err != nil || unsent != "" {
		return handler.Plan{Effect: handler.Effect{Result: unsent}}, err
	}
	call := handler.Call{Target: "endpoint:" + e.ID, Method: "POST", ID: event.CalleeKey(), Body: body}
	return handler.Plan{Calls: []handler.Call{call}}, nil
}

// find returns the event's endpoint and the body for it, or the result of an event that is not sent.
func (d Deliverer) find(
	ctx context.Context, event handler.Event, of Delivery,
) (e stored, body []byte, unsent string, err error) {
	matches := func(pattern string) bool { return routing.Pattern(pattern).Match(of.EventType) }
	e, err = read(ctx, d.Store, of.EndpointID)
	switch {
	case errors.Is(err, ErrUnknown), err == nil && e.Tenant != event.Tenant:
		return e, nil, EndpointUnknown, nil
	case errors.Is(err, ErrBroken):
		return e, nil, "", retry.Transient("endpoint_unreadable", err)
	case err != nil:
		return e, nil, "", retry.Outage("store_unavailable", err)
	case e.State == Disabled:
		return e, nil, EndpointDisabled, nil
	case !slices.ContainsFunc(e.Events, matches):
		return e, nil, Filtered, nil
	}
	whole, err := contract.As[*contract.Event](event.Body)
	if err != nil {
		return e, nil, "", retry.Permanent("unexpected_body", nil)
	}
	body, err = json.Marshal(notice{of.EventType, whole.Timestamp, subject{of.SubjectID}})
	return e, body, "", err
}

// heal clears a failure before the event is completed. Otherwise the next failure could disable the endpoint.
func (d Deliverer) heal(ctx context.Context, e stored) error {
	if e.FailingSince.IsZero() {
		return nil
	}
	_, err := store.Update(ctx, d.Store, Key(e.ID), func(doc store.Document) ([]store.Write, error) {
		now, err := decode(doc)
		if err != nil || !now.FailingSince.Equal(e.FailingSince) {
			return nil, err // a later failure is not cleared
		}
		return []store.Write{now.healthy().write()}, nil
	})
	switch {
	case err == nil, errors.Is(err, ErrUnknown):
		return nil
	case errors.Is(err, store.ErrBusy):
		return retry.Busy("endpoint_changing", nil)
	}
	return retry.Outage("store_unavailable", err)
}

// giveUp disables an endpoint, with an audit entry and an event.
func (d Deliverer) giveUp(event handler.Event, e stored, why string, now time.Time) (handler.Effect, error) {
	after := e.disabled(why, now)
	writes, err := audit.Entry{
		Kind: Kind, Subject: e.ID, Action: "disable", Who: "billhook", Why: why, At: now,
		Before: e.side(), After: after.side(),
	}.With(event.CalleeKey(), after.write())
	if err != nil {
		return handler.Effect{}, err
	}
	effect := handler.Effect{Writes: writes, Result: EndpointDisabled}
	body := contract.Of(&contract.Event{
		Type: DisabledType, Version: 1, Producer: "billhook", CorrelationID: event.CorrelationID,
		Data: disabledData{EndpointID: e.ID, Reason: why, FailingSince: e.FailingSince},
	})
	for _, to := range d.Notices {
		effect.Emit = append(effect.Emit, handler.Emission{To: to, OrderingKey: e.ID, Body: body})
	}
	return effect, nil
}

type disabledData struct {
	EndpointID   string    `json:"endpoint_id"`
	Reason       string    `json:"reason"`
	FailingSince time.Time `json:"failing_since,omitzero"`
}

// notice is the body of a request to an endpoint, the same in every attempt. The endpoint reads more from the
// API.
type notice struct {
	Type      string  `json:"type"`
	Timestamp string  `json:"timestamp"`
	Data      subject `json:"data"`
}

type subject struct {
	ID string `json:"id"`
}

// deliveryType is the type of the events that Handler delivers. Their ordering key is the endpoint's id.
const deliveryType = "webhook_delivery"

// DeliveriesOf requests the newest deliveries to an endpoint.
type DeliveriesOf struct {
	EndpointOf
	Limit int `json:"-" query:"limit" default:"50" validate:"min=1,max=200" help:"how many deliveries, at most"`
}

// Sent is the record of a delivery to an endpoint.
type Sent struct {
	EventID  string        `json:"event_id" show:"Event" link:"events/{event_id}?queue={queue}"`
	Queue    string        `json:"queue"`
	At       time.Time     `json:"at" show:"At"`
	Status   dedupe.Status `json:"status" show:"Status"`
	Result   string        `json:"result,omitempty" show:"Result"`
	Attempts int64         `json:"attempts" show:"Attempts"`
	// Failure is the code of the last failed attempt; empty: none.
	Failure      string `json:"failure,omitempty" show:"Failed with"`
	Milliseconds int64  `json:"milliseconds" show:"Took ms"`
}

// Deliveries has the newest deliveries to an endpoint, on one page, and the outcome of their attempts.
type Deliveries struct {
	console.List[Sent]
	// Attempts counts the ended attempts with a request; Succeeded counts those that were answered with 2xx.
	Attempts           int64            `json:"attempts"`
	Succeeded          int64            `json:"succeeded"`
	MedianMilliseconds int64            `json:"median_milliseconds"`
	MaxMilliseconds    int64            `json:"max_milliseconds"`
	Failures           map[string]int64 `json:"failures"`
}

// Notes says how many attempts succeeded, how long they took, and why the others failed.
func (d Deliveries) Notes() []string {
	if d.Attempts == 0 {
		return nil
	}
	notes := []string{
		fmt.Sprintf("%d of %d attempts succeeded (%d %%). An attempt took %d ms in the median, %d ms at most.",
			d.Succeeded, d.Attempts, d.Succeeded*100/d.Attempts, d.MedianMilliseconds, d.MaxMilliseconds),
	}
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
		if r.Tenant != e.Tenant { // it names another tenant's endpoint
			continue
		}
		line := Sent{EventID: r.EventID, Queue: r.Queue, At: r.CreatedAt, Status: r.Status, Attempts: r.Attempts}
		line.Result = r.Result
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
			default: // completed without a request
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
