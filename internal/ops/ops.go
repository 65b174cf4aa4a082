// Package ops owns what people ask of a running worker, and who may: the story of an
// event, queues and job log, balances, products, and what is done to dead letters, whose
// minimized payloads it shows. Else it refuses to show more than ids, codes, amounts and times,
// and to answer anyone it does not know.
package ops

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/catalog"
	"billhook/internal/customers"
	"billhook/internal/deadletter"
	"billhook/internal/dedupe"
	"billhook/internal/lane"
	"billhook/internal/ledger"
	"billhook/internal/pii"
	"billhook/internal/products"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// Store is what the answers are read from.
type Store interface {
	// Get returns the document, or an error wrapping store.ErrNotFound.
	Get(ctx context.Context, key store.Key) (store.Document, error)
	// Query returns one page of documents in the order of their ids.
	Query(ctx context.Context, query store.Query) (store.Page, error)
	// Commit applies all writes or none; see the store package for the errors.
	Commit(ctx context.Context, writes []store.Write) ([]store.Version, error)
}

// API answers /v1/ops.
type API struct {
	Store   Store
	Catalog *catalog.Catalog
	Access  Access
	Log     *slog.Logger
	// Operator deals with dead letters.
	Operator *deadletter.Operator
	// Customers deals with the mapping of customers to users.
	Customers *customers.Operator
	// Products shows and changes what products are worth.
	Products *products.Keeper
	Now      func() time.Time
}

// Routes adds the API's routes.
func (a *API) Routes(r chi.Router) {
	r.Route("/v1/ops", func(r chi.Router) {
		r.Use(sameOrigin, a.Access.require)
		r.Get("/queues", a.queues)
		r.Get("/outbox", a.outbox)
		r.Get("/events", a.events)
		r.Post("/cleanup", a.cleanup)
		r.Get("/events/{event_id}", a.event)
		r.Get("/accounts/{account}", a.account)
		a.deadLetterRoutes(r)
		a.customerRoutes(r)
		a.productRoutes(r)
	})
}

// Event is the story of one event as far as it is stored.
type Event struct {
	EventID   string `json:"event_id"`
	EventType string `json:"event_type"`
	// Action is the job log's word for the type.
	Action        string `json:"action"`
	Queue         string `json:"queue"`
	Tenant        string `json:"tenant"`
	Status        string `json:"status"`
	Attempts      int64  `json:"attempts"`
	PayloadHash   string `json:"payload_hash"`
	Result        string `json:"result"`
	Reason        string `json:"reason"`
	CorrelationID string `json:"correlation_id"`
	// IdempotencyKey names what the message was made from; else it is the event's id.
	IdempotencyKey string     `json:"idempotency_key"`
	OrderingKey    string     `json:"ordering_key"`
	MessageID      string     `json:"message_id"`
	LeaseUntil     *time.Time `json:"lease_until,omitempty"`
	NextRetryAt    *time.Time `json:"next_retry_at,omitempty"`
	CreatedAt      *time.Time `json:"created_at,omitempty"`
	UpdatedAt      *time.Time `json:"updated_at,omitempty"`
	ProcessedAt    *time.Time `json:"processed_at,omitempty"`
	// Emitted are the event ids of the messages that the event's effect emitted;
	// Waiting is how many of them are in the outbox still.
	Emitted     []string     `json:"emitted"`
	Waiting     int          `json:"waiting"`
	Conflicts   []Conflict   `json:"conflicts"`
	DeadLetters []DeadLetter `json:"dead_letters"`
	// More reports whether there are more of these than are shown.
	More bool `json:"more"`
}

// Conflict is a message that came under the event's id and is not that event: it
// had another payload, or was broken.
type Conflict struct {
	Queue       string `json:"queue"`
	Status      string `json:"status"`
	Reason      string `json:"reason"`
	PayloadHash string `json:"payload_hash"`
	MessageID   string `json:"message_id"`
}

// DeadLetter is one stored dead letter of the event.
type DeadLetter struct {
	Queue           string `json:"queue"`
	Reason          string `json:"reason"`
	Status          int64  `json:"status"`
	Detail          string `json:"detail"`
	Attempts        int64  `json:"attempts"`
	SourceMessageID string `json:"source_message_id"`
	// State is open, replayed, corrected or discarded; CorrectedBy the message that took its place.
	State          string     `json:"state"`
	CorrectedBy    string     `json:"corrected_by,omitempty"`
	DeadLetteredAt *time.Time `json:"dead_lettered_at,omitempty"`
}

