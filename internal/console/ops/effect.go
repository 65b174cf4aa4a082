package ops

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
)

// Posted is an entry of the books that an event's effect has made, or has found there.
type Posted struct {
	JournalEntry
	Balances []Balance `json:"balances"`
}

// Balance is what an account had before something and after it, in minor units of the currency. Both
// are null where that is not known.
type Balance struct {
	Account  string `json:"account"`
	Currency string `json:"currency"`
	// Of an account of points the two are what it held before and after the entry. Of others they are
	// debits minus credits in the entry's period, before and after the Seal that the entry stands in;
	// they are not known until the entry is sealed.
	Before *int64 `json:"before"`
	After  *int64 `json:"after"`
	Seal   int64  `json:"seal,omitzero"`
}

// effect fills in what the event's effect has made in the books, by the id that the record names.
func (a Reads) effect(ctx context.Context, e *Event, record dedupe.Record) error {
	if record.Made() == "" {
		return nil
	}
	doc, err := a.Store.Get(ctx, ledger.Key(record.Made()))
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid): // it is no entry's
		return nil
	case err != nil:
		return err
	}
	entry := journalEntry(doc)
	if entry.Tenant != e.Tenant {
		return nil
	}
	posted := Posted{JournalEntry: entry, Balances: []Balance{}}
	if entry.Changed {
		e.Effect = append(e.Effect, posted)
		return nil
	}
	if posted.Balances, err = a.around(ctx, doc, entry.Entry); err != nil {
		return err
	}
	e.Effect = append(e.Effect, posted)
	return nil
}

// around returns the balances around an entry.
func (a Reads) around(ctx context.Context, doc store.Document, entry ledger.Entry) ([]Balance, error) {
	balances := []Balance{}
	if entry.Order != "" {
		move, err := ledger.MoveFromDocument(doc)
		if err != nil {
			return nil, err
		}
		balance := Balance{Account: string(move.Account), Currency: move.Currency}
		after, known, err := ledger.BalanceAt(ctx, a.Store, move)
		if before := after - move.Change(); known {
			balance.Before, balance.After = &before, &after
		}
		return append(balances, balance), err
	}
	steps, err := seal.Around(ctx, a.Store, entry)
	if errors.Is(err, seal.ErrUnsealed) {
		seen := map[Balance]bool{}
		for _, line := range entry.Lines {
			balance := Balance{Account: ledger.Control(line.Account), Currency: line.Currency}
			if !seen[balance] {
				balances = append(balances, balance)
			}
			seen[balance] = true
		}
		return balances, nil
	}
	for _, step := range steps {
		balances = append(balances, Balance{Account: step.Account, Currency: step.Currency, Before: &step.Before, After: &step.After, Seal: entry.Seal})
	}
	return balances, err
}

// Links are the addresses at which others show more of an event. Empty ones lead nowhere.
type Links struct {
	// Log shows what was logged of an event: {event_id} stands for its id, and {since} for the time
	// from which there is something.
	Log string
	// Trace shows a trace: {trace} stands for its id.
	Trace string
}

// link is an address with a value in each place that is named.
func link(template string, places ...string) string {
	for i := 1; i < len(places); i += 2 {
		places[i] = url.QueryEscape(places[i])
	}
	return strings.NewReplacer(places...).Replace(template)
}

// links fills in the addresses that lead on from the event.
func (l Links) links(e *Event) {
	if l.Log != "" && len(e.History) > 0 {
		e.LogLink = link(l.Log, "{event_id}", e.EventID, "{since}", e.History[0].At.UTC().Truncate(time.Minute).Format(time.RFC3339))
	}
	for i, step := range e.History {
		if l.Trace != "" && step.Trace != "" {
			e.History[i].TraceLink = link(l.Trace, "{trace}", step.Trace)
		}
	}
}
