package standin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/platform/standin"
)

// One queue, a worker that acknowledges, and one message.
func ExampleBroker() {
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("pushed to", r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer worker.Close()
	broker, err := standin.NewBroker(standin.SimulatorConfig{
		ProjectID: "demo-project",
		Subscriptions: standin.Topology([]catalog.Queue{{
			ID: "invoices", AckDeadline: 30 * time.Second, DeadLetter: catalog.DeadLetter{Drop: true},
		}}),
		PushBaseURL: worker.URL,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = broker.Close() }()
	ctx := context.Background()
	if _, err := broker.Publish(ctx, "invoices", contract.Message{Data: []byte(`{}`)}); err != nil {
		fmt.Println(err)
		return
	}
	if err := broker.Idle(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("acknowledged:", broker.Stats()["invoices-push"].Acked)
	// Output:
	// pushed to /push/invoices
	// acknowledged: 1
}
