package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Points is the currency of points. One point is its minor unit.
const Points = "points"

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

// Key is the key of a tenant's account. An account without a credit has no document.
func (a Account) Key(tenant string) store.Key {
	return store.Key{Collection: Accounts, ID: store.ID(tenant, string(a))}
}

// The kinds of a chain's entries.
const (
	KindCredit   Kind = "credit"   // points of an order, to an account
	KindReversal Kind = "reversal" // points of an order, taken back
	// A transfer is two entries, out of one account and into another, through the chain's issuing account.
	KindTransferOut Kind = "transfer_out" // points that go to another account
	KindTransferIn  Kind = "transfer_in"  // points that come from another account
)

// Move is an entry of a chain, as an amount that goes from one account, which is debited, to another, which
// is credited. In JSON its fields are named as in its document.
type Move struct {
	Tenant string `json:"-" store:"tenant,required"`
	Order  string `json:"order" store:"order,required" show:"Order" link:"search"`
	// Seq is its number in the chain: 0 for the credit, then 1, 2, ...
	Seq  int  `json:"seq" store:"seq,required"`
	Kind Kind `json:"kind" store:"kind,required" show:"What"`
	// EventID names the event that made the entry; for a transfer, the operation.
	EventID string `json:"event_id" store:"event_id,required" show:"Event" link:"events"`
	// Refund is the id of the refund that a reversal is for; empty: the event gives none.
	Refund string  `json:"refund_id,omitempty" store:"refund_id,omitzero,strict"`
	From   Account `json:"from" store:"from,required"`
	To     Account `json:"to" store:"to,required"`
	// Account is the side that has a stored balance.
	Account Account `json:"account" store:"account,required"`
	// Amount is 1 to MaxAmount, in minor units of Currency.
	Amount   int64  `json:"amount" store:"amount,required"`
	Currency string `json:"currency" store:"currency,required"`
	// OrderTotal is the price of the order, if OrderCurrency is not empty.
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

// entry returns the entry of a move. Points count in the period in which they are posted.
func (m Move) entry() Entry {
	return Entry{
		ID: m.id(), Tenant: m.Tenant, Kind: m.Kind, EventID: m.EventID, Order: m.Order,
		Period: PeriodOf(m.CreatedAt), OccurredAt: m.CreatedAt, PostedAt: m.CreatedAt, Lines: m.Lines(),
	}
}

func (m Move) writes() ([]store.Write, error) {
	m.CreatedAt = m.CreatedAt.UTC().Truncate(time.Microsecond)
	entry := m.entry()
	entryKey, accountKey := Key(entry.ID), m.Account.Key(m.Tenant)
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
	if err := cmp.Or(store.CheckKey(entryKey), store.CheckKey(accountKey), entry.checkLines()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	fields := store.Encode(&chained{m, entry.Period, entry.Lines})
	if m.OrderCurrency == "" {
		delete(fields, "order_total") // it is unknown
	}
	entry.index(fields)
	return []store.Write{
		store.Create(entryKey, fields).Stamped(FieldCommitted),
		store.Increment(accountKey, map[string]int64{"balance": m.Change()}, map[string]any{
			"tenant": m.Tenant, "account": string(m.Account), "currency": m.Currency, "updated_at": m.CreatedAt,
		}),
	}, nil
}

// chained is the document of a move.
type chained struct {
	Move   `store:",inline"`
	Period string `store:"period"`
	Lines  []Line `store:"lines,required"`
}

// MoveFromDocument reads the document of a chain's entry. The error wraps ErrBroken.
func MoveFromDocument(doc store.Document) (Move, error) {
	m, err := readMove(doc)
	return m, broken(doc, err)
}

func readMove(doc store.Document) (Move, error) {
	var entry chained
	_, total := doc.Fields["order_total"]
	switch err, m := store.Decode(doc.Fields, &entry), &entry.Move; {
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
	return entry.Move, nil
}

// ChainPrefix begins the ids of all entries of a tenant's order, and the id of no other entry.
func ChainPrefix(tenant, order string) string { return store.ID(tenant, "points", order) + "~" }

// Holding is one holder's account of points.
type Holding struct {
	Tenant  string `json:"tenant" show:"Tenant"`
	Account string `json:"account" show:"Account"`
	Holder  string `json:"holder" show:"Holder" link:"search"`
	// Balance is in minor units, as of AsOf.
	Balance  int64  `json:"balance" store:"balance" show:"Balance" in:"currency"`
	Currency string `json:"currency" store:"currency"`
	// AsOf is the time of the balance; zero: now.
	AsOf time.Time `json:"as_of,omitzero" show:"Before"`
	// Entries has the entries before AsOf, newest first.
	Entries []Moved `json:"entries" show:"Entries"`
	More    bool    `json:"more"`
	console.Continued
}

// Notes says that there are more entries.
func (h Holding) Notes() []string {
	if h.More {
		return []string{"There are more entries than are shown."}
	}
	return nil
}

// Held is an account in a list.
type Held struct {
	Account   string    `json:"account" store:"account,required" show:"Account" link:"accounts"`
	Balance   int64     `json:"balance" store:"balance" show:"Balance" in:"currency"`
	Currency  string    `json:"currency" store:"currency"`
	UpdatedAt time.Time `json:"updated_at" store:"updated_at" show:"Moved"`
}

// Moved is an entry on an account of points.
type Moved struct {
	Move
	// Moved is the amount that the entry added to the account. Balance is the account's balance after it; nil on
	// all but the first page.
	Moved   int64  `json:"moved" show:"Moved" in:"currency"`
	Balance *int64 `json:"balance,omitempty" show:"Balance then" in:"currency"`
}

// HoldingOf names an account of points.
type HoldingOf struct {
	console.Owned
	Account string `json:"-" path:"account" validate:"required" help:"account"`
	AsOf    string `json:"-" query:"as_of" help:"the balance at the end of this day in UTC, such as 2026-11-30, or at a time"`
	console.Page
}

// before returns the requested time: for a day, its end; zero: now.
func (h HoldingOf) before() (time.Time, error) {
	if h.AsOf == "" {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, h.AsOf); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	at, err := time.Parse(time.RFC3339Nano, h.AsOf)
	if err != nil {
		return at, errAsOf
	}
	return at.UTC().Truncate(time.Microsecond), nil
}

var (
	errAsOf = console.Refuse(console.Malformed, "as_of_invalid",
		"The parameter as_of is a day such as 2026-11-30 or a time such as 2026-11-21T09:00:00Z.")
	errNoAccount = console.Refuse(console.Absent, "account_unknown",
		"No entry has moved anything on an account of that name.")
	errLongAgo = console.Refuse(console.Refused, "too_long_ago", "More than 1000 entries have moved on the "+
		"account since then; ask for a later day, or: billhook accounts statement.")
	errMoving = console.Refuse(console.Conflict, "busy", "Entries keep moving on the account; ask again.")
)

// Operations are what people do with accounts of points.
func Operations(from store.Store) []console.Operation {
	list := console.New(console.Row{
		Name: "accounts ls", Path: "GET /v1/ops/accounts",
		Summary: "List the points accounts with their balances, unordered",
		Empty:   "No account has points. An order that is paid credits its user or customer.",
	}, func(ctx context.Context, _ audit.Author, in console.OwnedList) (console.List[Held], error) {
		of := map[string]any{"tenant": in.Tenant}
		query := store.Query{Collection: Accounts, Equal: of, After: in.After, Limit: in.Limit}
		return console.Listed(store.List(ctx, from, query, func(doc store.Document) (h Held, err error) {
			err = store.Decode(doc.Fields, &h)
			return h, err
		}))
	})
	return []console.Operation{list, console.New(console.Row{
		Name: "accounts show", Path: "GET /v1/ops/accounts/{account}",
		Summary: "Show the points of a user or a customer, now or at the end of a day",
		Errors:  Failures, Help: "An account is points:user:<uid> or points:customer:<id>. A statement shows the " +
			"others, a month at a time.",
	}, func(ctx context.Context, _ audit.Author, in HoldingOf) (Holding, error) {
		found, err := in.balance(ctx, from)
		if err == nil {
			err = in.moves(ctx, from, &found)
		}
		return found, err
	})}
}

// Failures are the answers if an entry cannot be read.
var Failures = []console.Refusal{
	{Of: ErrBroken, Kind: console.Conflict, Code: "books_changed", Detail: ChangedBooks},
}

// ChangedBooks is the detail of an answer if somebody has changed the books.
const ChangedBooks = "An entry or a seal that this needs was changed after it was sealed, or after it was " +
	"posted, and cannot be read; " +
	"billhook ledger verify names it."

// Reader reads accounts, seals and balances.
type Reader interface {
	store.Getter
	store.Querier
}

func (h HoldingOf) newest(
	ctx context.Context, from Reader, between store.Newest, after store.Cursor, limit int,
) (moves []Move, err error) {
	between.Field = FieldCreated
	of := map[string]any{"tenant": h.Tenant, FieldAccount: h.Account}
	query := store.Query{Collection: Entries, Equal: of, Newest: &between, After: after, Limit: limit}
	moves, _, err = store.List(ctx, from, query, MoveFromDocument)
	return moves, err
}

func (h HoldingOf) moves(ctx context.Context, from Reader, found *Holding) error {
	limit := min(h.Limit, store.MaxPage-1)
	moves, err := h.newest(ctx, from, store.Newest{Until: found.AsOf}, h.After, limit+1)
	if err != nil {
		return err
	}
	if found.More = len(moves) > limit; found.More {
		moves = moves[:limit]
		last := moves[limit-1]
		found.Continued = console.Continued{Behind: store.Cursor{At: last.CreatedAt, ID: last.id()}}
	}
	balance, first := found.Balance, h.After.IsZero()
	for _, m := range moves {
		moved := Moved{Move: m, Moved: m.Change()}
		if first {
			then := balance
			moved.Balance = &then
		}
		balance -= moved.Moved
		found.Entries = append(found.Entries, moved)
	}
	return nil
}

// balanceTries is how often a past balance is computed if the account changes meanwhile.
const balanceTries = 3

// balance reads the account without its entries; for a time in the past it subtracts the later entries.
func (h HoldingOf) balance(ctx context.Context, from Reader) (Holding, error) {
	since, err := h.before()
	if err != nil {
		return Holding{}, err
	}
	key := Account(h.Account).Key(h.Tenant)
	found := Holding{Tenant: h.Tenant, Account: h.Account, AsOf: since, Entries: []Moved{}}
	found.Holder = strings.TrimPrefix(h.Account, string(UserPoints("")))
	found.Holder = strings.TrimPrefix(found.Holder, string(CustomerPoints("")))
	for range balanceTries {
		version, err := store.Read(ctx, from, key, errNoAccount, func(doc store.Document) (store.Version, error) {
			return doc.Version, store.Decode(doc.Fields, &found)
		})
		if err != nil || since.IsZero() {
			return found, err
		}
		moves, err := h.newest(ctx, from, store.Newest{Since: since}, store.Cursor{}, store.MaxPage)
		if err == nil && len(moves) == store.MaxPage {
			err = errLongAgo
		}
		if err != nil {
			return found, err
		}
		for _, m := range moves {
			found.Balance -= m.Change()
		}
		if now, err := store.Find(ctx, from, key); err != nil || now.Version == version {
			return found, err
		}
	}
	return found, errMoving
}
