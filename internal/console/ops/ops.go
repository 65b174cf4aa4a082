// Package ops is the API for people, and its access control: events, queues, job log, balances,
// customers, products, dead letters and trials. It shows ids, codes, amounts and times alone; the
// minimized payload of a message it shows to somebody who says why, and writes that down first, and
// to whom tries it. It answers known people alone.
package ops

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// Reads reads what the API shows. An error is one of those below, or the store's: then nothing
// is known.
type Reads struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Now     func() time.Time
	// NewID returns a random id, of an entry in the audit.
	NewID func() string
	// Broker is asked what it holds; nil: what a task has counted is shown.
	Broker Broker
	// Viewer shows the subscriptions of paused queues; nil: they cannot be seen from here.
	Viewer pause.Viewer
	// Example makes a body of a format, for an event type or a pattern of them; nil: contracts are
	// shown without one.
	Example func(format, eventType string) ([]byte, error)
	// Deployment is what this worker knows of the deployment; nil: nothing.
	Deployment *Deployment
	// Links lead to where others show more of an event.
	Links Links
}

var errSeveral = errors.New("ops: several queues or tenants know this event id")

const most = 100

// Line is one event in the job log.
type Line struct {
	EventID   string        `json:"event_id" show:"Event" link:"events/{event_id}?queue={queue}"`
	Queue     string        `json:"queue" show:"Queue" link:"queues"`
	Status    dedupe.Status `json:"status" show:"Status"`
	CreatedAt time.Time     `json:"created_at,omitzero" show:"Recorded"`
	EventType string        `json:"event_type" show:"Type,less"`
	// Action is the job log's word for the type.
	Action   string `json:"action"`
	Tenant   string `json:"tenant" show:"Tenant,detail"`
	Attempts int64  `json:"attempts" show:"Attempts,less"`
	Result   string `json:"result" show:"Result,less"`
	Reason   string `json:"reason" show:"Reason,less"`
	// Ref is the id of what the effect made, such as an entry of the books.
	Ref           string `json:"ref,omitempty" show:"Made,detail"`
	CorrelationID string `json:"correlation_id" show:"Correlation id,detail"`
	// IdempotencyKey names the source of the message, or is the event's id.
	IdempotencyKey string    `json:"idempotency_key" show:"Idempotency key,detail"`
	OrderingKey    string    `json:"ordering_key" show:"Ordering key,detail"`
	MessageID      string    `json:"message_id" show:"Message,detail"`
	NextRetryAt    time.Time `json:"next_retry_at,omitzero" show:"Next attempt,less"`
	UpdatedAt      time.Time `json:"updated_at,omitzero"`
	ProcessedAt    time.Time `json:"processed_at,omitzero" show:"Processed,detail"`
}

// Record is the same for all lines of one record, and for no other: the event may have gone on.
func (l Line) Record() string {
	return strings.Join([]string{l.Queue, l.Tenant, l.EventID, strconv.FormatInt(l.CreatedAt.UnixMicro(), 10)}, "~")
}

// List is a page of a list. Next is the parameter page for the next one, with the same filters.
// A short or empty page may have a next one.
type List[Item any] struct {
	Items []Item `json:"items"`
	Next  string `json:"next"`
}

// pageOf is a page with the items, in JSON [] where there are none.
func pageOf[Item any](items []Item, next string) List[Item] {
	return List[Item]{Items: append([]Item{}, items...), Next: next}
}

// Events returns a page of the job log, the newest first, as dedupe.List does.
func (a Reads) Events(ctx context.Context, page dedupe.Listing) ([]Line, store.Cursor, error) {
	found, next, err := dedupe.List(ctx, a.Store, page)
	lines := make([]Line, len(found))
	for i, record := range found {
		lines[i] = line(record)
	}
	return lines, next, err
}

func line(r dedupe.Record) Line {
	return Line{
		EventID: r.EventID, EventType: r.EventType, Action: r.EventType, Queue: r.Queue, Tenant: r.Tenant, Status: r.Status, Attempts: r.Attempts,
		Result: r.Result, Ref: r.Ref, Reason: r.LastError, CorrelationID: r.CorrelationID, IdempotencyKey: r.IdempotencyKey, OrderingKey: r.OrderingKey, MessageID: r.MessageID,
		NextRetryAt: r.NextRetryAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, ProcessedAt: r.ProcessedAt,
	}
}

type parameters struct {
	values url.Values
	bad    *serve.Problem
}

