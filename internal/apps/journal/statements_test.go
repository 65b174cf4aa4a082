package journal_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store/storetest"
)

func TestTheJournalHoldsOneEntryForAnEventOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, storetest.Open)
}

func TestTheNotesOfEntriesMonthsAndStatements(t *testing.T) {
	t.Parallel()
	entry := func(sealed int64, hash string, changed bool) journal.Entry {
		return journal.Entry{
			Entry: ledger.Entry{ID: "e1", Kind: ledger.KindJournal, Seal: sealed}, Hash: hash, Changed: changed,
		}
	}
	for notes, of := range map[string]journal.Entry{
		"": entry(4, "ab", false),
		"It is not sealed yet, and nothing proves it before.":         entry(0, "ab", false),
		"Entry e1 was changed after it was sealed. Verify the books.": entry(4, "ab", true),
		"Entry e1 was changed after it was posted, and cannot be read any more. Verify the books.": entry(
			0, "", true),
	} {
		require.Equal(t, notes, strings.Join(of.Notes(), " "))
		require.Equal(t, of.Changed, of.Alerts())
		require.Equal(t, of.Changed, of.Failure() != "")
		require.Equal(t, of.Seal > 0, of.Allows("prove"))
		require.True(t, of.Allows("revert"))
	}
	reverted := entry(4, "ab", false)
	reverted.RevertedBy = "e2"
	require.False(t, reverted.Allows("revert"))
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	request := &journal.Request{Who: "ada", Why: "late invoice", At: at}
	require.Equal(t, "ada on 2026-12-01T00:00:00Z: late invoice", request.String())
	for _, test := range []struct {
		period        journal.Period
		notes         string
		close, reopen bool
	}{
		{journal.Period{Month: "2026-11", State: journal.Open}, "", true, false},
		{
			journal.Period{Month: "2026-11", State: journal.Closing, ClosesAt: at},
			"2026-11 takes entries until 2026-12-01T00:00:00Z.", false, true,
		},
		{
			journal.Period{Month: "2026-11", State: journal.Closed, Reopening: request},
			"2026-11 opens again when a second person asks for it, after ada.", true, true,
		},
	} {
		require.Equal(t, test.notes, strings.Join(test.period.Notes(), " "))
		require.Equal(t, []bool{test.close, test.reopen, true},
			[]bool{test.period.Allows("close"), test.period.Allows("reopen"), test.period.Allows("show")})
	}
	money := func(minor int64) map[string]int64 { return map[string]int64{"EUR": minor} }
	line := journal.Stated{Line: ledger.Line{Currency: "EUR", Debit: 250}, PostedAt: at}
	part := journal.Statement{Opening: money(0), Lines: []journal.Stated{line}}
	part.Join(&journal.Statement{Opening: money(100), Lines: []journal.Stated{line}})
	require.Equal(t, []string{"EUR: opening 1.00, closing 6.00"}, part.Notes())
	require.Equal(t, []string{"Nothing has moved on it."}, journal.Statement{}.Notes())
}
