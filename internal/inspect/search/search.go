// Package search finds everything that has a given id, of any kind, and shows everything about one customer.
// It reads by keys and indexes, and changes nothing.
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

// Reads performs searches, on top of the reads for events.
type Reads struct{ events.Reads }

// Kind is the kind of a thing that was found.
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

// Search is the result of a search for an id.
type Search struct {
	Query string `json:"query" show:"Id"`
	// Items are the things that were found, each once, in the order of the places that were searched.
	Items []Found `json:"items" show:"Found"`
	// More has the complete list of each place of which the Items show only a part.
	More []Found `json:"more" show:"More than is shown"`
}

// Found is one thing that has the id, or belongs to it.
type Found struct {
	Kind   Kind   `json:"kind" show:"Kind"`
	ID     string `json:"id" show:"Id" link:"path"`
	Label  string `json:"label" show:"State"`
	Queue  string `json:"queue,omitempty" show:"Queue,less"`
	Tenant string `json:"tenant,omitempty" show:"Tenant,less"`
	// How it was found first.
	How  string `json:"how" show:"Found by,less"`
	Path string `json:"path" show:"Shown by,address"`
}

// Paths has, for each kind, the address that shows one, without its id.
var Paths = map[Kind]string{
	KindQueue: "queues/", KindEvent: "events/", KindDeadLetter: "dead-letters/", KindOperation: "operations/",
	KindOrder: "orders/", KindRefund: "refunds/", KindCustomer: "customers/", KindAccount: "accounts/",
	KindEntry: "journal/entries/", KindSubscription: "subscriptions/", KindProduct: "products/",
	KindStock: "stock/", KindEndpoint: "endpoints/",
}

func (f Found) path() string {
	query := url.Values{}
	if f.Kind == KindEvent && f.Queue != "" {
		query.Set("queue", f.Queue)
	}
	ofAll := []Kind{KindQueue, KindDeadLetter, KindOperation, KindEndpoint} // ids unique in all tenants
	if f.Tenant != "" && !slices.Contains(ofAll, f.Kind) {
		query.Set("tenant", f.Tenant)
	}
	return strings.TrimSuffix("/v1/ops/"+Paths[f.Kind]+url.PathEscape(f.ID)+"?"+query.Encode(), "?")
}

// maxReads bounds the documents that the database reads for a search: one for each place, those found, and
// beside: an operation may be searched for by a prefix, and an account in two months.
const (
	maxReads    = 50
	beside      = 2
	foundAtMost = 10
	maxSearched = 1000
)

// Wanted is a request to search for an id.
type Wanted struct {
	Query  string `json:"-" query:"q" arg:"" help:"id"`
	Tenant string `json:"-" query:"tenant" validate:"omitempty,id" help:"only what belongs to this tenant"`
}

// Operations returns the search for an id of any kind, and the activity of a customer.
func (a Reads) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "search", Path: "GET /v1/ops/search",
			Summary: "Find everything that has an id, and the command that shows it",
			Help: "It takes the id of an event, an order, a customer, a user, an account, a subscription, a\n" +
				"payment, an entry of the books, a dead letter, an operation, an endpoint or a product, a correlation\n" +
				"id, an ordering key or an idempotency key. Space and quotes around it are left out. At most ten are\n" +
				"shown of each; the answer names a list of all.",
		}, a.search),
		console.New(console.Row{
			Name: "customers activity", Path: "GET /v1/ops/customers/{id}/activity", Errors: ledger.Failures,
			Help: "It shows at most 50 of each kind.",
			Summary: "Show everything about a customer: points, events, orders, refunds, subscriptions and " +
				"dead letters",
		}, a.activity),
	}
}

