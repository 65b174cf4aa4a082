package ledger_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// paid is the entry of an invoice that was paid, with its tax.
func paid() ledger.Entry {
	return ledger.Entry{
		Tenant: "acme", Kind: ledger.KindJournal, EventID: "evt-1", EventType: "billing.invoice.paid", Rule: "invoice-paid", Period: "2026-03",
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
		"no tenant":                        func(e *ledger.Entry) { e.Tenant = "" },
		"no event":                         func(e *ledger.Entry) { e.EventID = "" },
		"a kind of a chain":                func(e *ledger.Entry) { e.Kind = ledger.KindCredit },
		"a reversal of nothing":            func(e *ledger.Entry) { e.Kind = ledger.KindJournalReversal },
		"no reversal that reverts":         func(e *ledger.Entry) { e.Reverts = "x" },
		"no period":                        func(e *ledger.Entry) { e.Period = "" },
		"a period that is a day":           func(e *ledger.Entry) { e.Period = "2026-03-02" },
		"a month that there is not":        func(e *ledger.Entry) { e.Period = "2026-13" },
		"a year that there is not":         func(e *ledger.Entry) { e.Period = "0000-01" },
		"no time of what happened":         func(e *ledger.Entry) { e.OccurredAt = time.Time{} },
		"no time of the posting":           func(e *ledger.Entry) { e.PostedAt = time.Time{} },
		"no lines":                         func(e *ledger.Entry) { e.Lines = nil },
		"one line":                         func(e *ledger.Entry) { e.Lines = e.Lines[:1] },
		"lines that differ by one":         func(e *ledger.Entry) { e.Lines[0].Debit++ },
		"a line of another currency":       func(e *ledger.Entry) { e.Lines[2].Currency = "USD" },
		"a line of no account":             func(e *ledger.Entry) { e.Lines[0].Account = "" },
		"a line of no currency":            func(e *ledger.Entry) { e.Lines[0].Currency = "" },
		"a line of both sides":             func(e *ledger.Entry) { e.Lines[0].Debit, e.Lines[0].Credit = 11901, 1 },
		"a line of nothing":                func(e *ledger.Entry) { e.Lines = append(e.Lines, ledger.Line{Account: "a", Currency: "EUR"}) },
		"a negative debit for a credit":    func(e *ledger.Entry) { e.Lines[1].Credit, e.Lines[1].Debit = 0, -10000 },
		"more than a line may move":        func(e *ledger.Entry) { e.Lines[0].Debit, e.Lines[1].Credit = ledger.MaxAmount+1, ledger.MaxAmount-1899 },
		"an account that is too long":      func(e *ledger.Entry) { e.Lines[0].Account = strings.Repeat("a", 1500) },
		"an event too long for a reversal": func(e *ledger.Entry) { e.EventID = strings.Repeat("e", 1480) },
		"more lines than an entry may have": func(e *ledger.Entry) {
			e.Lines = nil
			for range ledger.MaxLines/2 + 1 {
				e.Lines = append(e.Lines, ledger.Line{Account: "a", Currency: "EUR", Debit: 1}, ledger.Line{Account: "b", Currency: "EUR", Credit: 1})
			}
		},
	} {
		entry := paid()
		spoil(&entry)
		writes, err := ledger.Post(entry)
		require.ErrorIs(t, err, ledger.ErrInvalid, name)
		require.Nil(t, writes, name)
	}
}

