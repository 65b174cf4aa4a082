package events

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/audit"
)

var (
	// ErrUntried: no message of the event is kept in a form that can be tried.
	ErrUntried = console.Refuse(console.Absent, "payload_not_kept",
		"No payload of that event is kept: dead letters and what waits have theirs. Send the message in its place.")
	// ErrSeveral: payloads of several queues or tenants are kept under the event id.
	ErrSeveral = console.Refuse(console.Conflict, "queue_needed",
		"Messages of several queues or tenants are kept under this event id; name one with queue or tenant.")
)

// Try asks what a worker would do with an event's kept message, or with a message in the request.
type Try struct {
	EventID string `json:"event_id,omitempty" arg:"event id" validate:"omitempty,id" help:"event id"`
	Queue   string `json:"queue,omitempty" help:"the queue, by id or alias, where several know the id"`
	Tenant  string `json:"tenant,omitempty" help:"the tenant, where several have the id"`
	// Message is a message as published to the topic, and Body the payload of one without attributes.
	Message *GivenMessage  `json:"message,omitempty" help:"a message in place of an event's, such as dlq payload --json prints"`
	Body    jsontext.Value `json:"body,omitempty" help:"the body of a message for the queue, in place of an event's"`
	// Catalog has files, by name, that replace those of the running catalog.
	Catalog map[string]string `json:"catalog,omitempty" help:"files by their names, in place of those of the catalog"`
}

// GivenMessage is a message, perhaps with the other fields of a dead letter.
type GivenMessage struct {
	Message
	// Queue is used if the request names none.
	Queue string         `json:"queue,omitempty"`
	Rest  jsontext.Value `json:",embed"`
}

// maxBody is the largest body of a request for a trial, in bytes: a message and the files of a catalog.
const maxBody = 4 << 20

// Try tries one message: a kept one, or the one in the request.
func (a Reads) Try(ctx context.Context, _ audit.Author, in Try) (dryrun.Trial, error) {
	brought := in.Message
	if brought == nil && in.Body != nil {
		brought = &GivenMessage{Message: Message{Data: in.Body}}
	}
	if brought != nil {
		in.Queue = cmp.Or(in.Queue, brought.Queue)
	}
	whole := brought != nil && in.Queue != "" && in.Tenant == "" &&
		(brought.Data != nil || brought.Base64 != nil)
	if whole == (in.EventID != "") || !whole && brought != nil {
		return dryrun.Trial{}, console.Refuse(console.Malformed, "body_malformed",
			"Name an event_id, or a queue and a message or a body for it. A dead letter has its message where its "+
				"payload is shown.")
	}
	worker, err := a.Worker(in.Catalog)
	if err != nil {
		return dryrun.Trial{}, err
	}
	if in.Queue != "" {
		q, ok := worker.Queue(in.Queue)
		if !ok {
			return dryrun.Trial{}, dryrun.ErrNoQueue
		}
		in.Queue = q.ID
	}
	if brought == nil {
		kept, err := a.kept(ctx, worker, in)
		if err != nil {
			return dryrun.Trial{}, err
		}
		return worker.Try(ctx, kept)
	}
	m := contract.Message{Data: brought.Data, Attributes: brought.Attributes, OrderingKey: brought.OrderingKey}
	if brought.Base64 != nil {
		m.Data = brought.Base64
	}
	return worker.Try(ctx, dryrun.Message{Message: m, Queue: in.Queue, PublishedAt: a.Now()})
}

// rank orders the kept messages of an event: the one with the lowest rank is tried.
func rank(k stored) int {
	if k.DeadLetter.State == deadletter.Open {
		return -1
	}
	return slices.Index([]Where{PlaceDelayed, PlaceLease, PlaceDeadLetter}, k.Place)
}

// kept returns the message of an event to try: its open dead letter, else a delayed message, else the one
// that a worker is processing, else a closed dead letter; of several, the newest.
func (a Reads) kept(ctx context.Context, worker dryrun.Worker, asked Try) (dryrun.Message, error) {
	f, err := a.find(ctx, asked.EventID, asked.Queue, asked.Tenant)
	if err != nil {
		return dryrun.Message{}, err
	}
	kept, err := f.kept()
	if err != nil {
		return dryrun.Message{}, err
	}
	kept = slices.DeleteFunc(kept, func(k stored) bool {
		_, runs := worker.Queue(k.Queue)
		return k.From.Kind == "" || (k.Place == PlaceDeadLetter && !runs) ||
			(asked.Tenant != "" && k.Tenant != asked.Tenant)
	})
	if len(kept) == 0 {
		return dryrun.Message{}, ErrUntried
	}
	slices.SortFunc(kept, func(a, b stored) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), b.PublishedAt.Compare(a.PublishedAt))
	})
	first := kept[0]
	others := func(k stored) bool { return k.Queue != first.Queue || k.Tenant != first.Tenant }
	if slices.ContainsFunc(kept, others) {
		return dryrun.Message{}, ErrSeveral
	}
	if first.Place == PlaceDeadLetter {
		return replayOf(worker, first.DeadLetter)
	}
	return first.Message, nil
}

func fromOf(item deadletter.Item) dryrun.From {
	return dryrun.From{Kind: string(PlaceDeadLetter), ID: item.ID}
}

func replayOf(worker dryrun.Worker, item deadletter.Item) (dryrun.Message, error) {
	q, known := worker.Queue(item.Queue)
	switch {
	case !known:
		return dryrun.Message{}, dryrun.ErrNoQueue
	case len(item.Data) == 0:
		return dryrun.Message{}, ErrUntried
	}
	m := item.Replay(q)
	return dryrun.Message{Message: m, Queue: item.Queue, PublishedAt: item.Died(), From: fromOf(item)}, nil
}

// Replay tries the replay of a dead letter.
func Replay(ctx context.Context, worker dryrun.Worker, item deadletter.Item) (*dryrun.Trial, error) {
	m, err := replayOf(worker, item)
	if err != nil {
		return nil, err
	}
	trial, err := worker.Try(ctx, m)
	return &trial, err
}

// Unknown says why a trial has failed.
func Unknown(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "It could not be tried in time."
	}
	if refused, ok := errors.AsType[*console.Refusal](err); ok {
		return refused.Detail
	}
	return "The store did not answer; try again."
}
