// Package ops is the API for people, and its access control: events, queues, job log, balances,
// customers, products, dead letters and trials. It shows ids, codes, amounts and times alone; the
// minimized payload of a message it shows to somebody who says why, and writes that down first, and
// to whom tries it. It answers known people alone.
package ops

import (
	"context"
	"errors"
	"time"

	"billhook/catalog"
	"billhook/internal/ledger"
	"billhook/internal/pause"
	"billhook/internal/store"
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

var (
	errSeveral   = errors.New("ops: several queues or tenants know this event id")
	errNoAccount = errors.New("ops: no entry has moved anything on an account of that name")
)

// most bounds how many documents of one kind are read for one answer.
const most = 100

// Account is one account of the ledger with its newest known balance.
type Account struct {
	Account  string        `json:"account"`
	Currency string        `json:"currency" store:"currency"`
	Balance  int64         `json:"balance" store:"balance"`
	Entries  []ledger.Move `json:"entries"`
	// More reports whether there are more entries than are shown.
	More bool `json:"more"`
}

// Account returns an account with its first entries.
func (a Reads) Account(ctx context.Context, name string) (Account, error) {
	doc, err := a.Store.Get(ctx, ledger.Account(name).Key())
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		return Account{}, errNoAccount
	case err != nil:
		return Account{}, err
	}
	page, err := a.Store.Query(ctx, store.Query{Collection: ledger.Entries, Equal: map[string]any{"account": name}, Limit: most})
	if err != nil {
		return Account{}, err
	}
	found := Account{Account: name, Entries: []ledger.Move{}, More: page.Next != ""}
	if err := store.Decode(doc.Fields, &found); err != nil {
		return Account{}, err
	}
	for _, doc := range page.Documents {
		entry, err := ledger.MoveFromDocument(doc)
		if err != nil {
			return Account{}, err
		}
		found.Entries = append(found.Entries, entry)
	}
	return found, nil
}
