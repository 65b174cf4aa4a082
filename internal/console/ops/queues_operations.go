package ops

import (
	"context"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/pipeline/pause"
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

// named is the queue of an id or alias in a path.
func (a Reads) named(name string) (catalog.Queue, error) {
	q, ok := a.Catalog.Queue(name)
	if !ok {
		return q, console.Refuse(console.Absent, "queue_unknown", "The catalog has no queue of that name or alias.")
	}
	return q, nil
}

// QueueOperations are what people do with queues, which is to look at them.
func (a Reads) QueueOperations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "queues ls", Path: "GET /v1/ops/queues", Summary: "Show where each queue stands: what waits and where, its last hour, its open dead letters",
			Empty: "The catalog has no queue.",
		}, func(ctx context.Context, _ audit.Author, _ struct{}) (Queues, error) {
			all, _, err := a.queuesAndNow(ctx)
			return all, err
		}),
		console.New(console.Row{
			Name: "queues show", Path: "GET /v1/ops/queues/{id}", Summary: "Show one queue: what it declares, what waits and behind what, its targets, its newest events",
			Help: "A queue is named by id or alias. The numbers of the last hour are about: an instance that is killed loses what it has " +
				"counted in the last seconds, and of the hour before this one they take the part that is within 60 minutes.",
		}, func(ctx context.Context, _ audit.Author, in pause.Of) (QueueDetail, error) {
			q, err := a.named(in.ID)
			if err != nil {
				return QueueDetail{}, err
			}
			return a.queue(ctx, q)
		}),
		console.New(console.Row{
			Name: "queues rates", Path: "GET /v1/ops/rates", Summary: "Show what became of deliveries in the last hours or days, and of one queue in each of them",
			Help: "The numbers are about: an instance that is killed loses what it has counted in the last seconds. Hours are kept for 8 days, days for 90.",
		}, func(ctx context.Context, _ audit.Author, in RatesOf) (Rates, error) { return a.rates(ctx, in) }),
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
