package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/products"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/compose/worker"
	"billhook/internal/compose/worker/workertest"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/boltstore"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// tenantsOwn are the collections whose documents each belong to one tenant.
var tenantsOwn = []string{
	ledger.Entries, ledger.Accounts, orders.Collection, orders.StockCollection, products.Collection,
	customers.Collection, subscriptions.Collection,
	usage.PeriodsCollection, usage.Collection, usage.EntriesCollection, payments.RefundsCollection,
	dedupe.Collection, lane.Delayed.Entries(), audit.Collection,
}

// house is a worker that runs every app, with changes by people.
type house struct {
	t        *testing.T
	clock    *clock
	broker   *shelves
	store    store.Store
	worker   *worker.Worker
	products *products.Editor
	stock    *orders.StockEditor
	links    *customers.Operator
	// queues are those whose messages are delivered when they are published.
	queues []catalog.Queue
	// nth counts the steps of each tenant.
	nth map[string]int
}

// TestNoTenantNoticesAnother runs events of every app, and changes by people, for two tenants that use the
// same ids. Each tenant must have the documents that it would have alone.
func TestNoTenantNoticesAnother(t *testing.T) {
	t.Parallel()
	echo := httptest.NewServer(&services{})
	t.Cleanup(echo.Close)
	base := config(t, nil)
	base.Targets = workertest.Targets(t, base.Catalog, echo.URL)
	for i := range base.Catalog.Queues { // randomness, and a budget that all share, would make the houses differ
		q := &base.Catalog.Queues[i]
		q.Backoff.Jitter, q.NackBudget = 0, 0
		for name, h := range q.Handlers {
			h.Backoff.Jitter = 0
			q.Handlers[name] = h
		}
	}
	folder := t.TempDir()
	tenants := []string{dedupe.DefaultTenant, "acme"}
	rapid.Check(t, func(check *rapid.T) {
		both, alone := newHouse(t, check, folder, base), map[string]*house{}
		for _, tenant := range tenants {
			alone[tenant] = newHouse(t, check, folder, base)
		}
		check.Repeat(map[string]func(*rapid.T){
			"an event": func(rt *rapid.T) {
				tenant, do := rapid.SampledFrom(tenants).Draw(rt, "tenant"), drawEvent(rt, base.Catalog)
				require.Equal(rt, do(alone[tenant], tenant), do(both, tenant))
			},
			"a change by hand": func(rt *rapid.T) {
				tenant, do := rapid.SampledFrom(tenants).Draw(rt, "tenant"), drawChange(rt)
				require.Equal(rt, do(alone[tenant], tenant), do(both, tenant))
			},
			"time passes": func(rt *rapid.T) {
				d := time.Duration(rapid.IntRange(1, 2000).Draw(rt, "seconds")) * time.Second
				for _, h := range []*house{both, alone[tenants[0]], alone[tenants[1]]} {
					h.clock.pass(d)
					task(t, h.worker, "release-delayed")
					h.settle()
				}
			},
			"": func(rt *rapid.T) {
				for _, tenant := range tenants {
					require.Equal(rt, alone[tenant].documents(rt, tenant), both.documents(rt, tenant), "what %s has", tenant)
				}
			},
		})
	})
}

func newHouse(t *testing.T, check *rapid.T, folder string, base worker.Config) *house {
	db := filetest.Must(boltstore.OpenTemporary(fmt.Sprintf("%s/%d.db", folder, time.Now().UnixNano())))(check)
	check.Cleanup(func() { _ = db.Close() })
	clock, broker := newClock(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)), &shelves{}
	own := base
	own.Store, own.Publisher, own.Now, own.Instance = db, broker, clock.Now, "one"
	w := filetest.Must(worker.New(own))(check)
	check.Cleanup(w.Close)
	var queues []catalog.Queue
	for _, name := range []string{
		"points.credit", "usage.track", "orders.create", catalog.JournalRevert, "refunds.initiate",
		"payments.initiate",
	} {
		q, ok := base.Catalog.HandledBy(name)
		require.True(check, ok, name)
		queues = append(queues, q)
	}
	return &house{
		t: t, clock: clock, broker: broker, store: db, worker: w, queues: queues, nth: map[string]int{},
		links:    &customers.Operator{Store: db, Now: clock.Now},
		products: &products.Editor{Store: db, Start: base.Catalog.Products, Now: clock.Now},
		stock:    &orders.StockEditor{Store: db, Now: clock.Now},
	}
}

