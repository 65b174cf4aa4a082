// Package ops owns what people ask of a running worker: the story of an event, the
// balance of an account. It refuses to show more than ids, codes, amounts and
// times, and to answer anyone it does not know.
package ops

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/catalog"
	"billhook/internal/deadletter"
	"billhook/internal/dedupe"
	"billhook/internal/ledger"
	"billhook/internal/pii"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// Store is what the answers are read from.
type Store interface {
	// Get returns the document, or an error wrapping store.ErrNotFound.
	Get(ctx context.Context, key store.Key) (store.Document, error)
	// Query returns one page of documents in the order of their ids.
	Query(ctx context.Context, query store.Query) (store.Page, error)
}

// API answers /v1/ops.
type API struct {
	Store   Store
	Catalog *catalog.Catalog
	Access  Access
	Log     *slog.Logger
}

// Routes adds the API's routes.
func (a *API) Routes(r chi.Router) {
	r.Route("/v1/ops", func(r chi.Router) {
		r.Use(a.Access.require)
		r.Get("/events/{event_id}", a.event)
		r.Get("/accounts/{account}", a.account)
	})
}

// Event is the story of one event as far as it is stored.
type Event struct {
	EventID       string       `json:"event_id"`
	EventType     string       `json:"event_type"`
	Queue         string       `json:"queue"`
	Tenant        string       `json:"tenant"`
	Status        string       `json:"status"`
	Attempts      int64        `json:"attempts"`
	PayloadHash   string       `json:"payload_hash"`
	Result        string       `json:"result"`
	Reason        string       `json:"reason"`
	CorrelationID string       `json:"correlation_id"`
	OrderingKey   string       `json:"ordering_key"`
	MessageID     string       `json:"message_id"`
	NextRetryAt   *time.Time   `json:"next_retry_at,omitempty"`
	CreatedAt     *time.Time   `json:"created_at,omitempty"`
	UpdatedAt     *time.Time   `json:"updated_at,omitempty"`
	ProcessedAt   *time.Time   `json:"processed_at,omitempty"`
	Conflicts     []Conflict   `json:"conflicts"`
	DeadLetters   []DeadLetter `json:"dead_letters"`
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
	Queue           string     `json:"queue"`
	Reason          string     `json:"reason"`
	Status          int64      `json:"status"`
	Detail          string     `json:"detail"`
	Attempts        int64      `json:"attempts"`
	SourceMessageID string     `json:"source_message_id"`
	DeadLetteredAt  *time.Time `json:"dead_lettered_at,omitempty"`
}

// most bounds how many documents of one event are looked at.
const most = 100

func (a *API) event(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "event_id")
	if !pii.ID.Valid(id) {
		serve.WriteProblem(w, http.StatusBadRequest, "event_id_invalid", "An event id has letters, digits and . _ : - only.")
		return
	}
	equal := map[string]any{"event_id": id}
	if name := r.URL.Query().Get("queue"); name != "" {
		q, ok := a.Catalog.Queue(name)
		if !ok {
			serve.WriteProblem(w, http.StatusNotFound, "queue_unknown", "The catalog has no queue of that name or alias.")
			return
		}
		equal["queue"] = q.ID
	}
	records, err := a.Store.Query(r.Context(), store.Query{Collection: dedupe.Collection, Equal: equal, Limit: most})
	if err != nil {
		a.down(w, r, err)
		return
	}
	event, found := Event{Conflicts: []Conflict{}, DeadLetters: []DeadLetter{}}, false
	for _, doc := range records.Documents {
		record, err := dedupe.FromDocument(doc)
		if err != nil {
			a.down(w, r, err)
			return
		}
		if doc.Key != dedupe.Key(record.Queue, record.Tenant, record.EventID) {
			event.Conflicts = append(event.Conflicts, Conflict{
				Queue: record.Queue, Status: string(record.Status), Reason: record.LastError,
				PayloadHash: record.PayloadHash, MessageID: record.MessageID,
			})
			continue
		}
		if found {
			serve.WriteProblem(w, http.StatusConflict, "queue_needed", "Several queues or tenants know this event id; name the queue with ?queue=.")
			return
		}
		found = true
		describe(&event, record)
	}
	if !found && len(event.Conflicts) == 0 {
		serve.WriteProblem(w, http.StatusNotFound, "event_unknown", "No worker has recorded an event of that id, or its record has expired.")
		return
	}
	if !found {
		// Only broken messages came under this id.
		first := event.Conflicts[0]
		event.EventID, event.Queue, event.Status, event.Reason = id, first.Queue, first.Status, first.Reason
		event.PayloadHash, event.MessageID = first.PayloadHash, first.MessageID
	}
	letters, err := a.Store.Query(r.Context(), store.Query{Collection: deadletter.Collection, Equal: equal, Limit: most})
	if err != nil {
		a.down(w, r, err)
		return
	}
	for _, doc := range letters.Documents {
		event.DeadLetters = append(event.DeadLetters, describeLetter(doc))
	}
	serve.WriteJSON(w, http.StatusOK, event)
}

func describe(event *Event, r dedupe.Record) {
	event.EventID, event.EventType, event.Queue, event.Tenant = r.EventID, r.EventType, r.Queue, r.Tenant
	event.Status, event.Attempts, event.PayloadHash = string(r.Status), r.Attempts, r.PayloadHash
	event.Result, event.Reason = r.Result, r.LastError
	event.CorrelationID, event.OrderingKey, event.MessageID = r.CorrelationID, r.OrderingKey, r.MessageID
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
}

func (a *API) account(w http.ResponseWriter, r *http.Request) {
	account := ledger.Account(chi.URLParam(r, "account"))
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
	answer := Account{Account: string(account), Entries: []ledger.Entry{}}
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

// down answers 503 for a store that did not answer, which is never a 4xx.
func (a *API) down(w http.ResponseWriter, r *http.Request, err error) {
	a.Log.LogAttrs(r.Context(), slog.LevelWarn, "ops request failed", slog.String("error", err.Error()))
	w.Header().Set("Retry-After", "5")
	serve.WriteProblem(w, http.StatusServiceUnavailable, "store_unavailable", "The store did not answer; try again.")
}
