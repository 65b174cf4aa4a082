package catalog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

func TestAnEventHasTheNarrowestRule(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(withJournal(t, `  "*.fee.charged":
    lines:
      - { debit: cash, amount: cents, currency: EUR }
      - { credit: revenue, amount: [cents], currency: EUR }
  card.fee.charged:
    lines:
      - { debit: cash, amount: fee, currency: currency }
      - { credit: tax, amount: fee, currency: currency }
`, `  "*.fee.charged":
    1: { cents: integer! }
  card.fee.charged:
    1: { fee: amount!, currency: currency! }
    2: { fee: amount!, currency: currency!, card: id }
`))
	require.NoError(t, err)
	for eventType, want := range map[string]string{"card.fee.charged": "tax", "bank.fee.charged": "revenue", "billing.invoice.paid": "revenue", "billing.invoice.sent": ""} {
		rule, ok := c.Journal.Rule(eventType)
		require.Equal(t, want != "", ok, eventType)
		if ok {
			require.Equal(t, want, rule.Lines[1].Account(), eventType)
		}
	}
	rule, _ := c.Journal.Rule("bank.fee.charged")
	require.Equal(t, catalog.Rule{Name: "*.fee.charged", Lines: []catalog.RuleLine{
		{Debit: "cash", Amount: catalog.Terms{"cents"}, Currency: "EUR"}, {Credit: "revenue", Amount: catalog.Terms{"cents"}, Currency: "EUR"},
	}}, rule)
}

// The waits of what undoes another event last longer than an hour, and are the broker's own.
func TestWhatUndoesAnEventWaitsAnHourForIt(t *testing.T) {
	t.Parallel()
	c := from(t, "")
	q, ok := c.Queue("fis-ingestion")
	require.True(t, ok)
	h, ok := q.Handler("billing.invoice.reverted")
	require.True(t, ok)
	require.Equal(t, catalog.JournalRevert, h.Name)
	var waits time.Duration
	for failed := 1; failed < h.MaxAttempts; failed++ {
		waits += h.Backoff.Wait(failed, 0)
	}
	require.Greater(t, waits, time.Hour)
	require.Less(t, waits, 75*time.Minute)
	require.True(t, q.BrokerKeepsTime())
}
