package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"billhook/catalog"
	"billhook/e2e/chaos/arm"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// handlers are the handlers of all arms.
type handlers struct {
	store   store.Store
	outside *outside
	queue   func(id string) (catalog.Queue, bool)
}

func (h *handlers) register(r *handler.Registry) {
	r.Tx(arm.Handlers+arm.Tx, h.tx)
	r.Tx(arm.Handlers+arm.TxOrdered, h.txOrdered, arm.Topic)
	for _, name := range []string{arm.Leased, arm.LeasedOrdered} {
		r.Leased(arm.Handlers+name, handler.Outside(h.do, h.outside.applied))
	}
	r.Leased(arm.Handlers+arm.Batched, handler.Batch{
		Queue: h.queue, Timer: timer, Call: h.doAll, Reconcile: handler.Outside(h.do, h.outside.applied).Reconcile,
	}.Leased())
	r.Tx(arm.Handlers+arm.CheckThenAct, h.checkThenAct)
	r.Tx(arm.Handlers+arm.MarkThenAct, h.markThenAct)
	r.Tx(arm.Handlers+arm.UnfencedLease, h.unfencedLease)
}

var applied = handler.Effect{Result: "applied"}

// tx counts the event without a read. Only the record that is committed with it keeps it from
// counting twice.
func (h *handlers) tx(ctx context.Context, event handler.Event) (handler.Effect, error) {
	if err := stall(ctx, event, arm.StallBefore); err != nil {
		return handler.Effect{}, err
	}
	return handler.Effect{Writes: []store.Write{count(event)}, Result: "applied"}, nil
}

// txOrdered reads its key's document, appends the event, and emits a message.
func (h *handlers) txOrdered(ctx context.Context, event handler.Event) (handler.Effect, error) {
	key := arm.Key(arm.Keys, event.Queue, event.OrderingKey)
	doc, err := h.store.Get(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return handler.Effect{}, retry.Down("store_unavailable", err)
	}
	if err := stall(ctx, event, arm.StallBefore); err != nil {
		return handler.Effect{}, err
	}
	seen, _ := doc.Fields["seen"].([]any)
	fields := map[string]any{"seen": append(seen, cycle(event))}
	write := store.Create(key, fields)
	if doc.Version != 0 {
		write = store.Replace(key, doc.Version, fields)
	}
	return handler.Effect{
		Writes: []store.Write{write}, Result: "applied",
		Emit: []handler.Emission{{To: arm.Topic, OrderingKey: event.OrderingKey, Body: contract.Of(&contract.Envelope{
			Action: arm.EventType, Payload: contract.Payload{EventID: event.ID, SubscriptionID: event.OrderingKey, Cycle: cycle(event)},
		})}},
	}, nil
}

// do applies the effect in the outside service.
func (h *handlers) do(ctx context.Context, event handler.Event) (string, error) {
	if err := stall(ctx, event, arm.StallBefore); err != nil {
		return "", err
	}
	if err := h.outside.apply(ctx, event); err != nil {
		return "", err
	}
	return "applied", stall(ctx, event, arm.StallAfter)
}

