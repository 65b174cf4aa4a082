package seal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// What a page of the accounts begins with.
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
	// after is the id of the last account that is done.
	after string
	// version is that of the next account when its summing began, sum its entries up to the id entries.
	version store.Version
	sum     int64
	entries string
}

func (p summing) next() string {
	return accountsPage + fmt.Sprintf("%d %d %s %s", p.version, p.sum, p.entries, p.after)
}

// summingOf reads a place. The error is ErrPage.
func summingOf(at string) (p summing, err error) {
	if at == "" {
		return p, nil
	}
	parts := strings.Split(at, " ")
	if len(parts) != 4 {
		return p, ErrPage
	}
	version, err := strconv.ParseInt(parts[0], 10, 64)
	sum, other := strconv.ParseInt(parts[1], 10, 64)
	if errors.Join(err, other) != nil {
		return p, ErrPage
	}
	return summing{after: parts[3], version: store.Version(version), sum: sum, entries: parts[2]}, nil
}

// accounts compares the balances of the tenant's accounts with the sums of their entries, sealed or not.
func (v *verification) accounts(ctx context.Context, at string) error {
	p, err := summingOf(at)
	if err != nil {
		return err
	}
	for {
		page, err := v.from.Query(ctx, store.Query{
			Collection: ledger.Accounts, Equal: map[string]any{fieldTenant: v.tenant}, After: store.Cursor{ID: p.after}, Limit: accountsAtOnce,
		})
		if err != nil {
			return fmt.Errorf("seal: read accounts: %w", err)
		}
		v.done.read += int64(len(page.Documents))
		for i, doc := range page.Documents {
			if done, err := v.account(ctx, doc, &p); err != nil || !done {
				v.done.Next = p.next()
				return err
			}
			v.done.Accounts++
			p = summing{after: doc.Key.ID}
			if last := i+1 == len(page.Documents) && page.Next.IsZero(); !last && v.done.read >= accountReads {
				v.done.Next = p.next()
				return nil
			}
		}
		if page.Next.IsZero() {
			return nil
		}
	}
}

const fieldTenant = "tenant"

// account compares one balance. done is false where the page ends within its entries, which p remembers.
// An account that keeps moving is left for the next verification.
func (v *verification) account(ctx context.Context, doc store.Document, p *summing) (done bool, err error) {
	if p.version != 0 && p.version != doc.Version {
		return true, nil
	}
	name, _ := doc.Fields[ledger.FieldAccount].(string)
	if ledger.Account(name).Key(v.tenant) != doc.Key || doc.Fields["currency"] != ledger.Points {
		v.find(Changed, doc.Key, 0, "the account says that it is another")
		return true, nil
	}
	for range accountTries {
		readable := true
		for {
			page, err := v.from.Query(ctx, store.Query{
				Collection: ledger.Entries, Equal: map[string]any{fieldTenant: v.tenant, ledger.FieldAccount: name}, After: store.Cursor{ID: p.entries}, Limit: store.MaxPage,
			})
			if err != nil {
				return false, fmt.Errorf("seal: read entries: %w", err)
			}
			v.done.read += int64(len(page.Documents))
			for _, doc := range page.Documents {
				move, err := ledger.MoveFromDocument(doc)
				if err != nil {
					readable = false // it is found as an entry
					continue
				}
				p.sum += move.Change()
			}
			if p.entries = page.Next.ID; page.Next.IsZero() || !readable {
				break
			}
			if v.done.read >= accountReads {
				p.version = doc.Version
				return false, nil
			}
		}
		if !readable {
			return true, nil
		}
		now, err := v.from.Get(ctx, doc.Key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return false, fmt.Errorf("seal: read account: %w", err)
		}
		if now.Version == doc.Version {
			if doc.Fields["balance"] != p.sum {
				v.find(Changed, doc.Key, 0, "the balance is not the sum of the account's entries")
			}
			return true, nil
		}
		doc, p.version, p.sum, p.entries = now, 0, 0, ""
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
		doc, err := store.Find(ctx, v.from, key)
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
