package customers

import (
	"context"
	"fmt"
	"strings"

	"billhook/internal/apps/ledger"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// CustomerOf asks for a customer.
type CustomerOf struct {
	console.Owned
	ID string `json:"-" path:"id" validate:"required" help:"customer"`
}

// LinkCustomer links a customer to a user.
type LinkCustomer struct {
	CustomerOf
	UID   string `json:"uid" validate:"required" arg:"" help:"the user"`
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
			Name: "customers ls", Path: "GET /v1/ops/customers", Summary: "List the customers that are linked to a user", Errors: Failures,
			Empty: "No customer is linked to a user. An order that names both links them, and so does customers link.",
		}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Mapping], error) {
			return console.Listed(List(ctx, o.Store, in.Tenant, in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "customers show", Path: "GET /v1/ops/customers/{id}", Summary: "Show which user a customer is linked to", Errors: Failures,
			Beside: []string{"customers activity", "customers history"},
		}, func(ctx context.Context, _ audit.Author, in CustomerOf) (State, error) {
			state, err := o.Show(ctx, in.Tenant, in.ID)
			if err == nil && state.UID == "" {
				err = ErrUnknown
			}
			return state, err
		}),
		console.New(console.Row{
			Name: "customers preview", Path: "GET /v1/ops/customers/{id}/preview", Errors: Failures,
			Summary: "Show a customer, linked or not, and the points that a link would move",
		}, func(ctx context.Context, _ audit.Author, in CustomerOf) (State, error) {
			return o.Show(ctx, in.Tenant, in.ID)
		}),
		console.New(console.Row{
			Name: "customers link", Path: "PUT /v1/ops/customers/{id}", Needs: console.Reason, Before: "customers preview", Errors: Failures,
			Summary: "Link a customer to a user, and move the points of the customer's guest orders to that user",
			Help:    "Points that were credited to the previous user stay there.",
		}, func(ctx context.Context, by audit.Author, in LinkCustomer) (Linked, error) {
			return o.Link(ctx, Change{Tenant: in.Tenant, CustomerID: in.ID, UID: strings.TrimSpace(in.UID), After: in.After, By: in.By(by)})
		}),
		console.New(console.Row{
			Name: "customers unlink", Path: "DELETE /v1/ops/customers/{id}", Needs: console.Reason, Before: "customers preview", Errors: Failures,
			Summary: "Remove the link between a customer and a user", Help: "No points move. The next order that names the customer and a user links them again.",
		}, func(ctx context.Context, by audit.Author, in UnlinkCustomer) (State, error) {
			return o.Unlink(ctx, Change{Tenant: in.Tenant, CustomerID: in.ID, By: in.By(by)})
		}),
		console.History("customers", AuditKind, o.Store),
	}
}

// Failures are how errors about customers are answered.
var Failures = append([]console.Refusal{
	{Of: ErrUnknown, Kind: console.Absent, Code: "customer_not_linked", Detail: "This customer is linked to nobody."},
}, ledger.Failures...)

// List returns a page of a tenant's mappings, in no order that means anything, as store.List does.
func List(ctx context.Context, from store.Querier, tenant string, after store.Cursor, limit int) (page []Mapping, next store.Cursor, err error) {
	query := store.Query{Collection: Collection, Equal: map[string]any{"tenant": tenant}, After: after, Limit: limit}
	return store.List(ctx, from, query, func(doc store.Document) (Mapping, error) {
		m := Mapping{Version: doc.Version}
		return m, store.Decode(doc.Fields, &m)
	})
}

// Notes say whom the customer is linked to, and what a link would move.
func (s State) Notes() (notes []string) {
	switch {
	case s.UID == "":
		notes = append(notes, "Customer "+s.CustomerID+" is linked to nobody.")
	case s.TaughtBy == "":
		notes = append(notes, "A person has linked the customer.")
	}
	if s.GuestPoints != 0 {
		notes = append(notes, fmt.Sprintf("%d points of guests' orders are on %s; linking moves them.", s.GuestPoints, s.GuestAccount))
	}
	return notes
}

// Join adds what the calls before have moved.
func (l *Linked) Join(before any) (page string) {
	if b, ok := before.(*Linked); ok && b.Operation != "" {
		l.Before, l.MovedPoints, l.MovedOrders = b.Before, l.MovedPoints+b.MovedPoints, l.MovedOrders+b.MovedOrders
	}
	return l.Next
}

// Notes say what is left to move.
func (l Linked) Notes() []string {
	if l.Left == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d points are left on the guest account; link once more to move them.", l.Left)}
}