// as is the house with the tenant's own ids for its next step.
func (h *house) as(tenant string) *house {
	h.nth[tenant]++
	id := func() string { return fmt.Sprintf("%s-%d", tenant, h.nth[tenant]) }
	h.products.NewID, h.stock.NewID, h.links.NewID = id, id, id
	return h
}

// push delivers a message of a tenant, and the messages that it causes.
func (h *house) push(queue string, m contract.Message) string {
	return fmt.Sprint(pushed(h.t, h.worker, "/push/"+queue, "m-"+m.Attributes[contract.AttrEventID],
		h.clock.Now(), m))
}

// sorts is the tenant, the key and the event of a message.
func (p published) sorts() string {
	m := p.message
	return m.Attributes[contract.AttrTenant] + " " + m.OrderingKey + " " + m.Attributes[contract.AttrEventID]
}

// settle delivers the messages to queues of the model, until no more are published.
func (h *house) settle() {
	for range 20 {
		taken := h.broker.all()
		// Messages of several keys are published concurrently, and so are those of one key that were due together.
		slices.SortFunc(taken, func(a, b published) int {
			return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.sorts(), b.sorts()))
		})
		for _, p := range taken {
			for _, q := range h.queues {
				if q.Topic() == p.topic {
					h.push(q.ID, p.message)
				}
			}
		}
	}
}

// documents are those of a tenant. What a record has of the attempt itself is not compared.
func (h *house) documents(t *rapid.T, tenant string) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, collection := range tenantsOwn {
		for _, doc := range storetest.All(t, h.store, collection) {
			of, _ := doc.Fields["tenant"].(string)
			require.Contains(t, []string{dedupe.DefaultTenant, "acme"}, of, "%s is nobody's", doc.Key)
			if of == tenant {
				delete(doc.Fields, "lease_token")
				delete(doc.Fields, ledger.FieldCommitted) // a time of the database
				all[doc.Key.String()] = doc.Fields
			}
		}
	}
	return all
}

// deed is a step of a tenant in a house, and returns its answer.
type deed func(h *house, tenant string) string

