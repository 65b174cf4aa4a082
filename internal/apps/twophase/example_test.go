package twophase_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"billhook/internal/apps/twophase"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// gateway stands in for a payment gateway: it decides once per idempotency key.
type gateway struct {
	refunds map[string]bool
	// hangsUp: it does what it is asked to, and the answer never arrives.
	hangsUp bool
}

func (g *gateway) refund(key, order string) (code string, err error) {
	if order == "order-closed" {
		return "", retry.Permanent("order_closed", nil)
	}
	g.refunds[key] = true
	if g.hangsUp {
		g.hangsUp = false
		return "", errors.New("gateway: no answer")
	}
	return "refunded", nil
}

// A refund takes 500 points from a customer: they are reserved here, the money goes
// back at the gateway, and then the points are gone; or the gateway refuses, and they
// are the customer's again.
func ExampleWork_Leased() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "refund")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := standin.OpenTemporaryStore(filepath.Join(dir, "store"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()

	points := store.Key{Collection: "points", ID: "customer-7"}
	const refunded = 500
	move := func(from, to string) []store.Write {
		change := map[string]int64{from: -refunded}
		if to != "" {
			change[to] = refunded
		}
		return []store.Write{store.Increment(points, change, nil)}
	}
	pay := &gateway{refunds: map[string]bool{}}

	refund := twophase.Work{
		Store: db, Now: time.Now, RememberFor: 30 * 24 * time.Hour,
		// What Prepare read must still be so at its commit: hence the update at a version.
		Prepare: func(ctx context.Context, _ handler.Event) ([]store.Write, error) {
			doc, err := db.Get(ctx, points)
			if err != nil {
				return nil, fmt.Errorf("read points: %w", err)
			}
			free, _ := doc.Fields["free"].(int64)
			if free < refunded {
				return nil, retry.Permanent("points_spent", nil)
			}
			reserved, _ := doc.Fields["reserved"].(int64)
			return []store.Write{store.Replace(points, doc.Version, map[string]any{
				"free": free - refunded, "reserved": reserved + refunded,
			})}, nil
		},
		CommitThere: func(_ context.Context, event handler.Event) (string, error) {
			return pay.refund(event.ID, event.OrderingKey)
		},
		Find: func(_ context.Context, event handler.Event) (string, bool, error) {
			return "refunded", pay.refunds[event.ID], nil
		},
		Confirm: func(context.Context, handler.Event, string) ([]store.Write, error) {
			return move("reserved", ""), nil
		},
		RollBack: func(context.Context, handler.Event, string) ([]store.Write, error) {
			return move("reserved", "free"), nil
		},
	}
	registry := handler.NewRegistry()
	registry.Leased("refund_order", refund.Leased())

	_, err = db.Commit(ctx, []store.Write{store.Create(points, map[string]any{"free": int64(1200), "reserved": int64(0)})})
	if err != nil {
		fmt.Println(err)
		return
	}
	// What the worker does with a delivery.
	deliver := func(event handler.Event) {
		h, _ := registry.Lookup("refund_order")
		var effect handler.Effect
		var done bool
		var err error
		if event.Attempt > 1 {
			effect, done, err = h.Leased.Reconcile(ctx, event)
		}
		if !done && err == nil {
			effect, err = h.Leased.Do(ctx, event)
		}
		doc, _ := db.Get(ctx, points)
		fmt.Printf("%s, attempt %d: %q, %v; free %v, reserved %v\n",
			event.OrderingKey, event.Attempt, effect.Result, err, doc.Fields["free"], doc.Fields["reserved"])
	}
	pay.hangsUp = true
	deliver(handler.Event{Queue: "refunds", Tenant: "default", ID: "evt-1", OrderingKey: "order-1", Attempt: 1})
	deliver(handler.Event{Queue: "refunds", Tenant: "default", ID: "evt-1", OrderingKey: "order-1", Attempt: 2})
	deliver(handler.Event{Queue: "refunds", Tenant: "default", ID: "evt-2", OrderingKey: "order-closed", Attempt: 1})
	deliver(handler.Event{Queue: "refunds", Tenant: "default", ID: "evt-2", OrderingKey: "order-closed", Attempt: 2})
	// Output:
	// order-1, attempt 1: "", gateway: no answer; free 700, reserved 500
	// order-1, attempt 2: "refunded", <nil>; free 700, reserved 0
	// order-closed, attempt 1: "", order_closed; free 700, reserved 0
	// order-closed, attempt 2: "", order_closed; free 700, reserved 0
}
