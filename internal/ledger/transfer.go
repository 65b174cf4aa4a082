package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/internal/store"
)

// HeldBy returns chains of which the account holds something: a page of them, at most
// MaxEntries documents of it, behind the entry that after names. next is empty on the last
// page. The account is one that orders are credited to and nothing is transferred to, so
// that as long as it holds a chain all entries of it are its own, and one query finds them
// whole. The error wraps ErrBroken, or is that of the query.
func HeldBy(ctx context.Context, q store.Querier, account Account, after string) (chains []Chain, next string, err error) {
	page, err := q.Query(ctx, store.Query{Collection: Entries, Equal: map[string]any{"account": string(account)}, After: after, Limit: MaxEntries})
	if err != nil {
		return nil, "", fmt.Errorf("ledger: query entries: %w", err)
	}
	documents := page.Documents
	for len(documents) > 0 {
		// Ids put the entries of one order together, in sequence.
		id := documents[0].Key.ID
		order := id[:strings.LastIndexByte(id, '~')+1]
		n := slices.IndexFunc(documents, func(doc store.Document) bool { return !strings.HasPrefix(doc.Key.ID, order) })
		if n < 0 {
			n = len(documents)
			if page.Next != "" && n < len(page.Documents) {
				break // the page may have cut it; it begins the next one
			}
		}
		last, err := EntryFromDocument(documents[n-1])
		if err != nil {
			return nil, "", err
		}
		if last.Kind != KindTransferOut {
			chain, err := chainOf(last.Order, documents[:n])
			if err != nil {
				return nil, "", err
			}
			if chain.Left() > 0 {
				chains = append(chains, chain)
			}
		}
		next = documents[n-1].Key.ID
		documents = documents[n:]
	}
	if page.Next == "" {
		next = ""
	}
	return chains, next, nil
}

// Transfer returns the writes that move what is left of the chains from whoever holds it to
// an account: of each chain two entries, out of the holder and into the account, through the
// chain's own issuing account, so that each entry still names one account with a document;
// and one increment for each account. amount is what moves. Chains that have nothing left,
// that the account holds already, or that have no room for two entries and a reversal are
// passed by. Where a chain is out of date the commit fails with store.ErrExists: load it
// again. id names what makes the entries. The error wraps ErrInvalid.
func Transfer(chains []Chain, to Account, id string, at time.Time) (writes []store.Write, amount int64, err error) {
	change, described := map[Account]int64{}, map[Account]store.Write{}
	for _, chain := range chains {
		credit, ok := chain.Credit()
		left, holder := chain.Left(), chain.Holder()
		if !ok || left == 0 || holder == to || len(chain.Entries)+2 >= MaxEntries {
			continue
		}
		out := credit
		out.Seq, out.Kind, out.EventID, out.Amount, out.CreatedAt = len(chain.Entries), KindTransferOut, id, left, at
		out.From, out.To, out.Account = holder, credit.From, holder
		in := out
		in.Seq, in.Kind = out.Seq+1, KindTransferIn
		in.From, in.To, in.Account = credit.From, to, to
		for _, e := range []Entry{out, in} {
			w, err := e.writes()
			if err != nil {
				return nil, 0, err
			}
			writes = append(writes, w[0])
			change[e.Account] += w[1].Add["balance"]
			described[e.Account] = w[1]
		}
		amount += left
	}
	for _, account := range slices.Sorted(maps.Keys(change)) {
		w := described[account]
		writes = append(writes, store.Increment(w.Key, map[string]int64{"balance": change[account]}, w.Fields))
	}
	return writes, amount, nil
}