// doAll applies the effects of a batch in the outside service. It stalls for each of
// its events that stalls.
func (h *handlers) doAll(ctx context.Context, events []handler.Event) ([]handler.Outcome, error) {
	for _, event := range events {
		if err := stall(ctx, event, arm.StallBefore); err != nil {
			return nil, err
		}
	}
	outcomes, err := h.outside.applyAll(ctx, events)
	if err != nil {
		return nil, err
	}
	for _, event := range events {
		if err := stall(ctx, event, arm.StallAfter); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func timer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

// checkThenAct is the control that doubles: it looks whether the event was handled, handles it,
// then marks it.
func (h *handlers) checkThenAct(ctx context.Context, event handler.Event) (handler.Effect, error) {
	mark := arm.Key(arm.Marks, event.Queue, event.ID)
	switch _, err := h.store.Get(ctx, mark); {
	case err == nil:
		return applied, nil
	case !errors.Is(err, store.ErrNotFound):
		return handler.Effect{}, err
	}
	if err := h.act(ctx, event); err != nil {
		return handler.Effect{}, err
	}
	return applied, h.commit(ctx, store.Set(mark, map[string]any{"done": true}))
}

// markThenAct is the control that loses: it marks the event as handled, then handles it.
func (h *handlers) markThenAct(ctx context.Context, event handler.Event) (handler.Effect, error) {
	mark := arm.Key(arm.Marks, event.Queue, event.ID)
	err := h.commit(ctx, store.Create(mark, map[string]any{"done": true}))
	if errors.Is(err, store.ErrExists) {
		return applied, nil
	}
	if err != nil {
		return handler.Effect{}, err
	}
	return applied, h.act(ctx, event)
}

// unfencedLease is the control that takes a lease properly and does not check it at the end.
func (h *handlers) unfencedLease(ctx context.Context, event handler.Event) (handler.Effect, error) {
	mark := arm.Key(arm.Marks, event.Queue, event.ID)
	until := map[string]any{"until": time.Now().Add(arm.Lease)}
	claim := store.Create(mark, until)
	switch doc, err := h.store.Get(ctx, mark); {
	case err == nil:
		held, leased := doc.Fields["until"].(time.Time)
		if !leased {
			return applied, nil
		}
		if time.Now().Before(held) {
			return handler.Effect{}, retry.Busy("lease_held", nil)
		}
		claim = store.Replace(mark, doc.Version, until)
	case !errors.Is(err, store.ErrNotFound):
		return handler.Effect{}, err
	}
	if err := h.commit(ctx, claim); err != nil {
		return handler.Effect{}, retry.Busy("lease_held", err)
	}
	if err := h.act(ctx, event); err != nil {
		return handler.Effect{}, err
	}
	return applied, h.commit(ctx, store.Set(mark, map[string]any{"done": true}))
}

// act has the effect of a control.
func (h *handlers) act(ctx context.Context, event handler.Event) error {
	if err := stall(ctx, event, arm.StallBefore); err != nil {
		return err
	}
	return h.commit(ctx, count(event))
}

func (h *handlers) commit(ctx context.Context, write store.Write) error {
	_, err := h.store.Commit(ctx, []store.Write{write})
	return err
}

func count(event handler.Event) store.Write {
	return store.Increment(arm.Key(arm.Effects, event.Queue, event.ID), map[string]int64{"times": 1}, nil)
}

// cycle is the position of the event in its key, from 1.
func cycle(event handler.Event) int64 {
	envelope, err := contract.As[*contract.Envelope](event.Body)
	if err != nil {
		return 0
	}
	return envelope.Payload.Cycle
}

// stall waits for as long as the delivery's attribute says, or until ctx ends.
func stall(ctx context.Context, event handler.Event, where string) error {
	wait, _ := strconv.Atoi(event.Attributes[where]) // without the attribute 0
	select {
	case <-time.After(time.Duration(wait) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outside is the client of the harness: of the outside service and of the broker.
type outside struct {
	base   string
	client *http.Client
}

// Publish is confirmed by the status 200 alone.
func (o *outside) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.base+"/topics/"+topic, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	status, err := o.send(request, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("publish: answered %d", status)
	}
	return m.Attributes[contract.AttrEventID], err
}

func (o *outside) apply(ctx context.Context, event handler.Event) error {
	_, err := o.effect(ctx, http.MethodPost, event)
	return err
}

// applyAll tells the service of all events in one call, which answers for each.
func (o *outside) applyAll(ctx context.Context, events []handler.Event) ([]handler.Outcome, error) {
	items := make([]arm.Item, len(events))
	for i, event := range events {
		items[i] = arm.Item{Event: event.ID, IdempotencyKey: event.ID, Attempt: strconv.Itoa(event.Attempt), Key: event.OrderingKey, Cycle: cycle(event)}
	}
	body, err := json.Marshal(items)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.base+"/batches/"+events[0].Queue, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	var statuses []int
	switch status, err := o.send(request, &statuses); {
	case err != nil:
		return nil, retry.Down("outside_unknown", err)
	case status != http.StatusOK || len(statuses) != len(events):
		return nil, retry.Down("outside_unavailable", nil)
	}
	outcomes := make([]handler.Outcome, len(events))
	for i, status := range statuses {
		outcomes[i].Effect = applied
		if status != http.StatusOK {
			outcomes[i] = handler.Outcome{Err: retry.Down("outside_unavailable", nil)}
		}
	}
	return outcomes, nil
}

// applied asks the service for the outcome of an earlier attempt.
func (o *outside) applied(ctx context.Context, event handler.Event) (result string, done bool, err error) {
	found, err := o.effect(ctx, http.MethodGet, event)
	return "applied", found, err
}

// effect calls the service about the event's effect. found is false where there is none.
func (o *outside) effect(ctx context.Context, method string, event handler.Event) (found bool, err error) {
	request, err := http.NewRequestWithContext(ctx, method, o.base+"/effects/"+event.Queue+"/"+event.ID, http.NoBody)
	if err != nil {
		return false, err
	}
	request.Header.Set("Idempotency-Key", event.ID)
	request.Header.Set("Attempt", strconv.Itoa(event.Attempt))
	query := request.URL.Query()
	query.Set("key", event.OrderingKey)
	query.Set("cycle", strconv.FormatInt(cycle(event), 10))
	request.URL.RawQuery = query.Encode()
	status, err := o.send(request, nil)
	switch {
	case err != nil:
		return false, retry.Down("outside_unknown", err)
	case status == http.StatusNotFound && method == http.MethodGet:
		return false, nil
	case status != http.StatusOK:
		return false, retry.Down("outside_unavailable", nil)
	}
	return true, nil
}

// send decodes the answer, unless into is nil.
func (o *outside) send(request *http.Request, into any) (int, error) {
	response, err := o.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if into != nil && response.StatusCode == http.StatusOK {
		return response.StatusCode, json.NewDecoder(response.Body).Decode(into)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}
