package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func typed(value any) any {
	switch v := value.(type) {
	case float64:
		return int64(v)
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return at
		}
	case map[string]any:
		for name, inner := range v {
			v[name] = typed(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = typed(inner)
		}
	}
	return value
}

var (
	noon  = time.Date(2026, 3, 2, 12, 0, 0, 123456789, time.UTC)
	guest = ledger.CustomerPoints("c1")
	user  = ledger.UserPoints("u1")
)

func credit(order string, amount int64) ledger.Move {
	return ledger.Move{
		Tenant: "default", Order: order, EventID: "paid-1", From: ledger.IssuedPoints(order), To: user,
		Amount: amount, Currency: ledger.Points, OrderTotal: 2500, OrderCurrency: "USD", CreatedAt: noon,
	}
}

func toGuest(order string, amount int64) ledger.Move {
	m := credit(order, amount)
	m.To = guest
	return m
}

func document(writes []store.Write, err error) store.Document {
	if err != nil {
		panic(err)
	}
	fields := maps.Clone(writes[0].Fields)
	fields[writes[0].Stamp] = noon.Truncate(time.Microsecond)
	return store.Document{Key: writes[0].Key, Fields: fields, Version: 1}
}

func credited(m ledger.Move) ledger.Move {
	m, err := ledger.MoveFromDocument(document(ledger.Credit(m)))
	if err != nil {
		panic(err)
	}
	return m
}

func book(t *testing.T, into store.Committer, writes []store.Write, err error) {
	t.Helper()
	require.NoError(t, err)
	require.NoError(t, store.CheckWrites(writes))
	storetest.Put(t, into, writes...)
}

func bookCredit(t *testing.T, into store.Committer, m ledger.Move) {
	t.Helper()
	writes, err := ledger.Credit(m)
	book(t, into, writes, err)
}

func TestAnInvalidCreditReturnsNoWrites(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*ledger.Move){
		"an amount of 0":                 func(e *ledger.Move) { e.Amount = 0 },
		"a negative amount":              func(e *ledger.Move) { e.Amount = -1 },
		"more than MaxAmount":            func(e *ledger.Move) { e.Amount = ledger.MaxAmount + 1 },
		"no order":                       func(e *ledger.Move) { e.Order = "" },
		"no event":                       func(e *ledger.Move) { e.EventID = "" },
		"no account to debit":            func(e *ledger.Move) { e.From = "" },
		"no account to credit":           func(e *ledger.Move) { e.To = "" },
		"one account as both":            func(e *ledger.Move) { e.From = e.To },
		"no currency":                    func(e *ledger.Move) { e.Currency = "" },
		"no time":                        func(e *ledger.Move) { e.CreatedAt = time.Time{} },
		"a negative total":               func(e *ledger.Move) { e.OrderTotal = -1 },
		"a total without currency":       func(e *ledger.Move) { e.OrderCurrency = "" },
		"an order's id that is too long": func(e *ledger.Move) { e.Order = strings.Repeat("o", 1500) },
		"an order's id that is too long once escaped": func(e *ledger.Move) {
			e.Order = strings.Repeat("/", 500)
		},
		"an account that is too long": func(e *ledger.Move) { e.To = ledger.UserPoints(strings.Repeat("u", 1500)) },
	} {
		move := credit("order-1", 1000)
		spoil(&move)
		writes, err := ledger.Credit(move)
		require.ErrorIs(t, err, ledger.ErrInvalid, name)
		require.Nil(t, writes, name)
	}
}

func TestAReversalOfMoreThanIsLeftIsRefused(t *testing.T) {
	t.Parallel()
	full := []ledger.Move{credited(credit("order-1", ledger.MaxAmount))}
	for len(full) < ledger.MaxEntries {
		full = append(full, ledger.Move{Kind: ledger.KindReversal, Amount: 1})
	}
	for name, test := range map[string]struct {
		entries []ledger.Move
		amount  int64
		err     error
	}{
		"an order without a credit": {nil, 1, ledger.ErrNoCredit},
		"more than is left":         {full[:2], ledger.MaxAmount, ledger.ErrNotLeft},
		"an amount of 0":            {full[:1], 0, ledger.ErrInvalid},
		"a negative amount":         {full[:1], -1, ledger.ErrInvalid},
		"a chain of MaxEntries":     {full, 1, ledger.ErrFull},
		"valid: one entry less":     {full[:ledger.MaxEntries-1], 1, nil},
	} {
		_, err := ledger.Chain{Entries: test.entries}.Reverse("", "refund-1", test.amount, noon)
		require.ErrorIs(t, err, test.err, name)
	}
}

