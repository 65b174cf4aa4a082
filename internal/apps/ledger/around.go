package ledger

import (
	"context"
	"time"

	"billhook/internal/platform/store"
)

// nearby is how many entries of an account are read, behind an entry and before it.
const nearby = 100

// FieldCreated is the time of a chain's entry. The entries of an account are found by it, newest first.
const FieldCreated = "created_at"

// reader is what the balance at an entry is read from.
type reader interface {
	store.Getter
	store.Querier
}

// BalanceAt returns what the account of a chain's entry had once the entry was posted. It takes later entries
// from the account's balance, or adds up the earlier ones, where they are at most nearby; known is false
// where there are more of both.
func BalanceAt(ctx context.Context, from reader, m Move) (balance int64, known bool, err error) {
	before, err := store.Find(ctx, from, m.Account.Key(m.Tenant))
	if err != nil {
		return 0, false, err
	}
	later, all, err := near(ctx, from, m, store.Newest{Since: m.CreatedAt})
	if err != nil {
		return 0, false, err
	}
	if all {
		now, err := store.Find(ctx, from, m.Account.Key(m.Tenant))
		if err != nil {
			return 0, false, err
		}
		// An entry that came meanwhile may be in one of the two and not in the other.
		if before.Version != 0 && before.Version == now.Version {
			balance, _ = now.Fields["balance"].(int64)
			for _, other := range later {
				if other.after(m) {
					balance -= other.Change()
				}
			}
			return balance, true, nil
		}
	}
	earlier, all, err := near(ctx, from, m, store.Newest{Until: m.CreatedAt.Add(time.Microsecond)})
	if err != nil || !all {
		return 0, false, err
	}
	for _, other := range earlier {
		if !other.after(m) {
			balance += other.Change()
		}
	}
	return balance, true, nil
}

// near returns the entries of an account in a span of time; all is false where there are more than nearby.
func near(ctx context.Context, from store.Querier, m Move, span store.Newest) (moves []Move, all bool, err error) {
	span.Field = FieldCreated
	page, err := from.Query(ctx, store.Query{
		Collection: Entries, Equal: map[string]any{"tenant": m.Tenant, FieldAccount: string(m.Account)}, Newest: &span, Limit: nearby + 1,
	})
	if err != nil || len(page.Documents) > nearby {
		return nil, false, err
	}
	for _, doc := range page.Documents {
		other, err := MoveFromDocument(doc)
		if err != nil {
			return nil, false, err
		}
		moves = append(moves, other)
	}
	return moves, true, nil
}

// Change is what the entry moved on its account: less than 0 where it took something.
func (m Move) Change() int64 {
	if m.Account == m.From {
		return -m.Amount
	}
	return m.Amount
}

func (m Move) after(other Move) bool {
	if m.CreatedAt.Equal(other.CreatedAt) {
		return m.id() > other.id()
	}
	return m.CreatedAt.After(other.CreatedAt)
}
