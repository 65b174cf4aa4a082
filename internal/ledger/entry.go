// Package ledger owns the books: double entry, in balanced and immutable entries.
// An entry moves an amount of one currency from one account to another, so its two
// postings sum to zero; it is only ever created, never updated or deleted. Points
// are a currency like any other.
//
// The entries of one order form a chain: a credit, numbered 0, and its reversals and transfers,
// numbered from 1. The number is part of the document's id, so the store refuses an append to an
// outdated chain: optimistic concurrency without a document that changes.
//
// The account that is credited has a document with its balance, kept by increments,
// so crediting reads nothing. The issuing side has none: its postings name an account
// of that one order, whose balance follows from the order's entries. A balance of
// everything ever issued would be a document that every event writes to.
//
// A balance may be negative: what was credited may have been spent before it was
// taken back, and the debt is a fact.
//
// Of entries the only field that is ever searched is account; all others, and those
// of accounts, need no index and should have none, since their values rise.
//
// The package refuses to know why anything is credited, and it never commits: it
// returns writes for the caller's own commit.
package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"billhook/internal/store"
)

// The collections.
const (
	Accounts = "accounts"
	Entries  = "entries"
)

// MaxAmount is the most one entry may move, in minor units. An int64 balance takes
// more than 9,000 such entries to overflow, and the increment of the database
// saturates silently instead of failing: the bound is what keeps sums exact.
const MaxAmount = 1_000_000_000_000_000

// ErrInvalid says that the entry may not be written: an amount out of bounds, a name that is
// missing or too long, two sides that are one. The text holds no value.
var ErrInvalid = errors.New("ledger: invalid entry")

// Points is the currency of points. One point is its minor unit.
const Points = "points"

// Account is the id of an account.
type Account string

// UserPoints is the account of a signed-in user's points.
func UserPoints(uid string) Account { return Account("points:user:" + uid) }

// CustomerPoints is the account of the points of a provider's customer whose user
// is not known.
func CustomerPoints(id string) Account { return Account("points:customer:" + id) }

// IssuedPoints is the account that the points of one order come from. It has no document.
func IssuedPoints(order string) Account { return Account("points:issued:" + order) }

// Key is the key of the account's document: fields account, currency, balance (minor
// units) and updated_at. An account that nothing was ever credited to has none.
func (a Account) Key() store.Key {
	return store.Key{Collection: Accounts, ID: escape(string(a))}
}

// Kind is what an entry does to its chain.
type Kind string

// The kinds of entry.
const (
	KindCredit   Kind = "credit"
	KindReversal Kind = "reversal"
	// A transfer is two entries, out of the account that holds what is left of the credit
	// and into another. Both go through the chain's issuing account.
	KindTransferOut Kind = "transfer_out"
	KindTransferIn  Kind = "transfer_in"
)

// Entry is one entry of the books. In JSON its fields are named as in its document.
type Entry struct {
	// Order is the reference of the chain the entry belongs to.
	Order string `json:"order" store:"order,required"`
	// Seq is its place there: 0 for the credit, then 1, 2, ...
	Seq  int  `json:"seq" store:"seq,required"`
	Kind Kind `json:"kind" store:"kind,required"`
	// EventID names the event that made the entry; of a transfer, the operation.
	EventID string  `json:"event_id" store:"event_id,required"`
	From    Account `json:"from" store:"from,required"`
	To      Account `json:"to" store:"to,required"`
	// Account is the side that has a document: To of what is credited or comes in, From of
	// what is reversed or goes out.
	Account Account `json:"account" store:"account,required"`
	// Amount is what moved, 1 to MaxAmount, in minor units of Currency.
	Amount   int64  `json:"amount" store:"amount,required"`
	Currency string `json:"currency" store:"currency,required"`
	// OrderTotal is what the order cost, in minor units of OrderCurrency. Without
	// an OrderCurrency it is not known.
	OrderTotal    int64     `json:"order_total,omitempty" store:"order_total,strict"`
	OrderCurrency string    `json:"order_currency,omitempty" store:"order_currency,omitzero,strict"`
	CreatedAt     time.Time `json:"created_at" store:"created_at,required"`
}

// Posting is one side of an entry: what it adds to the balance of an account.
type Posting struct {
	Account Account
	Amount  int64
}

// Postings returns the two sides of the entry. Their amounts sum to zero.
func (e Entry) Postings() [2]Posting {
	return [2]Posting{{e.From, -e.Amount}, {e.To, e.Amount}}
}

// writes returns the entry's document and what it does to the account's.
func (e Entry) writes() ([]store.Write, error) {
	e.CreatedAt = e.CreatedAt.UTC().Truncate(time.Microsecond)
	entryKey := store.Key{Collection: Entries, ID: prefix(e.Order) + fmt.Sprintf("%04d", e.Seq)}
	accountKey := e.Account.Key()
	switch {
	case e.Order == "", e.EventID == "", e.From == "", e.To == "", e.Currency == "":
		return nil, fmt.Errorf("%w: a name is missing", ErrInvalid)
	case e.From == e.To:
		return nil, fmt.Errorf("%w: from an account to itself", ErrInvalid)
	case e.Amount < 1 || e.Amount > MaxAmount:
		return nil, fmt.Errorf("%w: amount out of bounds", ErrInvalid)
	case e.OrderTotal < 0 || (e.OrderCurrency == "" && e.OrderTotal != 0):
		return nil, fmt.Errorf("%w: order total", ErrInvalid)
	case e.CreatedAt.IsZero():
		return nil, fmt.Errorf("%w: no time", ErrInvalid)
	}
	for _, key := range []store.Key{entryKey, accountKey} {
		if err := store.CheckKey(key); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	change := e.Amount
	if e.Account == e.From {
		change = -change
	}
	fields := store.Encode(&e)
	if e.OrderCurrency == "" {
		delete(fields, "order_total") // it is not known
	}
	return []store.Write{
		store.Create(entryKey, fields),
		store.Increment(accountKey, map[string]int64{"balance": change}, map[string]any{
			"account": string(e.Account), "currency": e.Currency, "updated_at": e.CreatedAt,
		}),
	}, nil
}

// EntryFromDocument reads an entry's document. The error wraps ErrBroken: a field is
// missing, of another type or out of the bounds of an entry.
func EntryFromDocument(doc store.Document) (Entry, error) {
	var e Entry
	_, total := doc.Fields["order_total"]
	switch err := store.Decode(doc.Fields, &e); {
	case err != nil:
		return Entry{}, fmt.Errorf("%w: %s: %w", ErrBroken, doc.Key, err)
	case e.Amount < 1 || e.Amount > MaxAmount:
		return Entry{}, fmt.Errorf("%w: %s: field amount", ErrBroken, doc.Key)
	case e.OrderTotal < 0 || total != (e.OrderCurrency != ""):
		return Entry{}, fmt.Errorf("%w: %s: field order_total", ErrBroken, doc.Key)
	}
	return e, nil
}

// prefix is what the ids of all entries of an order start with, and no id of
// another's: the tilde ends it, and escaping leaves none before that. The hash goes
// first because order ids rise, and rising document ids are a hot spot.
func prefix(order string) string {
	sum := sha256.Sum256([]byte(order))
	return hex.EncodeToString(sum[:4]) + "-" + escape(order) + "~"
}

// escape makes any text part of a document id; different texts stay different.
func escape(s string) string {
	return strings.ReplaceAll(url.PathEscape(s), "~", "%7E")
}
