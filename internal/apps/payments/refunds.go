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
var ErrNoRefund = console.Refuse(console.Absent, "refund_unknown",
	"Nobody has asked for a refund of this payment.")

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

// ListRefunds returns a page of the refunds in a state, any where it is empty, the newest first by the time
// that they were reserved. next is zero where nothing is behind them.
func ListRefunds(
	ctx context.Context, from store.Querier, state State, after store.Cursor, limit int,
) (page []Refund, next store.Cursor, err error) {
	return store.List(ctx, from, store.Query{
		Collection: RefundsCollection, Equal: store.Equals("state", string(state)),
		Newest: &store.Newest{Field: "reserved_at"}, After: after, Limit: limit,
	}, ReadRefund)
}

// RefundsOf returns the refunds of payments of a tenant's subscription, at most limit, in no order.
func RefundsOf(
	ctx context.Context, from store.Querier, tenant, subscription string, limit int,
) (all []Refund, more bool, err error) {
	query := store.Query{
		Collection: RefundsCollection, Equal: map[string]any{"tenant": tenant, "subscription_id": subscription},
		Limit: limit,
	}
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

// RefundHandler is what the catalog calls the handler of refunds.
const RefundHandler = "refunds.initiate"

var errOff = console.Refuse(console.Conflict, "refunds_off",
	"No queue of refunds runs here, and so none are found by their state: list all.")

// Operations are what people do with refunds, which is to look at them: a message asks for one. Where no
// queue of refunds runs, which is off, the database has no index of their states.
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

// AlreadyRefunded is the result of a message that asks for what another one has got.
const AlreadyRefunded = "already_refunded"

// Refunds pays back at the gateway what a payment took: it reserves the refund here, has the gateway make it,
// and confirms it or rolls it back here.
type Refunds struct {
	Gateway Gateway
	Store   store.GetCommitter
	Now     func() time.Time
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

// Leased is the handler of refunds. What is asked for a payment that has been refunded ends here: the same is
// answered with AlreadyRefunded, and anything else is a dead letter. While another message's refund of the
// payment is under way, a message waits.
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
		Reconcile: handler.Typed(func(ctx context.Context, event handler.Event, body envelope) (
			handler.Reconciled, error,
		) {
			a, there, result, err := r.begin(ctx, event, body)
			done := result != ""
			if err == nil && !done && there.of(event) {
				result, done, err = a.find(ctx)
			}
			return handler.Reconciled{Done: done, Effect: handler.Effect{Result: result}}, err
		}),
	}
}

type attempt struct {
	Refunds

	event handler.Event
	body  *contract.Envelope
	asked contract.Payload // of body
}

// order is the order as the gateway takes it. What it holds has been decoded as JSON: it can be encoded.
func (a attempt) order() []byte {
	text, _ := json.Marshal(order{
		a.event.CalleeKey(), a.event.Tenant, a.event.ID, a.body.Action, a.asked.PaymentID,
		a.asked.SubscriptionID, a.body.CorrelationID, a.asked.Amount, a.asked.Currency,
	})
	return text
}

// begin looks at what became of the refund before: there is a result where nothing is left to do.
func (r Refunds) begin(
	ctx context.Context, event handler.Event, body *contract.Envelope,
) (a attempt, there Refund, result string, err error) {
	a = attempt{r, event, body, body.Payload}
	if !pii.ID.Valid(a.asked.PaymentID) {
		return a, there, "", retry.Permanent("payment_id_missing", nil)
	}
	doc, err := store.Find(ctx, r.Store, a.key())
	if err != nil {
		return a, there, "", retry.Outage("store_unavailable", err)
	}
	if there, err = stand(doc); err == nil {
		result, err = a.outcome(there)
	}
	return a, there, result, err
}

// stand reads the document of a payment's refund; without a state there is none.
func stand(doc store.Document) (there Refund, err error) {
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

// outcome is what a refund is to the message: a result or a refusal where nothing is left to do.
func (a attempt) outcome(there Refund) (result string, err error) {
	own, same := there.of(a.event), there.Amount == a.asked.Amount && there.Currency == a.asked.Currency
	switch {
	case own && there.State == Refused: // the gateway has refused this message's key for good
		return "", retry.Permanent(there.Reason, nil)
	case own && there.State == Refunded:
		return string(Refunded), nil
	case there.State == Refunded && same:
		return AlreadyRefunded, nil
	case there.State == Refunded, own && !same: // what is stored says how much, and no message
		return "", retry.Permanent("refunded_otherwise", nil)
	}
	return "", nil
}

// reserving are the writes that reserve the refund; none, where this message has reserved it. Of two messages
// that ask for a payment's refund, one is let through.
func (a attempt) reserving(there Refund) ([]store.Write, error) {
	switch {
	case there.State == UnderWay && there.of(a.event):
		return nil, nil
	// its outcome may be unknown for long, and after that it may be refused: no answer yet
	case there.State == UnderWay:
		return nil, retry.Missing("refund_under_way", nil)
	}
	return []store.Write{Refund{
		PaymentID: a.asked.PaymentID, Tenant: a.event.Tenant, SubscriptionID: a.asked.SubscriptionID,
		Amount: a.asked.Amount, Currency: a.asked.Currency, State: UnderWay,
		Queue: a.event.Queue, EventID: a.event.ID, ReservedAt: a.Now(), version: there.version,
	}.write()}, nil
}

// do reserves the refund, has the gateway make it, and settles it. A crash between any two steps is mended by
// doing it again: nothing is rolled back but on a refusal, and then the gateway is asked once more.
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
	// What was refused may be the repetition of a request that got through: this worker's own, or that of
	// another one.
	if result, done, err := a.find(ctx); err != nil || done {
		return result, err
	}
	result, err = a.settle(ctx, Refused, verdict.Reason)
	if err == nil || retry.Decide(err) != verdict {
		return result, err
	}
	return "", refusal // it says more than what is kept of it
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

// find asks the gateway what became of the request, and confirms here what it finds there.
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

// settle confirms the refund, or rolls it back with a reason. What another worker has settled before stands.
func (a attempt) settle(ctx context.Context, to State, reason string) (result string, err error) {
	var outcome error
	err = a.update(ctx, func(there Refund) (writes []store.Write, _ error) {
		switch own := there.of(a.event); {
		case there.State == "":
			return nil, retry.Transient("refund_lost", nil)
		case to == Refunded && (!own || there.State == Refused):
			return nil, retry.Permanent("two_phase_disagreement",
				errors.New("payments: refunded there after it was refused there and rolled back here"))
		case !own: // another message has it since a worker rolled this one back
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

// update commits what decide makes of the payment's refund. The error is marked.
func (a attempt) update(ctx context.Context, decide func(there Refund) ([]store.Write, error)) error {
	var refusal error
	_, err := store.Update(ctx, a.Store, a.key(), func(doc store.Document) (writes []store.Write, _ error) {
		there, err := stand(doc)
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
