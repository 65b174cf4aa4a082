// Package customers owns the mapping of a provider's customers to our users. An order that names both teaches
// it (Teacher); a person makes, changes and removes it (Operator), which the audit keeps.
//
// A mapping changes the uid of later events. Points stay where they are, but that linking a customer by hand
// moves the points of guests' orders.
package customers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"billhook/internal/platform/cache"
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

const (
	// knownFor is how late a change through another instance is noticed; nothing is credited by it.
	knownFor = time.Hour
	// maxKnown bounds how many are remembered: some 150 bytes each.
	maxKnown = 50_000
)

// Teacher learns mappings from orders, and remembers known ones. It is safe for concurrent use.
type Teacher struct {
	from store.Getter
	log  *slog.Logger
	now  func() time.Time
	uids *cache.Cache[string] // by the ids of documents
}

// NewTeacher returns a teacher that reads mappings from a store.
func NewTeacher(from store.Getter, log *slog.Logger, now func() time.Time) *Teacher {
	return &Teacher{from: from, log: log, now: now, uids: cache.New[string](maxKnown, 0, now)}
}

// Order is an order that names a customer and a uid.
type Order struct{ Tenant, CustomerID, UID, EventID string }

func (o Order) key() store.Key { return Key(o.Tenant, o.CustomerID) }

// Lesson is what an order teaches.
type Lesson struct {
	// Writes belong into the commit of the credit: none, or the mapping, which must not exist.
	Writes []store.Write
	// Differs: the customer is mapped to another uid. That stays, and is logged.
	Differs bool
	// Looked: the mapping was there and not remembered, so that it may have refused an earlier try.
	Looked bool
}

// Learn returns the lesson of an order. The first try for an unknown customer reads nothing and
// creates the mapping; where that was refused, a further try reads it. The error is the store's.
func (t *Teacher) Learn(ctx context.Context, order Order, try int) (Lesson, error) {
	id := order.key().ID
	uid, found := t.uids.Known(id)
	switch {
	case found && uid == order.UID:
		return Lesson{}, nil
	case !found && try == 0:
		return t.create(order), nil
	}
	// What differs from what is known may have been changed since.
	mapping, err := lookup(ctx, t.from, order.Tenant, order.CustomerID)
	switch {
	case err != nil:
		return Lesson{}, err
	case mapping.version == 0:
		t.uids.Forget(id)
		return t.create(order), nil
	}
	t.uids.Put(id, mapping.UID, knownFor)
	if mapping.UID == order.UID {
		return Lesson{Looked: true}, nil
	}
	t.log.LogAttrs(ctx, slog.LevelWarn, "customer is mapped to another uid", slog.String("event_id", order.EventID),
		slog.String("tenant", order.Tenant), slog.String("customer_id", order.CustomerID), slog.String("uid", order.UID), slog.String("mapped_uid", mapping.UID))
	return Lesson{Differs: true, Looked: true}, nil
}

func (t *Teacher) create(order Order) Lesson {
	m := Mapping{Tenant: order.Tenant, CustomerID: order.CustomerID, UID: order.UID, Since: t.now(), TaughtBy: order.EventID}
	return Lesson{Writes: []store.Write{store.Create(order.key(), store.Encode(&m))}}
}

// Watch returns the store; the teacher remembers the mappings that are committed through it.
func (t *Teacher) Watch(s store.Store) store.Store { return watched{Store: s, teacher: t} }

type watched struct {
	store.Store
	teacher *Teacher
}

func (w watched) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	versions, err := w.Store.Commit(ctx, writes)
	for _, write := range writes {
		if write.Key.Collection != Collection {
			continue
		}
		if uid, ok := write.Fields["uid"].(string); ok && err == nil {
			w.teacher.uids.Put(write.Key.ID, uid, knownFor)
		} else {
			w.teacher.uids.Forget(write.Key.ID) // it is gone, or unknown
		}
	}
	return versions, err
}
