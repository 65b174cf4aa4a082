package ledger_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func paid() ledger.Entry {
	return ledger.Entry{
		Tenant: "acme", Kind: ledger.KindJournal, EventID: "evt-1", EventType: "billing.invoice.paid",
		Rule: "invoice-paid", Period: "2026-03",
		OccurredAt: noon.Add(-time.Hour), PostedAt: noon,
		Lines: []ledger.Line{
			{Account: "assets:bank", Currency: "EUR", Debit: 11900},
			{Account: "income:sales", Currency: "EUR", Credit: 10000},
			{Account: "liabilities:vat", Currency: "EUR", Credit: 1900},
		},
	}
}

func TestAnEntryThatDoesNotBalanceOrLacksAPartIsNotPosted(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(e *ledger.Entry){
		"no tenant":                  func(e *ledger.Entry) { e.Tenant = "" },
		"no event":                   func(e *ledger.Entry) { e.EventID = "" },
		"a kind of a chain":          func(e *ledger.Entry) { e.Kind = ledger.KindCredit },
		"a reversal of nothing":      func(e *ledger.Entry) { e.Kind = ledger.KindJournalReversal },
		"no reversal that reverts":   func(e *ledger.Entry) { e.Reverts = "x" },
		"no period":                  func(e *ledger.Entry) { e.Period = "" },
		"a period that is a day":     func(e *ledger.Entry) { e.Period = "2026-03-02" },
		"a month that there is not":  func(e *ledger.Entry) { e.Period = "2026-13" },
		"a year that there is not":   func(e *ledger.Entry) { e.Period = "0000-01" },
		"no time of what happened":   func(e *ledger.Entry) { e.OccurredAt = time.Time{} },
		"no time of the posting":     func(e *ledger.Entry) { e.PostedAt = time.Time{} },
		"no lines":                   func(e *ledger.Entry) { e.Lines = nil },
		"one line":                   func(e *ledger.Entry) { e.Lines = e.Lines[:1] },
		"lines that differ by one":   func(e *ledger.Entry) { e.Lines[0].Debit++ },
		"a line of another currency": func(e *ledger.Entry) { e.Lines[2].Currency = "USD" },
		"a line of no account":       func(e *ledger.Entry) { e.Lines[0].Account = "" },
		"a line of no currency":      func(e *ledger.Entry) { e.Lines[0].Currency = "" },
		"a line of both sides":       func(e *ledger.Entry) { e.Lines[0].Debit, e.Lines[0].Credit = 11901, 1 },
		"a line of nothing": func(e *ledger.Entry) {
			e.Lines = append(e.Lines, ledger.Line{Account: "a", Currency: "EUR"})
		},
		"a negative debit for a credit": func(e *ledger.Entry) { e.Lines[1].Credit, e.Lines[1].Debit = 0, -10000 },
		"more than a line may move": func(e *ledger.Entry) {
			e.Lines[0].Debit, e.Lines[1].Credit = ledger.MaxAmount+1, ledger.MaxAmount-1899
		},
		"an account that is too long": func(e *ledger.Entry) { e.Lines[0].Account = strings.Repeat("a", 1500) },
		"an event too long for a reversal": func(e *ledger.Entry) {
			e.EventID = strings.Repeat("e", 1480)
		},
		"more lines than an entry may have": func(e *ledger.Entry) {
			e.Lines = nil
			for range ledger.MaxLines/2 + 1 {
				e.Lines = append(e.Lines, ledger.Line{Account: "a", Currency: "EUR", Debit: 1},
					ledger.Line{Account: "b", Currency: "EUR", Credit: 1})
			}
		},
	} {
		entry := paid()
		spoil(&entry)
		writes, err := ledger.Post(entry)
		require.ErrorIs(t, err, ledger.ErrInvalid, name)
		require.Nil(t, writes, name)
	}
	for _, kind := range []ledger.Kind{ledger.KindJournalReversal, ledger.KindCredit} {
		_, err := ledger.Entry{Kind: kind}.Reversal("evt-2", "2026-04", noon)
		require.ErrorIs(t, err, ledger.ErrIrreversible)
	}
}

