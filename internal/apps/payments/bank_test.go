package payments_test

import (
	"context"
	"errors"
	"sync"

	"github.com/go-json-experiment/json"

	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

var errLost, errRefused = errors.New("no answer"), errors.New("too old")

// bank is a gateway that refunds once for each key, and a payment any number of times. A canned one has only
// one answer.
type bank struct {
	canned        bool
	answer, known string // known: the answer to Reconcile; empty: it has no such order
	err           error
	orders        []string // the key and the text of each
	reconciled    []string // the keys

	mu       sync.Mutex
	does     []string             // the outcomes of the next orders; later ones succeed
	keys     map[string]string    // the status of each order, by its key
	made     map[string]bankOrder // by its key
	refunded map[string]int       // by payment
	forgets  bool                 // a refusal is not stored under its key
	voids    bool                 // the reconciliation of an unknown key declines it permanently
	rebuffs  bool                 // the repetition of an order is refused
	before   func()               // if set, it runs before the next order, which reaches the gateway late
}

type bankOrder struct {
	PaymentID      string `json:"payment_id"`
	SubscriptionID string `json:"subscription_id"`
	Amount         string `json:"amount"`
	Currency       string `json:"currency"`
	Status         string `json:"status"`
}

func newBank(does ...string) *bank {
	return &bank{does: does, keys: map[string]string{}, made: map[string]bankOrder{}, refunded: map[string]int{}}
}

func (b *bank) Do(_ context.Context, id string, order []byte) ([]byte, error) {
	b.mu.Lock()
	b.orders = append(b.orders, id+" "+string(order))
	b.mu.Unlock()
	if b.canned {
		return []byte(b.answer), b.err
	}
	var ordered bankOrder
	if err := json.Unmarshal(order, &ordered); err != nil {
		return nil, err
	}
	if before := b.before; before != nil {
		b.before = nil
		before()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rebuffs && b.keys[id] != "" {
		return nil, retry.Permanent("done_already", nil)
	}
	does := "succeed"
	if len(b.does) > 0 {
		does, b.does = b.does[0], b.does[1:]
	}
	switch does {
	case "fail":
		return nil, errLost
	case "refuse":
		if !b.forgets && b.keys[id] == "" {
			b.keys[id], b.made[id] = "declined", ordered
		}
		if b.keys[id] != "succeeded" {
			return nil, retry.Permanent("callee_refused_422", errRefused)
		}
	}
	b.made[id] = ordered
	if b.keys[id] == "" {
		b.keys[id] = "succeeded"
		if does == "decline" {
			b.keys[id] = "declined"
		} else {
			b.refunded[ordered.PaymentID]++
		}
	}
	if does == "lose" {
		return nil, errLost
	}
	return b.answers(id), nil
}

func (b *bank) answers(id string) []byte {
	order := b.made[id]
	order.Status = b.keys[id]
	answer, _ := json.Marshal(order)
	return answer
}

func (b *bank) Request(id string, order []byte) handler.Call {
	return handler.Call{Target: "gateway", Method: "POST", Path: "/v1/refunds", ID: id, Body: order}
}

func (b *bank) Reconcile(_ context.Context, id string) ([]byte, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reconciled = append(b.reconciled, id)
	if b.canned {
		return []byte(b.known), b.known != "", b.err
	}
	if b.voids && b.keys[id] == "" {
		b.keys[id] = "declined"
	}
	_, known := b.made[id]
	return b.answers(id), known, nil
}