type pages struct {
	page store.Page
	err  error
}

func (p pages) Query(context.Context, store.Query) (store.Page, error) { return p.page, p.err }

func TestABrokenChainIsNotLoaded(t *testing.T) {
	t.Parallel()
	doc := func(seq int64, kind string, change ...any) store.Document {
		d := document(ledger.Credit(credit("order-1", 1000)))
		d.Key.ID = fmt.Sprint("x~", seq)
		d.Fields["seq"], d.Fields["kind"] = seq, kind
		if len(change) > 0 {
			d.Fields[change[0].(string)] = change[1]
		}
		return d
	}
	// transferred are the credit of a guest's order and both halves of its transfer, with one changed field.
	transferred := func(change int, name string, value any) []store.Document {
		first := toGuest("order-1", 1000)
		documents := []store.Document{document(ledger.Credit(first))}
		writes, _, err := ledger.Transfer([]ledger.Chain{{Entries: []ledger.Move{credited(first)}}}, user,
			"op-1", noon)
		require.NoError(t, err)
		documents = append(documents, document(writes, nil), document(writes[1:], nil))
		documents[change].Fields[name] = value
		return documents
	}
	load := func(documents []store.Document, next string, err error) (ledger.Chain, error) {
		page := store.Page{Documents: documents, Next: store.Cursor{ID: next}}
		return ledger.Load(t.Context(), pages{page, err}, "default", "order-1")
	}
	whole, second := transferred(0, "seq", int64(0)), transferred(2, "seq", int64(1))
	paid, reversed := doc(0, "credit"), doc(1, "reversal")
	for name, documents := range map[string][]store.Document{
		"no entries": nil, "a credit": {paid}, "a credit and a reversal": {paid, reversed}, "a transfer": whole,
	} {
		require.Len(t, filetest.Must(load(documents, "", nil))(t).Entries, len(documents), name)
	}
	for name, documents := range map[string][]store.Document{
		"no credit":                    {reversed},
		"a missing reversal":           {paid, doc(2, "reversal")},
		"two credits":                  {paid, doc(1, "credit")},
		"an entry of another order":    {doc(0, "credit", "order", "order-2")},
		"a text as amount":             {doc(0, "credit", "amount", "1000")},
		"no amount":                    {doc(0, "credit", "amount", nil)},
		"more reversed than credited":  {paid, reversed, doc(2, "reversal")},
		"a text as lines":              {doc(0, "credit", "lines", "x")},
		"the first half of a transfer": whole[:2],
		"the second half alone":        {second[0], second[2]},
		"halves of different amounts":  transferred(2, "amount", int64(1001)),
		"out of another account":       transferred(1, "account", string(user)),
		"an unknown kind":              transferred(1, "kind", "gift")[:2],
	} {
		require.ErrorIs(t, filetest.ErrorOf(load(documents, "", nil)), ledger.ErrBroken, name)
	}
	require.ErrorIs(t, filetest.ErrorOf(load([]store.Document{paid}, "x", nil)), ledger.ErrBroken,
		"more than one page")
	down := errors.New("no answer")
	require.ErrorIs(t, filetest.ErrorOf(load(nil, "", down)), down)
}

