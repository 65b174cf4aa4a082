// Package trials tries the messages that people name: it finds what is kept of an event, and has a worker say what it would do of
// it. It changes nothing.
package trials

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Operator tries the messages that people name.
type Operator struct {
	Store store.Store
	Now   func() time.Time
	// Worker returns the worker that this program would be with other files of the catalog. The error wraps ErrCatalog.
	Worker func(files map[string]string) (dryrun.Worker, error)
}

// Try tries one message, which is kept, or which the request brings. The error is one of the package's, or the store's.
func (d *Operator) Try(ctx context.Context, _ audit.Author, in Try) (dryrun.Trial, error) {
	brought := in.Message
	if brought == nil && in.Body != nil {
		brought = &GivenMessage{Message: events.Message{Data: in.Body}}
	}
	if brought != nil {
		in.Queue = cmp.Or(in.Queue, brought.Queue)
	}
	whole := brought != nil && in.Queue != "" && in.Tenant == "" && (brought.Data != nil || brought.Base64 != nil)
	if whole == (in.EventID != "") || !whole && brought != nil {
		return dryrun.Trial{}, console.Refuse(console.Malformed, "body_malformed",
			"Name an event_id, or a queue and a message or a body for it. A dead letter has its message where its payload is shown.")
	}
	worker, err := d.Worker(in.Catalog)
	if err != nil {
		return dryrun.Trial{}, err
	}
	if in.Queue != "" {
		q, ok := worker.Queue(in.Queue)
		if !ok {
			return dryrun.Trial{}, dryrun.ErrNoQueue
		}
		in.Queue = q.ID
	}
	if brought == nil {
		found, err := d.find(ctx, worker, in)
		if err != nil {
			return dryrun.Trial{}, err
		}
		return worker.Try(ctx, found)
	}
	m := dryrun.Message{Message: contract.Message{Data: brought.Data, Attributes: brought.Attributes, OrderingKey: brought.OrderingKey}, Queue: in.Queue, ID: "trial", PublishedAt: d.Now()}
	if brought.Base64 != nil {
		m.Data = brought.Base64
	}
	return worker.Try(ctx, m)
}

// most bounds the documents of one event that are read in each collection.
const most = 100

// candidate is a message that is kept of an event, and how gladly it is tried: the lowest first.
type candidate struct {
	message dryrun.Message
	tenant  string
	rank    int
	at      time.Time
}

// find finds the kept message of an event: its open dead letter, else what waits, else what a worker has in hand, else a
// dead letter that is closed; of several, the newest.
func (d *Operator) find(ctx context.Context, worker dryrun.Worker, asked Try) (dryrun.Message, error) {
	equal := map[string]any{"event_id": asked.EventID}
	if asked.Queue != "" {
		equal["queue"] = asked.Queue
	}
	var found []candidate
	for collection, read := range map[string]func(dryrun.Worker, store.Document) (candidate, bool, error){
		deadletter.Collection: deadLetterOf, lane.Delayed.Entries(): delayedOf, dedupe.Collection: claimedOf,
	} {
		page, err := d.Store.Query(ctx, store.Query{Collection: collection, Equal: equal, Limit: most})
		if err != nil {
			return dryrun.Message{}, err
		}
		for _, doc := range page.Documents {
			c, kept, err := read(worker, doc)
			if err != nil {
				return dryrun.Message{}, err
			}
			if kept && (asked.Tenant == "" || c.tenant == asked.Tenant) {
				found = append(found, c)
			}
		}
	}
	if len(found) == 0 {
		return dryrun.Message{}, ErrNotKept
	}
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.rank, b.rank), b.at.Compare(a.at)) })
	for _, c := range found {
		if c.message.Queue != found[0].message.Queue || c.tenant != found[0].tenant {
			return dryrun.Message{}, ErrSeveral
		}
	}
	return found[0].message, nil
}

func deadLetterOf(worker dryrun.Worker, doc store.Document) (candidate, bool, error) {
	item, err := deadletter.ItemOf(doc)
	if err != nil {
		return candidate{}, false, err
	}
	m, err := replayOf(worker, item)
	c := candidate{message: m, tenant: cmp.Or(item.Tenant, dedupe.DefaultTenant), at: item.Kept}
	if item.State != deadletter.Open {
		c.rank = 3
	}
	return c, err == nil, nil
}

func replayOf(worker dryrun.Worker, item deadletter.Item) (dryrun.Message, error) {
	q, known := worker.Queue(item.Queue)
	switch {
	case !known:
		return dryrun.Message{}, dryrun.ErrNoQueue
	case len(item.Data) == 0:
		return dryrun.Message{}, ErrNotKept
	}
	return dryrun.Message{Message: item.Replay(q), Queue: item.Queue, ID: "trial", PublishedAt: item.Died(), From: dryrun.From{Kind: dryrun.DeadLetter, ID: item.ID}}, nil
}

func delayedOf(_ dryrun.Worker, doc store.Document) (candidate, bool, error) {
	kept, err := lane.KeptOf(doc)
	if err != nil || kept.Emitted {
		return candidate{}, false, err
	}
	m := dryrun.Message{Message: kept.Message, Queue: kept.Queue, ID: "trial", PublishedAt: kept.CreatedAt, From: dryrun.From{Kind: dryrun.Delayed, ID: doc.Key.ID}}
	return candidate{message: m, tenant: cmp.Or(kept.Tenant, dedupe.DefaultTenant), rank: 1, at: kept.CreatedAt}, true, nil
}

func claimedOf(_ dryrun.Worker, doc store.Document) (candidate, bool, error) {
	record, err := dedupe.FromDocument(doc)
	if err != nil || record.Message == nil {
		return candidate{}, false, err
	}
	m := dryrun.Message{Message: *record.Message, Queue: record.Queue, ID: "trial", PublishedAt: record.CreatedAt, From: dryrun.From{Kind: dryrun.Claimed, ID: doc.Key.ID}}
	return candidate{message: m, tenant: record.Tenant, rank: 2, at: record.UpdatedAt}, true, nil
}

var (
	ErrNotKept = errors.New("trials: no payload is kept")
	ErrSeveral = errors.New("trials: several queues or tenants")
)
