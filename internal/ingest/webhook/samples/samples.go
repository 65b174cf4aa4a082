// Package samples holds webhooks of PayNow with an invented buyer, and messages of producers, for dev, send,
// enqueue and tests. It holds nothing of a real store.
package samples

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
)

//go:embed testdata/*.json testdata/producers/*.json
var files embed.FS

// Provider sends the samples.
const Provider = "paynow"

// The ids in the samples.
const (
	OrderID        = "502113004410990002"
	CustomerID     = "502113004410990003"
	UID            = "Zk3uQm0aBcD4eFgH5iJkL6mNoPq7"
	SubscriptionID = "502113004410990041"
	TrialID        = "502113004410990042"
)

// Names of samples.
const (
	OrderCompleted        = "order_completed"
	UnknownProduct        = "order_completed_unknown_product_no_uid"
	Refund                = "refund"
	Chargeback            = "chargeback"
	SubscriptionActivated = "subscription_activated"
	SubscriptionRenewed   = "subscription_renewed"
	SubscriptionCanceled  = "subscription_canceled"
	TrialActivated        = "trial_activated"
)

// Names lists every sample.
func Names() []string {
	return []string{
		OrderCompleted, UnknownProduct, Refund, "refund_partial", Chargeback,
		SubscriptionActivated, SubscriptionRenewed, SubscriptionCanceled, TrialActivated, "trial_completed",
		"trial_canceled",
	}
}

// Personal lists the personal values in the samples, none of which may be published.
var Personal = []string{
	"Ilse", "Brandvold", "ilse_b", "IlsePlays", "ilse.brandvold@example.org", "example.org", "avatars.invalid",
	"198.51.100.23", "2001:db8:5::17", "76561198000004242", "0c9d1b52-5f60-4f0e-8f2a-7b1f2f0e9a11", "+47 73 59",
}

// Event has the ids that replace those of a sample. An empty field leaves the sample's own.
type Event struct {
	EventID, OrderID, CustomerID, UID string
	// SubscriptionID is the trial's id in a trial's sample.
	SubscriptionID string
}

// Read returns a sample's body with the event's ids in it. It panics on an unknown name.
func Read(name string, event Event) []byte {
	body, err := files.ReadFile("testdata/" + name + ".json")
	if err != nil {
		panic(err) // the names are constants
	}
	var pairs []string
	_, id, _ := strings.Cut(string(body), `"event_id": "`)
	id, _, _ = strings.Cut(id, `"`)
	for old, replacement := range map[string]string{
		id: event.EventID, OrderID: event.OrderID, CustomerID: event.CustomerID, UID: event.UID,
		SubscriptionID: event.SubscriptionID, TrialID: event.SubscriptionID,
	} {
		if replacement != "" {
			pairs = append(pairs, old, replacement)
		}
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(body)))
}

// Names of the bodies of producers' requests, each of which is a message or a list.
const (
	Trial           = "trial"
	Renewal         = "renewal"
	Refunds         = "refunds"
	OrderConfirmed  = "order_confirmed"
	Products        = "products"
	WebhookDelivery = "webhook_delivery"
	OrderCreated    = "order_created"
	OrderPayment    = "order_payment"
	Usage           = "usage"
	InvoicePaid     = "invoice_paid"
)

// Product is the product that OrderCreated orders one piece of.
const Product = "dev-mug"

// Partner is the id of the endpoint in WebhookDelivery.
const Partner = "dev-partner"

// Request returns the body of a producer's request. It panics on an unknown name.
func Request(name string) []byte { return Read("producers/"+name, Event{}) }

// begins are the event types that need no earlier event.
var begins = []string{"order.paid", "order.created", "initial", "analytics.event"}

// TypeFor returns a declared event type that the queue handles, for its sample; empty: there is none.
func TypeFor(c *catalog.Catalog, q catalog.Queue) string {
	declared := c.Contracts.Types(q.Contract)
	var types []string
	for handled := range maps.Keys(q.Handlers) {
		pattern := routing.Pattern(handled)
		if pattern.Exact() {
			types = append(types, handled)
			continue
		}
		some := slices.DeleteFunc(slices.Clone(declared), func(t string) bool {
			return !routing.Pattern(t).Exact() || !pattern.Match(t)
		})
		if len(some) == 0 {
			some = []string{strings.NewReplacer("*", "sample", "#", "sample").Replace(handled)}
		}
		types = append(types, some...)
	}
	types = slices.DeleteFunc(types, func(t string) bool { return !c.Contracts.Declares(q.Contract, t) })
	slices.SortFunc(types, func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
	})
	return append(types, "")[0]
}

// place is the position of an event type in begins.
func place(eventType string) int {
	if i := slices.Index(begins, eventType); i >= 0 {
		return i
	}
	return len(begins)
}

