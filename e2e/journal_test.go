package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
)

const ingestion = "fis-ingestion"

// booked puts a financial event on the topic of all of them, by the producers' door.
func (s *stack) booked(t *testing.T, id, eventType, at, data string) {
	t.Helper()
	answer := s.signed(t, "/topics/fis-events/messages", fmt.Sprintf(`{"id":%q,"type":%q,"timestamp":%q,"version":1,"data":%s}`, id, eventType, at, data))
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
}

func (s *stack) bookEntry(t *testing.T, id string) ledger.Entry {
	t.Helper()
	doc, err := s.store.Get(t.Context(), ledger.Key(id))
	require.NoError(t, err)
	entry, err := ledger.Read(doc)
	require.NoError(t, err)
	return entry
}

// journalKept: an invoice is posted, comes as another, and is undone before it comes and twice; a closed month takes none.
func journalKept(t *testing.T, s *stack) {
	const (
		spring, march = "2026-03-01T12:00:00Z", "2026-03"
		shut, january = "2026-01-31T12:00:00Z", "2026-01"
		invoice       = `{"invoice_id":"%s","amount":"119.00","currency":"EUR","tax_amount":"%s"}`
	)
	unique := uuid.NewString()
	an := func(what string) string { return what + "-" + unique }
	// A person closed January an hour ago. An instance sees it within half a minute.
	periods := journal.Periods{Store: s.store, Now: func() time.Time { return time.Now().Add(-time.Hour) }, NewID: uuid.NewString}
	_, err := periods.Close(t.Context(), dedupe.DefaultTenant, january, journal.Change{Who: audit.Author{Proof: audit.ThisMachine, Name: "drill"}, Why: "the month is done"})
	require.NoError(t, err)

	// What undoes it comes first, under a key of its own, and waits.
	s.booked(t, an("undo"), "billing.invoice.reverted", spring, fmt.Sprintf(`{"reverts":%q}`, an("paid")))
	s.until(t, an("undo"), "retry")
	s.booked(t, an("paid"), "billing.invoice.paid", spring, fmt.Sprintf(invoice, an("i"), "19.00"))
	paid := s.ends(t, ingestion, an("paid"))
	entryID := ledger.EntryID(dedupe.DefaultTenant, an("paid"))
	require.Equal(t, []string{journal.Posted, entryID}, []string{paid.Result, paid.Ref})
	entry := s.bookEntry(t, entryID)
	require.Equal(t, march, entry.Period)
	require.Equal(t, []ledger.Line{
		{Account: "cash", Currency: "EUR", Debit: 11900}, {Account: "subscription-revenue", Currency: "EUR", Credit: 10000}, {Account: "tax-payable", Currency: "EUR", Credit: 1900},
	}, entry.Lines)

	undone := s.ends(t, ingestion, an("undo"))
	reversal := s.bookEntry(t, ledger.ReversalID(entryID))
	require.Equal(t, []string{journal.Reverted, reversal.ID}, []string{undone.Result, undone.Ref})
	require.Equal(t, int64(11900), reversal.Lines[0].Credit)
	s.booked(t, an("undo-again"), "billing.invoice.reverted", spring, fmt.Sprintf(`{"reverts":%q}`, an("paid")))
	again := s.ends(t, ingestion, an("undo-again"))
	require.Equal(t, []string{journal.RevertedBefore, reversal.ID}, []string{again.Result, again.Ref})
	require.Equal(t, an("undo"), s.bookEntry(t, reversal.ID).EventID)

	s.booked(t, an("paid"), "billing.invoice.paid", spring, fmt.Sprintf(invoice, an("i"), "1.00"))
	require.Equal(t, "payload_conflict", s.letter(t, ingestion, an("paid")).Reason)
	require.Equal(t, entry, s.bookEntry(t, entryID))

	refused := 0
	require.Eventually(t, func() bool {
		refused++
		id := an(fmt.Sprint("late-", refused))
		s.booked(t, id, "billing.invoice.paid", shut, fmt.Sprintf(invoice, an("late"), "0.00"))
		record := s.ends(t, ingestion, id)
		return record.Status == dedupe.DeadLettered && record.LastError == "period_closed"
	}, patience, time.Second)
	late := an(fmt.Sprint("late-", refused))
	letter := s.letter(t, ingestion, late)
	require.Equal(t, "2026-01", letter.Detail)

	// The month is opened again, and the sender sends the same bytes, until an instance knows of it.
	for _, who := range []string{"drill", "auditor"} {
		_, err = periods.Reopen(t.Context(), dedupe.DefaultTenant, january, journal.Change{Who: audit.Author{Proof: audit.ThisMachine, Name: who}, Why: "an invoice was forgotten"})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		s.booked(t, late, "billing.invoice.paid", shut, fmt.Sprintf(invoice, an("late"), "0.00"))
		record, _ := s.recordOf(t, ingestion, dedupe.DefaultTenant, late)
		return record.Status == dedupe.Completed
	}, patience, time.Second)
	require.Equal(t, deadletter.Corrected, s.item(t, letter.ID, deadletter.Corrected).State)
	require.Equal(t, "2026-01", s.bookEntry(t, ledger.EntryID(dedupe.DefaultTenant, late)).Period)
}
