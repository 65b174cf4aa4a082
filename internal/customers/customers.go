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

// Getter reads one document.
type Getter interface {
	// Get returns the document, or an error wrapping store.ErrNotFound.
	Get(ctx context.Context, key store.Key) (store.Document, error)
}

// Store is what the operator needs of the database; see the store package.
type Store interface {
	Getter
	Commit(ctx context.Context, writes []store.Write) ([]store.Version, error)
	Query(ctx context.Context, query store.Query) (store.Page, error)
}

// Mapping is what is stored of one customer.
type Mapping struct {
	UID string
	// Since is when it was made, or changed to this uid.
	Since time.Time
	// TaughtBy is the event of the order that taught it; empty where a person made it.
	TaughtBy string
	// MovedPoints and MovedOrders are what linking has moved to this uid.
	MovedPoints, MovedOrders int64

	// version of the document; 0: there is none.
	version store.Version
}

func (m Mapping) fields() map[string]any {
	return map[string]any{
		"uid": m.UID, "since": m.Since.UTC().Truncate(time.Microsecond), "taught_by": m.TaughtBy,
		"moved_points": m.MovedPoints, "moved_orders": m.MovedOrders,
	}
}

// lookup reads a customer's mapping; the zero Mapping is none. Of a document that somebody
// else has written nothing but the uid may be there, and not even that.
func lookup(ctx context.Context, from Getter, customerID string) (Mapping, error) {
	doc, err := from.Get(ctx, Key(customerID))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Mapping{}, nil
	case err != nil:
		return Mapping{}, err
	}
	m := Mapping{version: doc.Version}
	m.UID, _ = doc.Fields["uid"].(string)
	m.Since, _ = doc.Fields["since"].(time.Time)
	m.TaughtBy, _ = doc.Fields["taught_by"].(string)
	m.MovedPoints, _ = doc.Fields["moved_points"].(int64)
	m.MovedOrders, _ = doc.Fields["moved_orders"].(int64)
	return m, nil
}
