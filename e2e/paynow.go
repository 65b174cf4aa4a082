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
	// Price of one piece in cents.
	Price int64
}

// Order is an order in a PayNow store. JSON returns PayNow's webhook of it, with all personal
// data that PayNow sends.
type Order struct {
	EventID    string
	OrderID    string
	CustomerID string
	// UID is in the checkout's metadata; empty: none.
	UID string
	// ShopOrder is the shop's own order that it pays for, in the checkout's metadata; empty: none.
	ShopOrder string
	Lines     []Line
}

// Refund is a refund of an order.
type Refund struct {
	EventID    string
	RefundID   string
	OrderID    string
	CustomerID string
	// Amount is the refund in cents. Paid is the whole payment.
	Amount, Paid int64
}

// Total is the price of the order in cents.
func (o Order) Total() int64 {
	var total int64
	for _, l := range o.Lines {
		total += l.Price * l.Quantity
	}
	return total
}

type object = map[string]any

// changed is a sample's webhook with another event id, and with what change makes of its body.
func changed(sample, eventID string, change func(body object)) []byte {
	var webhook object
	if err := json.Unmarshal(samples.Read(sample, samples.Event{EventID: eventID}), &webhook); err != nil {
		panic(err) // the samples are JSON
	}
	change(webhook["body"].(object))
	text, err := json.Marshal(webhook)
	if err != nil {
		panic(err) // it was JSON before
	}
	return text
}

// JSON is the body of the order's webhook.
func (o Order) JSON() []byte {
	return changed(samples.OrderCompleted, o.EventID, func(body object) {
		body["id"], body["subtotal_amount"], body["total_amount"] = o.OrderID, o.Total(), o.Total()
		body["customer"].(object)["id"] = o.CustomerID
		metadata := body["checkout"].(object)["metadata"].(object)
		delete(metadata, "uid")
		if o.UID != "" {
			metadata["uid"] = o.UID
		}
		if o.ShopOrder != "" {
			metadata["order_id"] = o.ShopOrder
		}
		sample := body["lines"].([]any)[0].(object)
		lines := make([]object, len(o.Lines))
		for i, l := range o.Lines {
			lines[i] = maps.Clone(sample)
			maps.Copy(lines[i], object{
				"id": fmt.Sprintf("%s%d", o.OrderID, i), "product_id": l.Product, "product_version_id": l.Product,
				"price": l.Price, "quantity": l.Quantity, "subtotal_amount": l.Price * l.Quantity, "total_amount": l.Price * l.Quantity,
			})
		}
		body["lines"] = lines
	})
}

// JSON is the body of the refund's webhook.
func (r Refund) JSON() []byte {
	return changed(samples.Refund, r.EventID, func(body object) {
		body["id"], body["order_id"], body["amount"], body["store_refund_amount"] = r.RefundID, r.OrderID, r.Paid, r.Amount
		body["customer"].(object)["id"] = r.CustomerID
	})
}