// most bounds how many documents of one event are looked at.
const most = 100

func (a *API) event(w http.ResponseWriter, r *http.Request) {
	id := param(r, "event_id")
	if !pii.ID.Valid(id) {
		serve.WriteProblem(w, http.StatusBadRequest, "event_id_invalid", "An event id has letters, digits and . _ : - only.")
		return
	}
	asked, letters := map[string]any{"event_id": id}, map[string]any{"event_id": id}
	if name := r.URL.Query().Get("queue"); name != "" {
		q, ok := a.Catalog.Queue(name)
		if !ok {
			serve.WriteProblem(w, http.StatusNotFound, "queue_unknown", "The catalog has no queue of that name or alias.")
			return
		}
		asked["queue"], letters["queue"] = q.ID, q.ID
	}
	if tenant := r.URL.Query().Get("tenant"); tenant != "" {
		if !pii.ID.Valid(tenant) {
			serve.WriteProblem(w, http.StatusBadRequest, "tenant_invalid", "A tenant has letters, digits and . _ : - only.")
			return
		}
		asked["tenant"] = tenant
	}
	records, err := a.Store.Query(r.Context(), store.Query{Collection: dedupe.Collection, Equal: asked, Limit: most})
	if err != nil {
		a.down(w, r, err)
		return
	}
	dead, err := a.Store.Query(r.Context(), store.Query{Collection: deadletter.Collection, Equal: letters, Limit: most})
	if err != nil {
		a.down(w, r, err)
		return
	}
	event, err := story(id, records.Documents, dead.Documents)
	if err == nil && len(event.Emitted) > 0 {
		waiting, failed := a.Store.Query(r.Context(), store.Query{Collection: lane.Outbox.Entries(), Equal: asked, Limit: most})
		event.Waiting, err = len(waiting.Documents), failed
	}
	switch {
	case errors.Is(err, errSeveral):
		serve.WriteProblem(w, http.StatusConflict, "queue_needed", "Several queues or tenants know this event id; name one with ?queue= or ?tenant=.")
		return
	case errors.Is(err, errUnknown):
		serve.WriteProblem(w, http.StatusNotFound, "event_unknown", "No worker has recorded an event of that id, or its record has expired.")
		return
	case err != nil:
		a.down(w, r, err)
		return
	}
	event.More = records.Next != "" || dead.Next != ""
	serve.WriteJSON(w, http.StatusOK, event)
}

// param is a part of the path as it was meant: chi leaves one escaped whose escaping
// was more than it needed.
func param(r *http.Request, name string) string {
	value := chi.URLParam(r, name)
	if r.URL.RawPath != "" {
		if meant, err := url.PathUnescape(value); err == nil {
			return meant
		}
	}
	return value
}

var (
	errUnknown = errors.New("ops: nothing is stored under this event id")
	errSeveral = errors.New("ops: several queues or tenants know this event id")
)

// story puts together what is stored under an event id.
func story(id string, records, letters []store.Document) (Event, error) {
	event := Event{EventID: id, Emitted: []string{}, Conflicts: []Conflict{}, DeadLetters: []DeadLetter{}}
	for _, doc := range records {
		record, err := dedupe.FromDocument(doc)
		if err != nil {
			return Event{}, err
		}
		if event.Queue == "" {
			event.Queue, event.Tenant = record.Queue, record.Tenant
		}
		if event.Queue != record.Queue || event.Tenant != record.Tenant {
			return Event{}, errSeveral
		}
		if doc.Key == dedupe.Key(record.Queue, record.Tenant, record.EventID) {
			describe(&event, record)
			continue
		}
		event.Conflicts = append(event.Conflicts, Conflict{
			Queue: record.Queue, Status: string(record.Status), Reason: record.LastError,
			PayloadHash: record.PayloadHash, MessageID: record.MessageID,
		})
	}
	for _, doc := range letters {
		letter := describeLetter(doc)
		if event.Queue == "" {
			event.Queue = letter.Queue
		}
		if event.Queue != letter.Queue {
			return Event{}, errSeveral
		}
		event.DeadLetters = append(event.DeadLetters, letter)
	}
	switch {
	case event.Status != "":
	case len(event.Conflicts) > 0: // only broken messages came under this id
		first := event.Conflicts[0]
		event.Status, event.Reason, event.PayloadHash, event.MessageID = first.Status, first.Reason, first.PayloadHash, first.MessageID
	case len(event.DeadLetters) > 0: // no worker has ever answered; the broker gave up
		first := event.DeadLetters[0]
		event.Status, event.Reason, event.Attempts, event.MessageID = string(dedupe.DeadLettered), first.Reason, first.Attempts, first.SourceMessageID
	default:
		return Event{}, errUnknown
	}
	return event, nil
}

