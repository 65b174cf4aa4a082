package store_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/products"
	"billhook/internal/apps/twophase"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

var update = flag.Bool("update", false, "write the documents as they are stored now")

// noon is not whole in microseconds, nor in UTC.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 123_456_789, time.FixedZone("east", 3600))

// Running installations hold these documents. Each case stores some of a kind, and the
// files in testdata/documents say what they were before the code that made them changed.
func TestStoredDocumentsAreWhatTheyWere(t *testing.T) {
	t.Parallel()
	for kind, made := range map[string]func(*testing.T, *standin.Store){
		"records": records, "dead-letters": deadLetters, "operations": operations, "books": books,
		"customers": mappings, "products": worths, "audit": audited, "two-phase": phases, "rates": counted,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			requireDocuments(t, kind, made)
		})
	}
}

// requireDocuments compares all that a case stores with the file of its kind.
func requireDocuments(t *testing.T, kind string, made func(*testing.T, *standin.Store)) {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	made(t, db)
	var text strings.Builder
	for _, collection := range []string{
		"webhookEvents", "deadLetters", "audit", "accounts", "entries", "paynowCustomers", "products", "twoPhase",
		"outbox", "outboxKeys", "delayed", "delayedKeys", rates.Hours, rates.Days,
	} {
		page, err := db.Query(t.Context(), store.Query{Collection: collection, Limit: store.MaxPage})
		require.NoError(t, err)
		for _, doc := range page.Documents {
			_, _ = fmt.Fprintln(&text, doc.Key)
			for _, line := range spelled("", doc.Fields) {
				_, _ = fmt.Fprintln(&text, " ", line)
			}
		}
	}
	file := filepath.Join("testdata", "documents", kind+".txt")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text.String())
}

// spelled lists the fields of a document by path, with type and value.
func spelled(path string, value any) (lines []string) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			lines = append(lines, spelled(path+"."+name, inner)...)
		}
		if len(v) == 0 {
			lines = append(lines, path+" {}")
		}
	case []any:
		for i, inner := range v {
			lines = append(lines, spelled(fmt.Sprintf("%s[%d]", path, i), inner)...)
		}
		if len(v) == 0 {
			lines = append(lines, path+" []")
		}
	case time.Time:
		return []string{path + " time " + v.Format(time.RFC3339Nano)}
	default:
		return []string{fmt.Sprintf("%s %T %#v", path, v, v)}
	}
	slices.Sort(lines)
	return lines
}

func commit(t *testing.T, db *standin.Store, writes ...store.Write) {
	t.Helper()
	_, err := db.Commit(t.Context(), writes)
	require.NoError(t, err)
}

func now() time.Time { return noon }

func ids() func() string {
	n := 0
	return func() string { n++; return fmt.Sprint("id-", n) }
}

func records(t *testing.T, db *standin.Store) {
	for _, r := range []dedupe.Record{
		{Queue: "q", Tenant: "default", EventID: "least", Status: dedupe.Completed},
		{
			Queue: "q", Tenant: "default", EventID: "whole", EventType: "order.paid", Status: dedupe.Processing, PayloadHash: "sha256:00",
			ConflictsWith: "sha256:01", Attempts: 2, Replays: 1, Corrected: []string{"", "sha256:02"}, DeadLetters: []string{"d1"},
			LeaseToken: "t1", LeaseUntil: noon.Add(1), Message: &contract.Message{Data: []byte("{}"), Attributes: map[string]string{"event_id": "whole"}, OrderingKey: "u1"},
			Emitted: []handler.Emitted{{EventID: "e2", EventType: "t", To: "q2"}, {EventID: "e3", EventType: "t", To: "q3"}}, Result: "credited", LastError: "store_unavailable", CorrelationID: "c1", IdempotencyKey: "p1",
			OrderingKey: "u1", MessageID: "17", NextRetryAt: noon.Add(time.Minute), DelayTicket: "1-2", CreatedAt: noon, UpdatedAt: noon.Add(time.Second),
			ProcessedAt: noon.Add(time.Hour), ExpireAt: noon.Add(24 * time.Hour),
		},
		{Queue: "q", Tenant: "t~1", EventID: "binary", Status: dedupe.Failed, Emitted: []handler.Emitted{}, Message: &contract.Message{Data: []byte("\xff\x00")}},
	} {
		commit(t, db, store.Create(dedupe.Key(r.Queue, r.Tenant, r.EventID), r.Fields()))
	}
}

var ilse = audit.Author{Proof: audit.Identity, Name: "ilse"}

var declared = catalog.Queue{
	ID: "orders", OrderingKey: []string{"uid"}, Enabled: true,
	DeadLetter: catalog.DeadLetter{Topic: "orders-dlq", Retention: 14 * 24 * time.Hour},
}

