package worker

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/payments"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Where the gateway takes orders. Behind the path and an order's key it says what became of one.
const (
	paymentsPath = "/v1/payments"
	refundsPath  = "/v1/refunds"
)

// registerPayments registers the handlers of payments and refunds; the registry's own check reports what is missing.
func registerPayments(r *handler.Registry, c *catalog.Catalog, targets delivery.Targets, db store.GetCommitter, now func() time.Time) {
	refundQueue, _ := c.HandledBy("refunds.initiate")
	payment := func(name string) payments.Payments {
		updates, _ := c.EmitsTo(name)
		return payments.Payments{Gateway: gatewayOf(c, targets, name, paymentsPath), Updates: updates, Refunds: refundQueue}
	}
	payments.Register(r, payment("payments.initiate"), payment("payments.initiate_trial"), payments.Refunds{
		Gateway: gatewayOf(c, targets, "refunds.initiate", refundsPath), Store: db, Now: now,
	})
}

func gatewayOf(c *catalog.Catalog, targets delivery.Targets, name, path string) gateway {
	q, _ := c.HandledBy(name)
	for _, h := range q.Handlers {
		if h.Name == name && len(h.Calls) > 0 {
			return gateway{h.Calls[0], targets[h.Calls[0]], path}
		}
	}
	return gateway{}
}

// gateway is a service of the payment gateway, at a path of its target.
type gateway struct {
	name   string // of the target
	target *delivery.Target
	path   string
}

// Do posts an order.
func (g gateway) Do(ctx context.Context, key string, order []byte) ([]byte, error) {
	answer, err := g.target.Call(ctx, delivery.Request{
		Method: http.MethodPost, Path: g.path, ID: key, Body: order, MaxAnswer: payments.MaxAnswer,
	})
	if answer.Status == http.StatusConflict {
		// It means "I have that" to some and "this contradicts what I have" to others, so the gateway is asked.
		known, ok, asked := g.Reconcile(ctx, key)
		if asked != nil || ok {
			return known, asked
		}
	}
	return answer.Body, err
}

// Request implements payments.Gateway.
func (g gateway) Request(key string, order []byte) handler.Call {
	return handler.Call{Target: g.name, Method: http.MethodPost, Path: g.path, ID: key, Body: order}
}

// Reconcile asks for the order of a key. 404 alone says that there is none.
func (g gateway) Reconcile(ctx context.Context, key string) (body []byte, known bool, err error) {
	answer, err := g.target.Call(ctx, delivery.Request{
		Method: http.MethodGet, Path: g.path + "/" + key, ID: key, MaxAnswer: payments.MaxAnswer, Unknown: []int{http.StatusNotFound},
	})
	switch {
	case answer.Status == http.StatusNotFound:
		return nil, false, nil
	case err != nil && retry.Decide(err).Class.Terminal():
		// The question was refused, not the order: what became of that is not known.
		return nil, false, retry.Transient("callee_unclear_"+strconv.Itoa(answer.Status), nil)
	case err != nil:
		return nil, false, err
	}
	return answer.Body, true, nil
}
