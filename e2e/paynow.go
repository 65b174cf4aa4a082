package e2e

import (
	"encoding/json"
	"fmt"
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

type object = map[string]any

func customer(id string) object {
	person := object{"id": "76561198000004242", "name": "ilse_b", "avatar_url": "https://avatars.invalid/ilse.png"}
	return object{
		"id": id, "name": "Ilse Brandvold", "steam": person,
		"minecraft": object{"id": "0c9d1b52-5f60-4f0e-8f2a-7b1f2f0e9a11", "name": "IlsePlays", "avatar_url": "https://avatars.invalid/i.png"},
		"profile":   object{"id": "76561198000004242", "platform": "steam", "name": "ilse_b", "avatar_url": "https://avatars.invalid/ilse.png"},
	}
}

// Total is the price of the order in cents.
func (o Order) Total() int64 {
	var total int64
	for _, l := range o.Lines {
		total += l.Price * l.Quantity
	}
	return total
}

// JSON is the body of the order's webhook.
func (o Order) JSON() []byte {
	metadata := object{"note": "Gift for Ilse"}
	if o.UID != "" {
		metadata["uid"] = o.UID
	}
	if o.ShopOrder != "" {
		metadata["order_id"] = o.ShopOrder
	}
	lines := make([]object, 0, len(o.Lines))
	for i, l := range o.Lines {
		lines = append(lines, object{
			"id": fmt.Sprintf("%s%d", o.OrderID, i), "product_id": l.Product, "product_version_id": l.Product,
			"product": object{
				"id": l.Product, "name": "Points", "slug": "points", "price": l.Price, "enabled": true, "label": nil,
				"description": "<p>Call +47 73 59 00 00 or write to ilse.brandvold@example.org</p>",
				"commands":    []object{{"stage": "on_purchase", "content": "give ilse_b", "online_only": false}},
				"metadata":    object{},
			},
			"product_name": "Points", "gift_to_customer": nil, "price": l.Price, "quantity": l.Quantity,
			"subtotal_amount": l.Price * l.Quantity, "tax_amount": 0, "total_amount": l.Price * l.Quantity,
		})
	}
	return encode(object{
		"event_type": "ON_ORDER_COMPLETED", "event_id": o.EventID,
		"body": object{
			"id": o.OrderID, "store_id": "502113004410000900", "customer": customer(o.CustomerID),
			"checkout": object{"id": "502113004410000300", "metadata": metadata, "lines": []object{}},
			"type":     "one_time", "currency": "USD", "subtotal_amount": o.Total(), "total_amount": o.Total(),
			"created_at": "2026-03-02T10:00:00Z", "completed_at": "2026-03-02T10:01:00Z",
			"billing_name": "Ilse Brandvold", "billing_email": "ilse.brandvold@example.org",
			"billing_address_country": "NO-5003", "customer_ip": "198.51.100.23/24", "lines": lines, "status": "completed",
		},
	})
}

// JSON is the body of the refund's webhook.
func (r Refund) JSON() []byte {
	return encode(object{
		"event_type": "ON_REFUND", "event_id": r.EventID,
		"body": object{
			"id": r.RefundID, "store_id": "502113004410000900", "order_id": r.OrderID, "customer": customer(r.CustomerID),
			"payment_id": "502113004410000601", "gateway": "stripe", "currency": "USD",
			"amount": r.Paid, "store_refund_amount": r.Amount, "created_at": "2026-03-03T09:00:00Z",
			"completed_at": "2026-03-03T09:02:00Z", "billing_email": "ilse.brandvold@example.org",
			"customer_ip": "2001:db8:5::17", "status": "completed",
		},
	})
}

func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers always marshal
	}
	return body
}