func dead(n int, attributes map[string]string) contract.Message {
	m := contract.Message{Data: fmt.Appendf(nil, `{"eventId":"e%d"}`, n), Attributes: map[string]string{
		"event_id": fmt.Sprint("e", n), "event_type": "order.paid", "ordering_key": "u1", "contract": "paynow.v1", "tenant": "default",
		"dead_letter_reason": "unknown_product", "dead_letter_status": "422", "dead_letter_detail": "p1", "source_message_id": fmt.Sprint(1000 + n),
		"delivery_attempts": "5", "dead_lettered_at": noon.Format(time.RFC3339Nano), "first_published_at": noon.Add(-time.Hour).Format(time.RFC3339Nano),
	}}
	for name, value := range attributes {
		m.Attributes[name] = value
	}
	return m
}

func keep(t *testing.T, db *standin.Store, m contract.Message, id string) {
	t.Helper()
	_, err := deadletter.Keep(t.Context(), db, declared, m, id, noon)
	require.NoError(t, err)
}

func deadLetters(t *testing.T, db *standin.Store) {
	keep(t, db, dead(1, nil), "1")
	keep(t, db, contract.Message{Attributes: map[string]string{"__kept__": "x", "CloudPubSubDeadLetterSourceDeliveryCount": "7"}}, "2")
	keep(t, db, contract.Message{Data: []byte("\xff")}, "3")
	keep(t, db, contract.Message{Data: []byte(strings.Repeat("x", 1<<20))}, "4")
	// Corrected before it arrived, and one that never does.
	late := dead(5, nil)
	commit(t, db, deadletter.Correct(declared, []string{deadletter.ItemID(declared, "1005", late), "0011-orders~6"}, deadletter.Correction{EventID: "e5", MessageID: "m5", At: noon.Add(time.Minute)})...)
	keep(t, db, late, "5")
	// It has died again, after a replay.
	again := dead(1, map[string]string{"replay_count": "1", "replay_of": deadletter.ItemID(declared, "1001", dead(1, nil)), "dead_letter_reason": "order_unknown", "delivery_attempts": "6"})
	delete(again.Attributes, "dead_lettered_at")
	keep(t, db, again, "9")
}

func operations(t *testing.T, db *standin.Store) {
	operator := deadletter.Operator{
		Store: db, Now: now, NewID: ids(), Queue: func(string) (catalog.Queue, bool) { return declared, true },
		Wait: func(context.Context, time.Duration) error { return nil }, Relay: func(context.Context, string) error { return nil },
	}
	for n, kind := range []deadletter.Kind{deadletter.Replay, deadletter.Discard} {
		keep(t, db, dead(n, nil), "1")
		op := deadletter.Operation{Kind: kind, Why: "known now", Filter: deadletter.Filter{Queue: "orders", EventID: fmt.Sprint("e", n)}}
		if kind == deadletter.Discard {
			op.Force, op.Rate = true, 7
			op.Filter.Reason, op.Filter.EventType, op.Filter.OrderingKey = "unknown_product", "order.paid", "u1"
			op.Filter.Since, op.Filter.Until = noon.Add(-time.Hour), noon.Add(time.Hour)
		}
		op, err := operator.Begin(t.Context(), op, ilse, 1)
		require.NoError(t, err)
		_, err = operator.Run(t.Context(), op.ID)
		require.NoError(t, err)
	}
	keep(t, db, dead(3, nil), "1")
	operator.Queue = func(string) (catalog.Queue, bool) { q := declared; q.FourEyes = true; return q, true }
	_, err := operator.Begin(t.Context(), deadletter.Operation{Kind: deadletter.Replay, Why: "known now", Filter: deadletter.Filter{
		Queue: "orders", Items: []string{deadletter.ItemID(declared, "1003", dead(3, nil)), "0011-orders~6"},
	}}, ilse, 1)
	require.NoError(t, err)
}

func books(t *testing.T, db *standin.Store) {
	for order, currency := range map[string]string{"order-1": "USD", "order~2": ""} {
		writes, err := ledger.Credit(ledger.Move{
			Tenant: "default", Order: order, EventID: "e1", From: ledger.IssuedPoints(order), To: ledger.CustomerPoints("c1"), Amount: 1000,
			Currency: ledger.Points, OrderCurrency: currency, CreatedAt: noon,
		})
		require.NoError(t, err)
		commit(t, db, writes...)
	}
	chain, err := ledger.Load(t.Context(), db, "default", "order-1")
	require.NoError(t, err)
	writes, err := chain.Reverse("refund-1", 400, noon)
	require.NoError(t, err)
	commit(t, db, writes...)
	chains, _, err := ledger.HeldBy(t.Context(), db, "default", ledger.CustomerPoints("c1"), "")
	require.NoError(t, err)
	writes, _, err = ledger.Transfer(chains, ledger.UserPoints("u1"), "op-1", noon)
	require.NoError(t, err)
	commit(t, db, writes...)
}

