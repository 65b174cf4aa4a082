package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/internal/apps/twophase"
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
	PaymentID      string `json:"payment_id" store:"payment_id,required"`
	Tenant         string `json:"tenant" store:"tenant,required"`
	SubscriptionID string `json:"subscription_id,omitempty" store:"subscription_id"`
	// Amount is a decimal string, such as 9.99, of Currency. Both are empty where all of the
	// payment goes back.
	Amount   string `json:"amount,omitempty" store:"amount"`
	Currency string `json:"currency,omitempty" store:"currency"`
	State    State  `json:"state" store:"state,required"`
	// Reason is the code of the refusal, where the gateway has refused.
	Reason string `json:"reason,omitempty" store:"reason"`
	// Queue and EventID are of the message that the refund is for: the last that was let ask the
	// gateway.
	Queue   string `json:"queue" store:"queue,required"`
	EventID string `json:"event_id" store:"event_id,required"`
	// ReservedAt is when the message was let ask; SettledAt, when the outcome was known.
	ReservedAt time.Time `json:"reserved_at" store:"reserved_at,required"`
	SettledAt  time.Time `json:"settled_at,omitzero" store:"settled_at,omitzero"`

	version store.Version
}

// refundKey is the key of a payment's refund.
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

// FindRefund returns the refund of a tenant's payment.
// The error wraps ErrNoRefund where there is none, and else says that nothing is known.
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

// ListRefunds returns the refunds in a state, those of any state where it is empty: a page of at most
// limit, 1 to store.MaxPage, the newest first by the time that their message was let ask, ties by the
// document's id, the greatest first. next is zero where nothing is behind them.
func ListRefunds(ctx context.Context, from store.Querier, state State, after store.Cursor, limit int) (page []Refund, next store.Cursor, err error) {
	query := store.Query{Collection: RefundsCollection, Newest: &store.Newest{Field: "reserved_at"}, After: after, Limit: limit}
	if state != "" {
		query.Equal = map[string]any{"state": string(state)}
	}
	page, _, err = store.List(ctx, from, query, func(doc store.Document) (Refund, error) {
		r, err := ReadRefund(doc)
		next = store.Cursor{At: r.ReservedAt, ID: doc.Key.ID}
		return r, err
	})
	if len(page) < limit {
		next = store.Cursor{}
	}
	return page, next, err
}

// RefundsOf returns the refunds of payments of a tenant's subscription, at most limit, in no order that
// means anything.
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
	// RememberFor is how long the phases of a refund are remembered: as long as its queue
	// remembers events.
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

// orderOf is what an event asks for.
func orderOf(event handler.Event) (order, error) {
	body, err := contract.As[*contract.Envelope](event.Body)
	if err != nil {
		return order{}, retry.Permanent("unexpected_body", nil)
	}
	asked := body.Payload
	if !pii.ID.Valid(asked.PaymentID) {
		return order{}, retry.Permanent("payment_id_missing", nil)
	}
	return order{event.CalleeKey(), event.Tenant, event.ID, body.Action, asked.PaymentID, asked.SubscriptionID, body.CorrelationID, asked.Amount, asked.Currency}, nil
}

// Leased is the handler of refunds. What is asked for a payment that has been refunded ends here:
// the same is answered with the result AlreadyRefunded, and anything else is a dead letter, since
// what is owed then is for people to say. While another message's refund of the payment is under
// way, a message waits.
func (r Refunds) Leased() handler.LeasedOf[*contract.Envelope] {
	work := twophase.Work{
		Store: r.Store, Now: r.Now, RememberFor: r.RememberFor,
		Prepare: r.prepare, CommitThere: r.commitThere, Find: r.find, Confirm: r.confirm, RollBack: r.rollBack, Request: r.request,
	}.Leased()
	return handler.LeasedOf[*contract.Envelope]{
		Plan: func(ctx context.Context, event handler.Event, _ *contract.Envelope) (handler.Plan, error) {
			if effect, done, err := r.before(ctx, event); err != nil || done {
				return handler.Plan{Effect: effect}, err
			}
			return work.Plan(ctx, event)
		},
		Do: func(ctx context.Context, event handler.Event, _ *contract.Envelope) (handler.Effect, error) {
			if effect, done, err := r.before(ctx, event); err != nil || done {
				return effect, err
			}
			return work.Do(ctx, event)
		},
		Reconcile: func(ctx context.Context, event handler.Event, _ *contract.Envelope) (handler.Effect, bool, error) {
			if effect, done, err := r.before(ctx, event); err != nil || done {
				return effect, done, err
			}
			return work.Reconcile(ctx, event)
		},
	}
}

