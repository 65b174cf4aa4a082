// Package pause owns the record that a queue is paused: who paused it, when and why. While it is, its
// subscription has no push endpoint, and what is published waits in the broker. It refuses to pause or resume
// a queue: internal/inspect/pauses does.
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

// ErrBroken: what is stored is no pause.
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
	// Undone: it has the mark of a pause, and pushes. Somebody has given it an endpoint past Billhook.
	Undone Standing = "undone"
	// Unmarked: it has neither an endpoint nor a mark. Somebody has taken the endpoint past Billhook.
	Unmarked Standing = "unmarked"
	Missing  Standing = "missing" // there is no subscription
	Unknown  Standing = "unknown" // it cannot be read
)

// Words says what the subscription does.
func (s Standing) Words() string {
	return map[Standing]string{
		Pushing:  "pushes",
		Paused:   "pushes nothing",
		Undone:   "is marked as paused and pushes all the same: somebody has given it its endpoint past Billhook",
		Unmarked: "pushes nothing and is not marked as paused: somebody has taken its endpoint past Billhook",
		Missing:  "is not there",
		Unknown:  "cannot be seen from here",
	}[s]
}

// Viewer shows subscriptions.
type Viewer interface {
	// Standing reads the push subscription of the queue. It never returns Unknown without an error.
	Standing(ctx context.Context, q catalog.Queue) (Standing, error)
}

// Switch changes subscriptions. After an error the outcome is unknown: Standing tells.
type Switch interface {
	// Pause takes the subscription's endpoint away and marks it with the time, both at once, any number of
	// times.
	Pause(ctx context.Context, q catalog.Queue, at time.Time) error
	// Resume gives the subscription the catalog's endpoint and removes the mark, both at once, any number of
	// times.
	Resume(ctx context.Context, q catalog.Queue) error
}

// List returns the pauses of all queues, by queue. There are at most as many as queues.
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
