package dryrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Change is what a write would change in a document.
type Change struct {
	Op  string `json:"op"`  // create, set, update, increment or delete
	Key string `json:"key"` // collection/id
	// Before has the document's present fields, and After those that it would have; empty without a document.
	Before map[string]jsontext.Value `json:"before,omitempty"`
	After  map[string]jsontext.Value `json:"after,omitempty"`
}

// Emission is a message that would be emitted.
type Emission struct {
	Topic       string            `json:"topic" show:"Emits to"`
	EventID     string            `json:"event_id" show:"Event"`
	EventType   string            `json:"event_type" show:"Type"`
	OrderingKey string            `json:"ordering_key" show:"Ordering key"`
	DueAt       time.Time         `json:"due_at,omitzero" show:"Due"`
	Attributes  map[string]string `json:"attributes"`
	Data        jsontext.Value    `json:"data" show:"Payload"`
}

var ops = map[store.Op]string{
	store.OpCreate: "create", store.OpSet: "set", store.OpUpdate: "update", store.OpIncrement: "increment",
	store.OpDelete: "delete",
}

// Commits is the reason for a handler that commits by itself, against its contract.
const Commits = "handler_commits"

type readOnly struct{ store.Store }

// ReadOnly returns the store for a worker that tries messages: it reads, and refuses every commit.
func ReadOnly(s store.Store) store.Store { return readOnly{s} }

func (readOnly) Commit(context.Context, []store.Write) ([]store.Version, error) {
	return nil, retry.Permanent(Commits, nil)
}

// Effects is the store of a trial's records. It writes nothing, and adds to the trial what would change.
type Effects struct {
	store.Store
	trial  *Trial
	Failed error // why the effect is unknown
}

// On returns the store in which the trial's effect is committed.
func (t *Trial) On(s store.Store) *Effects { return &Effects{Store: s, trial: t} }

// Get reads a document. A record is read as if its next attempt were due.
func (e *Effects) Get(ctx context.Context, key store.Key) (store.Document, error) {
	doc, err := e.Store.Get(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		e.Failed = cmp.Or(e.Failed, err)
	}
	if key.Collection == dedupe.Collection && err == nil {
		doc.Fields = maps.Clone(doc.Fields)
		delete(doc.Fields, "next_retry_at")
	}
	return doc, err
}

// Commit shows what the commit would change, without the event's record. Its errors are those of a store.
func (e *Effects) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	err := e.trial.show(ctx, e.Store, slices.DeleteFunc(slices.Clone(writes), func(w store.Write) bool {
		return w.Key.Collection == dedupe.Collection || w.Key.Collection == deadletter.Collection
	}))
	if err != nil && !errors.Is(err, store.ErrStale) && !errors.Is(err, store.ErrInvalid) {
		e.Failed = cmp.Or(e.Failed, err)
	}
	return make([]store.Version, len(writes)), err
}

// Planning returns the handler as the trial calls it: a leased handler only plans.
func (t *Trial) Planning(h handler.Handler) handler.Handler {
	if h.Tx == nil && h.Leased == nil { // no handler is registered
		return h
	}
	return handler.Handler{Tx: func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		t.Tries = event.Try + 1
		switch {
		case h.Leased == nil:
			return h.Tx(ctx, event)
		case h.Leased.Plan == nil:
			return handler.Effect{}, retry.Permanent("handler_without_plan", nil)
		}
		plan, err := h.Leased.Plan(ctx, event)
		if t.Calls = []handler.Call{}; len(plan.Calls) == 0 {
			return plan.Effect, err
		}
		for _, c := range plan.Calls {
			c.Body = textOf(c.Body)
			t.Calls = append(t.Calls, c)
		}
		return handler.Effect{Writes: plan.Writes}, err
	}}
}

