package ledger_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/filetest"
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

// Names that begin with "valid" are of entries at the limits.
func TestAnInvalidEntryIsNotPosted(t *testing.T) {
	t.Parallel()
	pair := func(account string, amount int64) []ledger.Line {
		return []ledger.Line{
			{Account: account, Currency: "EUR", Debit: amount}, {Account: "b", Currency: "EUR", Credit: amount},
		}
	}
	most := slices.Repeat(pair("a", 1), ledger.MaxLines/2)
	longest := func(other string) string { return strings.Repeat("a", store.MaxIDBytes-len(other)) }
	longestAccount := longest(ledger.PostingKey("acme", "2026-03", ""))
	longestEvent := longest(ledger.ReversalID(ledger.EntryID("acme", "")))
	for name, spoil := range map[string]func(e *ledger.Entry){
		"no tenant":                  func(e *ledger.Entry) { e.Tenant = "" },
		"no event":                   func(e *ledger.Entry) { e.EventID = "" },
		"a kind of a chain":          func(e *ledger.Entry) { e.Kind = ledger.KindCredit },
		"a reversal without Reverts": func(e *ledger.Entry) { e.Kind = ledger.KindJournalReversal },
		"Reverts without a reversal": func(e *ledger.Entry) { e.Reverts = "x" },
		"no period":                  func(e *ledger.Entry) { e.Period = "" },
		"a period that is a day":     func(e *ledger.Entry) { e.Period = "2026-03-02" },
		"month 13":                   func(e *ledger.Entry) { e.Period = "2026-13" },
		"year 0":                     func(e *ledger.Entry) { e.Period = "0000-01" },
		"no time of the event":       func(e *ledger.Entry) { e.OccurredAt = time.Time{} },
		"no time of the posting":     func(e *ledger.Entry) { e.PostedAt = time.Time{} },
		"no lines":                   func(e *ledger.Entry) { e.Lines = nil },
		"one line":                   func(e *ledger.Entry) { e.Lines = e.Lines[:1] },
		"sides that differ by one":   func(e *ledger.Entry) { e.Lines[0].Debit++ },
		"a line in another currency": func(e *ledger.Entry) { e.Lines[2].Currency = "USD" },
		"a line without an account":  func(e *ledger.Entry) { e.Lines[0].Account = "" },
		"a line without a currency":  func(e *ledger.Entry) { e.Lines[0].Currency = "" },
		"a line with both sides":     func(e *ledger.Entry) { e.Lines[0].Debit, e.Lines[0].Credit = 11901, 1 },
		"a line of 0": func(e *ledger.Entry) {
			e.Lines = append(e.Lines, ledger.Line{Account: "a", Currency: "EUR"})
		},
		"a negative debit instead of a credit": func(e *ledger.Entry) {
			e.Lines[1].Credit, e.Lines[1].Debit = 0, -10000
		},
		"more than MaxAmount":              func(e *ledger.Entry) { e.Lines = pair("a", ledger.MaxAmount+1) },
		"valid: MaxAmount":                 func(e *ledger.Entry) { e.Lines = pair("a", ledger.MaxAmount) },
		"an account that is too long":      func(e *ledger.Entry) { e.Lines = pair(longestAccount+"a", 1) },
		"valid: the longest account":       func(e *ledger.Entry) { e.Lines = pair(longestAccount, 1) },
		"an event too long for a reversal": func(e *ledger.Entry) { e.EventID = longestEvent + "a" },
		"valid: the longest event":         func(e *ledger.Entry) { e.EventID = longestEvent },
		"more than MaxLines":               func(e *ledger.Entry) { e.Lines = slices.Concat(most, most[:2]) },
		"valid: MaxLines":                  func(e *ledger.Entry) { e.Lines = most },
	} {
		entry := paid()
		spoil(&entry)
		if strings.HasPrefix(name, "valid") {
			back, err := ledger.Read(document(ledger.Post(entry)))
			require.NoError(t, err, name)
			require.Equal(t, entry.Lines, back.Lines, name)
			continue
		}
		writes, err := ledger.Post(entry)
		require.ErrorIs(t, err, ledger.ErrInvalid, name)
		require.Nil(t, writes, name)
	}
	for _, kind := range []ledger.Kind{ledger.KindJournalReversal, ledger.KindCredit} {
		_, err := ledger.Entry{Kind: kind}.Reversal("evt-2", "2026-04", noon)
		require.ErrorIs(t, err, ledger.ErrIrreversible)
	}
}

