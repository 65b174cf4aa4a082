package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// RefundsCollection holds a document for each payment whose refund was requested. None expires: a payment
// must not be refunded a second time, however late the second request comes.
const RefundsCollection = "refunds"

// State is the state of a refund.
type State string

// The states of a refund.
const (
	UnderWay State = "under_way" // reserved here; the gateway's outcome is unknown
	Refunded State = "refunded"  // the money was returned; final
	Refused  State = "refused"   // the gateway has refused, and no money moved; another message may request it
)

// ErrNoRefund: no refund of the payment was requested.
var ErrNoRefund = console.Refuse(console.Absent, "refund_unknown", "No refund of this payment was requested.")

// Refund is the refund of one payment.
type Refund struct {
	PaymentID      string `json:"payment_id" store:"payment_id,required" show:"Payment" link:"refunds"`
	Tenant         string `json:"tenant" store:"tenant,required"`
	SubscriptionID string `json:"subscription_id,omitempty" store:"subscription_id"`
	// Amount is a decimal string, such as 9.99, in Currency. If both are empty, the whole payment is refunded.
	Amount   string `json:"amount,omitempty" store:"amount" show:"Amount"`
	Currency string `json:"currency,omitempty" store:"currency" show:"Currency"`
	State    State  `json:"state" store:"state,required" show:"State"`
	Reason   string `json:"reason,omitempty" store:"reason" show:"Reason"`
	// Queue and EventID name the last message that requested the refund.
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

// ListRefunds returns a page of the refunds in a state, or of all, the last reserved first.
func ListRefunds(
	ctx context.Context, from store.Querier, state State, after store.Cursor, limit int,
) (page []Refund, next store.Cursor, err error) {
	query := store.Query{
		Collection: RefundsCollection, Equal: store.Equals("state", string(state)), After: after,
	}
	query.Newest, query.Limit = &store.Newest{Field: "reserved_at"}, limit
	return store.List(ctx, from, query, ReadRefund)
}

// RefundsOf returns the refunds of a tenant's subscription, at most limit, unordered.
func RefundsOf(
	ctx context.Context, from store.Querier, tenant, subscription string, limit int,
) (all []Refund, more bool, err error) {
	query := store.Query{Collection: RefundsCollection, Limit: limit}
	query.Equal = map[string]any{"tenant": tenant, "subscription_id": subscription}
	all, next, err := store.List(ctx, from, query, ReadRefund)
	return all, !next.IsZero(), err
}

// ListOfRefunds requests the refunds in a state.
type ListOfRefunds struct {
	State string `json:"-" query:"state" validate:"oneof=under_way refunded refused all" default:"all" help:"the state, or all"`
	console.Page
}

// RefundOf names the refund of a payment.
type RefundOf struct {
	console.Owned
	Payment string `json:"-" path:"payment" validate:"required" help:"payment id"`
}

// RefundHandler is the catalog's name of the handler of refunds.
const RefundHandler = "refunds.initiate"

var errOff = console.Refuse(console.Conflict, "refunds_off",
	"No queue of refunds runs here, and so none are found by their state: list all.")

// Operations are what people do with refunds: read them. off: no queue of refunds runs, so that the database
// has no index of their states.
func Operations(from store.Store, off bool) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "refunds ls", Path: "GET /v1/ops/refunds",
			Summary: "List refunds, all or those in one state, newest first",
			Empty:   "No refund is in this list. A refund message starts one.",
		}, func(ctx context.Context, _ audit.Author, in ListOfRefunds) (console.List[Refund], error) {
			if off && in.State != "all" {
				return console.List[Refund]{}, errOff
			}
			return console.Listed(ListRefunds(ctx, from, console.AllOr[State](in.State), in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "refunds show", Path: "GET /v1/ops/refunds/{payment}",
			Summary: "Show the refund of a payment, and the message that it is for",
		}, func(ctx context.Context, _ audit.Author, in RefundOf) (Refund, error) {
			return FindRefund(ctx, from, in.Tenant, in.Payment)
		}),
	}
}

// AlreadyRefunded is the result of a message that requests the same refund as an earlier one.
const AlreadyRefunded = "already_refunded"

// Refunds refunds payments: it reserves the refund here, has the gateway make it, and confirms it or rolls it
// back here.
type Refunds struct {
	Gateway Gateway
	Store   store.GetCommitter
	Now     func() time.Time
}

// order is the order to the gateway, the same in every attempt of an event.
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