// show reads the documents that an effect would write, and adds the changes to the trial, without the lanes.
func (t *Trial) show(ctx context.Context, from store.Getter, writes []store.Write) error {
	t.Writes, t.Emits = []Change{}, []Emission{}
	if len(writes) >= store.MaxWrites { // the event's record is one more
		return fmt.Errorf("%w: %d writes beside the record", store.ErrInvalid, len(writes))
	}
	if len(writes) > 0 {
		if err := store.CheckWrites(writes); err != nil {
			return err
		}
	}
	for _, w := range writes {
		doc, err := from.Get(ctx, w.Key)
		missing := errors.Is(err, store.ErrNotFound)
		switch {
		case err != nil && !missing:
			return fmt.Errorf("dryrun: read: %w", err)
		case w.Op == store.OpCreate && !missing, w.Version != 0 && (missing || doc.Version != w.Version):
			return store.ErrStale
		}
		switch collection := w.Key.Collection; {
		case collection == lane.Outbox.Lanes(), collection == lane.Delayed.Lanes():
		case w.Op == store.OpCreate && (collection == lane.Outbox.Entries() ||
			collection == lane.Delayed.Entries()):
			kept, err := lane.KeptOf(store.Document{Key: w.Key, Fields: w.Fields})
			if err != nil {
				return err
			}
			m := kept.Message
			t.Emits = append(t.Emits, Emission{
				Topic: kept.Topic, EventID: m.Attributes[contract.AttrEventID],
				EventType: m.Attributes[contract.AttrEventType], OrderingKey: m.OrderingKey,
				DueAt: kept.DueAt, Attributes: m.Attributes, Data: textOf(m.Data),
			})
		case w.Op == store.OpDelete && missing:
		default:
			after := w.Fields // empty for a delete
			if w.Op == store.OpIncrement {
				if after, err = w.Incremented(doc.Fields); err != nil {
					return err
				}
			}
			c := Change{Op: ops[w.Op], Key: w.Key.String(), Before: shown(doc.Fields), After: shown(after)}
			t.Writes = append(t.Writes, c)
		}
	}
	return nil
}

var hidden = jsontext.Value(`"(hidden)"`)

// shown returns a document's fields as JSON. Secrets are hidden.
func shown(fields map[string]any) map[string]jsontext.Value {
	if len(fields) == 0 {
		return nil
	}
	all := make(map[string]jsontext.Value, len(fields))
	for name, value := range fields {
		text, err := json.Marshal(value, json.Deterministic(true))
		if err != nil || strings.HasSuffix(name, "secret") {
			text = hidden
		}
		all[name] = text
	}
	return all
}

// textOf returns a body that is JSON unchanged, and any other body as a JSON string.
func textOf(body []byte) jsontext.Value {
	if value := jsontext.Value(body); value.IsValid() {
		return value
	}
	text, _ := jsontext.AppendQuote(nil, body) // it replaces invalid UTF-8
	return text
}

// Changed returns the sorted names of the fields that are added, changed or removed.
func (c Change) Changed() []string {
	names := slices.Collect(maps.Keys(c.Before))
	names = slices.AppendSeq(names, maps.Keys(c.After))
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		return string(c.Before[name]) == string(c.After[name])
	})
}

// String lists the fields with their old and new values.
func (c Change) String() string {
	text := c.Op + " " + c.Key
	for _, name := range c.Changed() {
		switch before, after := c.Before[name], c.After[name]; {
		case before == nil:
			text += fmt.Sprintf(", + %s: %s", name, after)
		case after == nil:
			text += fmt.Sprintf(", - %s: %s", name, before)
		default:
			text += fmt.Sprintf(", ~ %s: %s -> %s", name, before, after)
		}
	}
	return text
}

// Effects returns one line for each write, emission and call.
func (t Trial) Effects() (lines []string) {
	for _, w := range t.Writes {
		lines = append(lines, w.String())
	}
	for _, e := range t.Emits {
		due := ""
		if !e.DueAt.IsZero() {
			due = ", due " + e.DueAt.UTC().Format(time.RFC3339)
		}
		lines = append(lines, fmt.Sprintf("emit %s %s to %s, key %s%s: %s", e.EventType, e.EventID, e.Topic,
			cmp.Or(e.OrderingKey, "-"), due, e.Data))
	}
	for _, c := range t.Calls {
		lines = append(lines, fmt.Sprintf("call %s %s %s, id %s: %s", c.Target, c.Method, c.Path, c.ID, c.Body))
	}
	return lines
}