func pasted(text string) (string, error) {
	id := strings.TrimFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune("\"'`“”„‘’«»<>,;", r)
	})
	switch {
	case id == "":
		return "", console.Refuse(console.Malformed, "search_empty", "Say q= with an id of any kind.")
	case len(id) > maxSearched:
		return "", console.Refuse(console.Malformed, "search_too_long",
			fmt.Sprintf("No id is longer than %d bytes.", maxSearched))
	case !utf8.ValidString(id) || audit.Escape(id) != id:
		return "", console.Refuse(console.Malformed, "search_invalid", "No id has a control character.")
	case strings.ContainsFunc(id, unicode.IsSpace):
		return "", console.Refuse(console.Malformed, "search_invalid",
			"Search for one id at a time: no id has a space in it.")
	}
	return id, nil
}

// Notes say that nothing was found.
func (s Search) Notes() []string {
	if len(s.Items)+len(s.More) > 0 {
		return nil
	}
	return []string{"Nothing has this id: " + s.Query}
}

// search counts the matches in each place, then reads as many of them as the place's share allows.
func (a Reads) search(ctx context.Context, _ audit.Author, in Wanted) (Search, error) {
	id, err := pasted(in.Query)
	if err != nil {
		return Search{}, err
	}
	places := a.searched(id, in.Tenant)
	found, totals, limits := make([][]Found, len(places)), make([]int, len(places)), []int(nil)
	count := func(ctx context.Context, i int) (err error) {
		if places[i].once != nil {
			found[i], err = places[i].once(ctx)
			return err
		}
		n, err := store.Count(ctx, a.Store, places[i].query)
		if totals[i] = int(n); errors.Is(err, store.ErrInvalid) { // no document has such an id
			return nil
		}
		return err
	}
	read := func(ctx context.Context, i int) error {
		if limits[i] == 0 {
			return nil
		}
		places[i].query.Limit = limits[i]
		page, err := a.Store.Query(ctx, places[i].query)
		slices.SortStableFunc(page.Documents, newest)
		found[i] = described(page.Documents, in.Tenant, places[i].describe)
		return err
	}
	for _, does := range []func(context.Context, int) error{count, read} {
		if err = store.AtOnce(ctx, len(places), does); err != nil {
			return Search{}, fmt.Errorf("ops: search: %w", err)
		}
		limits = shares(totals, maxReads-len(places)-beside)
	}
	return gathered(id, places, found, func(i int) bool { return totals[i] > limits[i] }), nil
}

// gathered returns everything that was found, each thing once, and the lists of the places that have more.
func gathered(id string, places []searched, found [][]Found, more func(i int) bool) Search {
	all := Search{Query: id, Items: []Found{}, More: []Found{}}
	add := func(to []Found, place searched, one Found) []Found {
		one.Kind, one.How = place.kind, place.how
		one.Path = cmp.Or(one.Path, one.path())
		known := func(other Found) bool { return other.Path == one.Path }
		if slices.ContainsFunc(all.Items, known) || slices.ContainsFunc(to, known) {
			return to
		}
		return append(to, one)
	}
	for i, place := range places {
		for _, one := range found[i] {
			all.Items = add(all.Items, place, one)
		}
	}
	for i, place := range places {
		if more(i) {
			all.More = add(all.More, place, Found{ID: id, Label: "all", Path: place.all(found[i])})
		}
	}
	return all
}

// shares returns how many documents each place shows: one each, then in each round one more, while reads are
// left. The query for a page also reads the document after it.
func shares(totals []int, reads int) []int {
	limits := make([]int, len(totals))
	for round := 1; round <= foundAtMost; round++ {
		for i, total := range totals {
			cost := 1
			switch {
			case round > total || limits[i] < round-1:
				continue
			case round == 1 && total > 1:
				cost = 2
			case round == total && total > 1:
				cost = 0
			}
			if cost <= reads {
				limits[i], reads = round, reads-cost
			}
		}
	}
	return limits
}

// searched is a place where something may have the id. list is the list of all that do; empty: the kind's.
type searched struct {
	kind Kind
	how  string
	look
	list string
}