// read reads the parameters of a request. It refuses one that is unknown, repeated or empty: an
// ignored filter shows too much.
func read(r *http.Request, known ...string) *parameters {
	p := &parameters{}
	var err error
	if p.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		p.refuse("query_invalid", "The query string is malformed.")
	}
	for name, given := range p.values {
		switch {
		case !slices.Contains(known, name):
			p.refuse("parameter_unknown", "This takes "+strings.Join(known, ", ")+" and no other parameter.")
		case len(given) != 1 || given[0] == "":
			p.refuse("parameter_invalid", "Give each parameter once, with a value.")
		}
	}
	return p
}

func (p *parameters) refuse(code, detail string) {
	if p.bad == nil {
		p.bad = serve.Refuse(http.StatusBadRequest, code, detail)
	}
}

func (p *parameters) err() error {
	if p.bad == nil {
		return nil
	}
	return p.bad
}

// id is an identifier; empty where there is none.
func (p *parameters) id(name string) string {
	return p.valid(name, pii.ID.Valid, "letters, digits and . _ : - only")
}

func (p *parameters) valid(name string, valid func(string) bool, grammar string) string {
	value := p.values.Get(name)
	if value != "" && !valid(value) {
		p.refuse(name+"_invalid", "The parameter "+name+" has "+grammar+".")
	}
	return value
}

// tenant is the tenant whose things are meant: that of events without one where none is named.
func (p *parameters) tenant() string {
	if p.values.Get("tenant") == "" {
		return dedupe.DefaultTenant
	}
	return p.id("tenant")
}

var statuses = []dedupe.Status{dedupe.Processing, dedupe.Completed, dedupe.Failed, dedupe.DeadLettered}

func (p *parameters) limit(standard, most int) int {
	text := p.values.Get("limit")
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		p.refuse("limit_invalid", "The parameter limit is a number from 1 to "+strconv.Itoa(most)+".")
	}
	return n
}

// Place is where a page of a list begins. The span of time stays that of the first page, from which ages count.
type Place struct {
	store.Cursor

	since, until time.Time
	// newest: the list goes by a time.
	newest bool
}

// page reads the token of a page, or returns first where there is none. It refuses a token of
// another list or of other filters, and one with a place outside them. A token grants nothing.
func (p *parameters) page(list string, first Place) Place {
	text := p.values.Get("page")
	if text == "" {
		return first
	}
	at, ok := parsePlace(text, p.print(list))
	at.newest = first.newest
	switch {
	case !ok, at.At.IsZero() == first.newest,
		at.since.IsZero() != first.since.IsZero(), at.until.IsZero() != first.until.IsZero(),
		at.At.Before(at.since), !at.until.IsZero() && !at.At.Before(at.until):
		p.refuse("page_invalid", "This page token is not of this list with these filters; start again without one.")
	}
	return at
}

// next is the parameter page for the page that begins at the cursor, of the list that the place is in; empty:
// there is none.
func (p *parameters) next(list string, at Place, cursor store.Cursor) string {
	if cursor.IsZero() {
		return ""
	}
	text := fmt.Sprintf("%s|%d|%d|%d|%s", p.print(list), at.since.UnixMicro(), at.until.UnixMicro(), cursor.At.UnixMicro(), cursor.ID)
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func (p *parameters) print(list string) string {
	filters := url.Values{}
	for name, given := range p.values {
		if name != "page" && name != "limit" {
			filters[name] = given
		}
	}
	sum := sha256.Sum256([]byte(list + "?" + filters.Encode()))
	return hex.EncodeToString(sum[:8])
}

// maxToken bounds what is decoded: an id and a little more, in base64.
const maxToken = 2 * store.MaxIDBytes

func parsePlace(text, print string) (Place, bool) {
	if len(text) > maxToken {
		return Place{}, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return Place{}, false
	}
	parts := strings.SplitN(string(raw), "|", 5)
	if len(parts) != 5 || parts[0] != print {
		return Place{}, false
	}
	var times [3]time.Time
	for i := range times {
		micros, err := strconv.ParseInt(parts[i+1], 10, 64)
		if err != nil {
			return Place{}, false
		}
		times[i] = time.UnixMicro(micros).UTC()
	}
	p := Place{since: times[0], until: times[1], Cursor: store.Cursor{At: times[2], ID: parts[4]}} // The store judges the id.
	return p, !p.IsZero()
}
