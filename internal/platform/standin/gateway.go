package standin

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"

	"billhook/internal/pii"
	"billhook/internal/platform/serve"
)

// Paths at which the gateway takes orders. GET of the path with the event's id returns the order's outcome.
const (
	PaymentsPath = "/v1/payments"
	RefundsPath  = "/v1/refunds"
)

// reused is the mode of a different order under a used key.
const reused Mode = "reused"

// Order is an order that the gateway has decided.
type Order struct {
	// Key is the Idempotency-Key. EventID is the producer's event id, unique within Tenant and a queue.
	Key            string `json:"key"`
	Tenant         string `json:"tenant,omitempty"`
	EventID        string `json:"event_id"`
	Path           string `json:"path"`
	Action         string `json:"action"`
	PaymentID      string `json:"payment_id"`
	SubscriptionID string `json:"subscription_id,omitempty"`
	Amount         string `json:"amount,omitempty"`
	Currency       string `json:"currency,omitempty"`
	// Status is succeeded or declined.
	Status string `json:"status"`
	// Times is how often the order was carried out: more than once only after its key was forgotten.
	Times int `json:"times"`

	forgotten bool // its key is forgotten
}

// Gateway stands in for a payment gateway. It carries out one order per Idempotency-Key, and refuses another
// order under the same key. A payment is refunded once per key. Orders are kept in memory.
//
// POST /gateway/behave and GET /gateway/orders are for people and need no authentication, so serve it only on
// the loopback address. It is safe for concurrent use.
type Gateway struct {
	*service
	orders []Order // in the order of their arrival
}

var _ http.Handler = (*Gateway)(nil)

// NewGateway returns a gateway that carries out every order.
func NewGateway(config ServiceConfig) (*Gateway, error) {
	shared, err := newService(config, Decline, Refuse, Fail, Hang, Lose, Forget)
	if err != nil {
		return nil, err
	}
	g := &Gateway{service: shared}
	for _, path := range []string{PaymentsPath, RefundsPath} {
		g.mux.HandleFunc("POST "+path, g.take)
		g.mux.HandleFunc("GET "+path+"/{id}", g.lookup(path, g.known))
	}
	g.mux.HandleFunc("POST /gateway/behave", g.instruct)
	g.mux.HandleFunc("GET /gateway/orders", func(w http.ResponseWriter, _ *http.Request) {
		serve.WriteJSON(w, http.StatusOK, map[string][]Order{"items": g.Orders()})
	})
	return g, nil
}

// Before makes the gateway pass all paths except its own to next.
func (g *Gateway) Before(next http.Handler) http.Handler {
	g.mux.Handle("/", next)
	return g
}

// Orders returns the orders that the gateway has decided, in order of arrival.
func (g *Gateway) Orders() []Order {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Order{}, g.orders...)
}

// CarriedOut returns how often an event's orders were carried out.
func (g *Gateway) CarriedOut(eventID string) int {
	return g.times(func(o Order) bool { return o.EventID == eventID })
}

// Refunded returns how often a payment was refunded, counting all keys.
func (g *Gateway) Refunded(payment string) int {
	return g.times(func(o Order) bool { return o.Path == RefundsPath && o.PaymentID == payment })
}

func (g *Gateway) times(of func(Order) bool) (times int) {
	for _, o := range g.Orders() {
		if of(o) {
			times += o.Times
		}
	}
	return times
}

func (g *Gateway) take(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	complete := func(p posted) bool {
		return p.Action != "" && (path != RefundsPath || pii.ID.Valid(p.PaymentID))
	}
	given, _, ok := g.keyed(w, r, complete, "event_id and action are needed, and of a refund payment_id.")
	if !ok {
		return
	}
	of := given.payment
	if path == PaymentsPath {
		of = given.Payload
	}
	decided, mode := g.decide(Order{
		Key: given.EventID, Tenant: given.Tenant, EventID: cmp.Or(given.SourceEventID, given.EventID), Path: path,
		Action: given.Action, PaymentID: of.PaymentID, SubscriptionID: given.SubscriptionID, Amount: of.Amount,
		Currency: of.Currency,
	})
	switch {
	case mode == reused:
		serve.Refuse(http.StatusUnprocessableEntity, "key_reused",
			"The key was used before for another order.").Write(w)
	case !g.instead(w, r, mode):
		serve.WriteJSON(w, http.StatusOK, decided.answer())
	}
}

func (o Order) answer() map[string]string {
	return map[string]string{
		"payment_id": o.PaymentID, "subscription_id": o.SubscriptionID, "amount": o.Amount, "currency": o.Currency,
		"status": o.Status,
	}
}

func (g *Gateway) decide(o Order) (Order, Mode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mode := g.next(o.PaymentID, o.SubscriptionID)
	if mode == Refuse || mode == Fail || mode == Hang {
		return Order{}, mode
	}
	if o.PaymentID == "" {
		sum := sha256.Sum256([]byte(o.Key))
		o.PaymentID = "pay-" + hex.EncodeToString(sum[:8])
	}
	known := g.order(o.Path, o.Key)
	if known != nil && !known.forgotten {
		if o.Status, o.Times = known.Status, known.Times; o != *known {
			return Order{}, reused
		}
	} else {
		if known == nil {
			g.orders = append(g.orders, o)
			known = &g.orders[len(g.orders)-1]
		}
		known.Status = "succeeded"
		if mode == Decline {
			known.Status = "declined"
		} else {
			known.Times++
		}
	}
	known.forgotten = mode == Forget
	return *known, mode
}

// order returns the order with a key; nil: there is none.
func (g *Gateway) order(path, key string) *Order {
	if i := slices.IndexFunc(g.orders, func(o Order) bool { return o.Path == path && o.Key == key }); i >= 0 {
		return &g.orders[i]
	}
	return nil
}

func (g *Gateway) known(path, key string) any {
	if o := g.order(path, key); o != nil && !o.forgotten {
		return o.answer()
	}
	return nil
}
