// Package dryrun tells what a worker would write, emit and call of a message, without doing it. It owns what a trial shows,
// and a store that takes no writes. It refuses to decide what a message means: a Worker does.
package dryrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Trials tries the messages that people name.
type Trials struct {
	Store store.Store
	Now   func() time.Time
	// Worker returns the worker that this program would be with other files of the catalog. The error wraps ErrCatalog.
	Worker func(files map[string]string) (Worker, error)
}

// Try tries one message, which is kept, or which the request brings. The error is one of the package's, or the store's.
func (d *Trials) Try(ctx context.Context, _ audit.Author, in Try) (Trial, error) {
	brought := in.Message
	if brought == nil && in.Body != nil {
		brought = &GivenMessage{TriedMessage: TriedMessage{Data: in.Body}}
	}
	if brought != nil {
		in.Queue = cmp.Or(in.Queue, brought.Queue)
	}
	whole := brought != nil && in.Queue != "" && in.Tenant == "" && (brought.Data != nil || brought.Base64 != nil)
	if whole == (in.EventID != "") || !whole && brought != nil {
		return Trial{}, console.Refuse(console.Malformed, "body_malformed",
			"Name an event_id, or a queue and a message or a body for it. A dead letter has its message where its payload is shown.")
	}
	worker, err := d.Worker(in.Catalog)
	if err != nil {
		return Trial{}, err
	}
	if in.Queue != "" {
		q, ok := worker.Queue(in.Queue)
		if !ok {
			return Trial{}, ErrNoQueue
		}
		in.Queue = q.ID
	}
	if brought == nil {
		found, err := d.find(ctx, worker, in)
		if err != nil {
			return Trial{}, err
		}
		return worker.Try(ctx, found)
	}
	m := Message{Message: contract.Message{Data: brought.Data, Attributes: brought.Attributes, OrderingKey: brought.OrderingKey}, Queue: in.Queue, ID: "trial", PublishedAt: d.Now()}
	if brought.Base64 != nil {
		m.Data = brought.Base64
	}
	return worker.Try(ctx, m)
}

// most bounds the documents of one event that are read in each collection.
const most = 100

// candidate is a message that is kept of an event, and how gladly it is tried: the lowest first.
type candidate struct {
	message Message
	tenant  string
	rank    int
	at      time.Time
}

// find finds the kept message of an event: its open dead letter, else what waits, else what a worker has in hand, else a
// dead letter that is closed; of several, the newest.
func (d *Trials) find(ctx context.Context, worker Worker, asked Try) (Message, error) {
	equal := map[string]any{"event_id": asked.EventID}
	if asked.Queue != "" {
		equal["queue"] = asked.Queue
	}
	var found []candidate
	for collection, read := range map[string]func(Worker, store.Document) (candidate, bool, error){
		deadletter.Collection: deadLetterOf, lane.Delayed.Entries(): delayedOf, dedupe.Collection: claimedOf,
	} {
		page, err := d.Store.Query(ctx, store.Query{Collection: collection, Equal: equal, Limit: most})
		if err != nil {
			return Message{}, err
		}
		for _, doc := range page.Documents {
			c, kept, err := read(worker, doc)
			if err != nil {
				return Message{}, err
			}
			if kept && (asked.Tenant == "" || c.tenant == asked.Tenant) {
				found = append(found, c)
			}
		}
	}
	if len(found) == 0 {
		return Message{}, ErrNotKept
	}
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.rank, b.rank), b.at.Compare(a.at)) })
	for _, c := range found {
		if c.message.Queue != found[0].message.Queue || c.tenant != found[0].tenant {
			return Message{}, ErrSeveral
		}
	}
	return found[0].message, nil
}