func TestOrdersWithNothingToMoveAreNotTransferred(t *testing.T) {
	t.Parallel()
	full := []ledger.Move{credited(toGuest("order-1", 1000))}
	for len(full) < ledger.MaxEntries-2 {
		full = append(full, ledger.Move{Kind: ledger.KindReversal, Amount: 1})
	}
	for name, chains := range map[string][]ledger.Chain{
		"no chains":                           nil,
		"a chain without a credit":            {{}},
		"a chain that the account holds":      {{Entries: []ledger.Move{credited(credit("order-1", 1000))}}},
		"a chain without room for a reversal": {{Entries: full}},
	} {
		writes, amount, err := ledger.Transfer(chains, user, "op-1", noon)
		require.NoError(t, err, name)
		require.Empty(t, writes, name)
		require.Zero(t, amount, name)
	}
	_, _, err := ledger.Transfer([]ledger.Chain{{Entries: full[:1]}}, "", "op-1", noon)
	require.ErrorIs(t, err, ledger.ErrInvalid)
}

func shown(
	t *testing.T, books store.Store, account ledger.Account, asOf string, limit int,
) (found ledger.Holding, entries []string, err error) {
	t.Helper()
	show, _ := console.NewCatalog(ledger.Operations(books)).Find("accounts show")
	query := url.Values{"limit": {fmt.Sprint(limit)}}
	if asOf != "" {
		query.Set("as_of", asOf)
	}
	for {
		answer, err := show.Call(t.Context(), audit.Author{},
			console.Input{Path: map[string]string{"account": string(account)}, Query: query})
		if err != nil {
			return found, nil, err
		}
		found = answer.(ledger.Holding)
		require.Equal(t, found.Next != "", found.More)
		require.Equal(t, found.More, len(found.Notes()) > 0)
		for _, e := range found.Entries {
			entries = append(entries, fmt.Sprint(e.Kind, " ", e.Order))
		}
		if found.Next == "" {
			return found, entries, nil
		}
		query.Set("page", found.Next)
	}
}

func TestAnAccountIsShownAsOfADate(t *testing.T) {
	t.Parallel()
	books := storetest.Open(t)
	for day := range 4 {
		m := credit(fmt.Sprint("o", day), 1<<day)
		m.CreatedAt = time.Date(2026, 3, 1+day, 12, 0, 0, 0, time.UTC)
		bookCredit(t, books, m)
	}
	chain := filetest.Must(ledger.Load(t.Context(), books, "default", "o1"))(t)
	writes, err := chain.Reverse("", "back", 2, time.Date(2026, 3, 4, 13, 0, 0, 0, time.UTC))
	book(t, books, writes, err)
	all := []string{"reversal o1", "credit o3", "credit o2", "credit o1", "credit o0"}
	for asOf, want := range map[string]struct {
		balance int64
		entries []string
	}{
		"": {13, all}, "2026-03-04": {13, all}, "2026-03-03": {7, all[2:]}, "2026-03-03T12:00:00Z": {3, all[3:]},
		"2026-03-03T12:00:00.0001Z": {7, all[2:]}, "2026-02-28": {0, nil},
	} {
		found, entries := filetest.Both(shown(t, books, user, asOf, 2))(t)
		require.Equal(t, want.balance, found.Balance, asOf)
		require.Equal(t, want.entries, entries, asOf)
	}
	_, _ = filetest.Both(shown(t, books, user, "", store.MaxPage))(t)
}

// An entry that is posted between the two reads of a balance is in both or in neither.
func TestABalanceOfADayIsExactOrRefused(t *testing.T) {
	t.Parallel()
	books, n := &storetest.Faults{Store: storetest.Open(t)}, 0
	pay := func() { bookCredit(t, books.Store, credit(fmt.Sprint("o", n), 1)); n++ }
	pay()
	for _, test := range []struct {
		posted int // how often an entry is posted between the two reads
		want   string
	}{{1, ""}, {3, "refused: busy"}, {0, "refused: too_long_ago"}} {
		reads := 0
		books.OnRead = func(do func() error) error {
			if reads++; reads%3 == 2 && reads < 3*test.posted {
				pay()
			}
			return do()
		}
		for test.posted == 0 && n < store.MaxPage {
			pay()
		}
		found, _, err := shown(t, books, user, "2026-03-01", 2)
		if test.want != "" {
			require.EqualError(t, err, test.want)
			continue
		}
		require.NoError(t, err)
		require.Zero(t, found.Balance)
	}
}
