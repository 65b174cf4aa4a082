package ledgertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/filetest"
	"billhook/internal/platform/store"
)

// Credited returns the writes that credit an order's points; it sets the move's From and Currency.
func Credited(t require.TestingT, m ledger.Move) []store.Write {
	m.From, m.Currency = ledger.IssuedPoints(m.Order), ledger.Points
	return filetest.Must(ledger.Credit(m))(t)
}

// Sale returns the journal entry of an event: a sale for cash.
func Sale(tenant, event, period string, cents int64, at time.Time) ledger.Entry {
	return ledger.Entry{
		Tenant: tenant, Kind: ledger.KindJournal, EventID: event, EventType: "invoice.paid", Rule: "sale",
		Period:     period,
		OccurredAt: at, PostedAt: at, Lines: []ledger.Line{
			{Account: "cash", Currency: "EUR", Debit: cents}, {Account: "revenue", Currency: "EUR", Credit: cents},
		},
	}
}