func TestPostTakesWhatIsJustWithinTheLimits(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("a", store.MaxIDBytes-len(ledger.PostingKey("acme", "2026-03", "")))
	for name, lines := range map[string][]ledger.Line{
		"the largest amount":  {{Account: "a", Currency: "EUR", Debit: ledger.MaxAmount}, {Account: "b", Currency: "EUR", Credit: ledger.MaxAmount}},
		"the longest account": {{Account: longest, Currency: "EUR", Debit: 1}, {Account: "b", Currency: "EUR", Credit: 1}},
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
	seal := func(d store.Document, fields map[string]any) {
		delete(d.Fields, ledger.FieldOpen)
		delete(d.Fields, ledger.FieldUnsealed)
		maps.Copy(d.Fields, fields)
	}
	for name, test := range map[string]struct {
		document func() store.Document
		spoil    func(d store.Document)
	}{
		"a kind that is a number":              {journal, func(d store.Document) { d.Fields["kind"] = int64(1) }},
		"an id of another event":               {journal, func(d store.Document) { d.Fields["event_id"] = "evt-2" }},
		"another tenant":                       {journal, func(d store.Document) { d.Fields["tenant"] = "another" }},
		"another book":                         {journal, func(d store.Document) { d.Fields["book"] = "acme~2026-04" }},
		"another account than it is found by":  {journal, func(d store.Document) { d.Fields["postings"].([]any)[0] = "acme~2026-03~assets" }},
		"no postings":                          {journal, func(d store.Document) { delete(d.Fields, "postings") }},
		"lines that do not balance":            {journal, func(d store.Document) { line(d)["debit"] = int64(1) }},
		"a line that is a text":                {journal, func(d store.Document) { d.Fields["lines"].([]any)[0] = "x" }},
		"lines that are a text":                {journal, func(d store.Document) { d.Fields["lines"] = "x" }},
		"no lines":                             {journal, func(d store.Document) { delete(d.Fields, "lines") }},
		"a debit that is a text":               {journal, func(d store.Document) { line(d)["debit"] = "11900" }},
		"no mark":                              {journal, func(d store.Document) { seal(d, nil) }},
		"a mark of another tenant":             {journal, func(d store.Document) { d.Fields["unsealed"] = "another" }},
		"half a mark":                          {journal, func(d store.Document) { delete(d.Fields, "open") }},
		"a seal without a place":               {journal, func(d store.Document) { seal(d, map[string]any{"seal": int64(1)}) }},
		"a place without a seal":               {journal, func(d store.Document) { seal(d, map[string]any{"leaf": int64(0)}) }},
		"a seal below the first":               {journal, func(d store.Document) { seal(d, map[string]any{"seal": int64(0), "leaf": int64(0)}) }},
		"a place below the first":              {journal, func(d store.Document) { seal(d, map[string]any{"seal": int64(1), "leaf": int64(-1)}) }},
		"sealed and open":                      {journal, func(d store.Document) { d.Fields["seal"], d.Fields["leaf"] = int64(1), int64(0) }},
		"a chain's lines that another made":    {chain, func(d store.Document) { line(d)["account"] = "points:issued:order-2" }},
		"a chain's entry under another number": {chain, func(d store.Document) { d.Fields["seq"] = int64(1) }},
		"a chain's entry of another month":     {chain, func(d store.Document) { d.Fields["created_at"] = noon.AddDate(0, 1, 0).Truncate(time.Microsecond) }},
		"a chain's entry of a journal's kind":  {chain, func(d store.Document) { d.Fields["kind"] = "journal" }},
		"a chain's entry without lines":        {chain, func(d store.Document) { delete(d.Fields, "lines") }},
		"a total of the order of no currency":  {chain, func(d store.Document) { delete(d.Fields, "order_currency") }},
		"a currency of no total of the order":  {chain, func(d store.Document) { delete(d.Fields, "order_total") }},
		"a total of the order below nothing":   {chain, func(d store.Document) { d.Fields["order_total"] = int64(-1) }},
		"a chain's entry without a tenant":     {chain, func(d store.Document) { delete(d.Fields, "tenant") }},
	} {
		doc := test.document()
		_, err := ledger.Read(doc)
		require.NoError(t, err, name)
		test.spoil(doc)
		_, err = ledger.Read(doc)
		require.ErrorIs(t, err, ledger.ErrBroken, name)
		require.NotContains(t, err.Error(), "11900", name)
	}
}
