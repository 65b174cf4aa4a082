package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/internal/platform/store"
)

// Points is the currency of points. One point is its minor unit.
const Points = "points"

// pointsPrefix begins the accounts of points, and no other.
const pointsPrefix = "points:"

// Account is the id of an account.
type Account string

// UserPoints is the account of a signed-in user's points.
func UserPoints(uid string) Account { return Account(pointsPrefix + "user:" + uid) }

// CustomerPoints is the account of a provider's customer whose user is not known.
func CustomerPoints(id string) Account { return Account(pointsPrefix + "customer:" + id) }

// IssuedPoints is the account that the points of one order come from. It has no document.
func IssuedPoints(order string) Account { return Account(pointsPrefix + "issued:" + order) }

// OfOrder reports whether it is the account that the points of one order come from.
func (a Account) OfOrder() bool { return strings.HasPrefix(string(a), string(IssuedPoints(""))) }

// Key is the key of a tenant's account. One that nothing was ever credited to has no document.
func (a Account) Key(tenant string) store.Key {
	return store.Key{Collection: Accounts, ID: store.ID(tenant, string(a))}
}

// The kinds of a chain's entries.
const (
	KindCredit   Kind = "credit"
	KindReversal Kind = "reversal"
	// A transfer is two entries, out of one account and into another, through the chain's issuing account.
	KindTransferOut Kind = "transfer_out"
	KindTransferIn  Kind = "transfer_in"
)

// Move is an entry of a chain as the chain sees it: an amount that goes from one account, which is debited,
// to another, which is credited. In JSON its fields are named as in its document.
type Move struct {
	// Tenant is whose books the entry stands in.
	Tenant string `json:"-" store:"tenant,required"`
	// Order is the reference of the chain the entry belongs to.
	Order string `json:"order" store:"order,required" show:"Order" link:"search"`
	// Seq is its place there: 0 for the credit, then 1, 2, ...
	Seq  int  `json:"seq" store:"seq,required"`
	Kind Kind `json:"kind" store:"kind,required" show:"What"`
	// EventID names the event that made the entry; of a transfer, the operation.
	EventID string `json:"event_id" store:"event_id,required" show:"Event" link:"events"`
	// Refund is the id of the refund that a reversal is for; empty: the event gives none.
	Refund string  `json:"refund_id,omitempty" store:"refund_id,omitzero,strict"`
	From   Account `json:"from" store:"from,required"`
	To     Account `json:"to" store:"to,required"`
	// Account is the side that has a document.
	Account Account `json:"account" store:"account,required"`
	// Amount is what moved, 1 to MaxAmount, in minor units of Currency.
	Amount   int64  `json:"amount" store:"amount,required"`
	Currency string `json:"currency" store:"currency,required"`
	// OrderTotal is what the order cost, if OrderCurrency is not empty.
	OrderTotal    int64     `json:"order_total,omitempty" store:"order_total,strict"`
	OrderCurrency string    `json:"order_currency,omitempty" store:"order_currency,omitzero,strict"`
	CreatedAt     time.Time `json:"created_at" store:"created_at,required" show:"When"`
}

// Lines returns the two lines of the entry.
func (m Move) Lines() []Line {
	return []Line{
		{Account: string(m.From), Currency: m.Currency, Debit: m.Amount},
		{Account: string(m.To), Currency: m.Currency, Credit: m.Amount},
	}
}

func (m Move) id() string { return ChainPrefix(m.Tenant, m.Order) + fmt.Sprintf("%04d", m.Seq) }

// Before is the id of the entry before it in its chain.
func (m Move) Before() string {
	m.Seq--
	return m.id()
}

// entry returns the entry that a move is a view on. Points count in the period in which they are posted.
func (m Move) entry() Entry {
	return Entry{
		ID: m.id(), Tenant: m.Tenant, Kind: m.Kind, EventID: m.EventID, Order: m.Order,
		Period: PeriodOf(m.CreatedAt), OccurredAt: m.CreatedAt, PostedAt: m.CreatedAt, Lines: m.Lines(),
	}
}

func (m Move) writes() ([]store.Write, error) {
	m.CreatedAt = m.CreatedAt.UTC().Truncate(time.Microsecond)
	entryKey, accountKey := Key(m.id()), m.Account.Key(m.Tenant)
	switch {
	case m.Tenant == "", m.Order == "", m.EventID == "", m.From == "", m.To == "", m.Currency == "":
		return nil, fmt.Errorf("%w: a name is missing", ErrInvalid)
	case m.From == m.To:
		return nil, fmt.Errorf("%w: from an account to itself", ErrInvalid)
	case m.OrderTotal < 0 || (m.OrderCurrency == "" && m.OrderTotal != 0):
		return nil, fmt.Errorf("%w: order total", ErrInvalid)
	case m.CreatedAt.IsZero():
		return nil, fmt.Errorf("%w: no time", ErrInvalid)
	}
	for _, key := range []store.Key{entryKey, accountKey} {
		if err := store.CheckKey(key); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	entry := m.entry()
	if err := entry.checkLines(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	fields := store.Encode(&m)
	if m.OrderCurrency == "" {
		delete(fields, "order_total") // it is not known
	}
	maps.Copy(fields, entry.index())
	return []store.Write{
		store.Create(entryKey, fields),
		store.Increment(accountKey, map[string]int64{"balance": m.Change()}, map[string]any{
			"tenant": m.Tenant, "account": string(m.Account), "currency": m.Currency, "updated_at": m.CreatedAt,
		}),
	}, nil
}

// MoveFromDocument reads the document of a chain's entry. The error wraps ErrBroken.
func MoveFromDocument(doc store.Document) (Move, error) {
	m, err := readMove(doc)
	if err != nil {
		return Move{}, fmt.Errorf("%w: %s: %w", ErrBroken, doc.Key, err)
	}
	return m, nil
}

func readMove(doc store.Document) (Move, error) {
	var m Move
	var entry struct {
		Lines []Line `store:"lines,required"`
	}
	_, total := doc.Fields["order_total"]
	switch err := errors.Join(store.Decode(doc.Fields, &m), store.Decode(doc.Fields, &entry)); {
	case err != nil:
		return Move{}, err
	case !slices.Contains([]Kind{KindCredit, KindReversal, KindTransferOut, KindTransferIn}, m.Kind):
		return Move{}, errors.New("field kind")
	case m.Amount < 1 || m.Amount > MaxAmount:
		return Move{}, errors.New("field amount")
	case m.OrderTotal < 0 || total != (m.OrderCurrency != ""):
		return Move{}, errors.New("field order_total")
	case !slices.Equal(entry.Lines, m.Lines()):
		return Move{}, errors.New("the lines are not those of its move")
	}
	return m, nil
}

// ChainPrefix begins the ids of all entries of a tenant's order, and no id of another's or of a journal.
func ChainPrefix(tenant, order string) string { return store.ID(tenant, "points", order) + "~" }
