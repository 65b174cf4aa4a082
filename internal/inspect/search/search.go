// Package search shows what an id leads to, of whatever kind, and all that has come of one customer. It finds
// both by keys and indexes, and changes nothing.
package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/products"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Reads reads what is found, from what is shown of events.
type Reads struct{ events.Reads }

// Kind is what a search has found.
type Kind string

// The kinds.
const (
	KindQueue        Kind = "queue"
	KindEvent        Kind = "event"
	KindDeadLetter   Kind = "dead_letter"
	KindOperation    Kind = "operation"
	KindOrder        Kind = "order"
	KindRefund       Kind = "refund"
	KindCustomer     Kind = "customer"
	KindAccount      Kind = "account"
	KindEntry        Kind = "entry"
	KindSubscription Kind = "subscription"
	KindProduct      Kind = "product"
	KindStock        Kind = "stock"
	KindEndpoint     Kind = "endpoint"
)

// Search is what an id leads to.
type Search struct {
	Query string `json:"query" show:"Id"`
	// Items are what it leads to, each once, in the order of what was looked through.
	Items []Found `json:"items" show:"Found"`
	// More are the kinds of which there may be more: what has many documents may have filled a list alone.
	More []Kind `json:"more"`
}

// Found is one thing that an id leads to.
type Found struct {
	Kind   Kind   `json:"kind" show:"Kind"`
	ID     string `json:"id" show:"Id" link:"path"`
	Label  string `json:"label" show:"State"`
	Queue  string `json:"queue,omitempty" show:"Queue,less"`
	Tenant string `json:"tenant,omitempty" show:"Tenant,less"`
	// How it was found, the first way where there are several.
	How  string `json:"how" show:"Found by,less"`
	Path string `json:"path" show:"Shown by,address"`
}

// Paths are the addresses that show what is of a kind, up to its id.
var Paths = map[Kind]string{
	KindQueue: "queues/", KindEvent: "events/", KindDeadLetter: "dead-letters/", KindOperation: "operations/",
	KindOrder:  "orders/",
	KindRefund: "refunds/", KindCustomer: "customers/", KindAccount: "accounts/", KindEntry: "journal/entries/",
	KindSubscription: "subscriptions/", KindProduct: "products/", KindStock: "stock/",
	KindEndpoint: "endpoints/",
}

func (f Found) path() string {
	query := url.Values{}
	if f.Kind == KindEvent && f.Queue != "" {
		query.Set("queue", f.Queue)
	}
	ofAll := []Kind{KindQueue, KindDeadLetter, KindOperation, KindEndpoint} // their ids are of all tenants
	if f.Tenant != "" && !slices.Contains(ofAll, f.Kind) {
		query.Set("tenant", f.Tenant)
	}
	return strings.TrimSuffix("/v1/ops/"+Paths[f.Kind]+url.PathEscape(f.ID)+"?"+query.Encode(), "?")
}

const foundAtMost = 10

const maxSearched = 1000

// Wanted asks what an id leads to.
type Wanted struct {
	Query  string `json:"-" query:"q" arg:"" help:"id"`
	Tenant string `json:"-" query:"tenant" validate:"omitempty,id" help:"only what belongs to this tenant"`
}

// Operations are the search for an id of any kind, and what has come of a customer.
func (a Reads) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "search", Path: "GET /v1/ops/search",
			Summary: "Find everything that has an id, and the command that shows it",
			Help: "It takes the id of an event, an order, a customer, a user, an account, a subscription, a " +
				"payment, an entry of the\n" +
				"books, a dead letter, an operation, an endpoint or a product, and a correlation id, an ordering key " +
				"or an idempotency\n" +
				"key. Space and quotes around it are left out. Of each kind at most ten are shown.",
		}, a.search),
		console.New(console.Row{
			Name: "customers activity", Path: "GET /v1/ops/customers/{id}/activity", Errors: ledger.Failures,
			Summary: "Show everything about a customer: points, events, orders, refunds, subscriptions and " +
				"dead letters",
			Help: "It shows at most 50 of each kind.",
		}, a.activity),
	}
}

func pasted(text string) (string, error) {
	id := strings.TrimFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune("\"'`“”„‘’«»<>,;", r)
	})
	code, detail := "", ""
	switch {
	case id == "":
		code, detail = "search_empty", "Say q= with an id of any kind."
	case len(id) > maxSearched:
		code, detail = "search_too_long", fmt.Sprintf("No id is longer than %d bytes.", maxSearched)
	case !utf8.ValidString(id) || audit.Escape(id) != id:
		code, detail = "search_invalid", "No id has a control character."
	case strings.ContainsFunc(id, unicode.IsSpace):
		code, detail = "search_invalid", "Search for one id at a time: no id has a space in it."
	default:
		return id, nil
	}
	return "", console.Refuse(console.Malformed, code, detail)
}