func mappings(t *testing.T, db *standin.Store) {
	books(t, db)
	teacher := customers.NewTeacher(db, nil, now)
	lesson, err := teacher.Learn(t.Context(), customers.Order{Tenant: "default", CustomerID: "c2", UID: "u2", EventID: "e2"}, 0)
	require.NoError(t, err)
	commit(t, db, lesson.Writes...)
	operator := customers.Operator{Store: db, Now: now, NewID: ids()}
	writes, err := ledger.Credit(ledger.Move{
		Tenant: "default", Order: "order-3", EventID: "e3", From: ledger.IssuedPoints("order-3"), To: ledger.CustomerPoints("c3"), Amount: 250, Currency: ledger.Points, CreatedAt: noon,
	})
	require.NoError(t, err)
	commit(t, db, writes...)
	_, err = operator.Link(t.Context(), customers.Change{Tenant: "default", CustomerID: "c3", UID: "u3", Who: "ilse", Why: "she asked"})
	require.NoError(t, err)
	_, err = operator.Link(t.Context(), customers.Change{Tenant: "default", CustomerID: "c2", UID: "u4", Who: "ilse", Why: "she asked"})
	require.NoError(t, err)
	_, err = operator.Unlink(t.Context(), customers.Change{Tenant: "default", CustomerID: "c2", Who: "ilse", Why: "she asked"})
	require.NoError(t, err)
}

func worths(t *testing.T, db *standin.Store) {
	keeper := products.Keeper{Store: db, Start: map[string]catalog.Product{"p1": {Points: 10}}, Now: now, NewID: ids()}
	_, err := keeper.Set(t.Context(), "default", "p1", 20, products.Change{Who: "ilse", Why: "sale"})
	require.NoError(t, err)
	_, err = keeper.Set(t.Context(), "default", "p2", 30, products.Change{Who: "ilse", Why: "new"})
	require.NoError(t, err)
	_, err = keeper.Retire(t.Context(), "default", "p2", products.Change{Who: "ilse", Why: "gone"})
	require.NoError(t, err)
}

func audited(t *testing.T, db *standin.Store) {
	for id, entry := range map[string]audit.Entry{
		"1": {Kind: "k~", Subject: "s", Action: "a", Who: "ilse", Why: "b", At: noon},
		"2": {Kind: "k", Subject: "s", Action: "a", Who: "ilse", Why: "b", At: noon, Before: map[string]any{}, After: map[string]any{"points": int64(1), "state": "x"}},
	} {
		write, err := entry.Write(id)
		require.NoError(t, err)
		commit(t, db, write)
	}
}

func phases(t *testing.T, db *standin.Store) {
	unknown := context.DeadlineExceeded
	for id, there := range map[string]error{"done": nil, "open": unknown} {
		nothing := func(context.Context, handler.Event) ([]store.Write, error) { return nil, nil }
		work := twophase.Work{
			Store: db, Now: now, RememberFor: time.Hour, Prepare: nothing,
			CommitThere: func(context.Context, handler.Event) (string, error) { return "refunded", there },
			Find:        func(context.Context, handler.Event) (string, bool, error) { return "", false, nil },
			Confirm:     func(context.Context, handler.Event, string) ([]store.Write, error) { return nil, nil },
			RollBack:    func(context.Context, handler.Event, string) ([]store.Write, error) { return nil, nil },
		}
		_, err := work.Leased().Do(t.Context(), handler.Event{Queue: "refunds", Tenant: "default", ID: id, Attempt: 1})
		require.ErrorIs(t, err, there)
	}
}

func counted(t *testing.T, db *standin.Store) {
	r := rates.NewRecorder(rates.Config{
		Store: db, Now: now, Self: rates.Service{Instance: "i1", Service: "worker", Pool: "orders", Version: "v1", Catalog: "00ff", StartedAt: noon.Add(-time.Hour)},
		Breakers: func() []rates.Breaker { return []rates.Breaker{{Target: "ledger", State: "open", Since: noon}} },
	})
	r.Arrived("orders")
	for _, outcome := range []retry.Outcome{retry.Processed, retry.Duplicate, retry.Retry, retry.DeadLettered} {
		r.Ended("orders", outcome, 1)
	}
	r.Answered("ledger", 503, "callee_failed_503", 1500*time.Microsecond)
	r.Answered("ledger", 200, "", time.Millisecond)
	r.Door("v2-00ff")
	require.NoError(t, r.Flush(t.Context()))
}
