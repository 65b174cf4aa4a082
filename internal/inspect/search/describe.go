package search

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/internal/dedupe"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

func text(doc store.Document, field string) string {
	value, _ := doc.Fields[field].(string)
	return value
}

func created(doc store.Document) time.Time {
	at, _ := doc.Fields["created_at"].(time.Time)
	return at
}

// words are the words that are not empty, with a comma between them.
func words(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(word string) bool { return word == "" }), ", ")
}

func eventFound(r dedupe.Record) Found {
	return Found{ID: r.EventID, Label: words(r.EventType, string(r.Status)), Queue: r.Queue, Tenant: r.Tenant}
}

// fields are a description by the field of the id, which is the key's where it is empty, and by those of the
// label.
func fields(id string, label ...string) describe {
	return labelled(id, func(doc store.Document) (all string) {
		for _, name := range label {
			all = words(all, text(doc, name))
		}
		return all
	})
}

func describeEvent(doc store.Document) (Found, bool) {
	r, err := dedupe.FromDocument(doc)
	return eventFound(r), err == nil
}

func (a Reads) describeKept(doc store.Document) (Found, bool) {
	kept, err := lane.KeptOf(doc)
	f := Found{
		ID: text(doc, "emits"), Label: words(kept.Message.Attributes["event_type"], string(events.Waits)),
		Queue: a.Destination(kept), Tenant: kept.Tenant,
	}
	if !kept.Emitted {
		f.ID, f.Queue = text(doc, "event_id"), kept.Queue
	}
	return f, err == nil && f.ID != ""
}

// labelled is a description of what has its id in a field, or in its key where that is empty.
func labelled(id string, label func(store.Document) string) describe {
	return func(doc store.Document) (Found, bool) {
		f := Found{ID: text(doc, id), Label: label(doc), Tenant: text(doc, "tenant")}
		if id == "" {
			f.ID, f.Queue = doc.Key.ID, text(doc, "queue")
		}
		return f, true
	}
}

var (
	describeCustomer = labelled("customer_id", func(doc store.Document) string {
		return "linked to " + cmp.Or(text(doc, "uid"), "nobody")
	})
	describeAccount = labelled("account", func(doc store.Document) string {
		return number(doc, "balance") + " " + text(doc, "currency")
	})
	describeStock = labelled("product_id", func(doc store.Document) string {
		return number(doc, "available") + " available"
	})
)

func number(doc store.Document, field string) string {
	value, _ := doc.Fields[field].(int64)
	return strconv.FormatInt(value, 10)
}
