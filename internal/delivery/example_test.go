package delivery_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"billhook/internal/contract"
	"billhook/internal/delivery"
	"billhook/internal/embedded"
	"billhook/internal/handler"
)

// The callee forgets its answer; asked before the second attempt, it knows the event.
func ExamplePaymentWebhook_Leased() {
	const secret = "a-secret-of-more-than-24-bytes"
	receiver, _ := embedded.NewReceiver(embedded.ReceiverConfig{Secrets: []string{secret}, Tolerance: 5 * time.Minute})
	server := httptest.NewServer(receiver)
	defer server.Close()
	_ = receiver.Tell(embedded.Forget, 1)

	webhook, err := delivery.New(delivery.Config{BaseURL: server.URL, Secret: secret, Now: time.Now})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer webhook.Close()
	registry := handler.NewRegistry()
	registry.Leased("subscriptions.notify", webhook.Leased())

	notify, _ := registry.Lookup("subscriptions.notify")
	event := handler.Event{ID: "evt-1", Type: "renewal", Body: contract.Of(&contract.Envelope{
		ID: "evt-1", Action: "renewal", CreatedAt: "2026-11-20T09:00:00Z",
		Payload: contract.Payload{SubscriptionID: "sub-1", Cycle: 2},
	})}
	_, err = notify.Leased.Do(context.Background(), event)
	fmt.Println(err)
	fmt.Println(notify.Leased.Reconcile(context.Background(), event))
	fmt.Println("applied:", receiver.Applied("evt-1"))
	// Output:
	// callee_unreachable: unexpected EOF
	// delivered true <nil>
	// applied: 1
}
