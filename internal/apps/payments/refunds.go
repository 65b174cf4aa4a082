package payments

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// AlreadyRefunded is the result of a message that asks for what another one has got.
const AlreadyRefunded = "already_refunded"

// Refunds pays back at the gateway what a payment took: it reserves the refund here, has the gateway make it, and
// confirms it or rolls it back here.
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
			a, there, result, err := r.begin(ctx, event, body)
			if err != nil || result != "" {
				return handler.Plan{Effect: handler.Effect{Result: result}}, err
			}
			writes, err := a.reserving(there)
			if err != nil {
				return handler.Plan{}, err
			}
			return handler.Plan{Writes: writes, Calls: []handler.Call{a.Gateway.Request(a.asked.EventID, a.asked.text())}}, nil
		},
		Do: func(ctx context.Context, event handler.Event, body *contract.Envelope) (handler.Effect, error) {
			a, _, result, err := r.begin(ctx, event, body)
			if err == nil && result == "" {
				result, err = a.do(ctx)
			}
			return handler.Effect{Result: result}, err
		},
		Reconcile: func(ctx context.Context, event handler.Event, body *contract.Envelope) (handler.Effect, bool, error) {
			a, there, result, err := r.begin(ctx, event, body)
			done := result != ""
			if err == nil && !done && there.of(event) {
				result, done, err = a.find(ctx)
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
) (a attempt, there Refund, result string, err error) {
	asked := body.Payload
	if !pii.ID.Valid(asked.PaymentID) {
		return a, there, "", retry.Permanent("payment_id_missing", nil)
	}
	a = attempt{r, event, order{
		event.CalleeKey(), event.Tenant, event.ID, body.Action, asked.PaymentID, asked.SubscriptionID,
		body.CorrelationID, asked.Amount, asked.Currency,
	}}
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

// reserving are the writes that reserve the refund; none, where this message has reserved it. Of two messages that ask
// for a payment's refund, one is let through.
func (a attempt) reserving(there Refund) ([]store.Write, error) {
	switch {
	case there.State == UnderWay && there.of(a.event):
		return nil, nil
	case there.State == UnderWay: // its outcome may be unknown for long, and after that it may be refused: no answer yet
		return nil, retry.Missing("refund_under_way", nil)
	}
	return []store.Write{Refund{
		PaymentID: a.asked.PaymentID, Tenant: a.event.Tenant, SubscriptionID: a.asked.SubscriptionID,
		Amount: a.asked.Amount, Currency: a.asked.Currency, State: UnderWay,
		Queue: a.event.Queue, EventID: a.event.ID, ReservedAt: clock(a.Now), version: there.version,
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
	// What was refused may be the repetition of a request that got through: this worker's own, or that of another one.
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
	answer, err := a.Gateway.Do(ctx, a.asked.EventID, a.asked.text())
	if err != nil {
		return err
	}
	s, err := a.asked.read(answer)
	if err == nil && s.Status == statusDeclined {
		err = retry.Permanent("refund_declined", nil)
	}
	return err
}

// find asks the gateway what became of the request, and confirms here what it finds there.
func (a attempt) find(ctx context.Context) (string, bool, error) {
	answer, known, err := a.Gateway.Reconcile(ctx, a.asked.EventID)
	if err != nil || !known {
		return "", false, err
	}
	s, err := a.asked.read(answer)
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
			there.State, there.Reason, there.SettledAt = to, reason, clock(a.Now)
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