// drawEvent draws an event of any app, with few ids, so that events share them.
func drawEvent(t *rapid.T, c *catalog.Catalog) deed {
	one := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	id, order, product := "e"+one("event", "1", "2", "3", "4", "5", "6"), one("order", "o1", "o2"),
		one("product", "cap", "hat")
	uid, customer, subscription := one("uid", "", "u1", "u2"), one("customer", "c1", "c2"),
		one("subscription", "s1", "s2")
	const at = "2026-03-02T10:00:00Z"
	type sent struct {
		handler string
		body    contract.Body
	}
	paynow := func(eventType string, data contract.PaymentData) sent {
		return sent{
			"points.credit",
			contract.Of(&contract.Payment{EventID: id, EventType: eventType, Timestamp: at, Data: data}),
		}
	}
	event := func(name, eventType string, data map[string]any) sent {
		return sent{
			name, contract.Of(&contract.Event{ID: id, Type: eventType, Timestamp: at, Version: 1, Data: data}),
		}
	}
	envelope := func(name, action string, payload contract.Payload) sent {
		return sent{name, contract.Of(&contract.Envelope{ID: id, Action: action, CreatedAt: at, Payload: payload})}
	}
	of := contract.Order{ID: order, CustomerID: customer, Currency: "USD", Total: "10.00"}
	items := of
	items.Items = []contract.Item{{ProductID: product, Quantity: 1}}
	paid := paynow(contract.OrderPaid, contract.PaymentData{Order: &items})
	m := rapid.SampledFrom([]sent{
		paid, paid, paynow("order.chargeback", contract.PaymentData{Order: &of}),
		paynow(contract.OrderRefunded,
			contract.PaymentData{Order: &of, Refund: &contract.Refund{ID: one("refund", "r1", "r2"), Amount: "2.50"}}),
		paynow(contract.SubscriptionRenewed, contract.PaymentData{Subscription: &contract.Subscription{
			ID: subscription, CustomerID: customer, PeriodStart: "2026-03-01T00:00:00Z",
			PeriodEnd: "2026-04-01T00:00:00Z",
		}}),
		event("usage.track", "usage_tracking",
			map[string]any{"subscription_id": subscription, "meter": "calls", "quantity": 7000}),
		event("orders.create", "order.created",
			map[string]any{"order_id": order, "items": []any{map[string]any{"product_id": product, "quantity": 2}}}),
		event("orders.create", "order.payment_confirmed",
			map[string]any{"order_id": order, "payment_id": customer}),
		event("orders.create", "order.shipped", map[string]any{"order_id": order}),
		event(catalog.JournalRevert, "billing.invoice.paid",
			map[string]any{"invoice_id": order, "amount": "119.00", "currency": "EUR"}),
		event(catalog.JournalRevert, "billing.invoice.reverted",
			map[string]any{"reverts": "e" + one("reverts", "1", "2", "3")}),
		envelope("refunds.initiate", "refund", contract.Payload{PaymentID: order, SubscriptionID: subscription}),
		envelope("payments.initiate", "renewal",
			contract.Payload{SubscriptionID: subscription, Amount: "9.99", Currency: "EUR"}),
	}).Draw(t, "event")
	q, ok := c.HandledBy(m.handler)
	require.True(t, ok, m.handler)
	data := filetest.Must(m.body.Append(nil))(t)
	_, eventType := m.body.Identity()
	key := one("key", "", customer)
	attributes := map[string]string{
		"event_id": id, "event_type": eventType, "contract": q.Contract, "routing_key": eventType,
		"ordering_key": "unknown",
	}
	for attribute, value := range map[string]string{
		"ordering_key": key, "uid": uid, "paynow_customer_id": customer,
	} {
		if value != "" && (q.Contract == contract.PaymentV1 || attribute == "ordering_key") {
			attributes[attribute] = value
		}
	}
	return func(h *house, tenant string) string {
		own := map[string]string{"tenant": tenant}
		maps.Copy(own, attributes)
		answer := h.push(q.ID, contract.Message{Data: data, Attributes: own, OrderingKey: key})
		h.settle()
		return answer
	}
}

// drawChange draws a change by a person: the points of a product, the stock, or a customer's link.
func drawChange(t *rapid.T) deed {
	what := rapid.SampledFrom([]string{"worth", "stock", "link"}).Draw(t, "what")
	product, n := rapid.SampledFrom([]string{"cap", "hat"}).Draw(t, "product"),
		rapid.Int64Range(1, 5).Draw(t, "number")
	customer, uid := rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "customer"),
		rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "uid")
	return func(h *house, tenant string) string {
		h.as(tenant)
		var err error
		ada, why := audit.Author{Proof: audit.Identity, Name: "ada"},
			console.Edit{Change: console.Change{Why: "drawn"}}
		switch what {
		case "worth":
			set := products.SetProduct{Points: n * 100, Edit: why}
			set.Tenant, set.ID = tenant, product
			_, err = h.products.Set(context.Background(), ada, set)
		case "stock":
			set := orders.SetStock{Available: &n, Edit: why}
			set.Tenant, set.ProductID = tenant, product
			_, err = h.stock.Set(context.Background(), ada, set)
		default:
			link := customers.LinkCustomer{UID: uid, Edit: why}
			link.Tenant, link.ID = tenant, customer
			_, err = h.links.Link(context.Background(), ada, link)
		}
		return fmt.Sprint(err)
	}
}
