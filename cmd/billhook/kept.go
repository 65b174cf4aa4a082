package main

import (
	"context"

	"billhook/internal/console/ops"
)

// keptQueue is a queue that does not run and whose subscription is still there.
type keptQueue struct {
	Queue string `json:"queue"`
	// Messages is how many wait there; nil: the worker has not counted them, or could not be asked.
	Messages *int64 `json:"messages"`
	// state is how the worker sees the queue, for its words.
	state ops.Queue
}

// words says what becomes of the messages.
func (k keptQueue) words() string {
	if k.Messages == nil {
		return k.Queue + " does not run and keeps its subscription. How much waits there is not known here: the worker has not counted it."
	}
	return keptInWords(k.state)
}

// countKept asks the worker how much waits for the queues. A worker that cannot be asked leaves them uncounted:
// the doctor says of the pauses why.
func (p *program) countKept(ctx context.Context, ask client, kept []keptQueue) {
	if len(kept) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	var all ops.Queues
	if ask.get(ctx, "/v1/ops/queues", &all) != nil {
		return
	}
	for i := range kept {
		for _, q := range all.Items {
			if q.ID == kept[i].Queue && q.Kept != nil {
				kept[i].Messages, kept[i].state = q.Waiting.Unacknowledged, q
			}
		}
	}
}
