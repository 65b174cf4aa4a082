package tasks_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/platform/store"
)

// booked posts an entry that was made a minute before the clock, with the record of its event.
func (r *rig) booked(t *testing.T, event string) store.Key {
	t.Helper()
	write := r.entry(t, event)
	_, err := r.db.Commit(t.Context(), []store.Write{write, sealtest.Record(t, "books", write)})
	require.NoError(t, err)
	return write.Key
}

func (r *rig) entry(t *testing.T, event string) store.Write {
	t.Helper()
	writes, err := ledger.Post(ledger.Entry{
		Tenant: "acme", Kind: ledger.KindJournal, EventID: event, Period: "2026-03", OccurredAt: r.now, PostedAt: r.now.Add(-time.Minute),
		Lines: []ledger.Line{{Account: "1200:receivable", Currency: "SGD", Debit: 7}, {Account: "4000:revenue", Currency: "SGD", Credit: 7}},
	})
	require.NoError(t, err)
	return writes[0]
}

func TestWhatIsPostedIsSealedAndWhatIsLeftIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.booked(t, "a")
	r.booked(t, "b")
	r.done(t, "seal-journal", `{"entries":2,"seals":1,"raced":0,"unreadable":0,"unfounded":0,"more":false,"oldest_seconds":0}`)
	r.measured(t, `billhook_sealed_entries_total 2`)
	r.measured(t, `billhook_unsealed_oldest_seconds 0`)

	key := r.booked(t, "c")
	doc, err := r.db.Get(t.Context(), key)
	require.NoError(t, err)
	doc.Fields["period"] = "2026-04" // somebody has changed it, and put an entry there that no record of an event names
	_, err = r.db.Commit(t.Context(), []store.Write{store.Set(key, doc.Fields), r.entry(t, "invented")})
	require.NoError(t, err)
	r.done(t, "seal-journal", `{"entries":0,"seals":0,"raced":0,"unreadable":1,"unfounded":1,"more":false,"oldest_seconds":60}`)
	r.measured(t, `billhook_unsealed_oldest_seconds 60`)
	r.measured(t, `billhook_unsealed_unreadable 1`)
	r.measured(t, `billhook_unsealed_unfounded 1`)
}

// What somebody has changed is found within the day, and people see it without asking.
func TestTheBooksAreVerifiedOnceADay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.booked(t, "a")
	key := r.booked(t, "b")
	r.done(t, "seal-journal", `{"entries":2,"seals":1,"raced":0,"unreadable":0,"unfounded":0,"more":false,"oldest_seconds":0}`)
	verified := func(begun time.Time, found int) {
		t.Helper()
		r.done(t, "verify-books", fmt.Sprintf(`{"begun_at":%[1]q,"finished_at":%[1]q,"seals":1,"entries":2,"unsealed":0,"accounts":0,"found":%[2]d,"running":false}`,
			begun.Format(time.RFC3339), found))
		r.measured(t, fmt.Sprintf("billhook_books_findings %d", found))
	}
	begun := r.now
	verified(begun, 0)
	doc, err := r.db.Get(t.Context(), key)
	require.NoError(t, err)
	was := maps.Clone(doc.Fields)
	doc.Fields["rule"] = "another"
	_, err = r.db.Commit(t.Context(), []store.Write{store.Set(key, doc.Fields)})
	require.NoError(t, err)
	r.now = r.now.Add(23 * time.Hour)
	verified(begun, 0)
	r.now = r.now.Add(time.Hour)
	verified(r.now, 1)
	require.Contains(t, r.log.String(), `"level":"ERROR","msg":"books do not verify","tenant":"acme","kind":"changed","document":"`+key.String()+`"`)
	standing, err := seal.Standing(t.Context(), r.db)
	require.NoError(t, err)
	require.Equal(t, key.String(), standing.Worst().Findings[0].Document)
	_, err = r.db.Commit(t.Context(), []store.Write{store.Set(key, was)})
	require.NoError(t, err)
	r.now = r.now.Add(24 * time.Hour)
	verified(r.now, 0)
}
