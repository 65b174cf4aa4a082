package delivery_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
)

// The target forgets its answer; asked before the second attempt, it knows the event.
func ExampleTarget_Post() {
	const secret = "a-secret-of-more-than-24-bytes"
	receiver, _ := standin.NewReceiver(standin.ReceiverConfig{Secrets: []string{secret}, Tolerance: 5 * time.Minute})
	server := httptest.NewServer(receiver)
	defer server.Close()
	_ = receiver.Tell(standin.Forget, 1)

	target, err := delivery.New(delivery.Config{
		Target: catalog.Target{
			Name: "subscription-service", Scheme: catalog.SchemeGeneric, Internal: true, Timeouts: catalog.Timeouts{Connect: time.Second, Total: 30 * time.Second},
		},
		BaseURL: server.URL, Secret: secret, Now: time.Now,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer target.Close()
	notify := target.Post(catalog.Post{Target: "subscription-service", Path: "/v1/webhooks/payment", Reconcile: "/v1/webhooks/payment/{id}"})
	event := handler.Event{ID: "evt-1", Type: "renewal", Body: contract.Of(&contract.Envelope{
		ID: "evt-1", Action: "renewal", CreatedAt: "2026-11-20T09:00:00Z",
		Payload: contract.Payload{SubscriptionID: "sub-1", Cycle: 2},
	})}
	_, err = notify.Do(context.Background(), event)
	fmt.Println(err)
	effect, done, err := notify.Reconcile(context.Background(), event)
	fmt.Println(effect.Result, done, err)
	fmt.Println("applied:", receiver.Applied("evt-1"))
	// Output:
	// callee_unreachable: unexpected EOF
	// delivered true <nil>
	// applied: 1
}