func TestPostTakesWhatIsJustWithinTheLimits(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("a", store.MaxIDBytes-len(ledger.PostingKey("acme", "2026-03", "")))
	for name, lines := range map[string][]ledger.Line{
		"the largest amount": {
			{Account: "a", Currency: "EUR", Debit: ledger.MaxAmount},
			{Account: "b", Currency: "EUR", Credit: ledger.MaxAmount},
		},
		"the longest account": {
			{Account: longest, Currency: "EUR", Debit: 1}, {Account: "b", Currency: "EUR", Credit: 1},
		},
		"as many lines as an entry may have": slices.Repeat([]ledger.Line{
			{Account: "a", Currency: "EUR", Debit: 1}, {Account: "b", Currency: "EUR", Credit: 1},
		}, ledger.MaxLines/2),
	} {
		entry := paid()
		entry.Lines = lines
		back, err := ledger.Read(document(ledger.Post(entry)))
		require.NoError(t, err, name)
		require.Equal(t, lines, back.Lines, name)
	}
	longest = strings.Repeat("e", store.MaxIDBytes-len(ledger.ReversalID(ledger.EntryID("acme", ""))))
	entry := paid()
	entry.EventID = longest
	_, err := ledger.Post(entry)
	require.NoError(t, err, "an event whose reversal has just room for its id")
}

func TestTheIdsOfJournalsAndChainsNeverMeet(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom([]string{"points", "a", "a~0000", "reversal", "points~a", "0000"})
	rapid.Check(t, func(t *rapid.T) {
		chain := ledger.ChainPrefix(names.Draw(t, "tenant"), names.Draw(t, "order"))
		entry := ledger.EntryID(names.Draw(t, "tenant"), names.Draw(t, "event"))
		for _, id := range []string{entry, ledger.ReversalID(entry)} {
			require.False(t, strings.HasPrefix(id, chain), "%s begins with %s", id, chain)
		}
	})
}

func TestADocumentThatContradictsItselfIsNoEntry(t *testing.T) {
	t.Parallel()
	journal := func() store.Document { return document(ledger.Post(paid())) }
	chain := func() store.Document { return document(ledger.Credit(credit("order-1", 1000))) }
	line := func(d store.Document) map[string]any { return d.Fields["lines"].([]any)[0].(map[string]any) }
	for name, test := range map[string]struct {
		document func() store.Document
		spoil    func(d store.Document)
	}{
		"a kind that is a number": {journal, func(d store.Document) { d.Fields["kind"] = int64(1) }},
		"an id of another event":  {journal, func(d store.Document) { d.Fields["event_id"] = "evt-2" }},
		"another tenant":          {journal, func(d store.Document) { d.Fields["tenant"] = "another" }},
		"another book":            {journal, func(d store.Document) { d.Fields["book"] = "acme~2026-04" }},
		"another account than it is found by": {
			journal, func(d store.Document) { d.Fields["postings"].([]any)[0] = "acme~2026-03~assets" },
		},
		"no postings":               {journal, func(d store.Document) { delete(d.Fields, "postings") }},
		"lines that do not balance": {journal, func(d store.Document) { line(d)["debit"] = int64(1) }},
		"a line that is a text":     {journal, func(d store.Document) { d.Fields["lines"].([]any)[0] = "x" }},
		"lines that are a text":     {journal, func(d store.Document) { d.Fields["lines"] = "x" }},
		"no lines":                  {journal, func(d store.Document) { delete(d.Fields, "lines") }},
		"a debit that is a text":    {journal, func(d store.Document) { line(d)["debit"] = "11900" }},
		"no time of its commit":     {journal, func(d store.Document) { delete(d.Fields, "committed_at") }},
		"a time of its commit that is a text": {
			journal, func(d store.Document) { d.Fields["committed_at"] = "2026-03-02" },
		},
		"another shard": {
			journal, func(d store.Document) { d.Fields["shard"] = (d.Fields["shard"].(int64) + 1) % ledger.Shards },
		},
		"no shard": {journal, func(d store.Document) { delete(d.Fields, "shard") }},
		"a chain's lines that another made": {
			chain, func(d store.Document) { line(d)["account"] = "points:issued:order-2" },
		},
		"a chain's entry under another number": {chain, func(d store.Document) { d.Fields["seq"] = int64(1) }},
		"a chain's entry of another month": {
			chain, func(d store.Document) {
				d.Fields["created_at"] = noon.AddDate(0, 1, 0).Truncate(time.Microsecond)
			},
		},
		"a chain's entry of a journal's kind": {chain, func(d store.Document) { d.Fields["kind"] = "journal" }},
		"a chain's entry without lines":       {chain, func(d store.Document) { delete(d.Fields, "lines") }},
		"a total of the order of no currency": {
			chain, func(d store.Document) { delete(d.Fields, "order_currency") },
		},
		"a currency of no total of the order": {chain, func(d store.Document) { delete(d.Fields, "order_total") }},
		"a total of the order below nothing": {
			chain, func(d store.Document) { d.Fields["order_total"] = int64(-1) },
		},
		"a chain's entry without a tenant": {chain, func(d store.Document) { delete(d.Fields, "tenant") }},
	} {
		doc := test.document()
		require.NoError(t, filetest.ErrorOf(ledger.Read(doc)), name)
		test.spoil(doc)
		_, err := ledger.Read(doc)
		require.ErrorIs(t, err, ledger.ErrBroken, name)
		require.NotContains(t, err.Error(), "11900", name)
	}
}