// look finds by a query, with describe, or by one call of once if at most one thing can have the id.
type look struct {
	query    store.Query
	describe describe
	once     func(context.Context) ([]Found, error)
}

func (a Reads) searched(id, tenant string) []searched {
	s, of := searching{a, id, tenant}, url.QueryEscape(id)
	in := func(collection string, describe describe) func(field string) look {
		return func(field string) look { return s.equal(collection, field, describe) }
	}
	event, delayed := in(dedupe.Collection, describeEvent), in(lane.Delayed.Entries(), a.describeKept)
	outbox, dead := in(lane.Outbox.Entries(), a.describeKept), in(deadletter.Collection, describeDead)
	order := in(orders.Collection, fields("order_id", "state", "reason"))
	refund := in(payments.RefundsCollection, fields("payment_id", "state", "reason"))
	customer, entry := in(customers.Collection, describeCustomer), in(ledger.Entries, describeEntry)
	subscription := in(subscriptions.Collection, fields("subscription_id"))
	period := in(usage.PeriodsCollection, fields("subscription"))
	used := in(usage.Collection, fields("subscription"))
	return []searched{
		{KindQueue, "id or alias", look{once: s.queue}, ""},
		{KindEvent, "event id", event("event_id"), "events?event_id=" + of},
		{KindEvent, "event id, waiting for its attempt", delayed("event_id"), "waiting"},
		{KindEvent, "event id, waiting to be published late", delayed("emits"), "waiting"},
		{KindEvent, "event id, waiting to be published", outbox("emits"), "outbox"},
		{KindEvent, "correlation id", event("correlation_id"), "events?correlation_id=" + of},
		{KindEvent, "ordering key", event("ordering_key"), "events?key=" + of},
		{KindEvent, "idempotency key", event("idempotency_key"), ""},
		{KindDeadLetter, "id", s.key(deadletter.Item{ID: id}.Key(), describeDead), ""},
		{KindDeadLetter, "event id", dead("event_id"), "dead-letters?state=all&event_id=" + of},
		{KindDeadLetter, "ordering key", dead("ordering_key"), "dead-letters?state=all&key=" + of},
		{KindDeadLetter, "message id", dead("source_message_id"), ""},
		{KindOperation, "id", look{once: s.operation}, ""},
		{KindOrder, "id", order("order_id"), ""},
		{KindOrder, "user", order("user_id"), ""},
		{KindOrder, "payment", order("payment_id"), ""},
		{KindRefund, "payment", refund("payment_id"), ""},
		{KindRefund, "subscription", refund("subscription_id"), ""},
		{KindCustomer, "id", customer("customer_id"), ""},
		{KindCustomer, "user", customer("uid"), ""},
		{KindAccount, "name", s.account(ledger.Account(id)), ""},
		{KindAccount, "user", s.account(ledger.UserPoints(id)), ""},
		{KindAccount, "customer", s.account(ledger.CustomerPoints(id)), ""},
		{KindAccount, "name in the journal, this month and the last", look{once: s.control}, ""},
		{KindEntry, "id", s.key(ledger.Key(id), describeEntry), ""},
		{KindEntry, "event id", entry("event_id"), ""},
		{KindEntry, "order whose points it moves", entry("order"), ""},
		{KindSubscription, "id, in its events", subscription("subscription_id"), "subscriptions/" + of},
		{KindSubscription, "id, in its periods", period("subscription"), "usage?subscription=" + of},
		{KindSubscription, "id, in its usage", used("subscription"), "usage?subscription=" + of},
		{KindSubscription, "customer", subscription("customer_id"), ""},
		{KindSubscription, "user", subscription("uid"), ""},
		{KindProduct, "id", s.equal(products.Collection, "product_id", fields("product_id", "state")), ""},
		{KindProduct, "id, in the catalog", look{once: s.product}, ""},
		{KindStock, "product", s.equal(orders.StockCollection, "product_id", describeStock), ""},
		{KindEndpoint, "id", s.key(endpoints.Key(id), fields("endpoint_id", "state", "reason")), ""},
	}
}

