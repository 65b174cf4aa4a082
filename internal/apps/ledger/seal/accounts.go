package seal

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

const accountsPage = "accounts "

// The bounds of a page of the accounts: those that one query returns, and the documents after which
// the page ends, also within an account.
const (
	accountsAtOnce = 50
	accountReads   = 5000
)

// accountTries is how often an account is summed up that moves meanwhile.
const accountTries = 3

// summing is a place among the accounts: behind one, and within the entries of the next.
type summing struct {
	// After is the id of the last account that is done.
	After string
	// Version is that of the next account when its summing began, Sum its entries up to the id Entries.
	Version store.Version
	Sum     int64
	Entries string
}

// accounts compares the balances of the tenant's accounts with the sums of their entries, sealed or not.
func (v *verification) accounts(ctx context.Context, at string) error {
	var p summing
	if at != "" && json.Unmarshal([]byte(at), &p) != nil {
		return ErrPage
	}
	query := store.Query{
		Collection: ledger.Accounts, Equal: map[string]any{fieldTenant: v.tenant}, After: store.Cursor{ID: p.After}, Limit: accountsAtOnce,
	}
	for doc, err := range store.Each(ctx, v.From, query) {
		done := false
		if v.done.read++; err == nil && v.done.read <= accountReads {
			done, err = v.account(ctx, doc, &p)
		}
		if err != nil {
			return err
		}
		if !done {
			text, err := json.Marshal(p)
			v.done.Next = accountsPage + string(text)
			return err
		}
		v.done.Accounts++
		p = summing{After: doc.Key.ID}
	}
	return nil
}

const fieldTenant = "tenant"

// account compares one balance. done is false where the page ends within its entries, which p remembers.
// An account that keeps moving is left for the next verification.
func (v *verification) account(ctx context.Context, doc store.Document, p *summing) (done bool, err error) {
	if p.Version != 0 && p.Version != doc.Version {
		return true, nil
	}
	name, _ := doc.Fields[ledger.FieldAccount].(string)
	if ledger.Account(name).Key(v.tenant) != doc.Key || doc.Fields["currency"] != ledger.Points {
		v.find(Changed, doc.Key, 0, "the account says that it is another")
		return true, nil
	}
	query := store.Query{
		Collection: ledger.Entries, Equal: map[string]any{fieldTenant: v.tenant, ledger.FieldAccount: name}, Limit: store.MaxPage,
	}
	for range accountTries {
		for query.After.ID = p.Entries; ; query.After.ID = p.Entries {
			moves, next, err := store.List(ctx, v.From, query, ledger.MoveFromDocument)
			switch {
			case errors.Is(err, ledger.ErrBroken):
				return true, nil // it is found as an entry
			case err != nil:
				return false, fmt.Errorf("seal: read entries: %w", err)
			}
			v.done.read += int64(len(moves))
			for _, move := range moves {
				p.Sum += move.Change()
			}
			if p.Entries = next.ID; next.IsZero() {
				break
			}
			if v.done.read >= accountReads {
				p.Version = doc.Version
				return false, nil
			}
		}
		now, err := store.Find(ctx, v.From, doc.Key)
		if err != nil {
			return false, fmt.Errorf("seal: read account: %w", err)
		}
		if now.Version == doc.Version {
			if doc.Fields["balance"] != p.Sum {
				v.find(Changed, doc.Key, 0, "the balance is not the sum of the account's entries")
			}
			return true, nil
		}
		doc, *p = now, summing{After: p.After}
	}
	return true, nil
}

// held looks for the accounts that entries have moved something on: a balance that is gone is none.
func (v *verification) held(ctx context.Context, entries []store.Document) error {
	known := map[store.Key]bool{}
	var keys []store.Key
	for _, doc := range entries {
		name, _ := doc.Fields[ledger.FieldAccount].(string)
		key := ledger.Account(name).Key(v.tenant)
		if name != "" && !known[key] && store.CheckKey(key) == nil {
			known[key], keys = true, append(keys, key)
		}
	}
	v.done.read += int64(len(keys))
	there, err := ask(ctx, keys, func(ctx context.Context, key store.Key) (bool, error) {
		doc, err := store.Find(ctx, v.From, key)
		return doc.Fields[fieldTenant] == v.tenant, err // of another, no page of the accounts has it
	})
	if err != nil {
		return err
	}
	for i, key := range keys {
		if !there[i] {
			v.find(Missing, key, 0, "entries have moved something on the account, and it is gone")
		}
	}
	return nil
}