// Leased returns the handler of refunds. A second request for a refunded payment ends with AlreadyRefunded if
// it is for the same amount, else as a dead letter. While the payment's refund for another message is under
// way, it waits.
func (r Refunds) Leased() handler.Leased {
	return handler.Leased{
		Plan: handler.Typed(func(ctx context.Context, event handler.Event, body envelope) (handler.Plan, error) {
			a, there, result, err := r.begin(ctx, event, body)
			if err != nil || result != "" {
				return handler.Plan{Effect: handler.Effect{Result: result}}, err
			}
			writes, err := a.reserving(there)
			if err != nil {
				return handler.Plan{}, err
			}
			call := a.Gateway.Request(event.CalleeKey(), a.text())
			return handler.Plan{Writes: writes, Calls: []handler.Call{call}}, nil
		}),
		Do: handler.Typed(func(ctx context.Context, event handler.Event, body envelope) (handler.Effect, error) {
			a, _, result, err := r.begin(ctx, event, body)
			if err == nil && result == "" {
				result, err = a.do(ctx)
			}
			return handler.Effect{Result: result}, err
		}),
		Reconcile: handler.Typed(func(ctx context.Context, event handler.Event, body envelope) (reconciled, error) {
			a, there, result, err := r.begin(ctx, event, body)
			done := result != ""
			if err == nil && !done && there.of(event) {
				result, done, err = a.find(ctx)
			}
			return reconciled{Done: done, Effect: handler.Effect{Result: result}}, err
		}),
	}
}

type attempt struct {
	Refunds

	event handler.Event
	body  envelope
	order contract.Payload // of body
}

// text is the order's JSON. All of it was decoded from JSON, so that it can be encoded.
func (a attempt) text() []byte {
	text, _ := json.Marshal(order{
		a.event.CalleeKey(), a.event.Tenant, a.event.ID, a.body.Action, a.order.PaymentID,
		a.order.SubscriptionID, a.body.CorrelationID, a.order.Amount, a.order.Currency,
	})
	return text
}

// begin reads the refund; result is not empty if nothing is left to do.
func (r Refunds) begin(
	ctx context.Context, event handler.Event, body envelope,
) (a attempt, there Refund, result string, err error) {
	a = attempt{r, event, body, body.Payload}
	if !pii.ID.Valid(a.order.PaymentID) {
		return a, there, "", retry.Permanent("payment_id_missing", nil)
	}
	doc, err := store.Find(ctx, r.Store, a.key())
	if err != nil {
		return a, there, "", retry.Outage("store_unavailable", err)
	}
	if there, err = found(doc); err == nil {
		result, err = a.outcome(there)
	}
	return a, there, result, err
}

// found reads the document of a payment's refund; without a document the state is empty.
func found(doc store.Document) (there Refund, err error) {
	if doc.Version == 0 {
		return there, nil
	}
	if there, err = ReadRefund(doc); err != nil {
		return there, retry.Transient("refund_unreadable", err)
	}
	return there, nil
}

func (a attempt) key() store.Key { return refundKey(a.event.Tenant, a.order.PaymentID) }

func (r Refund) of(event handler.Event) bool { return r.Queue == event.Queue && r.EventID == event.ID }

// outcome returns a result or an error if nothing is left to do for the message.
func (a attempt) outcome(there Refund) (result string, err error) {
	own, same := there.of(a.event), there.Amount == a.order.Amount && there.Currency == a.order.Currency
	switch {
	case own && there.State == Refused: // the gateway never executes a refused key
		return "", retry.Permanent(there.Reason, nil)
	case own && there.State == Refunded:
		return string(Refunded), nil
	case there.State == Refunded && same:
		return AlreadyRefunded, nil
	case there.State == Refunded, own && !same: // the document decides the amount
		return "", retry.Permanent("refunded_otherwise", nil)
	}
	return "", nil
}

// reserving returns the writes that reserve the refund; none if this message has reserved it already. Only
// one of two messages about a payment gets the reservation.
func (a attempt) reserving(there Refund) ([]store.Write, error) {
	switch {
	case there.State == UnderWay && there.of(a.event):
		return nil, nil
	case there.State == UnderWay:
		return nil, retry.Missing("refund_under_way", nil)
	}
	return []store.Write{Refund{
		PaymentID: a.order.PaymentID, Tenant: a.event.Tenant, SubscriptionID: a.order.SubscriptionID,
		Amount: a.order.Amount, Currency: a.order.Currency, State: UnderWay,
		Queue: a.event.Queue, EventID: a.event.ID, ReservedAt: a.Now(), version: there.version,
	}.write()}, nil
}

