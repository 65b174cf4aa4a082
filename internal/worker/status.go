package worker

import (
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/webhook/samples"
)

// exampleAt is when the examples of contracts were made.
var exampleAt = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

// example is a body of a format, for people who look at a contract. eventType may be a pattern.
func (c Config) example(format, eventType string) ([]byte, error) {
	eventType = strings.NewReplacer("*", "sample", "#", "sample").Replace(eventType)
	if format == contract.PayNowV1 {
		eventType = contract.OrderPaid // the format says what a body of any other type has
	}
	return samples.Message(c.Catalog, catalog.Queue{Contract: format}, eventType, "1", exampleAt)
}
