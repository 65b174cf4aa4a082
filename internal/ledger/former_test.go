package ledger_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/ledger"
	"billhook/internal/ledger/ledgertest"
	"billhook/internal/standin"
	"billhook/internal/store"
	"billhook/internal/store/storetest"
)

// former are the entries of two orders as the release before wrote them: a credit, a reversal
// and a transfer, without lines. The file never changes.
func former(t *testing.T) []store.Document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "former.json"))
	require.NoError(t, err)
	var written []struct {
		ID     string
		Fields map[string]any
	}
	require.NoError(t, json.Unmarshal(text, &written))
	var documents []store.Document
	for _, doc := range written {
		for name, value := range doc.Fields {
			switch v := value.(type) {
			case float64:
				doc.Fields[name] = int64(v)
			case string:
				if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
					doc.Fields[name] = at
				}
			}
		}
		documents = append(documents, store.Document{Key: ledger.Key(doc.ID), Fields: doc.Fields, Version: 1})
	}
	require.Len(t, documents, 7)
	return documents
}

// formerStore is a store with the entries of the release before.
func formerStore(t *testing.T) *standin.Store {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for _, doc := range former(t) {
		_, err := db.Commit(t.Context(), []store.Write{store.Create(doc.Key, doc.Fields)})
		require.NoError(t, err)
	}
	return db
}

// entries are all documents of the books.
func entries(t *testing.T, db store.Querier) []store.Document {
	t.Helper()
	page, err := db.Query(t.Context(), store.Query{Collection: ledger.Entries, Limit: store.MaxPage})
	require.NoError(t, err)
	return page.Documents
}

func TestEntriesWithoutLinesAreReadAndReversed(t *testing.T) {
	t.Parallel()
	db := formerStore(t)
	for _, doc := range former(t) {
		entry, err := ledger.Read(doc)
		require.NoError(t, err)
		require.False(t, entry.Marked, "it was written without a mark")
		require.Equal(t, "default", entry.Tenant)
		require.Equal(t, "2026-11", entry.Period)
		from, to := doc.Fields["from"].(string), doc.Fields["to"].(string)
		amount := doc.Fields["amount"].(int64)
		require.Equal(t, []ledger.Line{{Account: from, Currency: "points", Debit: amount}, {Account: to, Currency: "points", Credit: amount}}, entry.Lines)
	}
	chain, err := ledger.Load(t.Context(), db, "order-1")
	require.NoError(t, err)
	require.Equal(t, int64(600), chain.Left())
	require.Equal(t, user, chain.Holder())
	writes, err := chain.Reverse("refund-2", 600, noon)
	require.NoError(t, err)
	_, err = db.Commit(t.Context(), writes)
	require.NoError(t, err)
	chain, err = ledger.Load(t.Context(), db, "order-1")
	require.NoError(t, err)
	require.Zero(t, chain.Left())
	last, err := ledger.Read(entries(t, db)[4])
	require.NoError(t, err)
	require.True(t, last.Marked, "what is appended to a former chain has the mark")
	require.Equal(t, "default", last.Tenant)
}

func TestANewChainIsReadByTheReleaseBefore(t *testing.T) {
	t.Parallel()
	writes, err := ledger.Credit(credit("order-1", 1000))
	require.NoError(t, err)
	for name, value := range former(t)[0].Fields {
		require.IsType(t, value, writes[0].Fields[name], "field %s", name)
	}
}

func TestAdoptionCompletesWhatTheReleaseBeforeWrote(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"entry by entry": 1, "in pages": 3, "at once": store.MaxWrites, "in more than a commit may hold": store.MaxPage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &storetest.Counter{Store: formerStore(t)}
			writes, err := ledger.Post(paid())
			require.NoError(t, err)
			_, err = db.Commit(t.Context(), writes)
			require.NoError(t, err)
			require.Equal(t, ledger.Adopted{Looked: 8, Adopted: 7}, adopt(t, db, limit))
			for _, doc := range entries(t, db) {
				entry, err := ledger.Read(doc)
				require.NoError(t, err)
				require.True(t, entry.Marked)
				require.Equal(t, true, doc.Fields[ledger.FieldOpen])
				require.Equal(t, entry.Tenant, doc.Fields[ledger.FieldUnsealed])
			}
			for i, doc := range former(t) {
				now := chained(entries(t, db))[i]
				for field, value := range doc.Fields {
					require.Equal(t, value, now.Fields[field], "%s: field %s", doc.Key, field)
				}
			}
			written := db.Written.Load()
			require.Equal(t, ledger.Adopted{Looked: 8}, adopt(t, db, limit))
			require.Equal(t, written, db.Written.Load(), "a second run writes nothing")
		})
	}
}

