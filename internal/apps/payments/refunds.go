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

// State is where a refund stands.
type State string

// The states of a refund.
const (
	UnderWay State = "under_way" // reserved here; the gateway's outcome is not known yet
	Refunded State = "refunded"  // the money has gone back; final
	Refused  State = "refused"   // the gateway has refused, and no money moved; another message may ask again
)

// ErrNoRefund: no refund of the payment was requested.
var ErrNoRefund = console.Refuse(console.Absent, "refund_unknown", "No refund of this payment was requested.")

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
	// Queue and EventID are of the last message that requested the refund.
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

// RefundHandler is the catalog's name of the handler of refunds.
const RefundHandler = "refunds.initiate"

var errOff = console.Refuse(console.Conflict, "refunds_off",
	"No queue of refunds runs here, and so none are found by their state: list all.")

// Operations are what people do with refunds: look at them. A message requests one. Where no queue of refunds
// runs, which is off, the database has no index of their states.
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

// AlreadyRefunded is the result of a message that requests the refund that another one has got.
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

// Leased is the handler of refunds. A second request for a refunded payment ends with AlreadyRefunded if it
// asks for the same, else as a dead letter. While another message's refund of the payment is under way, it
// waits.
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
			call := a.Gateway.Request(event.CalleeKey(), a.order())
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
	asked contract.Payload // of body
}

// order is the order's JSON. All of it was decoded from JSON, so it can be encoded.
func (a attempt) order() []byte {
	text, _ := json.Marshal(order{
		a.event.CalleeKey(), a.event.Tenant, a.event.ID, a.body.Action, a.asked.PaymentID,
		a.asked.SubscriptionID, a.body.CorrelationID, a.asked.Amount, a.asked.Currency,
	})
	return text
}

// begin reads the refund that there is; result is not empty where nothing is left to do.
func (r Refunds) begin(
	ctx context.Context, event handler.Event, body envelope,
) (a attempt, there Refund, result string, err error) {
	a = attempt{r, event, body, body.Payload}
	if !pii.ID.Valid(a.asked.PaymentID) {
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

// found reads the document of a payment's refund; the state is empty where there is none.
func found(doc store.Document) (there Refund, err error) {
	if doc.Version == 0 {
		return there, nil
	}
	if there, err = ReadRefund(doc); err != nil {
		return there, retry.Transient("refund_unreadable", err)
	}
	return there, nil
}

func (a attempt) key() store.Key { return refundKey(a.event.Tenant, a.asked.PaymentID) }

func (r Refund) of(event handler.Event) bool { return r.Queue == event.Queue && r.EventID == event.ID }

// outcome is a result or a refusal where the refund leaves the message nothing to do.
func (a attempt) outcome(there Refund) (result string, err error) {
	own, same := there.of(a.event), there.Amount == a.asked.Amount && there.Currency == a.asked.Currency
	switch {
	case own && there.State == Refused: // the gateway has refused this message's key for good
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

// reserving are the writes that reserve the refund; none, where this message has reserved it. Of two messages
// about one payment, one gets the reservation.
func (a attempt) reserving(there Refund) ([]store.Write, error) {
	switch {
	case there.State == UnderWay && there.of(a.event):
		return nil, nil
	// another message's; it may still be refused
	case there.State == UnderWay:
		return nil, retry.Missing("refund_under_way", nil)
	}
	return []store.Write{Refund{
		PaymentID: a.asked.PaymentID, Tenant: a.event.Tenant, SubscriptionID: a.asked.SubscriptionID,
		Amount: a.asked.Amount, Currency: a.asked.Currency, State: UnderWay,
		Queue: a.event.Queue, EventID: a.event.ID, ReservedAt: a.Now(), version: there.version,
	}.write()}, nil
}

// do reserves the refund, has the gateway make it, and settles it. After a crash between two steps another
// attempt completes them: only a refusal rolls back, and the gateway is asked once more before that.
func (a attempt) do(ctx context.Context) (result string, err error) {
	found := false // by an earlier attempt, or another worker, which may have asked the gateway
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
	// The refused request may repeat one that got through, of this worker or of another.
	if result, done, err := a.find(ctx); err != nil || done {
		return result, err
	}
	result, err = a.settle(ctx, Refused, verdict.Reason)
	if err == nil || retry.Decide(err) != verdict {
		return result, err
	}
	return "", refusal // which says more than the stored reason
}

// request asks the gateway for the refund. After an error marked retry.Permanent nothing happened there and
// nothing will; after any other the outcome is unknown.
func (a attempt) request(ctx context.Context) error {
	answer, err := a.Gateway.Do(ctx, a.event.CalleeKey(), a.order())
	if err != nil {
		return err
	}
	s, err := read(answer, a.asked)
	if err == nil && s.Status == statusDeclined {
		err = retry.Permanent("refund_declined", nil)
	}
	return err
}

// find asks the gateway for the outcome of the request, and confirms the refund here if it was made.
func (a attempt) find(ctx context.Context) (string, bool, error) {
	answer, known, err := a.Gateway.Reconcile(ctx, a.event.CalleeKey())
	if err != nil || !known {
		return "", false, err
	}
	s, err := read(answer, a.asked)
	if err != nil || s.Status != statusSucceeded {
		return "", false, err
	}
	result, err := a.settle(ctx, Refunded, "")
	return result, err == nil, err
}

// settle confirms the refund, or rolls it back with a reason. What another worker has settled stays.
func (a attempt) settle(ctx context.Context, to State, reason string) (result string, err error) {
	var outcome error
	err = a.update(ctx, func(there Refund) (writes []store.Write, _ error) {
		switch own := there.of(a.event); {
		case there.State == "":
			return nil, retry.Transient("refund_lost", nil)
		case to == Refunded && (!own || there.State == Refused):
			return nil, retry.Permanent("two_phase_disagreement",
				errors.New("payments: refunded there after it was refused there and rolled back here"))
		case !own: // a worker rolled this one back, and another message has reserved it since
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
