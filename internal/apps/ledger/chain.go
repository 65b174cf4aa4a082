package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/internal/platform/store"
)

// MaxEntries is how many entries the chain of one order may hold: what one query returns.
const MaxEntries = 1000

// The errors of a chain.
var (
	ErrNoCredit = errors.New("ledger: order has no credit")
	ErrNotLeft  = errors.New("ledger: less is left of the credit")
	ErrFull     = errors.New("ledger: order has too many entries")
)

// Credit returns the writes that start an order's chain; it sets Seq, Kind and Account. If their commit fails
// with store.ErrExists, Load returns the existing chain. The error wraps ErrInvalid.
func Credit(m Move) ([]store.Write, error) {
	m.Seq, m.Kind, m.Account = 0, KindCredit, m.To
	return m.writes()
}

// Chain has the entries of one order as they were when it was loaded, the credit first. The commit of writes
// from an outdated chain fails with store.ErrExists: load it again.
type Chain struct {
	Entries []Move
}

// Load reads the chain of a tenant's order with one query. The error wraps ErrBroken, or is the query's.
func Load(ctx context.Context, q store.Querier, tenant, order string) (Chain, error) {
	page, err := q.Query(ctx,
		store.Query{Collection: Entries, IDPrefix: ChainPrefix(tenant, order), Limit: MaxEntries})
	if err != nil {
		return Chain{}, fmt.Errorf("ledger: query entries: %w", err)
	}
	if !page.Next.IsZero() {
		return Chain{}, fmt.Errorf("%w: more than %d", ErrBroken, MaxEntries)
	}
	return chainOf(tenant, order, page.Documents)
}

