package journal

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/platform/store"
)

// Entry is an entry of the books as people see it.
type Entry struct {
	ledger.Entry
	// Hash is the entry's leaf hash in hex: what its seal holds of it. An entry that cannot be read has none.
	Hash string `json:"hash" show:"Hash,detail"`
	// Changed: the entry was changed after it was sealed, or after it was posted where it has no seal.
	Changed bool `json:"changed,omitempty"`
	// RevertedBy is the id of the entry that reverses this one.
	RevertedBy string `json:"reverted_by,omitempty" show:"Reverted by,detail" link:"journal/entries/{reverted_by}"`
}

// ReadEntry reads the document of an entry. One that was changed so that it cannot be read says so.
func ReadEntry(doc store.Document) Entry {
	entry, err := ledger.Read(doc)
	var hash []byte
	if err == nil {
		hash, err = entry.LeafHash()
	}
	if err == nil {
		return Entry{Entry: entry, Hash: hex.EncodeToString(hash)}
	}
	changed := Entry{Entry: ledger.Entry{ID: doc.Key.ID, Lines: []ledger.Line{}}, Changed: true}
	changed.Tenant, _ = doc.Fields["tenant"].(string)
	changed.Period, _ = doc.Fields["period"].(string)
	changed.EventID, _ = doc.Fields["event_id"].(string)
	changed.Seal, _ = doc.Fields["seal"].(int64)
	return changed
}

// Alerts reports whether it was changed.
func (e Entry) Alerts() bool { return e.Changed }

// Notes says that it was changed, or that nothing proves it yet.
func (e Entry) Notes() []string {
	switch {
	case !e.Changed && e.Seal == 0:
		return []string{"It is not sealed yet, and nothing proves it before."}
	case !e.Changed:
		return nil
	}
	note := "Entry " + e.ID + " was changed after it was "
	if e.Seal == 0 {
		note += "posted"
	} else {
		note += "sealed"
	}
	if e.Hash == "" {
		note += ", and cannot be read any more"
	}
	return []string{note + ". Verify the books."}
}

// Allows reports whether the entry can be proven or reverted.
func (e Entry) Allows(verb string) bool {
	if verb == "prove" {
		return e.Seal > 0
	}
	return verb != "revert" || e.Kind == ledger.KindJournal && e.RevertedBy == ""
}

// FindEntry returns a tenant's entry, by its id or by that of the event that made it. The error is ErrUnknown, or that
// of reading.
func FindEntry(ctx context.Context, from store.Getter, tenant, named string) (Entry, error) {
	doc, err := from.Get(ctx, ledger.Key(ledger.IDOf(tenant, named)))
	if gone(err) {
		return Entry{}, ErrUnknown
	}
	if err != nil {
		return Entry{}, err
	}
	entry := ReadEntry(doc)
	if !entry.Changed {
		same, err := seal.Unchanged(ctx, from, entry.Entry)
		if err != nil {
			return Entry{}, err
		}
		entry.Changed = !same
	}
	if entry.Kind != ledger.KindJournal {
		return entry, nil
	}
	_, err = from.Get(ctx, ledger.Key(ledger.ReversalID(entry.ID)))
	if err == nil {
		entry.RevertedBy = ledger.ReversalID(entry.ID)
	}
	if gone(err) {
		err = nil
	}
	return entry, err
}

func gone(err error) bool {
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid)
}

// errOneOrder: what was issued for one order has no list of its own.
var errOneOrder = errors.New("journal: the account is that of one order")

// The bounds of a page of entries, each of which may have ledger.MaxLines, and of the months that it looks through.
const (
	maxListed = 200
	maxMonths = 24
)

// listEntries returns a page of a tenant's entries of months, one month after the other, or those with lines of an
// account. Those of an account of points that is no control account are found in all months at once.
func listEntries(ctx context.Context, from store.Querier, in ListOfEntries, now string) ([]Entry, store.Cursor, error) {
	single := ledger.Control(in.Account) != in.Account
	if single {
		now = ""
	}
	first, last, err := in.span(now)
	switch {
	case err != nil:
		return nil, store.Cursor{}, err
	case single && ledger.Account(in.Account).OfOrder():
		return nil, store.Cursor{}, errOneOrder
	}
	month, id, _ := strings.Cut(in.After.ID, "/") // no month has a slash
	month = cmp.Or(month, first)
	query := store.Query{Collection: ledger.Entries, Limit: min(in.Limit, maxListed), After: store.Cursor{ID: id}}
	for range maxMonths {
		switch {
		case single:
			query.Equal = map[string]any{ledger.FieldAccount: in.Account}
		case in.Account != "":
			query.Contains = map[string]string{ledger.FieldPostings: ledger.PostingKey(in.Tenant, month, in.Account)}
		default:
			query.Equal = map[string]any{ledger.FieldBook: ledger.BookKey(in.Tenant, month)}
		}
		page, err := from.Query(ctx, query)
		if err != nil {
			return nil, store.Cursor{}, err
		}
		var entries []Entry
		for _, doc := range page.Documents {
			if e := ReadEntry(doc); e.Tenant == in.Tenant && (last == "" || first <= e.Period && e.Period <= last) {
				entries = append(entries, e)
			}
		}
		next := store.Cursor{ID: month + "/" + page.Next.ID}
		switch {
		case !page.Next.IsZero():
			return entries, next, nil
		case single || month >= last:
			return entries, store.Cursor{}, nil
		}
		if month = after(month); len(entries) > 0 {
			return entries, store.Cursor{ID: month + "/"}, nil
		}
		query.After = store.Cursor{}
	}
	return nil, store.Cursor{ID: month + "/"}, nil
}

// after is the month behind a month.
func after(month string) string {
	at, _ := time.Parse("2006-01", month) // one that is none has no entries
	return ledger.PeriodOf(at.AddDate(0, 1, 0))
}