// vectors are documents by the names that testdata/leaves.json gives them.
func vectors(t *testing.T) map[string]store.Document {
	t.Helper()
	entry := filetest.Must(ledger.Read(document(ledger.Post(paid()))))(t)
	reversal := filetest.Must(entry.Reversal("evt-2", "2026-04", noon.AddDate(0, 1, 0)))(t)
	order := credit("order-1", 1000)
	writes, _, err := ledger.Transfer([]ledger.Chain{{Entries: []ledger.Move{credited(order)}}}, guest,
		"op-1", noon)
	odd := paid()
	odd.Tenant, odd.EventID, odd.EventType, odd.Rule = "a~b/ü", "e\"\\\u2028\x7f😀", "", ""
	odd.Lines = []ledger.Line{
		{Account: "€<&>", Currency: "JPY", Credit: ledger.MaxAmount},
		{Account: "\U0001f600", Currency: "JPY", Debit: ledger.MaxAmount},
	}
	later := document(ledger.Post(paid()))
	later.Fields["later"] = map[string]any{
		"é": nil, "z": true, "a": []any{int64(-1), "x", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		"\U0001f600": "", "\ufb33": false,
	}
	return map[string]store.Document{
		"an invoice":                       document(ledger.Post(paid())),
		"its reversal":                     document(ledger.Post(reversal)),
		"names that JSON escapes":          document(ledger.Post(odd)),
		"a field of a later release":       later,
		"the credit of an order":           document(ledger.Credit(order)),
		"a transfer of what is left of it": document(writes, err),
	}
}

// A hash that changes makes every seal a lie. The file was computed with another program as well, and never
// changes.
func TestTheLeafHashesAreWhatTheyWere(t *testing.T) {
	t.Parallel()
	text := filetest.Read(t, "testdata", "leaves.json")
	want := filetest.JSON[map[string]struct{ Canonical, Leaf string }](t, text)
	documents := vectors(t)
	require.Len(t, documents, len(want))
	for name, doc := range documents {
		entry, err := ledger.Read(doc)
		require.NoError(t, err, name)
		canonical, err := entry.Canonical()
		require.NoError(t, err, name)
		require.Equal(t, want[name].Canonical, string(canonical))
		leaf, err := entry.LeafHash()
		require.NoError(t, err, name)
		require.Equal(t, want[name].Leaf, hex.EncodeToString(leaf), name)
		sum := sha256.Sum256(append([]byte{0}, canonical...)) // RFC 6962, section 2.1
		require.Equal(t, sum[:], leaf, name)
	}
}

func TestTheShardsOfEntriesAreAboutAsLarge(t *testing.T) {
	t.Parallel()
	shards := map[any]int{}
	for i := range 800 {
		entry := paid()
		entry.EventID = fmt.Sprint("evt-", i)
		shards[document(ledger.Post(entry)).Fields["shard"]]++
	}
	require.Len(t, shards, ledger.Shards)
	for _, n := range shards {
		require.InDelta(t, 100, n, 50)
	}
}

func TestAValueWithoutAnExactFormHasNoHash(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(fields map[string]any){
		"a number beyond doubles": func(f map[string]any) {
			f["later"] = int64(1 << 53)
		},
		"one below them": func(f map[string]any) { f["later"] = []any{map[string]any{"x": int64(math.MinInt64)}} },
		"a field that is called id": func(f map[string]any) {
			f["id"] = "x"
		},
	} {
		doc := document(ledger.Post(paid()))
		change(doc.Fields)
		entry, err := ledger.Read(doc)
		require.NoError(t, err, name)
		require.ErrorIs(t, filetest.ErrorOf(entry.LeafHash()), ledger.ErrBroken, name)
	}
}

func FuzzRead(f *testing.F) {
	for _, doc := range []store.Document{
		document(ledger.Post(paid())), document(ledger.Credit(credit("order-1", 1000))),
	} {
		text := filetest.Must(json.Marshal(doc.Fields))(f)
		f.Add(doc.Key.ID, text)
	}
	f.Fuzz(func(t *testing.T, id string, text []byte) {
		var fields map[string]any
		if json.Unmarshal(text, &fields) != nil {
			return
		}
		fields, _ = typed(fields).(map[string]any)
		entry, err := ledger.Read(store.Document{Key: ledger.Key(id), Fields: fields})
		if err != nil {
			require.ErrorIs(t, err, ledger.ErrBroken)
			return
		}
		left := map[string]int64{}
		for _, line := range entry.Lines {
			left[line.Currency] += line.Debit - line.Credit
		}
		for currency, amount := range left {
			require.Zero(t, amount, "%s in %s", entry.ID, currency)
		}
	})
}

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

func TestAnInvalidCreditIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*ledger.Move){
		"nothing moves":                    func(e *ledger.Move) { e.Amount = 0 },
		"a negative amount":                func(e *ledger.Move) { e.Amount = -1 },
		"more than one entry may move":     func(e *ledger.Move) { e.Amount = ledger.MaxAmount + 1 },
		"no order":                         func(e *ledger.Move) { e.Order = "" },
		"no event":                         func(e *ledger.Move) { e.EventID = "" },
		"no source":                        func(e *ledger.Move) { e.From = "" },
		"no destination":                   func(e *ledger.Move) { e.To = "" },
		"from an account to itself":        func(e *ledger.Move) { e.From = e.To },
		"no currency":                      func(e *ledger.Move) { e.Currency = "" },
		"no time":                          func(e *ledger.Move) { e.CreatedAt = time.Time{} },
		"a negative total":                 func(e *ledger.Move) { e.OrderTotal = -1 },
		"a total without currency":         func(e *ledger.Move) { e.OrderCurrency = "" },
		"an order too long for a document": func(e *ledger.Move) { e.Order = strings.Repeat("o", 1500) },
		"a short order that escapes to 1.5k": func(e *ledger.Move) {
			e.Order = strings.Repeat("/", 500)
		},
		"an account too long": func(e *ledger.Move) { e.To = ledger.UserPoints(strings.Repeat("u", 1500)) },
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
		"an order never credited":    {nil, 1, ledger.ErrNoCredit},
		"more than is left":          {full[:2], ledger.MaxAmount, ledger.ErrNotLeft},
		"nothing":                    {full[:1], 0, ledger.ErrInvalid},
		"a negative amount":          {full[:1], -1, ledger.ErrInvalid},
		"a chain of 1,000 entries":   {full, 1, ledger.ErrFull},
		"but not one of 999 of them": {full[:ledger.MaxEntries-1], 1, nil},
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
	doc := func(seq int64, kind string, change map[string]any) store.Document {
		d := document(ledger.Credit(credit("order-1", 1000)))
		d.Key.ID = fmt.Sprint("x~", seq)
		d.Fields["seq"], d.Fields["kind"] = seq, kind
		maps.Copy(d.Fields, change)
		return d
	}
	// The credit of a guest's order, and both halves of its transfer, one of them changed.
	moved := func(change int, name string, value any) []store.Document {
		first := toGuest("order-1", 1000)
		documents := []store.Document{document(ledger.Credit(first))}
		writes, _, err := ledger.Transfer([]ledger.Chain{{Entries: []ledger.Move{credited(first)}}}, user,
			"op-1", noon)
		require.NoError(t, err)
		documents = append(documents, document(writes, nil), document(writes[1:], nil))
		documents[change].Fields[name] = value
		return documents
	}
	whole, second := moved(0, "seq", int64(0)), moved(2, "seq", int64(1))
	down := errors.New("no answer")
	for name, test := range map[string]struct {
		documents []store.Document
		next      string
		err       error
	}{
		"no entries":              {},
		"a credit":                {documents: []store.Document{doc(0, "credit", nil)}},
		"a credit and a reversal": {documents: []store.Document{doc(0, "credit", nil), doc(1, "reversal", nil)}},
		"a transfer":              {documents: whole},
		"a credit that is gone":   {documents: []store.Document{doc(1, "reversal", nil)}, err: ledger.ErrBroken},
		"a reversal that is gone": {
			documents: []store.Document{doc(0, "credit", nil), doc(2, "reversal", nil)}, err: ledger.ErrBroken,
		},
		"two credits": {
			documents: []store.Document{doc(0, "credit", nil), doc(1, "credit", nil)}, err: ledger.ErrBroken,
		},
		"an entry of another order": {
			documents: []store.Document{doc(0, "credit", map[string]any{"order": "order-2"})}, err: ledger.ErrBroken,
		},
		"an amount that is text": {
			documents: []store.Document{doc(0, "credit", map[string]any{"amount": "1000"})}, err: ledger.ErrBroken,
		},
		"an amount that is gone": {
			documents: []store.Document{doc(0, "credit", map[string]any{"amount": nil})}, err: ledger.ErrBroken,
		},
		"more undone than credited": {
			documents: []store.Document{doc(0, "credit", nil), doc(1, "reversal", nil), doc(2, "reversal", nil)},
			err:       ledger.ErrBroken,
		},
		"lines that are text": {
			documents: []store.Document{doc(0, "credit", map[string]any{"lines": "x"})}, err: ledger.ErrBroken,
		},
		"more than one page": {
			documents: []store.Document{doc(0, "credit", nil)}, next: "x", err: ledger.ErrBroken,
		},
		"out and not in":               {documents: whole[:2], err: ledger.ErrBroken},
		"in and not out":               {documents: []store.Document{second[0], second[2]}, err: ledger.ErrBroken},
		"more in than out":             {documents: moved(2, "amount", int64(1001)), err: ledger.ErrBroken},
		"out of an account without it": {documents: moved(1, "account", string(user)), err: ledger.ErrBroken},
		"a kind that there is not":     {documents: moved(1, "kind", "gift")[:2], err: ledger.ErrBroken},
		"a store that is down":         {err: down},
	} {
		answers := pages{page: store.Page{Documents: test.documents, Next: store.Cursor{ID: test.next}}}
		if !errors.Is(test.err, ledger.ErrBroken) {
			answers.err = test.err
		}
		chain, err := ledger.Load(t.Context(), answers, "default", "order-1")
		require.ErrorIs(t, err, test.err, name)
		if test.err == nil {
			require.Len(t, chain.Entries, len(test.documents), name)
		}
	}
}

