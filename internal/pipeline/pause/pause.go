// Package pause owns the record of a paused queue: who paused it, when and why. Meanwhile its subscription
// has no push endpoint, and messages wait in the broker. internal/inspect/pauses pauses and resumes queues.
package pause

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/catalog"
	"billhook/internal/platform/store"
)

// Collection has a document for each queue that is paused, under the queue's id.
const Collection = "pauses"

// ErrBroken: the stored pause is not readable.
var ErrBroken = errors.New("pause: stored pause is not readable")

// Pause says that a queue is paused, by whom, why, and since when.
type Pause struct {
	Queue string    `json:"queue" store:"queue,required" show:"Queue" link:"queues"` // its id
	Who   string    `json:"who" store:"who,required" show:"Who"`
	Why   string    `json:"why" store:"why,required" show:"Why"`
	At    time.Time `json:"at" store:"at,required" show:"Since"`
}

// Standing is what a queue's subscription does, as the broker shows it.
type Standing string

// What a subscription does.
const (
	Pushing Standing = "pushing" // it has its endpoint, and no mark of a pause
	Paused  Standing = "paused"  // it has no endpoint, and the mark of a pause
	// Undone: it has the mark of a pause, and pushes. Somebody set its endpoint outside Billhook.
	Undone Standing = "undone"
	// Unmarked: it has neither an endpoint nor a mark. Somebody removed its endpoint outside Billhook.
	Unmarked Standing = "unmarked"
	Missing  Standing = "missing" // there is no subscription
	Unknown  Standing = "unknown" // it cannot be read
)

// Words says what the subscription does.
func (s Standing) Words() string {
	return map[Standing]string{
		Pushing:  "pushes",
		Paused:   "pushes nothing",
		Undone:   "is marked as paused and pushes anyway: somebody set its endpoint outside Billhook",
		Unmarked: "pushes nothing and is not marked as paused: somebody removed its endpoint outside Billhook",
		Missing:  "does not exist",
		Unknown:  "cannot be read from here",
	}[s]
}

// Viewer shows subscriptions.
type Viewer interface {
	// Standing reads the push subscription of the queue. It never returns Unknown without an error.
	Standing(ctx context.Context, q catalog.Queue) (Standing, error)
}

// Switch changes subscriptions. It may be called any number of times. After an error, read the Standing.
type Switch interface {
	// Pause removes the subscription's endpoint and marks it with the time, both at once.
	Pause(ctx context.Context, q catalog.Queue, at time.Time) error
	// Resume gives the subscription the catalog's endpoint and removes the mark, both at once.
	Resume(ctx context.Context, q catalog.Queue) error
}

// List returns the pauses of all queues, ordered by queue.
func List(ctx context.Context, from store.Querier) ([]Pause, error) {
	all, _, err := store.List(ctx, from, store.Query{Collection: Collection, Limit: store.MaxPage}, Read)
	return all, err
}

// Read reads the document of a pause.
func Read(doc store.Document) (Pause, error) {
	var p Pause
	if err := store.Decode(doc.Fields, &p); err != nil || p.Queue != doc.Key.ID {
		return Pause{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return p, nil
}
