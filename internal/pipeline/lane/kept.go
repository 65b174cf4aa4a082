package lane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"billhook/internal/contract"
	"billhook/internal/platform/store"
)

// Kept is a message that waits to be published, as its document says.
type Kept struct {
	Topic   string
	Message contract.Message
	// CreatedAt is since when it is kept, and DueAt is when it may be published; zero: at once.
	CreatedAt, DueAt time.Time
	// Source is the event that the message comes from. Unless it is Emitted, the message is that
	// event's own, and waits for an attempt.
	Source  Source
	Emitted bool

	lane store.Key
}

// Outbox reports whether the message waits to be published at once.
func (k Kept) Outbox() bool { return k.lane.Collection == Outbox.Lanes() }

// Line is where a message stands that waits.
type Line struct {
	Lane
	// First is the event whose message is the next of the lane to be published; empty: there is none.
	First Source
}

// LineOf reads the lane of a message that waits, and the first of its messages: two reads. A lane
// that is gone by now does not exist, and has no first.
func LineOf(ctx context.Context, from store.Store, k Kept) (Line, error) {
	doc, err := from.Get(ctx, k.lane)
	if errors.Is(err, store.ErrNotFound) {
		return Line{Lane: Lane{key: k.lane}}, nil
	}
	if err != nil {
		return Line{}, fmt.Errorf("lane: read: %w", err)
	}
	line := Line{Lane: laneOf(doc)}
	first, _, err := next(ctx, from, line.Lane)
	line.First = first.Source
	return line, err
}

func next(ctx context.Context, from store.Querier, of Lane) (first Kept, found bool, err error) {
	page, err := from.Query(ctx, of.entries(1))
	if err != nil {
		return Kept{}, false, fmt.Errorf("lane: read: %w", err)
	}
	if len(page.Documents) == 0 {
		return Kept{}, false, nil
	}
	first, err = KeptOf(page.Documents[0])
	return first, true, err
}

func (l Lane) entries(limit int) store.Query {
	return store.Query{Collection: strings.TrimSuffix(l.key.Collection, "Keys"), IDPrefix: l.key.ID + "-", Limit: limit}
}

// KeptOf reads an entry of either kind.
func KeptOf(doc store.Document) (Kept, error) {
	var e entry
	if err := store.Decode(doc.Fields, &e); err != nil {
		return Kept{}, fmt.Errorf("lane: entry %s is not readable", doc.Key.ID)
	}
	id, _, _ := strings.Cut(doc.Key.ID, "-")
	return Kept{
		lane:  store.Key{Collection: Kind(doc.Key.Collection).Lanes(), ID: id},
		Topic: e.Topic, Message: e.Message, CreatedAt: e.CreatedAt, DueAt: e.DueAt, Source: e.Source,
		Emitted: doc.Key.Collection == Outbox.Entries() || strings.HasSuffix(doc.Key.ID, emitted),
	}, nil
}

// Keys returns the lanes of a queue's ordering keys of which messages are kept, at most limit, and
// whether there are more.
func Keys(ctx context.Context, from store.Querier, queue string, limit int) (keys []Lane, more bool, err error) {
	keys, err = lanesOf(ctx, from, Delayed, store.Query{Equal: map[string]any{"queue": queue}, Limit: limit + 1})
	return keys[:min(len(keys), limit)], len(keys) > limit, err
}

// First returns the message of a lane that is published next, and how many wait there, counted up to
// limit. Where none does, all are with the broker.
func First(ctx context.Context, from store.Querier, of Lane, limit int) (first Kept, waiting int64, err error) {
	first, found, err := next(ctx, from, of)
	if err != nil || !found {
		return Kept{}, 0, err
	}
	query := of.entries(limit)
	query.Count = true
	page, err := from.Query(ctx, query)
	if err != nil {
		return Kept{}, 0, fmt.Errorf("lane: read: %w", err)
	}
	return first, page.Count, nil
}
