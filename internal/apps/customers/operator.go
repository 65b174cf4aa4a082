package customers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/console"
	"billhook/internal/pii"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// AuditKind is the audit's kind of subject for a customer's mapping.
const AuditKind = "customer"

const (
	batch   = 200              // orders of one commit: two entries each, and four more documents
	moveFor = 15 * time.Second // how long one call moves orders; another call continues
)

// ErrUnknown: the customer has no mapping.
var ErrUnknown = console.Refuse(console.Absent, "customer_not_linked", "This customer is linked to nobody.")

// Operator changes mappings for people.
type Operator struct {
	Store store.Store
	Now   func() time.Time
	NewID func() string
}

// State is a customer's mapping and guest account.
type State struct {
	Mapping
	// GuestAccount has the points of the customer's orders without a uid: GuestPoints.
	GuestAccount string `json:"guest_account" show:"Guest account" link:"accounts"`
	GuestPoints  int64  `json:"guest_points" show:"Guest points"`
}

// Show returns the state of a tenant's customer, linked or not.
func (o *Operator) Show(ctx context.Context, tenant, customerID string) (State, error) {
	if !pii.ID.Valid(tenant) || !pii.ID.Valid(customerID) {
		return State{}, audit.ErrID
	}
	m, err := lookup(ctx, o.Store, tenant, customerID)
	if err != nil {
		return State{}, err
	}
	s := State{Mapping: m, GuestAccount: string(ledger.CustomerPoints(customerID))}
	s.GuestPoints, err = o.guestPoints(ctx, tenant, customerID)
	return s, err
}

func (o *Operator) guestPoints(ctx context.Context, tenant, customerID string) (int64, error) {
	doc, err := store.Find(ctx, o.Store, ledger.CustomerPoints(customerID).Key(tenant))
	balance, _ := doc.Fields["balance"].(int64)
	return balance, err
}

func (c CustomerOf) key() store.Key { return Key(c.Tenant, c.ID) }

func (c CustomerOf) subject() audit.Subject {
	return audit.Subject{Kind: AuditKind, Tenant: c.Tenant, ID: c.ID}
}

// Linked is the outcome of a link.
type Linked struct {
	Tenant     string `json:"tenant"`
	CustomerID string `json:"customer_id" show:"Customer"`
	UID        string `json:"uid" show:"User"`
	// Before is the uid that the customer was linked to, which keeps its points; empty: none.
	Before      string `json:"before" show:"User before"`
	Operation   string `json:"operation" show:"Operation"` // the id in the entries of the moved points
	MovedPoints int64  `json:"moved_points" show:"Moved points"`
	MovedOrders int64  `json:"moved_orders" show:"Of orders"`
	Left        int64  `json:"left" show:"Left"`
	Next        string `json:"next"` // where another call continues; empty: nothing is left
}

// Link maps a customer to a uid, and moves the points of guest orders to the uid's account: each order once,
// even after a crash or with concurrent calls. Each commit moves some orders at the version of the mapping,
// so that none is moved to a replaced uid. The error wraps ledger.ErrBroken, or is as in audit.Change.Update;
// the caller may retry.
func (o *Operator) Link(ctx context.Context, by audit.Author, change LinkCustomer) (Linked, error) {
	if change.UID = strings.TrimSpace(change.UID); !pii.UID.Valid(change.UID) {
		return Linked{}, fmt.Errorf("%w: this is no uid", audit.ErrInvalid)
	}
	done := Linked{Tenant: change.Tenant, CustomerID: change.ID, UID: change.UID, Operation: "link-" + o.NewID()}
	audited, err := o.settle(ctx, change, change.By(by), &done)
	if err != nil {
		return done, err
	}
	if done.Left, err = o.guestPoints(ctx, change.Tenant, change.ID); err != nil || done.Left == 0 {
		return done, err
	}
	if err := o.move(ctx, change, change.By(by), audited, &done); err != nil {
		return done, err
	}
	done.Left, err = o.guestPoints(ctx, change.Tenant, change.ID)
	return done, err
}

