package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
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

// AlreadyRefunded is the result of a message that asks for what another one has got.
const AlreadyRefunded = "already_refunded"

// ErrNoRefund: nobody has asked for a refund of the payment.
var ErrNoRefund = errors.New("payments: no refund of that payment")

// Refund is the refund of one payment.
type Refund struct {
	PaymentID      string `json:"payment_id" store:"payment_id,required" show:"Payment" link:"refunds"`
	Tenant         string `json:"tenant" store:"tenant,required"`
	SubscriptionID string `json:"subscription_id,omitempty" store:"subscription_id"`
	// Amount is a decimal string, such as 9.99, of Currency. Without both all of the payment goes back.
	Amount   string `json:"amount,omitempty" store:"amount" show:"Amount"`
	Currency string `json:"currency,omitempty" store:"currency" show:"Currency"`
	State    State  `json:"state" store:"state,required" show:"State"`
	// Reason is the code of the refusal, where the gateway has refused.
	Reason string `json:"reason,omitempty" store:"reason" show:"Reason"`
	// Queue and EventID are of the message that the refund is for: the last that was let ask.
	Queue   string `json:"queue" store:"queue,required" show:"Queue,less" link:"queues"`
	EventID string `json:"event_id" store:"event_id,required" show:"Event" link:"events"`
	// ReservedAt is when the message was let ask; SettledAt, when the outcome was known.
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
	if !pii.ID.Valid(payment) || !pii.ID.Valid(tenant) {
		return Refund{}, ErrNoRefund
	}
	doc, err := store.Find(ctx, from, refundKey(tenant, payment))
	switch {
	case err != nil:
		return Refund{}, fmt.Errorf("payments: %w", err)
	case doc.Version == 0:
		return Refund{}, ErrNoRefund
	}
	return ReadRefund(doc)
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

// Refunds pays back at the gateway what a payment took.
type Refunds struct {
	Gateway Gateway
	Store   store.GetCommitter
	Now     func() time.Time
	// RememberFor is how long the phases of a refund are remembered: as long as its queue remembers events.
	RememberFor time.Duration
}

// order is what the gateway is asked for. It is the same for every attempt of an event.
type order struct {
	EventID        string `json:"event_id"` // the event's CalleeKey
	Tenant         string `json:"tenant"`
	SourceEventID  string `json:"source_event_id"`
	Action         string `json:"action"`
	PaymentID      string `json:"payment_id"`
	SubscriptionID string `json:"subscription_id,omitempty"`
	CorrelationID  string `json:"correlation_id,omitempty"`
	Amount         string `json:"amount,omitempty"`
	Currency       string `json:"currency,omitempty"`
}

// text is the order as the gateway takes it. What it holds has been decoded as JSON: it can be encoded.
func (o order) text() []byte {
	text, _ := json.Marshal(o)
	return text
}

func (o order) read(answer []byte) (said, error) {
	return read(answer, contract.Payload{
		PaymentID: o.PaymentID, SubscriptionID: o.SubscriptionID, Amount: o.Amount, Currency: o.Currency,
	})
}

// Leased is the handler of refunds. What is asked for a payment that has been refunded ends here: the same is
// answered with AlreadyRefunded, and anything else is a dead letter. While another message's refund of the
// payment is under way, a message waits.
func (r Refunds) Leased() handler.LeasedOf[*contract.Envelope] {
	return handler.LeasedOf[*contract.Envelope]{
		Plan: func(ctx context.Context, event handler.Event, body *contract.Envelope) (handler.Plan, error) {
			a, result, err := r.begin(ctx, event, body)
			if err != nil || result != "" {
				return handler.Plan{Effect: handler.Effect{Result: result}}, err
			}
			return a.plan(ctx)
		},
		Do: func(ctx context.Context, event handler.Event, body *contract.Envelope) (handler.Effect, error) {
			a, result, err := r.begin(ctx, event, body)
			if err == nil && result == "" {
				result, err = a.do(ctx)
			}
			return handler.Effect{Result: result}, err
		},
		Reconcile: func(
			ctx context.Context, event handler.Event, body *contract.Envelope,
		) (handler.Effect, bool, error) {
			a, result, err := r.begin(ctx, event, body)
			done := result != ""
			if err == nil && !done {
				result, done, err = a.reconcile(ctx)
			}
			return handler.Effect{Result: result}, done, err
		},
	}
}

type attempt struct {
	Refunds

	event handler.Event
	asked order
}

// begin looks at what became of the refund before: there is a result where nothing is left to do.
func (r Refunds) begin(
	ctx context.Context, event handler.Event, body *contract.Envelope,
) (a attempt, result string, err error) {
	asked := body.Payload
	if !pii.ID.Valid(asked.PaymentID) {
		return a, "", retry.Permanent("payment_id_missing", nil)
	}
	a = attempt{r, event, order{
		event.CalleeKey(), event.Tenant, event.ID, body.Action, asked.PaymentID, asked.SubscriptionID,
		body.CorrelationID, asked.Amount, asked.Currency,
	}}
	there, err := a.look(ctx)
	same := there.Amount == asked.Amount && there.Currency == asked.Currency
	switch {
	case err != nil:
		return a, "", err
	case there.State == UnderWay && there.of(event) && !same: // what is stored says how much, and no message
		return a, "", retry.Permanent("refunded_otherwise", nil)
	case there.State != Refunded:
		return a, "", nil
	case there.of(event):
		return a, string(Refunded), nil
	case same:
		return a, AlreadyRefunded, nil
	}
	return a, "", retry.Permanent("refunded_otherwise", nil)
}

func (r Refund) of(event handler.Event) bool { return r.Queue == event.Queue && r.EventID == event.ID }

// look reads the payment's refund; without a state there is none.
func (a attempt) look(ctx context.Context) (Refund, error) {
	doc, err := store.Find(ctx, a.Store, refundKey(a.event.Tenant, a.asked.PaymentID))
	switch {
	case err != nil:
		return Refund{}, retry.Outage("store_unavailable", err)
	case doc.Version == 0:
		return Refund{}, nil
	}
	there, err := ReadRefund(doc)
	if err != nil {
		return Refund{}, retry.Transient("refund_unreadable", err)
	}
	return there, nil
}

func (r Refund) write() store.Write {
	return store.Replace(refundKey(r.Tenant, r.PaymentID), r.version, store.Encode(&r))
}