func chainOf(tenant, order string, documents []store.Document) (Chain, error) {
	var chain Chain
	for seq, doc := range documents {
		entry, err := MoveFromDocument(doc)
		if err != nil {
			return Chain{}, err
		}
		// A gap means that an entry was deleted, so that the rest would be wrong.
		if entry.Tenant != tenant || entry.Order != order || entry.Seq != seq || !chain.follows(entry) {
			return Chain{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
		}
		chain.Entries = append(chain.Entries, entry)
	}
	if n := len(chain.Entries); n > 0 && chain.Entries[n-1].Kind == KindTransferOut {
		return Chain{}, fmt.Errorf("%w: half a transfer", ErrBroken)
	}
	if chain.Left() < 0 {
		return Chain{}, fmt.Errorf("%w: more reversed than credited", ErrBroken)
	}
	return chain, nil
}

func (c Chain) follows(e Move) bool {
	if len(c.Entries) == 0 {
		return e.Kind == KindCredit
	}
	before := c.Entries[len(c.Entries)-1]
	switch {
	case (before.Kind == KindTransferOut) != (e.Kind == KindTransferIn):
		return false // the two halves of a transfer follow each other
	case e.Kind == KindTransferIn:
		return e.Amount == before.Amount
	case e.Kind == KindReversal, e.Kind == KindTransferOut:
		return e.Account == c.Holder()
	default:
		return false
	}
}

// Left returns how much of the credit has not been reversed.
func (c Chain) Left() (left int64) {
	for seq, entry := range c.Entries {
		if seq == 0 {
			left = entry.Amount
		} else if entry.Kind == KindReversal {
			left -= entry.Amount
		}
	}
	return left
}

// Holder returns the account that has the rest of the credit; empty: there is none.
func (c Chain) Holder() (holder Account) {
	for _, entry := range c.Entries {
		if entry.Kind == KindCredit || entry.Kind == KindTransferIn {
			holder = entry.To
		}
	}
	return holder
}

// Reversed reports whether the event has made a reversal of this chain.
func (c Chain) Reversed(eventID string) bool {
	return slices.ContainsFunc(c.Entries, func(m Move) bool {
		return m.Kind == KindReversal && m.EventID == eventID
	})
}

// Refunded reports whether a refund of that id has made a reversal of this chain.
func (c Chain) Refunded(refund string) bool {
	return slices.ContainsFunc(c.Entries, func(m Move) bool {
		return m.Kind == KindReversal && m.Refund == refund
	})
}

// Reverse returns the writes that reverse an amount of the credit on the account that holds it. The error
// wraps ErrNoCredit, ErrNotLeft, ErrFull or ErrInvalid.
func (c Chain) Reverse(refund, eventID string, amount int64, at time.Time) ([]store.Write, error) {
	switch {
	case len(c.Entries) == 0:
		return nil, ErrNoCredit
	case amount > c.Left():
		return nil, ErrNotLeft
	case len(c.Entries) >= MaxEntries:
		return nil, ErrFull
	}
	reversal := c.Entries[0]
	reversal.Seq, reversal.Kind, reversal.EventID, reversal.Refund = len(c.Entries), KindReversal,
		eventID, refund
	reversal.From, reversal.To, reversal.Account = c.Holder(), reversal.From, c.Holder()
	reversal.Amount, reversal.CreatedAt = amount, at
	return reversal.writes()
}

// HeldBy returns a page of the chains whose rest a tenant's account holds, after the entry after; next is
// zero on the last. Points are never transferred to such an account, so all entries of a chain that it holds
// are its own. The error wraps ErrBroken, or is the query's.
func HeldBy(
	ctx context.Context, q store.Querier, tenant string, account Account, after store.Cursor,
) (chains []Chain, next store.Cursor, err error) {
	page, err := q.Query(ctx, store.Query{
		Collection: Entries, Equal: map[string]any{"tenant": tenant, "account": string(account)}, After: after,
		Limit: MaxEntries,
	})
	if err != nil {
		return nil, next, fmt.Errorf("ledger: query entries: %w", err)
	}
	documents := page.Documents
	for len(documents) > 0 {
		// Ids put the entries of one order together, in sequence.
		order := strings.TrimRight(documents[0].Key.ID, "0123456789") // the id without the number in its chain
		n := slices.IndexFunc(documents, func(doc store.Document) bool {
			return !strings.HasPrefix(doc.Key.ID, order)
		})
		if n == -1 {
			n = len(documents)
			if !page.Next.IsZero() && n < len(page.Documents) {
				break // the page may have cut it, so it begins the next page
			}
		}
		last, err := MoveFromDocument(documents[n-1])
		if err != nil {
			return nil, next, err
		}
		if last.Kind != KindTransferOut {
			chain, err := chainOf(tenant, last.Order, documents[:n])
			if err != nil {
				return nil, next, err
			}
			if chain.Left() > 0 {
				chains = append(chains, chain)
			}
		}
		next.ID = documents[n-1].Key.ID
		documents = documents[n:]
	}
	if page.Next.IsZero() {
		next = store.Cursor{}
	}
	return chains, next, nil
}

// Transfer returns the writes that move the rest of the chains to an account, and its sum: two entries for
// each chain, out of the holder and into the account, through the chain's issuing account; and one increment
// for each account. It skips chains that have nothing left, that the account holds already, or that have no
// room for two entries and a reversal. id names the operation. The error wraps ErrInvalid.
func Transfer(
	chains []Chain, to Account, id string, at time.Time,
) (writes []store.Write, amount int64, err error) {
	increments := map[Account]store.Write{}
	for _, chain := range chains {
		left, holder := chain.Left(), chain.Holder()
		if left == 0 || holder == to || len(chain.Entries)+2 >= MaxEntries {
			continue
		}
		out := chain.Entries[0]
		out.Seq, out.Kind, out.EventID, out.Amount, out.CreatedAt = len(chain.Entries), KindTransferOut,
			id, left, at
		out.From, out.To, out.Account = holder, out.From, holder
		in := out
		in.Seq, in.Kind = out.Seq+1, KindTransferIn
		in.From, in.To, in.Account = out.To, to, to
		for _, e := range []Move{out, in} {
			w, err := e.writes()
			if err != nil {
				return nil, 0, err
			}
			writes = append(writes, w[0])
			w[1].Add["balance"] += increments[e.Account].Add["balance"]
			increments[e.Account] = w[1]
		}
		amount += left
	}
	for _, account := range slices.Sorted(maps.Keys(increments)) {
		writes = append(writes, increments[account])
	}
	return writes, amount, nil
}

// FieldCreated is the time of a chain's entry. The entries of an account are found by it, newest first.
const FieldCreated = "created_at"

// Change is the amount that the entry added to its account; negative if the account was debited.
func (m Move) Change() int64 {
	if m.Account == m.From {
		return -m.Amount
	}
	return m.Amount
}