// Notes say what is not shown.
func (s Search) Notes() (notes []string) {
	if len(s.Items) == 0 {
		notes = append(notes, "Nothing has this id: "+s.Query)
	}
	for _, kind := range s.More {
		notes = append(notes, "There may be more of the kind "+words(string(kind))+" than are shown.")
	}
	return notes
}

func (a Reads) search(ctx context.Context, _ audit.Author, in Wanted) (Search, error) {
	id, err := pasted(in.Query)
	if err != nil {
		return Search{}, err
	}
	places := a.searched(id, in.Tenant)
	found, more := make([][]Found, len(places)), make([]bool, len(places))
	err = store.AtOnce(ctx, len(places), func(ctx context.Context, i int) (err error) {
		if found[i], more[i], err = places[i].look(ctx); err != nil {
			return fmt.Errorf("ops: search by %s: %w", places[i].how, err)
		}
		return nil
	})
	if err != nil {
		return Search{}, err
	}
	done := Search{Query: id, Items: []Found{}, More: []Kind{}}
	for i, place := range places {
		for _, item := range found[i] {
			item.Kind, item.How = place.kind, place.how
			item.Path = cmp.Or(item.Path, item.path())
			if !slices.ContainsFunc(done.Items, func(other Found) bool { return other.Path == item.Path }) {
				done.Items = append(done.Items, item)
			}
		}
		if more[i] && !slices.Contains(done.More, place.kind) {
			done.More = append(done.More, place.kind)
		}
	}
	return done, nil
}

type searched struct {
	kind Kind
	how  string
	look look
}

type look func(context.Context) (found []Found, more bool, err error)

// describe reads a document that was found. ok is false for one that is nothing of the kind.
type describe func(store.Document) (f Found, ok bool)

func (a Reads) searched(id, tenant string) []searched {
	s := searching{a, id, tenant}
	dead, order, refund := fields("", "reason", "state"), fields("order_id", "state", "reason"),
		fields("payment_id", "state", "reason")
	events, usages := fields("subscription_id"), fields("subscription")
	return []searched{
		{KindQueue, "id or alias", s.queue},
		{KindEvent, "event id", s.equal(dedupe.Collection, "event_id", describeEvent)},
		{
			KindEvent, "event id, waiting for its attempt", s.equal(lane.Delayed.Entries(), "event_id",
				a.describeKept),
		},
		{
			KindEvent, "event id, waiting to be published late", s.equal(lane.Delayed.Entries(), "emits",
				a.describeKept),
		},
		{KindEvent, "event id, waiting to be published", s.equal(lane.Outbox.Entries(), "emits", a.describeKept)},
		{KindEvent, "correlation id, the newest", s.newest("correlation_id")},
		{KindEvent, "ordering key, the newest", s.newest("ordering_key")},
		{KindEvent, "idempotency key", s.equal(dedupe.Collection, "idempotency_key", describeEvent)},
		{KindDeadLetter, "id", s.key(store.Key{Collection: deadletter.Collection, ID: id}, dead)},
		{KindDeadLetter, "event id", s.equal(deadletter.Collection, "event_id", dead)},
		{KindDeadLetter, "ordering key", s.equal(deadletter.Collection, "ordering_key", dead)},
		{KindDeadLetter, "message id", s.equal(deadletter.Collection, "source_message_id", dead)},
		{KindOperation, "id", s.operation},
		{KindOrder, "id", s.equal(orders.Collection, "order_id", order)},
		{KindOrder, "user", s.equal(orders.Collection, "user_id", order)},
		{KindOrder, "payment", s.equal(orders.Collection, "payment_id", order)},
		{KindRefund, "payment", s.equal(payments.RefundsCollection, "payment_id", refund)},
		{KindRefund, "subscription", s.equal(payments.RefundsCollection, "subscription_id", refund)},
		{KindCustomer, "id", s.equal(customers.Collection, "customer_id", describeCustomer)},
		{KindCustomer, "user", s.equal(customers.Collection, "uid", describeCustomer)},
		{KindAccount, "name", s.account(ledger.Account(id))},
		{KindAccount, "user", s.account(ledger.UserPoints(id))},
		{KindAccount, "customer", s.account(ledger.CustomerPoints(id))},
		{KindAccount, "name in the journal, this month and the last", s.control},
		{KindEntry, "id", s.key(ledger.Key(id), fields("", "kind", "period"))},
		{KindEntry, "event id", s.equal(ledger.Entries, "event_id", fields("", "kind", "period"))},
		{KindEntry, "order whose points it moves", s.equal(ledger.Entries, "order", fields("", "kind", "period"))},
		{KindSubscription, "id, in its events", s.equal(subscriptions.Collection, "subscription_id", events)},
		{KindSubscription, "id, in its periods", s.equal(usage.PeriodsCollection, "subscription", usages)},
		{KindSubscription, "id, in its usage", s.equal(usage.Collection, "subscription", usages)},
		{KindSubscription, "customer", s.equal(subscriptions.Collection, "customer_id", events)},
		{KindSubscription, "user", s.equal(subscriptions.Collection, "uid", events)},
		{KindProduct, "id", s.product},
		{KindStock, "product", s.equal(orders.StockCollection, "product_id", describeStock)},
		{KindEndpoint, "id", s.key(endpoints.Key(id), fields("endpoint_id", "state", "reason"))},
	}
}

