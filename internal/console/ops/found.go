package ops

import (
	"fmt"
	"strings"

	"billhook/internal/apps/subscriptions"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

// text is a field of a document; empty where it is not there, or is none.
func text(doc store.Document, field string) string {
	value, _ := doc.Fields[field].(string)
	return value
}

// words are the words that are not empty, with a comma between them.
func words(all ...string) string {
	var some []string
	for _, word := range all {
		if word != "" {
			some = append(some, word)
		}
	}
	return strings.Join(some, ", ")
}

func eventFound(r dedupe.Record) Found {
	return Found{ID: r.EventID, Label: words(r.EventType, string(r.Status)), Queue: r.Queue, Tenant: r.Tenant}
}

func describeEvent(doc store.Document) (Found, bool) {
	r, err := dedupe.FromDocument(doc)
	return eventFound(r), err == nil
}

// describeKept reads a message that waits. It is the event whose attempt it waits for, or the one that
// it will be.
func (a Reads) describeKept(doc store.Document) (Found, bool) {
	kept, err := lane.KeptOf(doc)
	f := Found{ID: text(doc, "emits"), Label: words(kept.Message.Attributes["event_type"], string(Waits)), Queue: a.destination(kept), Tenant: kept.Source.Tenant}
	if !kept.Emitted {
		f.ID, f.Queue = text(doc, "event_id"), kept.Source.Queue
	}
	return f, err == nil && f.ID != ""
}

func describeDead(doc store.Document) (Found, bool) {
	return Found{ID: doc.Key.ID, Label: words(text(doc, "reason"), text(doc, "state")), Queue: text(doc, "queue"), Tenant: text(doc, "tenant")}, true
}

func describeOrder(doc store.Document) (Found, bool) {
	return Found{ID: text(doc, "order_id"), Label: words(text(doc, "state"), text(doc, "reason")), Tenant: text(doc, "tenant")}, true
}

func describeRefund(doc store.Document) (Found, bool) {
	return Found{ID: text(doc, "payment_id"), Label: words(text(doc, "state"), text(doc, "reason")), Tenant: text(doc, "tenant")}, true
}

func describeCustomer(doc store.Document) (Found, bool) {
	f := Found{ID: text(doc, "customer_id"), Label: "linked to nobody", Tenant: text(doc, "tenant")}
	if uid := text(doc, "uid"); uid != "" {
		f.Label = "linked to " + uid
	}
	return f, true
}

func describeAccount(doc store.Document) (Found, bool) {
	balance, _ := doc.Fields["balance"].(int64)
	return Found{ID: text(doc, "account"), Label: fmt.Sprint(balance, " ", text(doc, "currency")), Tenant: text(doc, "tenant")}, true
}

func describeEntry(doc store.Document) (Found, bool) {
	return Found{ID: doc.Key.ID, Label: words(text(doc, "kind"), text(doc, "period")), Tenant: text(doc, "tenant")}, true
}

// describeSubscription reads any document about a subscription.
func describeSubscription(doc store.Document) (Found, bool) {
	if doc.Key.Collection == subscriptions.Collection {
		return Found{ID: text(doc, "subscription_id"), Tenant: text(doc, "tenant")}, true
	}
	return Found{ID: text(doc, "subscription"), Tenant: text(doc, "tenant")}, true
}

func describeStock(doc store.Document) (Found, bool) {
	available, _ := doc.Fields["available"].(int64)
	return Found{ID: text(doc, "product_id"), Label: fmt.Sprint(available, " available"), Tenant: text(doc, "tenant")}, true
}

func describeEndpoint(doc store.Document) (Found, bool) {
	return Found{ID: text(doc, "endpoint_id"), Label: words(text(doc, "state"), text(doc, "reason")), Tenant: text(doc, "tenant")}, true
}