func TestTheOrdersOfAnAccountAreFoundAndMovedInPages(t *testing.T) {
	t.Parallel()
	books := &storetest.Counter{Store: storetest.Open(t)}
	for i := range 700 {
		order := fmt.Sprint("order-", i)
		bookCredit(t, books, toGuest(order, int64(i+1)))
		if i%2 == 0 {
			chain := filetest.Must(ledger.Load(t.Context(), books, "default", order))(t)
			writes, err := chain.Reverse("", "r", 1, noon) // every second has two entries, so that a page cuts some
			book(t, books, writes, err)
		}
	}
	held := func() (all []ledger.Chain) {
		for after := (store.Cursor{}); ; {
			chains, next := filetest.Both(ledger.HeldBy(t.Context(), books, "default", guest, after))(t)
			all = append(all, chains...)
			if next.IsZero() {
				return all
			}
			require.Greater(t, next.ID, after.ID)
			after = next
		}
	}
	books.Queries.Store(0)
	chains := held()
	require.Len(t, chains, 699, "the first has nothing left")
	require.EqualValues(t, 2, books.Queries.Load())
	var all int64
	for some := range slices.Chunk(chains, 100) {
		writes, amount, err := ledger.Transfer(some, user, "op-1", noon)
		book(t, books, writes, err)
		all += amount
	}
	require.Equal(t, int64(700*701/2-350), all)
	for account, want := range map[ledger.Account]int64{user: all, guest: 0} {
		require.Equal(t, want, storetest.Get(t, books, account.Key("default")).Fields["balance"])
	}
	require.Empty(t, held())
}

