// Package customers owns the mapping of a provider's customers to our users. An order that names both creates
// a mapping (Mappings); people create, change and remove mappings (Operator), with audit entries. Only a
// person's link moves points: those of guest orders.
package customers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/cache"
	"billhook/internal/platform/store"
)

// Collection holds the mappings: the customers of tenants, each with its uid.
const Collection = "customers"

// Key is the key of the mapping of a tenant's customer.
func Key(tenant, customerID string) store.Key {
	return store.Key{Collection: Collection, ID: store.ID(tenant, customerID)}
}

// Mapping is the document of one customer.
type Mapping struct {
	Tenant     string `json:"tenant" store:"tenant"`
	CustomerID string `json:"customer_id" store:"customer_id" show:"Customer" link:"customers"`
	// UID is the user that the customer is linked to; empty: none.
	UID   string    `json:"uid" store:"uid" show:"User" link:"search"`
	Since time.Time `json:"since,omitzero" store:"since" show:"Since"`
	// LinkedBy is the event of the order that made the mapping; empty if a person made it.
	LinkedBy    string        `json:"linked_by,omitempty" store:"linked_by" show:"By the order of event,less" link:"events"`
	MovedPoints int64         `json:"moved_points" store:"moved_points" show:"Moved points,less"`
	MovedOrders int64         `json:"moved_orders" store:"moved_orders" show:"Of guests' orders,less"`
	Version     store.Version `json:"version"` // which a change may require; 0: there is no document
}

// lookup reads a customer's mapping. A document that another program has written may lack any field.
func lookup(ctx context.Context, from store.Getter, tenant, customerID string) (Mapping, error) {
	doc, err := store.Find(ctx, from, Key(tenant, customerID))
	return of(doc, tenant, customerID), err
}

func of(doc store.Document, tenant, customerID string) Mapping {
	m := Mapping{Version: doc.Version}
	_ = store.Decode(doc.Fields, &m) // no field is required
	m.Tenant, m.CustomerID = tenant, customerID
	return m
}

const (
	knownFor = time.Hour // how long another instance's change may be unnoticed; no credit depends on it
	maxKnown = 50_000    // the bound of the cache, of some 150 bytes each
)

// Mappings creates mappings from orders, and caches them. It is safe for concurrent use.
type Mappings struct {
	from store.Getter
	log  *slog.Logger
	now  func() time.Time
	uids *cache.Cache[string] // by the ids of documents
}

// NewMappings returns the mappings of a store.
func NewMappings(from store.Getter, log *slog.Logger, now func() time.Time) *Mappings {
	return &Mappings{from: from, log: log, now: now, uids: cache.New[string](maxKnown, now)}
}

// Learned is the outcome of Learn.
type Learned struct {
	Writes  []store.Write // for the commit of the credit: none, or a mapping, which must not exist
	Differs bool          // the customer is mapped to another uid, which stays and is logged
	Looked  bool          // the mapping exists and was not cached, so that it may have refused an earlier try
}

// Learn returns the writes for the mapping of an order. The first try for an uncached customer reads nothing
// and creates the mapping; if that was refused, a further try reads it. The error is the store's.
func (t *Mappings) Learn(ctx context.Context, order Mapping, try int) (Learned, error) {
	id := Key(order.Tenant, order.CustomerID).ID
	uid, found := t.uids.Known(id)
	switch {
	case found && uid == order.UID:
		return Learned{}, nil
	case !found && try == 0:
		return t.create(order), nil
	}
	// A cached mapping to another uid may have changed since.
	mapping, err := lookup(ctx, t.from, order.Tenant, order.CustomerID)
	switch {
	case err != nil:
		return Learned{}, err
	case mapping.Version == 0:
		t.uids.Forget(id)
		return t.create(order), nil
	}
	t.uids.Put(id, mapping.UID, knownFor)
	if mapping.UID == order.UID {
		return Learned{Looked: true}, nil
	}
	t.log.LogAttrs(ctx, slog.LevelWarn, "customer is mapped to another uid",
		slog.String("event_id", order.LinkedBy), slog.String("tenant", order.Tenant),
		slog.String("customer_id", order.CustomerID), slog.String("uid", order.UID),
		slog.String("mapped_uid", mapping.UID))
	return Learned{Differs: true, Looked: true}, nil
}

func (t *Mappings) create(m Mapping) Learned {
	m.Since = t.now()
	return Learned{Writes: []store.Write{store.Create(Key(m.Tenant, m.CustomerID), store.Encode(&m))}}
}