func deadLetterOf(worker Worker, doc store.Document) (candidate, bool, error) {
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

func replayOf(worker Worker, item deadletter.Item) (Message, error) {
	q, known := worker.Queue(item.Queue)
	switch {
	case !known:
		return Message{}, ErrNoQueue
	case len(item.Data) == 0:
		return Message{}, ErrNotKept
	}
	return Message{Message: item.Replay(q), Queue: item.Queue, ID: "trial", PublishedAt: item.Died(), From: From{DeadLetter, item.ID}}, nil
}

func delayedOf(_ Worker, doc store.Document) (candidate, bool, error) {
	kept, err := lane.KeptOf(doc)
	if err != nil || kept.Emitted {
		return candidate{}, false, err
	}
	m := Message{Message: kept.Message, Queue: kept.Queue, ID: "trial", PublishedAt: kept.CreatedAt, From: From{Delayed, doc.Key.ID}}
	return candidate{message: m, tenant: cmp.Or(kept.Tenant, dedupe.DefaultTenant), rank: 1, at: kept.CreatedAt}, true, nil
}

func claimedOf(_ Worker, doc store.Document) (candidate, bool, error) {
	record, err := dedupe.FromDocument(doc)
	if err != nil || record.Message == nil {
		return candidate{}, false, err
	}
	m := Message{Message: *record.Message, Queue: record.Queue, ID: "trial", PublishedAt: record.CreatedAt, From: From{Claimed, doc.Key.ID}}
	return candidate{message: m, tenant: record.Tenant, rank: 2, at: record.UpdatedAt}, true, nil
}

// Worker tries messages.
type Worker interface {
	// Queue finds a queue of the worker's catalog by id or alias.
	Queue(name string) (catalog.Queue, bool)
	// Try says what the worker would do of a message, were it delivered now and first of its key. The error is ErrNoQueue, or
	// says that this is not known now.
	Try(ctx context.Context, m Message) (Trial, error)
}

// The errors. Any other says that nothing is known now.
var (
	// ErrNoQueue: the worker has no such queue, or the queue is not enabled.
	ErrNoQueue = errors.New("dryrun: no such queue runs")
	// ErrCatalog is wrapped where no worker takes the files that were given; the text lists the mistakes.
	ErrCatalog = errors.New("the worker would refuse this catalog")
	// ErrNotKept: no payload of the event is kept.
	ErrNotKept = errors.New("dryrun: no payload is kept")
	// ErrSeveral: payloads of several queues or tenants are kept under the event id.
	ErrSeveral = errors.New("dryrun: several queues or tenants")
)

// Message is a message to try.
type Message struct {
	contract.Message
	Queue       string
	ID          string // the broker's, of the message as it was delivered first
	PublishedAt time.Time
	// From is where it is kept.
	From From
}

// From is where a message is kept. The zero From is that of a message that somebody brings.
type From struct {
	Kind Kind   `json:"kind,omitempty"`
	ID   string `json:"id,omitempty"` // of the document
}

func (f From) String() string { return strings.TrimSpace(string(f.Kind) + " " + f.ID) }

// Kind is a kind of kept message.
type Kind string

// The kinds.
const (
	// DeadLetter is tried as its replay would be.
	DeadLetter Kind = "dead_letter"
	// Delayed waits for its next attempt, for its time, or behind another of its key.
	Delayed Kind = "delayed"
	// Claimed is in the record of an event that a worker has in hand.
	Claimed Kind = "claimed"
)

// Calls is the outcome of a message whose handler calls another service, which decides what becomes of it.
const Calls retry.Outcome = "calls"

// Trial is what would be done of a message.
type Trial struct {
	EventID     string `json:"event_id" show:"Event"`
	Queue       string `json:"queue" show:"Queue"`
	Tenant      string `json:"tenant" show:"Tenant"`
	EventType   string `json:"event_type" show:"Type"`
	OrderingKey string `json:"ordering_key" show:"Ordering key"`
	// From is where the message is kept.
	From From `json:"from,omitzero" show:"Kept as"`
	// Handler is the handler's name in the catalog; empty: none was reached.
	Handler string `json:"handler" show:"Handler"`
	// Attempt is which of the event's attempts it would be; 0: it would be none.
	Attempt int `json:"attempt" show:"Attempt"`
	// Outcome is what would become of the message, and Status the class of its answer.
	Outcome retry.Outcome `json:"outcome" show:"Would be"`
	Status  int           `json:"status" show:"Answer"`
	// Reason is the code of a failure, or of why nothing is to be done; Result that of what would have been done.
	Reason string `json:"reason" show:"Reason"`
	Detail string `json:"detail,omitempty" show:"Detail"`
	Result string `json:"result" show:"Result"`
	// Ref is the id of what the event would make, or has made, such as an entry of the books.
	Ref string `json:"ref,omitempty" show:"Makes"`
	// Tries is how often the handler was asked: again after each conflict with what is stored.
	Tries  int            `json:"tries"`
	Writes []Change       `json:"writes" show:"Writes"`
	Emits  []Emission     `json:"emits" show:"Emits"`
	Calls  []handler.Call `json:"calls" show:"Calls"`
}

// Would says in a few words what would become of the message.
func (t Trial) Would() string {
	text := string(t.Outcome)
	if t.Outcome == Calls {
		text = "decided by the service that is called"
	}
	if t.Reason != "" {
		text += fmt.Sprintf(" (%d %s)", t.Status, t.Reason)
	}
	return strings.TrimSuffix(text+": "+t.Result, ": ")
}

// Notes say it too.
func (t Trial) Notes() []string { return []string{"It would be " + t.Would() + "."} }
