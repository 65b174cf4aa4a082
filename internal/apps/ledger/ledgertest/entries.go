package ledgertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/filetest"
	"billhook/internal/platform/store"
)

// Credited credits an order's points to an account, by an event.
func Credited(t require.TestingT, tenant, order, event string, to ledger.Account, amount int64, at time.Time) []store.Write {
	return filetest.Must(ledger.Credit(ledger.Move{
		Tenant: tenant, Order: order, EventID: event, From: ledger.IssuedPoints(order), To: to, Amount: amount,
		Currency: ledger.Points, CreatedAt: at,
	}))(t)
}

// Sale is an entry of the journal that an event makes: so many cents, in cash.
func Sale(tenant, event, period string, cents int64, at time.Time) ledger.Entry {
	return ledger.Entry{
		Tenant: tenant, Kind: ledger.KindJournal, EventID: event, EventType: "invoice.paid", Rule: "sale", Period: period,
		OccurredAt: at, PostedAt: at, Lines: []ledger.Line{
			{Account: "cash", Currency: "EUR", Debit: cents}, {Account: "revenue", Currency: "EUR", Credit: cents},
		},
	}
}
