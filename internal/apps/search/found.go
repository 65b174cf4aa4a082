package search

import (
	"fmt"
	"slices"
	"strings"

	"billhook/internal/pipeline/events"

	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

func text(doc store.Document, field string) string {
	value, _ := doc.Fields[field].(string)
	return value
}

// words are the words that are not empty, with a comma between them.
func words(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(word string) bool { return word == "" }), ", ")
}

func eventFound(r dedupe.Record) Found {
	return Found{ID: r.EventID, Label: words(r.EventType, string(r.Status)), Queue: r.Queue, Tenant: r.Tenant}
}

// fields are a description by the field of the id, which is the key's where it is empty, and by those of the label.
func fields(id string, label ...string) describe {
	return func(doc store.Document) (Found, bool) {
		f := Found{ID: doc.Key.ID, Queue: text(doc, "queue"), Tenant: text(doc, "tenant")}
		if id != "" {
			f.ID, f.Queue = text(doc, id), ""
		}
		for _, name := range label {
			f.Label = words(f.Label, text(doc, name))
		}
		return f, true
	}
}

func describeEvent(doc store.Document) (Found, bool) {
	r, err := dedupe.FromDocument(doc)
	return eventFound(r), err == nil
}

func (a Reads) describeKept(doc store.Document) (Found, bool) {
	kept, err := lane.KeptOf(doc)
	f := Found{ID: text(doc, "emits"), Label: words(kept.Message.Attributes["event_type"], string(events.Waits)), Queue: a.Destination(kept), Tenant: kept.Tenant}
	if !kept.Emitted {
		f.ID, f.Queue = text(doc, "event_id"), kept.Queue
	}
	return f, err == nil && f.ID != ""
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

func describeStock(doc store.Document) (Found, bool) {
	available, _ := doc.Fields["available"].(int64)
	return Found{ID: text(doc, "product_id"), Label: fmt.Sprint(available, " available"), Tenant: text(doc, "tenant")}, true
}