// ofAllTenants names the lists that show all tenants.
var ofAllTenants = strings.Fields("events waiting outbox dead-letters operations orders refunds customers")

// all returns the address of the place's complete list, for the tenant of what was found.
func (p searched) all(found []Found) string {
	list := cmp.Or(p.list, strings.TrimSuffix(Paths[p.kind], "/"))
	path, query, _ := strings.Cut(list, "?")
	if !slices.Contains(ofAllTenants, path) && len(found) > 0 && found[0].Tenant != "" {
		query = strings.TrimPrefix(query+"&tenant="+url.QueryEscape(found[0].Tenant), "&")
	}
	return strings.TrimSuffix("/v1/ops/"+path+"?"+query, "?")
}

type searching struct {
	Reads

	id, tenant string
}

func (s searching) equal(collection, field string, describe describe) look {
	equal := store.Equals(field, s.id, "tenant", s.tenant)
	return look{store.Query{Collection: collection, Equal: equal, Limit: foundAtMost + 1}, describe, nil}
}

func (s searching) account(name ledger.Account) look {
	s.id = string(name)
	return s.equal(ledger.Accounts, "account", describeAccount)
}

func (s searching) key(key store.Key, describe describe) look {
	return look{once: func(ctx context.Context) ([]Found, error) {
		doc, err := store.Find(ctx, s.Store, key)
		if err != nil || doc.Version == 0 {
			return nil, err
		}
		return described([]store.Document{doc}, s.tenant, describe), nil
	}}
}

func (s searching) queue(context.Context) ([]Found, error) {
	q, ok := s.Catalog.Queue(s.id)
	if !ok {
		return nil, nil
	}
	return []Found{{ID: q.ID, Label: map[bool]string{true: "runs", false: "off"}[q.Enabled]}}, nil
}

func (s searching) operation(ctx context.Context) ([]Found, error) {
	op, err := (&bulk.Operator{Store: s.Store}).Operation(ctx, s.id)
	switch {
	case errors.Is(err, bulk.ErrUnknown):
		return nil, nil
	case errors.Is(err, store.ErrAmbiguous):
		return []Found{{ID: s.id, Label: "several begin so", Path: "/v1/ops/operations"}}, nil
	}
	return []Found{{ID: op.ID, Label: words(string(op.Kind), string(op.Progress)), Queue: op.Filter.Queue}}, err
}

// control searches for an account that the journal keeps by month and that has no document. If no journal
// runs, entries have no index for it.
func (s searching) control(ctx context.Context) ([]Found, error) {
	if ledger.Control(s.id) != s.id || !s.Catalog.KeepsJournal() {
		return nil, nil
	}
	tenant, now := cmp.Or(s.tenant, dedupe.DefaultTenant), s.Now().UTC()
	for _, month := range []string{ledger.PeriodOf(now), ledger.PeriodOf(now.AddDate(0, 0, -now.Day()))} {
		holds := map[string]string{ledger.FieldPostings: ledger.PostingKey(tenant, month, s.id)}
		n, err := store.Count(ctx, s.Store, store.Query{Collection: ledger.Entries, Contains: holds, Limit: 1})
		if err != nil {
			return nil, err
		}
		if n > 0 {
			query := url.Values{"account": {s.id}, "period": {month}, "tenant": {tenant}}
			path := "/v1/ops/journal/entries?" + query.Encode()
			return []Found{{ID: s.id, Label: "of the journal, in " + month, Tenant: tenant, Path: path}}, nil
		}
	}
	return nil, nil
}

func (s searching) product(context.Context) ([]Found, error) {
	if _, known := s.Catalog.Products[s.id]; !known {
		return nil, nil
	}
	return []Found{{ID: s.id, Label: "of the catalog", Tenant: cmp.Or(s.tenant, dedupe.DefaultTenant)}}, nil
}