type searching struct {
	Reads

	id, tenant string
}

func (s searching) equal(collection, field string, describe describe) look {
	return func(ctx context.Context) (found []Found, more bool, err error) {
		page, err := s.Store.Query(ctx, store.Query{
			Collection: collection, Equal: store.Equals(field, s.id, "tenant", s.tenant), Limit: foundAtMost,
		})
		if errors.Is(err, store.ErrInvalid) { // nothing has such an id
			return nil, false, nil
		}
		return s.describe(page.Documents, describe), !page.Next.IsZero(), err
	}
}

func (s searching) account(name ledger.Account) look {
	s.id = string(name)
	return s.equal(ledger.Accounts, "account", describeAccount)
}

func (s searching) key(key store.Key, describe describe) look {
	return func(ctx context.Context) ([]Found, bool, error) {
		doc, err := store.Find(ctx, s.Store, key)
		if err != nil || doc.Version == 0 {
			return nil, false, err
		}
		return s.describe([]store.Document{doc}, describe), false, nil
	}
}

func (s searching) describe(documents []store.Document, describe describe) (found []Found) {
	for _, doc := range documents {
		if f, ok := describe(doc); ok && (s.tenant == "" || f.Tenant == "" || f.Tenant == s.tenant) {
			found = append(found, f)
		}
	}
	return found
}

func (s searching) newest(field string) look {
	return func(ctx context.Context) (found []Found, more bool, err error) {
		records, last, err := dedupe.List(ctx, s.Store,
			dedupe.Listing{Equal: store.Equals(field, s.id, "tenant", s.tenant), Limit: foundAtMost})
		for _, r := range records {
			found = append(found, eventFound(r))
		}
		return found, !last.IsZero(), err
	}
}

func (s searching) queue(context.Context) ([]Found, bool, error) {
	q, ok := s.Catalog.Queue(s.id)
	if !ok {
		return nil, false, nil
	}
	return []Found{{ID: q.ID, Label: map[bool]string{true: "runs", false: "off"}[q.Enabled]}}, false, nil
}

func (s searching) operation(ctx context.Context) ([]Found, bool, error) {
	op, err := (&bulk.Operator{Store: s.Store}).Operation(ctx, s.id)
	if errors.Is(err, bulk.ErrUnknown) {
		return nil, false, nil
	}
	return []Found{{ID: op.ID, Label: words(string(op.Kind), string(op.Progress)), Queue: op.Filter.Queue}},
		false, err
}

// control looks for an account that the books keep by months, and that has no document. Where no journal
// runs, entries have no index for it.
func (s searching) control(ctx context.Context) (found []Found, more bool, err error) {
	if ledger.Control(s.id) != s.id || !s.Catalog.KeepsJournal() {
		return nil, false, nil
	}
	tenant, now := cmp.Or(s.tenant, dedupe.DefaultTenant), s.Now().UTC()
	for _, month := range []string{ledger.PeriodOf(now), ledger.PeriodOf(now.AddDate(0, 0, -now.Day()))} {
		page, err := s.Store.Query(ctx, store.Query{
			Collection: ledger.Entries,
			Contains:   map[string]string{ledger.FieldPostings: ledger.PostingKey(tenant, month, s.id)}, Limit: 1,
		})
		if err != nil {
			return nil, false, err
		}
		if len(page.Documents) > 0 {
			query := url.Values{"account": {s.id}, "period": {month}, "tenant": {tenant}}
			path := "/v1/ops/journal/entries?" + query.Encode()
			return []Found{{ID: s.id, Label: "of the journal, in " + month, Tenant: tenant, Path: path}}, false, nil
		}
	}
	return nil, false, nil
}

func (s searching) product(ctx context.Context) ([]Found, bool, error) {
	found, more, err := s.equal(products.Collection, "product_id", fields("product_id", "state"))(ctx)
	if _, known := s.Catalog.Products[s.id]; known && len(found) == 0 {
		found = append(found, Found{ID: s.id, Label: "of the catalog", Tenant: s.tenant})
	}
	return found, more, err
}