func describe(event *Event, r dedupe.Record) {
	event.EventType, event.Action, event.Status = r.EventType, r.EventType, string(r.Status)
	event.Attempts, event.PayloadHash = r.Attempts, r.PayloadHash
	event.Result, event.Reason = r.Result, r.LastError
	event.CorrelationID, event.IdempotencyKey = r.CorrelationID, r.IdempotencyKey
	event.OrderingKey, event.MessageID = r.OrderingKey, r.MessageID
	event.LeaseUntil, event.Emitted = moment(r.LeaseUntil), append(event.Emitted, r.Emitted...)
	event.NextRetryAt, event.CreatedAt = moment(r.NextRetryAt), moment(r.CreatedAt)
	event.UpdatedAt, event.ProcessedAt = moment(r.UpdatedAt), moment(r.ProcessedAt)
}

func describeLetter(doc store.Document) DeadLetter {
	text := func(name string) string { value, _ := doc.Fields[name].(string); return value }
	number := func(name string) int64 { value, _ := doc.Fields[name].(int64); return value }
	at, _ := doc.Fields["dead_lettered_at"].(time.Time)
	return DeadLetter{
		Queue: text("queue"), Reason: text("reason"), Status: number("status"), Detail: text("detail"),
		Attempts: number("attempts"), SourceMessageID: text("source_message_id"), DeadLetteredAt: moment(at),
		State: text("state"), CorrectedBy: text("corrected_by"),
	}
}

func moment(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// Account is one account of the ledger with its newest known balance.
type Account struct {
	Account  string         `json:"account"`
	Currency string         `json:"currency"`
	Balance  int64          `json:"balance"`
	Entries  []ledger.Entry `json:"entries"`
	// More reports whether there are more entries than are shown.
	More bool `json:"more"`
}

func (a *API) account(w http.ResponseWriter, r *http.Request) {
	account := ledger.Account(param(r, "account"))
	doc, err := a.Store.Get(r.Context(), account.Key())
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		serve.WriteProblem(w, http.StatusNotFound, "account_unknown", "No entry has moved anything on an account of that name.")
		return
	case err != nil:
		a.down(w, r, err)
		return
	}
	page, err := a.Store.Query(r.Context(), store.Query{
		Collection: ledger.Entries, Equal: map[string]any{"account": string(account)}, Limit: most,
	})
	if err != nil {
		a.down(w, r, err)
		return
	}
	answer := Account{Account: string(account), Entries: []ledger.Entry{}, More: page.Next != ""}
	answer.Currency, _ = doc.Fields["currency"].(string)
	answer.Balance, _ = doc.Fields["balance"].(int64)
	for _, entryDoc := range page.Documents {
		entry, err := ledger.EntryFromDocument(entryDoc)
		if err != nil {
			a.down(w, r, err)
			return
		}
		answer.Entries = append(answer.Entries, entry)
	}
	serve.WriteJSON(w, http.StatusOK, answer)
}

// down answers 503 for a store that did not answer, or not with what we can read:
// never a 4xx.
func (a *API) down(w http.ResponseWriter, r *http.Request, err error) {
	a.Log.LogAttrs(r.Context(), slog.LevelWarn, "ops request failed", slog.String("error", err.Error()))
	w.Header().Set("Retry-After", "5")
	serve.WriteProblem(w, http.StatusServiceUnavailable, "store_unavailable", "The store did not answer; try again.")
}