// Watch returns a store that caches the mappings committed through it.
func (t *Mappings) Watch(s store.Store) store.Store { return watched{Store: s, mappings: t} }

type watched struct {
	store.Store
	mappings *Mappings
}

func (w watched) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	versions, err := w.Store.Commit(ctx, writes)
	for _, write := range writes {
		if write.Key.Collection != Collection {
			continue
		}
		if uid, ok := write.Fields["uid"].(string); ok && err == nil {
			w.mappings.uids.Put(write.Key.ID, uid, knownFor)
		} else {
			w.mappings.uids.Forget(write.Key.ID) // it was deleted, or the outcome is unknown
		}
	}
	return versions, err
}

// CustomerOf names a customer.
type CustomerOf struct {
	console.Owned
	ID string `json:"-" path:"id" validate:"required" help:"customer"`
}

// LinkCustomer links a customer to a user.
type LinkCustomer struct {
	CustomerOf
	UID string `json:"uid" validate:"required" arg:"" help:"the user"`
	// After is where to continue, if the customer is still linked to UID.
	After string `json:"-" query:"page" help:"where to continue: next of the previous answer"`
	console.Edit
}

// UnlinkCustomer removes the link of a customer.
type UnlinkCustomer struct {
	CustomerOf
	console.Edit
}

// Operations are what people do with customers.
func (o *Operator) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "customers ls", Path: "GET /v1/ops/customers",
			Summary: "List the customers that are linked to a user", Errors: ledger.Failures,
			Empty: "No customer is linked to a user. An order that names both links them, and so does customers link.",
		}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Mapping], error) {
			equal := map[string]any{"tenant": in.Tenant}
			query := store.Query{Collection: Collection, Equal: equal, After: in.After, Limit: in.Limit}
			return console.Listed(store.List(ctx, o.Store, query, func(doc store.Document) (Mapping, error) {
				m := Mapping{Version: doc.Version}
				err := store.Decode(doc.Fields, &m)
				return m, err
			}))
		}),
		console.New(console.Row{
			Name: "customers show", Path: "GET /v1/ops/customers/{id}",
			Summary: "Show which user a customer is linked to", Errors: ledger.Failures,
			Beside: []string{"customers activity", "customers history"},
		}, func(ctx context.Context, _ audit.Author, in CustomerOf) (State, error) {
			state, err := o.Show(ctx, in.Tenant, in.ID)
			if err == nil && state.UID == "" {
				err = ErrUnknown
			}
			return state, err
		}),
		console.New(console.Row{
			Name: "customers preview", Path: "GET /v1/ops/customers/{id}/preview", Errors: ledger.Failures,
			Summary: "Show a customer, linked or not, and the points that a link would move",
		}, func(ctx context.Context, _ audit.Author, in CustomerOf) (State, error) {
			return o.Show(ctx, in.Tenant, in.ID)
		}),
		console.New(console.Row{
			Name: "customers link", Path: "PUT /v1/ops/customers/{id}", Needs: console.Reason,
			Before: "customers preview", Errors: ledger.Failures,
			Summary: "Link a customer to a user, and move the points of the customer's guest orders to that user",
			Help:    "Points that were credited to the previous user stay there.",
		}, o.Link),
		console.New(console.Row{
			Name: "customers unlink", Path: "DELETE /v1/ops/customers/{id}", Needs: console.Reason,
			Before: "customers preview", Errors: ledger.Failures,
			Summary: "Remove the link between a customer and a user",
			Help:    "No points move. The next order that names the customer and a user links them again.",
		}, o.Unlink),
		console.History("customers", AuditKind, o.Store),
	}
}

// Notes says who has linked the customer, and which points a link would move.
func (s State) Notes() (notes []string) {
	switch {
	case s.UID == "":
		notes = append(notes, "Customer "+s.CustomerID+" is linked to nobody.")
	case s.LinkedBy == "":
		notes = append(notes, "A person has linked the customer.")
	}
	if s.GuestPoints != 0 {
		notes = append(notes, fmt.Sprintf("%d points of guests' orders are on %s; linking moves them.",
			s.GuestPoints, s.GuestAccount))
	}
	return notes
}

// Join adds what earlier calls have moved.
func (l *Linked) Join(before any) (page string) {
	if b, ok := before.(*Linked); ok && b.Operation != "" {
		l.Before, l.MovedPoints, l.MovedOrders = b.Before, l.MovedPoints+b.MovedPoints, l.MovedOrders+b.MovedOrders
	}
	return l.Next
}

// Notes says what is left to move.
func (l Linked) Notes() []string {
	if l.Left == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d points are left on the guest account; link once more to move them.", l.Left)}
}
