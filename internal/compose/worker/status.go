package worker

import (
	"context"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/gcp/pubsub"
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

// Examiner makes the ops API's doctor of the way to Pub/Sub's subscriptions.
func Examiner(look *pubsub.Switch, c *catalog.Catalog) ops.Doctor { return examiner{look, c} }

type examiner struct {
	look    *pubsub.Switch
	catalog *catalog.Catalog
}

func (e examiner) Examine(ctx context.Context, paused map[string]pause.Pause) (ops.Examination, error) {
	found, err := e.look.Examine(ctx, e.catalog, paused)
	return ops.Examination{Findings: found.Findings, Unread: len(found.Unread), Catalogs: found.Catalogs}, err
}
