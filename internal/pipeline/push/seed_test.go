package push_test

import (
	"context"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// credit is the rig's handler: it knows one product, and its effect counts itself.
func credit(_ context.Context, event handler.Event) (handler.Effect, error) {
	body, err := contract.As[*contract.Payment](event.Body)
	if err != nil {
		return handler.Effect{}, err
	}
	if order := body.Data.Order; order == nil || len(order.Items) == 0 || order.Items[0].ProductID == known {
		return counted(event), nil
	}
	return handler.Effect{}, retry.BadRequest("unknown_product", nil, body.Data.Order.Items[0].ProductID)
}

// effectOf is the document that counts the effects of a tenant's event.
func effectOf(tenant, event string) store.Key {
	return store.Key{Collection: "effects", ID: tenant + "~" + event}
}

func counted(event handler.Event) handler.Effect {
	return handler.Effect{
		Result: "done",
		Writes: []store.Write{store.Increment(effectOf(event.Tenant, event.ID), map[string]int64{"n": 1}, nil)},
	}
}

func (r *rig) effects(event string) int64 { return r.effectsOf(contract.DefaultTenant, event) }

func (r *rig) effectsOf(tenant, event string) int64 {
	doc, _ := r.db.Get(context.Background(), effectOf(tenant, event)) // none: no effect
	n, _ := doc.Fields["n"].(int64)
	return n
}

func doing(effect func(handler.Event) handler.Effect) handler.Tx {
	return func(_ context.Context, event handler.Event) (handler.Effect, error) { return effect(event), nil }
}

func returns(result string) handler.Tx {
	return doing(func(handler.Event) handler.Effect { return handler.Effect{Result: result} })
}

func always(err error) handler.Tx {
	return func(context.Context, handler.Event) (handler.Effect, error) { return handler.Effect{}, err }
}

// comes is a message as its cell delivers it.
func (c cell) comes(m message) message {
	switch c["delivery"] {
	case secondDelivery:
		return m.again(2)
	case fifth:
		return m.again(5)
	case sentAgain:
		return m.as("again-" + m.id)
	case fromLane:
		return m.as("back").set(contract.AttrDelayTicket, "1-1-1")
	case replayed:
		return m.as("replayed").set("replay_of", "item").set("replay_count", "1")
	}
	return m
}

// seed brings the event of a message into the state of a record. The caller lets two more seconds pass.
func (r *rig) seed(record string, m message) {
	deliver := func(m message, fails ...error) reply {
		r.fails = fails
		return r.deliverNow(m)
	}
	failed, refused := retry.Transient("failed", nil), retry.Permanent("refused", nil)
	another := m.with(func(m *message) {
		body := m.body.(contract.Payment)
		order := *body.Data.Order
		order.ID, body.Data.Order = "another", &order
		m.body = body
	})
	switch record {
	case "failed and due":
		deliver(m, failed)
		r.pass(8 * time.Second)
	case "failed, due in 1s":
		deliver(m, failed)
		r.pass(7 * time.Second)
	case "failed, due in 8s":
		deliver(m, failed)
	case "kept for 20s":
		deliver(m, retry.After(22*time.Second, failed))
	case "kept, and 20s are over":
		deliver(m, retry.After(20*time.Second, failed))
		r.pass(20 * time.Second)
	case "completed":
		deliver(m)
	case "completed with another payload":
		deliver(another)
	case "dead-lettered":
		deliver(m, refused)
	case "dead-lettered with another payload":
		deliver(another, refused)
	case "of a worker that died", "of a worker that died 8s ago":
		r.during = func(context.Context) { r.faults.Down(true) }
		deliver(m)
		r.faults.Down(false)
		if r.pass(8 * time.Second); record == "of a worker that died" {
			r.pass(2 * time.Minute)
		}
	case "broken":
		_, err := r.db.Commit(context.Background(), []store.Write{
			store.Set(dedupe.Key("orders", dedupe.DefaultTenant, m.attributes["event_id"]),
				map[string]any{"status": "UNKNOWN"}),
		})
		if err != nil {
			panic(err)
		}
	}
}