// do reserves the refund, requests it at the gateway, and settles it. After a crash between two steps another
// attempt completes them. Only a refusal rolls back, after one more reconciliation.
func (a attempt) do(ctx context.Context) (result string, err error) {
	found := false // an earlier attempt or another worker has reserved it, and may have requested it
	err = a.update(ctx, func(there Refund) (writes []store.Write, err error) {
		if result, err = a.outcome(there); err != nil || result != "" {
			return nil, err
		}
		writes, err = a.reserving(there)
		found = len(writes) == 0
		return writes, err
	})
	if err != nil || result != "" {
		return result, err
	}
	if found {
		if result, done, err := a.find(ctx); err != nil || done {
			return result, err
		}
	}
	refusal := a.request(ctx)
	if refusal == nil {
		return a.settle(ctx, Refunded, "")
	}
	verdict := retry.Decide(refusal)
	if verdict.Class != retry.Rejected {
		return "", refusal
	}
	// The refused request may repeat a successful one, of this worker or of another.
	if result, done, err := a.find(ctx); err != nil || done {
		return result, err
	}
	result, err = a.settle(ctx, Refused, verdict.Reason)
	if err == nil || retry.Decide(err) != verdict {
		return result, err
	}
	return "", refusal // which has more detail than the stored reason
}

// request requests the refund at the gateway. After an error marked retry.Permanent it is not made, now or
// later; after any other the outcome is unknown.
func (a attempt) request(ctx context.Context) error {
	answer, err := a.Gateway.Do(ctx, a.event.CalleeKey(), a.text())
	if err != nil {
		return err
	}
	s, err := read(answer, a.order)
	if err == nil && s.Status == statusDeclined {
		err = retry.Permanent("refund_declined", nil)
	}
	return err
}

// find reads the outcome of the request from the gateway, and confirms the refund here if it was made.
func (a attempt) find(ctx context.Context) (string, bool, error) {
	answer, known, err := a.Gateway.Reconcile(ctx, a.event.CalleeKey())
	if err != nil || !known {
		return "", false, err
	}
	s, err := read(answer, a.order)
	if err != nil || s.Status != statusSucceeded {
		return "", false, err
	}
	result, err := a.settle(ctx, Refunded, "")
	return result, err == nil, err
}

// settle confirms the refund, or rolls it back with a reason. It does not change one that another worker has
// settled.
func (a attempt) settle(ctx context.Context, to State, reason string) (result string, err error) {
	var outcome error
	err = a.update(ctx, func(there Refund) (writes []store.Write, _ error) {
		switch own := there.of(a.event); {
		case there.State == "":
			return nil, retry.Transient("refund_lost", nil)
		case to == Refunded && (!own || there.State == Refused):
			return nil, retry.Permanent("two_phase_disagreement",
				errors.New("payments: refunded there after it was refused there and rolled back here"))
		case !own: // another worker rolled it back, and another message has reserved it since
			return nil, retry.Permanent(reason, nil)
		case there.State == UnderWay:
			there.State, there.Reason, there.SettledAt = to, reason, a.Now()
			writes = []store.Write{there.write()}
		}
		result, outcome = a.outcome(there)
		return writes, nil
	})
	if err != nil {
		return "", err
	}
	return result, outcome
}

// update commits the writes that decide returns for the payment's refund. The error is marked.
func (a attempt) update(ctx context.Context, decide func(there Refund) ([]store.Write, error)) error {
	var refusal error
	_, err := store.Update(ctx, a.Store, a.key(), func(doc store.Document) (writes []store.Write, _ error) {
		there, err := found(doc)
		if err == nil {
			writes, err = decide(there)
		}
		refusal = err
		return writes, err
	})
	switch {
	case refusal != nil:
		return refusal
	case errors.Is(err, store.ErrBusy):
		return retry.Busy("contention", nil)
	case errors.Is(err, store.ErrInvalid):
		return retry.Permanent("effect_invalid", err)
	case err != nil:
		return retry.Outage("store_unavailable", err)
	}
	return nil
}

func (r Refund) write() store.Write {
	return store.Replace(refundKey(r.Tenant, r.PaymentID), r.version, store.Encode(&r))
}