// before is what became of the payment's refund before this attempt; done says that there is
// nothing left to do.
func (r Refunds) before(ctx context.Context, event handler.Event) (effect handler.Effect, done bool, err error) {
	asked, err := orderOf(event)
	if err != nil {
		return handler.Effect{}, false, err
	}
	there, err := r.look(ctx, event, asked)
	switch {
	case err != nil || there.State != Refunded:
		return handler.Effect{}, false, err
	case there.of(event):
		return handler.Effect{Result: string(Refunded)}, true, nil
	case there.Amount == asked.Amount && there.Currency == asked.Currency:
		return handler.Effect{Result: AlreadyRefunded}, true, nil
	default:
		return handler.Effect{}, false, retry.Permanent("refunded_otherwise", nil)
	}
}

// of reports whether the refund is for the event.
func (r Refund) of(event handler.Event) bool { return r.Queue == event.Queue && r.EventID == event.ID }

// look reads the payment's refund; without a state there is none. One that cannot be read must not
// pass for absent.
func (r Refunds) look(ctx context.Context, event handler.Event, asked order) (Refund, error) {
	doc, err := store.Find(ctx, r.Store, refundKey(event.Tenant, asked.PaymentID))
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

// prepare reserves the payment's refund for the event: of two messages that ask, one is let through.
func (r Refunds) prepare(ctx context.Context, event handler.Event) ([]store.Write, error) {
	asked, err := orderOf(event)
	if err != nil {
		return nil, err
	}
	there, err := r.look(ctx, event, asked)
	if err != nil {
		return nil, err
	}
	reserved := store.Encode(&Refund{
		PaymentID: asked.PaymentID, Tenant: event.Tenant, SubscriptionID: asked.SubscriptionID, Amount: asked.Amount, Currency: asked.Currency,
		State: UnderWay, Queue: event.Queue, EventID: event.ID, ReservedAt: clock(r.Now),
	})
	key := refundKey(event.Tenant, asked.PaymentID)
	switch {
	case there.State == "", there.State == Refused:
		return []store.Write{store.Replace(key, there.version, reserved)}, nil
	case there.State == UnderWay && there.of(event):
		return nil, nil // reserved by another worker, with the phase that this one is about to find
	case there.State == UnderWay:
		// Its outcome may be unknown for long, and after that it may be refused: no answer yet.
		return nil, retry.Missing("refund_under_way", nil)
	default:
		return nil, retry.Busy("contention", nil) // settled since before looked
	}
}

// text is the order as the gateway takes it.
func (o order) text() ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, retry.Permanent("body_not_encodable", nil)
	}
	return text, nil
}

func (r Refunds) request(event handler.Event) (handler.Call, error) {
	asked, err := orderOf(event)
	if err != nil {
		return handler.Call{}, err
	}
	text, err := asked.text()
	if err != nil {
		return handler.Call{}, err
	}
	return r.Gateway.Request(asked.EventID, text), nil
}

func (r Refunds) commitThere(ctx context.Context, event handler.Event) (string, error) {
	asked, err := orderOf(event)
	if err != nil {
		return "", err
	}
	text, err := asked.text()
	if err != nil {
		return "", err
	}
	answer, err := r.Gateway.Do(ctx, asked.EventID, text)
	if err != nil {
		return "", err
	}
	s, err := read(answer, asked.payload())
	switch {
	case err != nil:
		return "", err
	case s.Status == statusDeclined:
		return "", retry.Permanent("refund_declined", nil)
	}
	return string(Refunded), nil
}

func (r Refunds) find(ctx context.Context, event handler.Event) (string, bool, error) {
	asked, err := orderOf(event)
	if err != nil {
		return "", false, err
	}
	answer, known, err := r.Gateway.Reconcile(ctx, asked.EventID)
	if err != nil || !known {
		return "", false, err
	}
	s, err := read(answer, asked.payload())
	return string(Refunded), err == nil && s.Status == statusSucceeded, err
}

// payload is what the answer has to be about.
func (o order) payload() contract.Payload {
	return contract.Payload{PaymentID: o.PaymentID, SubscriptionID: o.SubscriptionID, Amount: o.Amount, Currency: o.Currency}
}

func (r Refunds) confirm(ctx context.Context, event handler.Event, _ string) ([]store.Write, error) {
	return r.settle(ctx, event, Refunded, "")
}

func (r Refunds) rollBack(ctx context.Context, event handler.Event, reason string) ([]store.Write, error) {
	return r.settle(ctx, event, Refused, reason)
}

// settle ends what prepare reserved.
func (r Refunds) settle(ctx context.Context, event handler.Event, as State, reason string) ([]store.Write, error) {
	asked, err := orderOf(event)
	if err != nil {
		return nil, err
	}
	there, err := r.look(ctx, event, asked)
	switch {
	case err != nil:
		return nil, err
	case there.State != UnderWay || !there.of(event):
		return nil, nil // settled by another worker, with the phase: this one's commit fails
	}
	there.State, there.Reason, there.SettledAt = as, reason, clock(r.Now)
	return []store.Write{store.Replace(refundKey(event.Tenant, asked.PaymentID), there.version, store.Encode(&there))}, nil
}
