package e2e

import (
	"encoding/json"
	"fmt"
	"maps"

	"billhook/internal/ingest/webhook/samples"
)

// Line is one line of an order.
type Line struct {
	Product  string
	Quantity int64
	// Price is the price of one piece in cents.
	Price int64
}

// Order is an order in a PayNow store. JSON returns PayNow's webhook for it, including personal data.
type Order struct {
	EventID    string
	OrderID    string
	CustomerID string
	// UID and ShopOrder, the shop's order that this one pays for, are in the checkout's metadata; empty: none.
	UID, ShopOrder string
	Lines          []Line
}

// Total returns the price of the order in cents.
func (o Order) Total() (total int64) {
	for _, l := range o.Lines {
		total += l.Price * l.Quantity
	}
	return total
}

type object = map[string]any

// changed returns a sample's webhook with the ids of an event and a changed body.
func changed(sample string, of samples.Event, change func(body object)) []byte {
	var webhook object
	must(0, json.Unmarshal(samples.Read(sample, of), &webhook))
	change(webhook["body"].(object))
	return must(json.Marshal(webhook))
}

// JSON returns the body of the order's webhook.
func (o Order) JSON() []byte {
	ids := samples.Event{EventID: o.EventID, OrderID: o.OrderID, CustomerID: o.CustomerID, UID: o.UID}
	return changed(samples.OrderCompleted, ids, func(body object) {
		body["subtotal_amount"], body["total_amount"] = o.Total(), o.Total()
		metadata := body["checkout"].(object)["metadata"].(object)
		if o.UID == "" {
			delete(metadata, "uid")
		}
		if o.ShopOrder != "" {
			metadata["order_id"] = o.ShopOrder
		}
		sample := body["lines"].([]any)[0].(object)
		lines := make([]object, len(o.Lines))
		for i, l := range o.Lines {
			lines[i] = maps.Clone(sample)
			total := l.Price * l.Quantity
			maps.Copy(lines[i], object{
				"id": fmt.Sprint(o.OrderID, i), "product_id": l.Product, "product_version_id": l.Product,
				"price": l.Price, "quantity": l.Quantity, "subtotal_amount": total, "total_amount": total,
			})
		}
		body["lines"] = lines
	})
}

// Refund returns the body of the webhook for a refund of these cents of the order.
func (o Order) Refund(eventID string, cents int64) []byte {
	ids := samples.Event{EventID: eventID, OrderID: o.OrderID, CustomerID: o.CustomerID}
	return changed(samples.Refund, ids, func(body object) {
		body["id"], body["amount"], body["store_refund_amount"] = "1", o.Total(), cents
	})
}
