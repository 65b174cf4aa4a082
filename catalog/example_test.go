package catalog_test

import (
	"fmt"

	"billhook/catalog"
)

func ExampleLoad() {
	c, err := catalog.Load("") // the catalog that is built in
	if err != nil {
		fmt.Println(err)
		return
	}
	q, _ := c.Queue("q:pay:refund_initiation") // by the name it had before
	fmt.Println(q.ID, q.MaxAttempts, q.Backoff.Base, q.Backoff.Max)
	fmt.Println(q.Topic(), q.PushSubscription(), q.DeadLetterHold())
	// Output:
	// pay-refund-initiation 6 1m0s 1h0m0s
	// pay-refund-initiation pay-refund-initiation-push pay-refund-initiation-dlq-hold
}
