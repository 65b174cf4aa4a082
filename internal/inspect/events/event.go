package events

import (
	"cmp"
	"context"
	"slices"
	"time"

	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Event is everything that is stored about one event.
type Event struct {
	Line
	PayloadHash string    `json:"payload_hash" show:"Payload,detail"`
	LeaseUntil  time.Time `json:"lease_until,omitzero" show:"Lease until,detail"`
	// Emitted are the event ids of the messages that the event's effect emitted.
	// Waiting is how many of them are still in the outbox.
	Emitted     []string          `json:"emitted"`
	Waiting     int               `json:"waiting"`
	Conflicts   []Conflict        `json:"conflicts" show:"Conflicts"`
	DeadLetters []deadletter.Item `json:"dead_letters" show:"Dead letters"`
	Log         []dedupe.Attempt  `json:"log"`
	Places      []Spot            `json:"places" show:"Waits"`
	// Emissions are the first of the Emitted, each with its state.
	Emissions []Emission `json:"emissions" show:"Emitted"`
	History   []Step     `json:"history" show:"What happened"`
	More      bool       `json:"more"`
	Effect    []Posted   `json:"effect" show:"Moved in the books"`
	LogLink   string     `json:"log_link,omitempty" show:"Logged,detail"`
}

// Waits is the status of an event that waits and has no record.
const Waits dedupe.Status = "WAITING"

// Conflict is a message with the event's id that is another event: its payload differs, or is broken.
type Conflict struct {
	Queue       string        `json:"queue"`
	Status      dedupe.Status `json:"status"`
	Reason      string        `json:"reason"`
	PayloadHash string        `json:"payload_hash"`
	MessageID   string        `json:"message_id"`

	at time.Time
}

// found has what is stored under an event id.
type found struct {
	records     []store.Document
	deadLetters []deadletter.Item
	// waits are the waiting messages of the event itself, and those that it has emitted. own are the waiting
	// messages that are the event itself, or become it once they are published.
	waits, own []lane.Kept
	// more: not everything about the event was read. unread: not all of its waiting messages were.
	more, unread bool
	// left is how many documents may still be read to show the event.
	left int
}

// maxReads bounds the documents that the database reads to show an event. later of them are for the queue's
// pause, the entry of the books, and the number of waiting emissions.
const (
	maxReads = 50
	later    = 3
)

func (a Reads) find(ctx context.Context, id, queue, tenant string) (f found, err error) {
	of := func(name, queue, tenant string) map[string]any {
		return store.Equals(name, id, "queue", queue, "tenant", tenant)
	}
	newest := &store.Newest{Field: "kept_at"}
	queries := []store.Query{
		dedupe.OfEvent(id, tenant, 8), // of all queues
		{Collection: deadletter.Collection, Equal: of("event_id", queue, ""), Limit: closely + 1, Newest: newest},
		{Collection: lane.Delayed.Entries(), Equal: of("event_id", queue, tenant), Limit: 3},
		{Collection: lane.Outbox.Entries(), Equal: of("event_id", queue, tenant), Limit: 8},
		// The queue in these documents is the one of the event that emitted the message.
		{Collection: lane.Delayed.Entries(), Equal: of("emits", "", tenant), Limit: 2},
		{Collection: lane.Outbox.Entries(), Equal: of("emits", "", tenant), Limit: 2},
	}
	pages := make([]store.Page, len(queries))
	err = store.AtOnce(ctx, len(queries), func(ctx context.Context, i int) (err error) {
		pages[i], err = a.Store.Query(ctx, queries[i])
		return err
	})
	if err != nil {
		return found{}, err
	}
	f.left = maxReads - later
	for i, page := range pages {
		read, behind := len(page.Documents), !page.Next.IsZero()
		if behind {
			read++
		}
		f.left -= max(1, read)
		f.more = f.more || behind
		f.unread = f.unread || behind && (i == 2 || i == 3)
	}
	if f.records = pages[0].Documents; !pages[0].Next.IsZero() {
		if f.records, err = a.withOwn(ctx, f.records, queue); err != nil {
			return found{}, err
		}
		f.left--
	}
	f.records = slices.DeleteFunc(f.records, func(doc store.Document) bool {
		return queue != "" && doc.Fields["queue"] != queue
	})
	for _, doc := range pages[1].Documents {
		f.deadLetters = append(f.deadLetters, DeadLetterIn(doc))
	}
	if len(f.deadLetters) > closely {
		f.deadLetters, f.more = f.deadLetters[:closely], true
	}
	for i, page := range pages[2:] {
		for _, doc := range page.Documents {
			kept, err := lane.KeptOf(doc)
			if err != nil {
				return found{}, err
			}
			coming := i >= 2
			if !coming {
				f.waits = append(f.waits, kept)
			}
			if !kept.Emitted || replays(kept) || coming && (queue == "" || a.Destination(kept) == queue) {
				f.own = append(f.own, kept)
			}
		}
	}
	return f, nil
}

// withOwn returns the records of conflicts, and the event's own record, on queue if one is named: the query
// for a page may have ended before it.
func (a Reads) withOwn(
	ctx context.Context, conflicts []store.Document, queue string,
) ([]store.Document, error) {
	r, err := dedupe.FromDocument(conflicts[0])
	if err != nil {
		return nil, err
	}
	own, err := store.Find(ctx, a.Store, dedupe.Key(cmp.Or(queue, r.Queue), r.Tenant, r.EventID))
	among := func(doc store.Document) bool { return doc.Key == own.Key }
	if err != nil || own.Version == 0 || slices.ContainsFunc(conflicts, among) {
		return conflicts, err
	}
	return append(conflicts, own), nil
}

// Destination returns the queue that receives a message once it is published; empty: several do, or none of
// the catalog.
func (a Reads) Destination(k lane.Kept) string {
	var takes []string
	for _, q := range a.Catalog.Queues {
		if q.Topic() == k.Topic && q.Takes(k.Message.Attributes) {
			takes = append(takes, q.ID)
		}
	}
	if len(takes) != 1 {
		return ""
	}
	return takes[0]
}

// look reads what is stored under an event id. The error is errSeveral if several events have the id.
func (a Reads) look(ctx context.Context, in EventOf) (f found, event Event, record dedupe.Record, err error) {
	q, err := a.Filtered(in.Queue)
	if err == nil {
		f, err = a.find(ctx, in.ID, q.ID, in.Tenant)
	}
	if err == nil {
		event, record, err = a.story(in.ID, f)
	}
	return f, event, record, err
}

func (a Reads) event(ctx context.Context, _ audit.Author, in EventOf) (Event, error) {
	f, event, record, err := a.look(ctx, in)
	if err != nil {
		return Event{}, err
	}
	if event.Status == "" {
		if len(f.own) == 0 {
			return Event{}, errNowhere
		}
		attributes := f.own[0].Message.Attributes
		event.Status, event.EventType, event.Action = Waits, attributes["event_type"], attributes["event_type"]
		event.CorrelationID, event.OrderingKey = attributes["correlation_id"], attributes["ordering_key"]
		event.MessageID = attributes["first_message_id"]
	}
	more := []func(context.Context) error{
		func(ctx context.Context) error { return a.places(ctx, &event, record, f) },
		func(ctx context.Context) error { return a.emissions(ctx, &event, record, f) },
		func(ctx context.Context) error { return a.effect(ctx, &event, record) },
		func(ctx context.Context) error { return a.waiting(ctx, &event, f) },
	}
	err = store.AtOnce(ctx, len(more), func(ctx context.Context, i int) error { return more[i](ctx) })
	if err != nil {
		return Event{}, err
	}
	history(&event, record, f.own)
	a.Links.links(&event)
	event.More = event.More || f.more || len(event.Emitted) > len(event.Emissions)
	return event, nil
}

// waiting counts the event's emissions in the outbox, if not all of them were read.
func (a Reads) waiting(ctx context.Context, e *Event, f found) error {
	if !f.unread || len(e.Emitted) == 0 {
		return nil
	}
	equal := store.Equals("event_id", e.EventID, "queue", e.Queue, "tenant", e.Tenant)
	query := store.Query{Collection: lane.Outbox.Entries(), Equal: equal, Limit: store.MaxPage}
	n, err := store.Count(ctx, a.Store, query)
	e.Waiting = int(n)
	return err
}

func replays(k lane.Kept) bool { return k.Message.Attributes[deadletter.AttrReplayOf] != "" }

// is sets the event's queue and tenant if it has none. The error is errSeveral if it has others.
func (e *Event) is(queue, tenant string) error {
	if e.Queue == "" {
		e.Queue, e.Tenant = queue, tenant
	}
	if e.Queue != queue || e.Tenant != tenant {
		return errSeveral
	}
	return nil
}

func (a Reads) story(id string, f found) (event Event, own dedupe.Record, err error) {
	event = Event{
		Line: Line{EventID: id}, Emitted: []string{}, Conflicts: []Conflict{}, DeadLetters: []deadletter.Item{},
		Log: []dedupe.Attempt{}, Places: []Spot{}, Emissions: []Emission{}, History: []Step{}, Effect: []Posted{},
	}
	for _, doc := range f.records {
		record, err := dedupe.FromDocument(doc)
		if err == nil {
			err = event.is(record.Queue, record.Tenant)
		}
		if err != nil {
			return event, own, err
		}
		if doc.Key == dedupe.Key(record.Queue, record.Tenant, record.EventID) {
			own = record
			event.Line, event.PayloadHash, event.LeaseUntil = LineOf(record), record.PayloadHash, record.LeaseUntil
			event.Emitted, event.Log = handler.EmittedIDs(record.Emitted), append(event.Log, record.Log...)
			continue
		}
		event.Conflicts = append(event.Conflicts, Conflict{
			Queue: record.Queue, Status: record.Status, Reason: record.LastError,
			PayloadHash: record.PayloadHash, MessageID: record.MessageID, at: record.UpdatedAt,
		})
	}
	for _, deadLetter := range f.deadLetters {
		if err := event.is(deadLetter.Queue, event.Tenant); err != nil {
			return event, own, err
		}
		event.DeadLetters = append(event.DeadLetters, deadLetter)
	}
	for _, kept := range f.own {
		queue := kept.Queue
		if kept.Emits != "" { // its queue field is that of the event that emitted it
			queue = cmp.Or(event.Queue, a.Destination(kept))
		}
		if event.Queue == "" {
			event.Tenant = kept.Tenant
		}
		if err := event.is(queue, event.Tenant); err != nil {
			return event, own, err
		}
	}
	for _, kept := range f.waits {
		if kept.Outbox() && len(event.Emitted) > 0 && !replays(kept) {
			event.Waiting++
		}
	}
	switch {
	case event.Status != "":
	case len(event.Conflicts) > 0: // every message with this id is broken
		first := event.Conflicts[0]
		event.Status, event.Reason = first.Status, first.Reason
		event.PayloadHash, event.MessageID = first.PayloadHash, first.MessageID
	case len(event.DeadLetters) > 0: // no worker has answered, and the broker gave up
		first := event.DeadLetters[0]
		event.Status, event.Reason = dedupe.DeadLettered, first.Reason
		event.Attempts, event.MessageID = first.Attempts, first.SourceMessageID
	}
	return event, own, nil
}

// DeadLetterIn returns what is readable of a dead letter, even if it is not enough for a replay.
func DeadLetterIn(doc store.Document) deadletter.Item {
	item, err := deadletter.ItemOf(doc)
	if err != nil {
		_ = store.Decode(doc.Fields, &item)
		item.ID = doc.Key.ID
	}
	return item
}

// ListEvents requests a page of the newest events.
type ListEvents struct {
	Queue         string `json:"-" query:"queue" help:"only of this queue, by id or alias"`
	Status        string `json:"-" query:"status" validate:"omitempty,oneof=PROCESSING COMPLETED FAILED DEAD_LETTERED" help:"only of this status"`
	Type          string `json:"-" query:"type" validate:"omitempty,id" help:"only of this event type"`
	EventID       string `json:"-" query:"event_id" validate:"omitempty,id" help:"only of this event id, in any queue"`
	CorrelationID string `json:"-" query:"correlation_id" validate:"omitempty,id" help:"only of this correlation id"`
	Key           string `json:"-" query:"key" validate:"omitempty,uid" help:"only of this ordering key"`
	console.Span
	console.Page
}

// EventOf requests what is stored under an event id.
type EventOf struct {
	ID     string `json:"-" path:"event_id" validate:"required,id" help:"event id"`
	Queue  string `json:"-" query:"queue" help:"the queue, by id or alias, where several know the id"`
	Tenant string `json:"-" query:"tenant" validate:"omitempty,id" help:"the tenant, where several have the id"`
}

// PayloadOf requests the payloads of an event.
type PayloadOf struct {
	EventOf
	console.Change
}

// Operations returns the operations on events: they show events, and what a worker would do with one.
func (a Reads) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "events ls", Path: "GET /v1/ops/events", Summary: "List events, newest first",
			Beside: []string{"queues waiting"},
			Help: "An event is as old as its record: a retry leaves it in its place. What waits for its first " +
				"attempt\n" +
				"has no record yet: queues waiting counts it.",
			Empty: "No event is in this list. A worker records an event at its first attempt.",
		}, func(ctx context.Context, _ audit.Author, in ListEvents) (console.List[Line], error) {
			q, err := a.Filtered(in.Queue)
			if err != nil {
				return console.List[Line]{}, err
			}
			return console.Listed(a.Events(ctx, dedupe.Listing{
				Equal: store.Equals("queue", q.ID, "status", in.Status, "event_id", in.EventID,
					"correlation_id", in.CorrelationID, "ordering_key", in.Key, "event_type", in.Type),
				Since: in.Since.Time, Until: in.Until.Time, After: in.After, Limit: min(in.Limit, dedupe.MaxListed),
			}))
		}),
		console.New(console.Row{
			Name: "events show", Path: "GET /v1/ops/events/{event_id}",
			Summary: "Show where an event waits, and what happened to it: attempts, dead letters, replays",
		}, a.event),
		console.New(console.Row{
			Name: "events payload", Path: "POST /v1/ops/events/{event_id}/payload", Needs: console.Reason, Once: true,
			Summary: "Show the payload of an event that is kept",
			Help: "The payload is minimized: names and addresses were taken out on receipt. The audit says who has " +
				"looked, and why.",
		}, a.payload),
		console.New(console.Row{
			Name: "events try", Path: "POST /v1/ops/events/try", Needs: console.Act, Once: true, Body: maxBody,
			Summary: "Show what the worker would write, emit and call for an event, without doing it",
		}, a.Try),
	}
}
