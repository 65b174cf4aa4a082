package billing

import (
	"cmp"
	"context"

	"billhook/internal/contract"
	"billhook/internal/customers"
	"billhook/internal/handler"
	"billhook/internal/retry"
)

// CreditedDiffers is the result of a credit to the order's own uid while the customer is
// mapped to another: that stays as it is, and a person decides.
const CreditedDiffers = "credited_mapping_differs"

// learn says what a paid order that names both its customer and a uid teaches. A uid that
// the webhook service looked up by the customer teaches nothing: it would bring back what a
// person has changed since.
func (p Points) learn(ctx context.Context, event handler.Event, order *contract.Order) (customers.Lesson, error) {
	seen := customers.Order{
		CustomerID: cmp.Or(order.CustomerID, event.Attributes[contract.AttrCustomerID]),
		UID:        event.Attributes[contract.AttrUID], EventID: event.ID,
	}
	if p.Teacher == nil || seen.CustomerID == "" || seen.UID == "" || event.Attributes[contract.AttrUIDSource] != "" {
		return customers.Lesson{}, nil
	}
	lesson, err := p.Teacher.Learn(ctx, seen, event.Try)
	if err != nil {
		return customers.Lesson{}, retry.Outage("store_unavailable", err)
	}
	return lesson, nil
}