func TestTheIDsOfJournalsAndChainsNeverCollide(t *testing.T) {
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

func TestAnInconsistentDocumentIsNoEntry(t *testing.T) {
	t.Parallel()
	journal := func() store.Document { return document(ledger.Post(paid())) }
	chain := func() store.Document { return document(ledger.Credit(credit("order-1", 1000))) }
	set := func(name string, value any) func(store.Document) {
		return func(d store.Document) {
			if d.Fields[name] = value; value == nil {
				delete(d.Fields, name)
			}
		}
	}
	setLine := func(name string, value any) func(store.Document) {
		return func(d store.Document) { d.Fields["lines"].([]any)[0].(map[string]any)[name] = value }
	}
	type row struct {
		document func() store.Document
		spoil    func(d store.Document)
	}
	for name, test := range map[string]row{
		"a number as kind":       {journal, set("kind", int64(1))},
		"an id of another event": {journal, set("event_id", "evt-2")},
		"another tenant":         {journal, set("tenant", "another")},
		"another book":           {journal, set("book", "acme~2026-04")},
		"a posting of another account": {
			journal, func(d store.Document) { d.Fields["postings"].([]any)[0] = "acme~2026-03~assets" },
		},
		"no postings":                  {journal, set("postings", nil)},
		"lines that do not balance":    {journal, setLine("debit", int64(1))},
		"a text as line":               {journal, func(d store.Document) { d.Fields["lines"].([]any)[0] = "x" }},
		"a text as lines":              {journal, set("lines", "x")},
		"no lines":                     {journal, set("lines", nil)},
		"a text as debit":              {journal, setLine("debit", "11900")},
		"no time of its commit":        {journal, set("committed_at", nil)},
		"a text as time of its commit": {journal, set("committed_at", "2026-03-02")},
		"another shard": {
			journal, func(d store.Document) { d.Fields["shard"] = (d.Fields["shard"].(int64) + 1) % ledger.Shards },
		},
		"no shard": {journal, set("shard", nil)},

		"a chain's entry with lines of another": {chain, setLine("account", "points:issued:order-2")},
		"a chain's entry with another number":   {chain, set("seq", int64(1))},
		"a chain's entry in another month": {
			chain, set("created_at", noon.AddDate(0, 1, 0).Truncate(time.Microsecond)),
		},
		"a chain's entry with a journal's kind": {chain, set("kind", "journal")},
		"a chain's entry without lines":         {chain, set("lines", nil)},
		"an order total without a currency":     {chain, set("order_currency", nil)},
		"an order currency without a total":     {chain, set("order_total", nil)},
		"a negative order total":                {chain, set("order_total", int64(-1))},
		"a chain's entry without a tenant":      {chain, set("tenant", nil)},
	} {
		doc := test.document()
		require.NoError(t, filetest.ErrorOf(ledger.Read(doc)), name)
		test.spoil(doc)
		_, err := ledger.Read(doc)
		require.ErrorIs(t, err, ledger.ErrBroken, name)
		require.NotContains(t, err.Error(), "11900", name)
	}
}

// vectors are documents by their names in testdata/leaves.json.
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

// A changed hash would invalidate every seal. Another program has computed the file as well, and it never
// changes.
func TestTheLeafHashesNeverChange(t *testing.T) {
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

func TestTheShardsOfEntriesAreAboutEquallyLarge(t *testing.T) {
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

func TestAnEntryWithAnInexactValueHasNoHash(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(fields map[string]any){
		"an integer above the exact doubles": func(f map[string]any) { f["later"] = int64(1 << 53) },
		"an integer below them": func(f map[string]any) {
			f["later"] = []any{map[string]any{"x": int64(math.MinInt64)}}
		},
		"a field with the name id": func(f map[string]any) { f["id"] = "x" },
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

func TestTheBooksFollowTheModelOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, storetest.Open)
}
