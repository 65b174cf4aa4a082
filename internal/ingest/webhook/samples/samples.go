// Package samples holds webhooks as PayNow sends them, with an invented buyer, and messages as producers send
// them, for dev, send, enqueue and tests. It refuses to hold anything of a real store.
package samples

import (
	"embed"
	"strings"
)

//go:embed testdata/*.json testdata/producers/*.json
var files embed.FS

// The ids in the samples.
const (
	OrderID        = "502113004410990002"
	CustomerID     = "502113004410990003"
	UID            = "Zk3uQm0aBcD4eFgH5iJkL6mNoPq7"
	SubscriptionID = "502113004410990041"
	TrialID        = "502113004410990042"
	// UnknownProductID is the product of UnknownProduct.
	UnknownProductID = "502113004410000777"
)

// Names of the samples.
const (
	OrderCompleted        = "order_completed"
	UnknownProduct        = "order_completed_unknown_product_no_uid"
	Refund                = "refund"
	RefundPartial         = "refund_partial"
	Chargeback            = "chargeback"
	SubscriptionActivated = "subscription_activated"
	SubscriptionRenewed   = "subscription_renewed"
	SubscriptionCanceled  = "subscription_canceled"
	TrialActivated        = "trial_activated"
	TrialCompleted        = "trial_completed"
	TrialCanceled         = "trial_canceled"
)

// Names lists every sample.
func Names() []string {
	return []string{
		OrderCompleted, UnknownProduct, Refund, RefundPartial, Chargeback,
		SubscriptionActivated, SubscriptionRenewed, SubscriptionCanceled, TrialActivated, TrialCompleted, TrialCanceled,
	}
}

// Personal lists the personal values in the samples, none of which may be found behind ingest.
var Personal = []string{
	"Ilse", "Brandvold", "ilse_b", "IlsePlays", "ilse.brandvold@example.org", "example.org", "avatars.invalid",
	"198.51.100.23", "2001:db8:5::17", "76561198000004242", "0c9d1b52-5f60-4f0e-8f2a-7b1f2f0e9a11", "+47 73 59",
}

// Event has the ids that replace those of a sample. An empty field leaves the sample's own.
type Event struct {
	EventID, OrderID, CustomerID, UID string
	// SubscriptionID is the trial's in a trial's sample.
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

// Names of what producers send: the body of one request each, a message or a list.
const (
	Trial           = "trial"
	Renewal         = "renewal"
	Refunds         = "refunds"
	OrderConfirmed  = "order_confirmed"
	Products        = "products"
	Analytics       = "analytics"
	WebhookDelivery = "webhook_delivery"
	OrderCreated    = "order_created"
	OrderPayment    = "order_payment"
	Usage           = "usage"
	InvoicePaid     = "invoice_paid"
)

// Product is what OrderCreated orders one piece of.
const Product = "dev-mug"

// Partner is the id of the endpoint that WebhookDelivery is for.
const Partner = "dev-partner"

// Request returns the body of a producer's request. It panics on a name that there is none of.
func Request(name string) []byte {
	body, err := files.ReadFile("testdata/producers/" + name + ".json")
	if err != nil {
		panic(err) // the names are constants
	}
	return body
}