func TestAnAdoptedEntryIsTheOneThatIsWrittenNow(t *testing.T) {
	t.Parallel()
	db := formerStore(t)
	adopt(t, db, 100)
	of := chained(entries(t, db))[0]
	writes, err := ledger.Credit(ledger.Move{
		Tenant: "default", Order: "order-1", EventID: "e1", From: ledger.IssuedPoints("order-1"), To: guest, Amount: 1000, Currency: ledger.Points,
		OrderCurrency: "USD", CreatedAt: of.Fields["created_at"].(time.Time),
	})
	require.NoError(t, err)
	require.Equal(t, writes[0].Fields, of.Fields)
}

func TestAnAdoptionThatStopsAnywhereIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*storetest.Faults){
		"nothing is written":       func(f *storetest.Faults) { f.FailBefore(1) },
		"the answer is lost":       func(f *storetest.Faults) { f.FailAfter(1) },
		"the page cannot be read":  func(f *storetest.Faults) { f.FailReads(1) },
		"the store is down for it": func(f *storetest.Faults) { f.Down(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &storetest.Faults{Store: formerStore(t)}
			first, err := ledger.Adopt(t.Context(), db, "", 3)
			require.NoError(t, err)
			fail(db)
			_, err = ledger.Adopt(t.Context(), db, first.Next, 3)
			require.ErrorIs(t, err, storetest.ErrFault)
			db.Down(false)
			adopt(t, db, 3)
			for _, doc := range entries(t, db) {
				entry, err := ledger.Read(doc)
				require.NoError(t, err)
				require.True(t, entry.Marked)
			}
		})
	}
}

func TestAnAdoptionThatMeetsAnotherLooksAgain(t *testing.T) {
	t.Parallel()
	db := &storetest.Faults{Store: formerStore(t)}
	once := true
	db.OnCommit = func(ctx context.Context, _ []store.Write, do func() error) error {
		if once {
			once = false
			if _, err := ledger.Adopt(ctx, db.Store, "", 2); err != nil {
				return err
			}
		}
		return do()
	}
	done, err := ledger.Adopt(t.Context(), db, "", 7)
	require.NoError(t, err)
	require.Equal(t, 5, done.Adopted, "two were adopted by the other")
	db.OnCommit = func(context.Context, []store.Write, func() error) error { return store.ErrStale }
	writes, err := ledger.Credit(credit("order-9", 5))
	require.NoError(t, err)
	_, err = db.Store.Commit(t.Context(), []store.Write{ledgertest.Former(writes[0])})
	require.NoError(t, err)
	_, err = ledger.Adopt(t.Context(), db, "", 100)
	require.ErrorIs(t, err, store.ErrStale)
}

func TestAnAdoptionNamesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	db := formerStore(t)
	broken := maps.Clone(former(t)[3].Fields)
	broken["amount"] = int64(-1)
	_, err := db.Commit(t.Context(), []store.Write{store.Set(former(t)[3].Key, broken)})
	require.NoError(t, err)
	done := adopt(t, db, 2)
	require.Equal(t, ledger.Adopted{Looked: 7, Adopted: 6, Broken: []string{former(t)[3].Key.ID}}, done)
}

// adopt runs an adoption to its end, in pages, and returns the sum of them.
func adopt(t *testing.T, db store.Store, limit int) (all ledger.Adopted) {
	t.Helper()
	for {
		page, err := ledger.Adopt(t.Context(), db, all.Next, limit)
		require.NoError(t, err)
		all.Looked, all.Adopted, all.Next = all.Looked+page.Looked, all.Adopted+page.Adopted, page.Next
		all.Broken = append(all.Broken, page.Broken...)
		if all.Next == "" {
			return all
		}
	}
}

// chained are the documents of chains.
func chained(documents []store.Document) (of []store.Document) {
	for _, doc := range documents {
		if strings.Contains(doc.Key.ID, "-order") {
			of = append(of, doc)
		}
	}
	return of
}
