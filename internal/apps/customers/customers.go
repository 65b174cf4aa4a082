// Package customers owns the mapping of a provider's customers to our users. An order that names both teaches
// it (Teacher); a person makes, changes and removes it (Operator), which the audit keeps.
//
// A mapping changes the uid of later events. Points stay where they are, but that linking a customer by hand
// moves the points of guests' orders.
package customers

import (
	"context"
	"fmt"
	"time"

	"billhook/internal/platform/store"
)

// Collection holds the mappings: the customers of tenants, each with its uid.
const Collection = "paynowCustomers"

// Key is the key of the mapping of a tenant's customer.
func Key(tenant, customerID string) store.Key {
	return store.Key{Collection: Collection, ID: store.ID(tenant, customerID)}
}

// Mapping is what is stored of one customer.
type Mapping struct {
	Tenant     string `json:"tenant" store:"tenant"`
	CustomerID string `json:"customer_id" store:"customer_id"`
	// UID is the user that the customer is linked to; empty: none.
	UID string `json:"uid" store:"uid"`
	// Since is when the mapping was made, or changed to this uid.
	Since time.Time `json:"since,omitzero" store:"since"`
	// TaughtBy is the event of the order that taught the mapping; empty where a person made it.
	TaughtBy string `json:"taught_by,omitempty" store:"taught_by"`
	// MovedPoints and MovedOrders are what linking has moved to this uid.
	MovedPoints int64 `json:"moved_points" store:"moved_points"`
	MovedOrders int64 `json:"moved_orders" store:"moved_orders"`
}

// stored is a mapping at the version of its document; 0: there is none.
type stored struct {
	Mapping
	version store.Version
}

// lookup reads a customer's mapping. A document of another program may lack any field.
func lookup(ctx context.Context, from store.Getter, tenant, customerID string) (stored, error) {
	doc, err := store.Find(ctx, from, Key(tenant, customerID))
	if err != nil {
		return stored{}, fmt.Errorf("customers: %w", err)
	}
	return of(doc, tenant, customerID), nil
}

// of is the mapping of a document, or that of a customer who has none.
func of(doc store.Document, tenant, customerID string) stored {
	m := stored{version: doc.Version}
	_ = store.Decode(doc.Fields, &m.Mapping) // requires nothing
	m.Tenant, m.CustomerID = tenant, customerID
	return m
}
