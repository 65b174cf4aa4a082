// Package customers owns the mapping of a provider's customers to our users: one document
// per customer, which says the uid. An order that names both teaches it (Teacher); a person
// makes, changes and removes it (Operator), which the audit keeps.
//
// A mapping changes what later events travel under, and nothing else. Points stay where
// they are but for one case: linking a customer by hand moves what guests' orders left on
// the customer's own account. The package refuses to guess: an order whose uid is not the
// mapped one changes no mapping, it is told.
package customers

import (
	"context"
	"errors"
	"time"

	"billhook/internal/store"
)

// Collection holds the mappings: customer id to the field uid.
const Collection = "paynowCustomers"

// Key is the key of a customer's mapping.
func Key(customerID string) store.Key { return store.Key{Collection: Collection, ID: customerID} }

// Mapping is what is stored of one customer.
type Mapping struct {
	UID string `store:"uid"`
	// Since is when it was made, or changed to this uid.
	Since time.Time `store:"since"`
	// TaughtBy is the event of the order that taught it; empty where a person made it.
	TaughtBy string `store:"taught_by"`
	// MovedPoints and MovedOrders are what linking has moved to this uid.
	MovedPoints int64 `store:"moved_points"`
	MovedOrders int64 `store:"moved_orders"`

	// version of the document; 0: there is none.
	version store.Version
}

// lookup reads a customer's mapping; the zero Mapping is none. Of a document that somebody
// else has written nothing but the uid may be there, and not even that.
func lookup(ctx context.Context, from store.Getter, customerID string) (Mapping, error) {
	doc, err := from.Get(ctx, Key(customerID))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Mapping{}, nil
	case err != nil:
		return Mapping{}, err
	}
	m := Mapping{version: doc.Version}
	return m, store.Decode(doc.Fields, &m)
}
