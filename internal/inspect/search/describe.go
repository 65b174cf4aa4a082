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

// describe returns what a search shows of a document. ok is false if the document is of another kind.
type describe func(store.Document) (f Found, ok bool)

func described(documents []store.Document, tenant string, describe describe) (found []Found) {
	for _, doc := range documents {
		if f, ok := describe(doc); ok && (tenant == "" || f.Tenant == "" || f.Tenant == tenant) {
			found = append(found, f)
		}
	}
	return found
}

func text(doc store.Document, field string) string {
	value, _ := doc.Fields[field].(string)
	return value
}

// newest compares documents by their time of creation, the newest first.
func newest(a, b store.Document) int {
	created := func(doc store.Document) time.Time {
		within, waits := doc.Fields["message"].(map[string]any)
		if !waits {
			within = doc.Fields
		}
		at, _ := within["created_at"].(time.Time)
		return at
	}
	return created(b).Compare(created(a))
}

// words joins the words that are not empty with commas.
func words(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(word string) bool { return word == "" }), ", ")
}

// fields describes a document by the field of its id (empty: the key's id), and by the fields of its label.
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
	label := words(r.EventType, string(r.Status))
	return Found{ID: r.EventID, Label: label, Queue: r.Queue, Tenant: r.Tenant}, err == nil
}

func (a Reads) describeKept(doc store.Document) (Found, bool) {
	kept, err := lane.KeptOf(doc)
	label := words(kept.Message.Attributes["event_type"], string(events.Waits))
	f := Found{ID: text(doc, "emits"), Label: label, Queue: a.Destination(kept), Tenant: kept.Tenant}
	if !kept.Emitted {
		f.ID, f.Queue = text(doc, "event_id"), kept.Queue
	}
	return f, err == nil && f.ID != ""
}

// labelled describes a document by the field of its id (empty: the key's id), and by a label.
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
	describeDead     = fields("", "reason", "state")
	describeEntry    = fields("", "kind", "period")
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
