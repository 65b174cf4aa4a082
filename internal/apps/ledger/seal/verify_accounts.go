package seal

import (
	"context"
	"fmt"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// accountTries is how often an account is summed up that moves meanwhile.
const accountTries = 3

const fieldTenant = "tenant"

// accounts compares the balances of the tenant's accounts with the sums of their entries, sealed or not.
func (v *verification) accounts(ctx context.Context, p position) (position, error) {
	query := store.Query{
		Collection: ledger.Accounts, Equal: map[string]any{fieldTenant: v.tenant}, After: store.Cursor{ID: p.After}, Limit: accountsAtOnce,
	}
	for doc, err := range store.Each(ctx, v.From, query) {
		if err != nil || v.done.read >= accountReads {
			return p, err
		}
		if err := v.account(ctx, doc); err != nil {
			return p, err
		}
		v.done.Accounts++
		p.After = doc.Key.ID
	}
	return position{}, nil
}

// account compares one balance. An account that keeps moving is left for the next verification.
func (v *verification) account(ctx context.Context, doc store.Document) error {
	name, _ := doc.Fields[ledger.FieldAccount].(string)
	if ledger.Account(name).Key(v.tenant) != doc.Key || doc.Fields["currency"] != ledger.Points {
		v.find(Changed, doc.Key, 0, "the account says that it is another")
		return nil
	}
	query := store.Query{
		Collection: ledger.Entries, Equal: map[string]any{fieldTenant: v.tenant, ledger.FieldAccount: name}, Limit: store.MaxPage,
	}
	for range accountTries {
		sum := int64(0)
		for entry, err := range store.Each(ctx, v.From, query) {
			if err != nil {
				return err
			}
			move, err := ledger.MoveFromDocument(entry)
			if err != nil {
				return nil // it is found as an entry
			}
			v.done.read++
			sum += move.Change()
		}
		if doc.Fields["balance"] == sum {
			return nil
		}
		now, err := store.Find(ctx, v.From, doc.Key)
		if err != nil {
			return fmt.Errorf("seal: read account: %w", err)
		}
		if now.Version == doc.Version {
			v.find(Changed, doc.Key, 0, "the balance is not the sum of the account's entries")
			return nil
		}
		doc = now
	}
	return nil
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
