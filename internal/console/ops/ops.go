// Package ops is the API for people, and its access control: events, queues, job log, balances,
// customers, products, dead letters and trials. It shows ids, codes, amounts and times alone; the
// minimized payload of a message it shows to somebody who says why, and writes that down first, and
// to whom tries it. It answers known people alone.
package ops

import (
	"errors"
	"time"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/store"
)

// Reads reads what the API shows. An error is one of those below, or the store's: then nothing
// is known.
type Reads struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Now     func() time.Time
	// Broker is asked what it holds; nil: what a task has counted is shown.
	Broker Broker
	// Viewer shows the subscriptions of paused queues; nil: they cannot be seen from here.
	Viewer pause.Viewer
	// Links lead to where others show more of an event.
	Links Links
}

var errSeveral = errors.New("ops: several queues or tenants know this event id")

// most bounds how many documents of one kind are read for one answer.
const most = 100
