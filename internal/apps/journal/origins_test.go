package journal_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// Each way in which an entry is made leaves something that vouches for it. What was put into the store past
// these ways is not sealed, keeps no other from its seal, and is named.
func TestAnEntryIsSealedOnlyWithTheRecordOfItsEventOrTheAuditOfItsAuthor(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	known := *d.Catalog
	known.Queues = append([]catalog.Queue{{ID: journaltest.Queue, Handlers: map[string]catalog.Handler{
		"*.*.*": {Name: catalog.JournalPost}, "*.*.reverted": {Name: catalog.JournalRevert},
	}}}, known.Queues...)
	origins := journal.Origins{Catalog: &known, Store: d.Store}
	for _, event := range []string{"e1", "e2", "e3"} {
		_, reason := d.deliver(t, event, "billing.invoice.paid", invoice)
		require.Empty(t, reason)
	}
	_, reason := d.deliver(t, "r2", "billing.invoice.reverted", `{"reverts":"e2"}`)
	require.Empty(t, reason)
	_, err := d.reverter.Revert(t.Context(), "acme", "e3", ada)
	require.NoError(t, err)
	for _, order := range []string{"o1", "o2"} {
		writes, err := ledger.Credit(ledger.Move{
			Tenant: "default", Order: order, EventID: "e-" + order, From: ledger.IssuedPoints(order), To: ledger.CustomerPoints("c1"), Amount: 10,
			Currency: ledger.Points, CreatedAt: noon,
		})
		require.NoError(t, err)
		queue, _ := d.Catalog.HandledBy("points.credit")
		_, err = d.Store.Commit(t.Context(), append(writes, sealtest.Record(t, queue.ID, writes[0])))
		require.NoError(t, err)
	}
	operator := &customers.Operator{Store: d.Store, Now: d.Now, NewID: func() string { return "op-1" }}
	_, err = operator.Link(t.Context(), customers.Change{Tenant: "default", CustomerID: "c1", UID: "auth0|u1", Who: "ada", Why: "she asked"})
	require.NoError(t, err)
	_, reason = d.deliver(t, "unmapped", "billing.nothing.known", `{}`)
	require.Empty(t, reason)

	page, err := d.Store.Query(t.Context(), store.Query{Collection: ledger.Entries, Limit: store.MaxPage})
	require.NoError(t, err)
	require.Len(t, page.Documents, 3+2+2+4)
	for _, doc := range page.Documents {
		entry, err := ledger.Read(doc)
		require.NoError(t, err)
		vouched, err := origins.Vouched(t.Context(), entry)
		require.NoError(t, err)
		require.True(t, vouched, "%s %s", entry.Kind, doc.Key)
	}

	_, err = d.periods.Close(t.Context(), "acme", october, ada)
	require.NoError(t, err)
	d.pass(journal.Notice + seal.SealedWithin + time.Minute)
	for sentence, e := range map[string]ledger.Entry{
		"of no event":                     {Kind: ledger.KindJournal, EventID: "invented", Period: "2026-11"},
		"in a closed month, dated before": {Kind: ledger.KindJournal, EventID: "dated", Period: october},
		"of an event that has made none":  {Kind: ledger.KindJournal, EventID: "unmapped", Period: "2026-11"},
		"the reversal of no event":        {Kind: ledger.KindJournalReversal, EventID: "r9", Period: "2026-11", Reverts: ledger.EntryID("acme", "e1")},
		"of another tenant's event":       {Kind: ledger.KindJournal, EventID: "e-o1", Period: "2026-11"},
	} {
		e.Tenant, e.OccurredAt, e.PostedAt = "acme", noon, noon
		e.Lines = []ledger.Line{{Account: "cash", Currency: "EUR", Debit: 1}, {Account: "salaries", Currency: "EUR", Credit: 1}}
		writes, err := ledger.Post(e)
		require.NoError(t, err)
		_, err = d.Store.Commit(t.Context(), writes)
		require.NoError(t, err)
		vouched, err := origins.Vouched(t.Context(), d.entry(t, writes[0].Key.ID))
		require.NoError(t, err)
		require.False(t, vouched, sentence)
	}
	done, err := seal.Sealer{Store: d.Store, Origins: origins, Now: d.Now}.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{11, 5, 0}, []int{done.Entries, done.Unfounded, done.Unreadable})
	require.Positive(t, done.OldestSeconds)
	found, err := sealtest.Findings(t.Context(), seal.Verifier{From: d.Store, Origins: origins})
	require.NoError(t, err)
	require.Len(t, found, 5)
	for _, f := range found {
		require.Equal(t, seal.Unfounded, f.Kind)
	}
}

// A store that does not answer vouches for nothing and refuses nothing.
func TestASealerThatCannotAskForOriginsSealsNothing(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	_, reason := d.deliver(t, "e1", "billing.invoice.paid", invoice)
	require.Empty(t, reason)
	entry := d.entry(t, ledger.EntryID("acme", "e1"))
	d.faults.FailReads(1)
	_, err := journal.Origins{Catalog: d.Catalog, Store: d.faults}.Vouched(t.Context(), entry)
	require.Error(t, err)
}

func TestTheJournalHoldsOneEntryForAnEventOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, storetest.Open)
}
