package payments

import (
	"context"
	"fmt"
	"time"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// RefundsCollection holds a document per payment whose refund was asked for. It does not expire: a
// payment is not to be refunded a second time, however late somebody asks.
const RefundsCollection = "refunds"

// State is where a refund stands.
type State string

// The states of a refund.
const (
	// UnderWay: reserved here; what happened at the gateway is not settled.
	UnderWay State = "under_way"
	// Refunded: the money has gone back. It stays so.
	Refunded State = "refunded"
	// Refused: the gateway has refused, and no money moved. Another message may ask again.
	Refused State = "refused"
)

// ErrNoRefund: nobody has asked for a refund of the payment.
var ErrNoRefund = console.Refuse(console.Absent, "refund_unknown", "Nobody has asked for a refund of this payment.")

// Refund is the refund of one payment.
type Refund struct {
	PaymentID      string `json:"payment_id" store:"payment_id,required" show:"Payment" link:"refunds"`
	Tenant         string `json:"tenant" store:"tenant,required"`
	SubscriptionID string `json:"subscription_id,omitempty" store:"subscription_id"`
	// Amount is a decimal string, such as 9.99, of Currency. Without both all of the payment goes back.
	Amount   string `json:"amount,omitempty" store:"amount" show:"Amount"`
	Currency string `json:"currency,omitempty" store:"currency" show:"Currency"`
	State    State  `json:"state" store:"state,required" show:"State"`
	Reason   string `json:"reason,omitempty" store:"reason" show:"Reason"`
	// Queue and EventID are of the message that has requested the refund last.
	Queue      string    `json:"queue" store:"queue,required" show:"Queue,less" link:"queues"`
	EventID    string    `json:"event_id" store:"event_id,required" show:"Event" link:"events"`
	ReservedAt time.Time `json:"reserved_at" store:"reserved_at,required" show:"Since"`
	SettledAt  time.Time `json:"settled_at,omitzero" store:"settled_at,omitzero" show:"Settled,less"`

	version store.Version
}

func refundKey(tenant, payment string) store.Key {
	return store.Key{Collection: RefundsCollection, ID: store.ID(tenant, payment)}
}

// ReadRefund reads a refund's document.
func ReadRefund(doc store.Document) (Refund, error) {
	r := Refund{version: doc.Version}
	err := store.Decode(doc.Fields, &r)
	if err != nil || (r.State != UnderWay && r.State != Refunded && r.State != Refused) {
		return Refund{}, fmt.Errorf("payments: %s is not readable", doc.Key)
	}
	return r, nil
}

// FindRefund returns the refund of a tenant's payment. The error may be ErrNoRefund.
func FindRefund(ctx context.Context, from store.Getter, tenant, payment string) (Refund, error) {
	return store.Read(ctx, from, refundKey(tenant, payment), ErrNoRefund, ReadRefund)
}

// ListRefunds returns a page of the refunds in a state, any where it is empty, the newest first by the time that they
// were reserved. next is zero where nothing is behind them.
func ListRefunds(ctx context.Context, from store.Querier, state State, after store.Cursor, limit int) (page []Refund, next store.Cursor, err error) {
	query := store.Query{Collection: RefundsCollection, Newest: &store.Newest{Field: "reserved_at"}, After: after, Limit: limit}
	if state != "" {
		query.Equal = map[string]any{"state": string(state)}
	}
	return store.List(ctx, from, query, ReadRefund)
}

// RefundsOf returns the refunds of payments of a tenant's subscription, at most limit, in no order.
func RefundsOf(ctx context.Context, from store.Querier, tenant, subscription string, limit int) (all []Refund, more bool, err error) {
	query := store.Query{Collection: RefundsCollection, Equal: map[string]any{"tenant": tenant, "subscription_id": subscription}, Limit: limit}
	all, next, err := store.List(ctx, from, query, ReadRefund)
	return all, !next.IsZero(), err
}

// ListOfRefunds asks for the refunds in a state.
type ListOfRefunds struct {
	State string `json:"-" query:"state" validate:"oneof=under_way refunded refused all" default:"all" help:"the state, or all"`
	console.Page
}

// RefundOf asks for the refund of a payment.
type RefundOf struct {
	console.Owned
	Payment string `json:"-" path:"payment" validate:"required" help:"payment id"`
}

// Operations are what people do with refunds, which is to look at them: a message asks for one.
func Operations(from store.Store) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "refunds ls", Path: "GET /v1/ops/refunds", Summary: "List refunds, all or those in one state, newest first",
			Empty: "No refund is in this list. A refund message starts one.",
		}, func(ctx context.Context, _ audit.Author, in ListOfRefunds) (console.List[Refund], error) {
			return console.Listed(ListRefunds(ctx, from, console.AllOr[State](in.State), in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "refunds show", Path: "GET /v1/ops/refunds/{payment}", Summary: "Show the refund of a payment, and the message that it is for",
		}, func(ctx context.Context, _ audit.Author, in RefundOf) (Refund, error) {
			return FindRefund(ctx, from, in.Tenant, in.Payment)
		}),
	}
}