func TestOrdersWithNothingToMoveAreNotTransferred(t *testing.T) {
	t.Parallel()
	full := []ledger.Move{credited(toGuest("order-1", 1000))}
	for len(full) < ledger.MaxEntries-2 {
		full = append(full, ledger.Move{Kind: ledger.KindReversal, Amount: 1})
	}
	for name, chains := range map[string][]ledger.Chain{
		"nothing":                                nil,
		"no credit":                              {{}},
		"what the account has":                   {{Entries: []ledger.Move{credited(credit("order-1", 1000))}}},
		"a chain without room for a refund more": {{Entries: full}},
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
	t *testing.T, books store.Store, account ledger.Account, asOf string,
) (found ledger.Holding, entries []string, err error) {
	t.Helper()
	show, _ := console.NewCatalog(ledger.Operations(books)).Find("accounts show")
	query := url.Values{"limit": {"2"}}
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
		found, entries := filetest.Both(shown(t, books, user, asOf))(t)
		require.Equal(t, want.balance, found.Balance, asOf)
		require.Equal(t, want.entries, entries, asOf)
	}
	show, _ := console.NewCatalog(ledger.Operations(books)).Find("accounts show")
	longest := url.Values{"limit": {fmt.Sprint(store.MaxPage)}}
	_, err = show.Call(t.Context(), audit.Author{},
		console.Input{Path: map[string]string{"account": string(user)}, Query: longest})
	require.NoError(t, err)
}