// of lists the members of each action's payload; the empty action is for all others.
var of = map[string][]string{
	"":           {"subscription_id", "amount", "currency"},
	"refund":     {"payment_id", "amount", "currency"},
	"usage_sync": {"subscription_id", "meter", "quantity"},
}

// texts has the values of members, by name, that need more sense than a value of their shape has.
var texts = map[string]string{
	"sold_at":    "2026-03-01T09:00:00Z", // required, and a sample is always the same
	"product_id": Product, "endpoint_id": Partner, "event_type": "invoice.paid", "meter": "calls",
	"tax_amount": "1.60",
	"period":     "2026-03",
}

// IDPrefix begins the id of each Message.
const IDPrefix = "sample-"

// Message returns a message of an event type, in its queue's format, with the members that the catalog
// declares. Messages with the same unique are the same event.
func Message(c *catalog.Catalog, q catalog.Queue, eventType, unique string, at time.Time) ([]byte, error) {
	return Keyed(c, q, eventType, IDPrefix+unique, "", at)
}

// ErrNoKey: no member of the queue's messages has the ordering key.
var ErrNoKey = errors.New("samples: no member has the ordering key")

// Keyed returns a message with an id and, if one is given, an ordering key.
func Keyed(c *catalog.Catalog, q catalog.Queue, eventType, id, key string, at time.Time) ([]byte, error) {
	unique, now := strings.TrimPrefix(id, IDPrefix), at.UTC().Format(time.RFC3339)
	var message any
	var inside map[string]any
	var declared contract.Declaration
	if newest := c.Contracts.Typed(q.Contract, eventType); newest != nil {
		declared = newest.Declaration
	}
	switch q.Contract {
	case contract.PaymentV1:
		message = payNow(c, eventType, id, unique, now)
	case contract.EnvelopeV1:
		about, ok := of[eventType]
		if !ok {
			about = of[""]
		}
		wanted := func(m contract.Member) bool { return slices.Contains(about, m.Name) }
		inside = object(declared.Members, wanted, unique, now)
		message = map[string]any{"id": id, "action": eventType, "created_at": now, "payload": inside}
	case contract.MessageV1:
		wanted := func(m contract.Member) bool { return m.Shape != "timestamp" }
		inside = object(declared.Members, wanted, unique, now)
		message = map[string]any{
			"id": id, "type": eventType, "timestamp": now, "version": declared.Version, "data": inside,
		}
	default:
		return nil, fmt.Errorf("samples: there is none of the format %s", q.Contract)
	}
	switch member := c.KeyMember(q, eventType); {
	case key == "":
	case inside == nil || member == "":
		return nil, ErrNoKey
	default:
		inside[member] = key
	}
	body, err := json.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("samples: %w", err)
	}
	return body, nil
}

func every(contract.Member) bool { return true }

// object returns an object with the required and the wanted members.
func object(members []contract.Member, wanted func(contract.Member) bool, unique, now string) map[string]any {
	made := map[string]any{}
	for _, m := range members {
		if m.Required || wanted(m) {
			made[m.Name] = valueOf(m, unique, now)
		}
	}
	return made
}

// ofShape has the values of members, by their shape.
var ofShape = map[string]any{
	"boolean": true, "integer": 1, "quantity": 1, "amount": "9.99", "currency": "EUR",
}

func valueOf(m contract.Member, unique, now string) any {
	shape, bounds, _ := strings.Cut(m.Shape, " ")
	low, _, _ := strings.Cut(bounds, "..")
	text, known := texts[m.Name]
	value, made := ofShape[shape]
	switch {
	case m.List != nil:
		return []any{object(m.List, every, unique, now)}
	case m.Object != nil:
		return object(m.Object, every, unique, now)
	case shape == "integer" && low != "":
		return json.Number(low)
	case known:
		return text
	case made:
		return value
	case shape == "timestamp":
		return now
	case shape == "id" || shape == "uid":
		return strings.TrimSuffix(strings.TrimSuffix(m.Name, "_id"), "s") + "-" + unique
	default:
		return "sample"
	}
}

// payNow returns an event of PayNow as ingest publishes it.
func payNow(c *catalog.Catalog, eventType, id, unique, now string) *contract.Payment {
	event := &contract.Payment{EventID: id, EventType: eventType, Timestamp: now}
	customer := "customer-" + unique
	if kind, _, _ := strings.Cut(eventType, "."); kind != "order" {
		event.Data.Subscription = &contract.Subscription{ID: kind + "-" + unique, CustomerID: customer}
		return event
	}
	event.Data.Order = &contract.Order{ID: "order-" + unique, CustomerID: customer, Currency: "USD"}
	if eventType == contract.OrderPaid {
		product := append(slices.Sorted(maps.Keys(c.Products)), "sample")[0]
		event.Data.Order.Items = []contract.Item{{ProductID: product, Quantity: 1, Price: "10.00"}}
	}
	return event
}
