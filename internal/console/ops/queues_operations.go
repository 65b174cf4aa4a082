package ops

import (
	"context"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
)

// OfQueue asks about one queue, or about all.
type OfQueue struct {
	Queue string `json:"-" query:"queue" help:"only this queue, by id or alias"`
}

// filtered is the queue of an id or alias; the zero queue where the name is empty: all are meant.
func (a Reads) filtered(name string) (q catalog.Queue, err error) {
	ok := name == ""
	if !ok {
		q, ok = a.Catalog.Queue(name)
	}
	if !ok {
		return q, console.Refuse(console.Malformed, "queue_unknown", "The catalog has no queue of that name or alias; GET /v1/ops/queues lists them.")
	}
	return q, nil
}

// QueueOperations are what people do with queues.
func (a Reads) QueueOperations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "queues waiting", Path: "GET /v1/ops/waiting", Summary: "Count what waits and may have no record: in the broker, delayed, in the outbox, in a replay, for approval",
		}, func(ctx context.Context, _ audit.Author, in OfQueue) (Elsewhere, error) {
			q, err := a.filtered(in.Queue)
			if err != nil {
				return Elsewhere{}, err
			}
			return a.waits(ctx, q.ID)
		}),
	}
}