// An entry that comes between the two reads of a balance is in both or in neither.
func TestABalanceOfADayIsExactOrRefused(t *testing.T) {
	t.Parallel()
	books, n := &storetest.Faults{Store: storetest.Open(t)}, 0
	pay := func() { bookCredit(t, books.Store, credit(fmt.Sprint("o", n), 1)); n++ }
	pay()
	for _, test := range []struct {
		comes int // how often an entry comes between the two reads
		want  string
	}{{1, ""}, {3, "refused: busy"}, {0, "refused: too_long_ago"}} {
		reads := 0
		books.OnRead = func(do func() error) error {
			if reads++; reads%3 == 2 && reads < 3*test.comes {
				pay()
			}
			return do()
		}
		for test.comes == 0 && n < store.MaxPage {
			pay()
		}
		found, _, err := shown(t, books, user, "2026-03-01")
		if test.want != "" {
			require.EqualError(t, err, test.want)
			continue
		}
		require.NoError(t, err)
		require.Zero(t, found.Balance)
	}
}

func TestAnEntryGetsANewTimeOnce(t *testing.T) {
	t.Parallel()
	books := storetest.Open(t)
	bookCredit(t, books, credit("order-1", 1000))
	before := storetest.Get(t, books, document(ledger.Credit(credit("order-1", 1000))).Key)
	storetest.Put(t, books, ledger.Reposition(before))
	after := storetest.Get(t, books, before.Key)
	require.Positive(t, ledger.Position(after).Compare(ledger.Position(before)))
	_, err := books.Commit(t.Context(), []store.Write{ledger.Reposition(before)})
	require.ErrorIs(t, err, store.ErrStale)
}

func TestTheBooksHoldOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, storetest.Open)
}
