package journal

import (
	"context"
	"encoding/hex"
	"errors"

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

// listEntries returns a page of a tenant's entries of a month, or those with lines of an account in it. Those of an
// account of points that is no control account are found in all months at once.
func listEntries(ctx context.Context, from store.Querier, in ListOfEntries, now string) ([]Entry, store.Cursor, error) {
	query := store.Query{Collection: ledger.Entries, After: in.After, Limit: min(in.Limit, maxListed)}
	single := ledger.Control(in.Account) != in.Account
	if in.Period == "" && !single {
		in.Period = now
	}
	switch {
	case single && ledger.Account(in.Account).OfOrder():
		return nil, store.Cursor{}, errOneOrder
	case single:
		query.Equal = map[string]any{ledger.FieldAccount: in.Account}
	case in.Account != "":
		query.Contains = map[string]string{ledger.FieldPostings: ledger.PostingKey(in.Tenant, in.Period, in.Account)}
	default:
		query.Equal = map[string]any{ledger.FieldBook: ledger.BookKey(in.Tenant, in.Period)}
	}
	page, err := from.Query(ctx, query)
	var entries []Entry
	for _, doc := range page.Documents {
		if e := ReadEntry(doc); e.Tenant == in.Tenant && (in.Period == "" || e.Period == in.Period) {
			entries = append(entries, e)
		}
	}
	return entries, page.Next, err
}

// maxListed bounds a page of entries: each may have ledger.MaxLines.
const maxListed = 200