// settle writes the mapping; audited reports whether it has changed, with an audit entry.
func (o *Operator) settle(
	ctx context.Context, change LinkCustomer, by audit.Change, done *Linked,
) (audited bool, err error) {
	now := o.Now()
	decide := func(doc store.Document) (made audit.Made, err error) {
		m := of(doc, change.Tenant, change.ID)
		done.Before = m.UID
		switch {
		case m.UID == change.UID:
			return made, nil // it is linked already, even if the caller expected another uid
		case change.After != "":
			return made, audit.ErrChanged
		}
		if m.Version != 0 {
			made.Before = map[string]any{"uid": m.UID}
		}
		m = Mapping{Tenant: change.Tenant, CustomerID: change.ID, UID: change.UID, Since: now}
		made.Action, made.After = "link", map[string]any{"uid": change.UID, "operation": done.Operation}
		made.Writes = []store.Write{store.Replace(doc.Key, doc.Version, store.Encode(&m))}
		return made, nil
	}
	return by.Update(ctx, o.Store, change.key(), change.subject(), now, done.Operation, decide)
}

// move moves the points of guest orders in batches. If settle did not change the mapping, the first batch has
// the audit entry.
func (o *Operator) move(
	ctx context.Context, change LinkCustomer, by audit.Change, audited bool, done *Linked,
) error {
	from, to, began, long := ledger.CustomerPoints(change.ID), ledger.UserPoints(change.UID), o.Now(), moveFor
	if ends, ok := ctx.Deadline(); ok { // the caller, such as a page, may wait for less
		long = min(long, time.Until(ends)*3/4)
	}
	var chains, some []ledger.Chain
	var next store.Cursor
	for after, read := change.After, true; ; {
		if o.Now().Sub(began) > long {
			done.Next = after
			return nil
		}
		var points, orders int64
		decide := func(doc store.Document) (writes []store.Write, err error) {
			m := of(doc, change.Tenant, change.ID)
			if m.UID != change.UID {
				return nil, audit.ErrChanged
			}
			if read {
				chains, next, err = ledger.HeldBy(ctx, o.Store, change.Tenant, from, store.Cursor{ID: after})
				if err != nil {
					return nil, err
				}
			}
			// after a refund, a link or an unlink meanwhile, the next try reads again
			read, some = true, chains[:min(batch, len(chains))]
			if writes, points, err = ledger.Transfer(some, to, done.Operation, o.Now()); err != nil || points == 0 {
				return nil, err
			}
			orders = int64(len(writes)-2) / 2 // two entries each, and the two accounts
			m.MovedPoints, m.MovedOrders = m.MovedPoints+points, m.MovedOrders+orders
			writes = append(writes, store.Replace(doc.Key, doc.Version, store.Encode(&m)))
			if audited {
				return writes, nil
			}
			return audit.Entry{
				Kind: AuditKind, Tenant: change.Tenant, Subject: change.ID, Action: "move", At: o.Now(),
				Before: map[string]any{"uid": m.UID}, After: map[string]any{"uid": m.UID, "operation": done.Operation},
			}.By(by).With(done.Operation, writes...)
		}
		versions, err := store.Update(ctx, o.Store, change.key(), decide)
		if err != nil {
			return err
		}
		if len(versions) > 0 {
			audited, done.MovedPoints, done.MovedOrders = true, done.MovedPoints+points, done.MovedOrders+orders
		}
		if chains = chains[len(some):]; len(chains) > 0 {
			read = false
			continue
		}
		if next.IsZero() {
			return nil
		}
		after = next.ID
	}
}

// Unlink removes a customer's mapping and moves no points. The error is as in Link, or ErrUnknown.
func (o *Operator) Unlink(ctx context.Context, by audit.Author, change UnlinkCustomer) (State, error) {
	decide := func(doc store.Document) (made audit.Made, err error) {
		if doc.Version == 0 {
			return made, ErrUnknown
		}
		made.Action, made.Before = "unlink", map[string]any{"uid": of(doc, change.Tenant, change.ID).UID}
		made.Writes = []store.Write{store.Delete(doc.Key, doc.Version)}
		return made, nil
	}
	_, err := change.By(by).Update(ctx, o.Store, change.key(), change.subject(), o.Now(), o.NewID(), decide)
	if err != nil {
		return State{}, err
	}
	return o.Show(ctx, change.Tenant, change.ID)
}
