package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestAKeyIsAHashThenItsEscapedParts(t *testing.T) {
	t.Parallel()
	for want, key := range map[string]store.Key{
		"-paynow-events~default~530217764480030001": dedupe.Key("paynow-events", "default", "530217764480030001"),
		"-q~t~a%7Eb~%2F%25":                         dedupe.Key("q", "t", "a~b", "/%"),
		"-q~~message~17~2d711642b726b044":           dedupe.MessageKey("q", "17", []byte("x")),
	} {
		require.Equal(t, dedupe.Collection, key.Collection)
		require.Regexp(t, `^[0-9a-f]{8}-`, key.ID)
		require.Equal(t, want, key.ID[8:])
	}
}

func TestTheKeyOfAnyAllowedShapeFitsTheStore(t *testing.T) {
	t.Parallel()
	shape := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`)
	longest, hash := strings.Repeat("x:-._", 26)[:128], "sha256:"+strings.Repeat("f", 64)
	require.NoError(t, store.CheckKey(dedupe.Key(longest, longest, longest, hash)))
	rapid.Check(t, func(t *rapid.T) {
		queue, tenant, id := shape.Draw(t, "queue"), shape.Draw(t, "tenant"), shape.Draw(t, "id")
		require.NoError(t, store.CheckKey(dedupe.Key(queue, tenant, id, hash)))
		require.NoError(t, store.CheckKey(dedupe.MessageKey(queue, id, []byte(tenant))))
	})
}

func TestThePartsOfTheTimeIndexAreAboutEquallyLarge(t *testing.T) {
	t.Parallel()
	var parts [dedupe.Shards]int
	for i := range 8000 {
		parts[dedupe.Shard("orders", "default", fmt.Sprint(502113004410990001+i))]++
	}
	for _, records := range parts {
		require.InDelta(t, 1000, records, 200)
	}
}

func TestAPageEndsBeforeRecordsThatAnUnreadPartMayPrecede(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var want []string // the newest first: those of one part, then the others
	for i, own := 0, 0; len(want) < 60; i++ {
		id := fmt.Sprint("e", i)
		if part := dedupe.Shard("q", dedupe.DefaultTenant, id); (part == 3) != (len(want) < 30) {
			continue
		}
		own++
		b.now = morning.Add(-time.Duration(own) * time.Second)
		b.completed(t, id, 0, 0)
		want = append(want, id)
	}
	var got []string
	for after, pages := (store.Cursor{}), 0; pages == 0 || !after.IsZero(); pages++ {
		records, next := filetest.Both(dedupe.List(t.Context(), b, dedupe.Listing{After: after, Limit: 20}))(t)
		for _, r := range records {
			got = append(got, r.EventID)
		}
		after = next
	}
	require.Equal(t, want, got)
}

func sample() dedupe.Record {
	at := func(second int) time.Time { return morning.Add(time.Duration(second)*time.Second + 123_456_000) }
	return dedupe.Record{
		Identity: dedupe.Identity{
			Queue: "q", Tenant: "default", EventID: "e1", EventType: "order.paid", PayloadHash: "sha256:00",
			ConflictsWith: "sha256:01",
			CorrelationID: "c1", IdempotencyKey: "p1", OrderingKey: "u1", Customer: "u1", MessageID: "17",
		},
		Status: dedupe.Failed, Corrected: []string{"sha256:02"}, DeadLetters: []string{"l1"}, Again: true,
		Tries: dedupe.Tries{
			Attempts: 2, Replays: 1, LastError: "store_unavailable", LeaseToken: "t1", LeaseUntil: at(1),
			Message: &contract.Message{
				Data: []byte("{}"), Attributes: map[string]string{"event_id": "e1"}, OrderingKey: "u1",
			},
			Log: []dedupe.Attempt{
				{Number: 1, Delivery: 3, MessageID: "16", Instance: "i1", Begun: at(0), Trace: "0af7"},
				{
					Number: 2, MessageID: "17", Instance: "i2", Begun: at(1), Ended: at(2), Outcome: retry.Retry,
					Reason: "store_unavailable", Next: at(3),
				},
			},
		},
		Emitted: []handler.Emitted{
			{EventID: "e2", EventType: "t", To: "q2"}, {EventID: "e3", EventType: "t", To: "q3"},
		},
		Result: "r", Ref: "r1", Entry: "n1",
		Delay: dedupe.Delay{NextRetryAt: at(2), DelayTicket: "d1", DelayedBeside: true},
		Times: dedupe.Times{
			ReceivedAt: at(7), PublishedAt: at(0), CreatedAt: at(3), UpdatedAt: at(4), ProcessedAt: at(5),
			ExpireAt: at(6),
		},
	}
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	fields := sample().Fields()
	require.NoError(t, store.CheckWrites([]store.Write{store.Create(dedupe.Key("q", "default", "e1"), fields)}))
	got := filetest.Must(dedupe.FromDocument(store.Document{Fields: fields}))(t)
	require.Equal(t, sample(), got)
	require.Equal(t, strings.Fields(`action again attempts attempts_log conflicts_with corrected correlation_id
		created_at customer dead_letters delay_ticket delayed_beside emitted entry event_id event_type expire_at
		idempotency_key last_error lease_token lease_until message message_id next_retry_at ordering_key
		payload_hash processed_at published_at queue ref replay_count result shard status tenant updated_at
		webhook_received_at`), slices.Sorted(maps.Keys(fields)))
	require.Empty(t, got.Made(), "the event is not completed")
	got.Status = dedupe.Completed
	require.Equal(t, "r1", got.Made())
}

func TestARecordWithAnInvalidDecisiveFieldIsNotReadable(t *testing.T) {
	t.Parallel()
	for field, wrong := range map[string][]any{ // nil: it is missing
		"status": {nil, "DONE"}, "attempts": {nil, "2", int64(-1)}, "payload_hash": {nil}, "lease_token": {nil},
		"event_id":  {nil},
		"expire_at": {"2026-01-01"}, "lease_until": {int64(1)},
	} {
		for _, value := range wrong {
			fields := sample().Fields()
			if fields[field] = value; value == nil {
				delete(fields, field)
			}
			_, err := dedupe.FromDocument(store.Document{Key: store.Key{Collection: "c", ID: "i"}, Fields: fields})
			require.EqualError(t, err, "dedupe: record c/i is not readable", "%s: %v", field, value)
		}
	}
}

func TestASweepSkipsUnreadableRecords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(t, "orphan", true)
	storetest.Put(t, b.calls, store.Set(store.Key{Collection: dedupe.Collection, ID: "unreadable"},
		map[string]any{"lease_until": morning}))
	b.now = b.now.Add(time.Hour)
	sweep := func() (dedupe.Swept, error) {
		return dedupe.Sweep(t.Context(), b, b.now, b.now, 10, func(context.Context, dedupe.Record) (bool, error) {
			return true, nil
		})
	}
	b.FailReads(1)
	require.ErrorIs(t, filetest.ErrorOf(sweep()), storetest.ErrFault)
	require.Equal(t, dedupe.Swept{Republished: 1, Failed: 1}, filetest.Must(sweep())(t))
	record := b.record(t, "orphan")
	require.Equal(t, []any{dedupe.Failed, dedupe.Orphaned, int64(1), "", true},
		[]any{record.Status, record.LastError, record.Attempts, record.LeaseToken, record.Message == nil})
}

func TestExpiredDocumentsAreRemovedInBoundedBatches(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	put := func(id string, fields map[string]any) {
		storetest.Put(t, b.calls, store.Set(store.Key{Collection: "things", ID: id}, fields))
	}
	for i := range 5 {
		put(fmt.Sprint("old-", i), map[string]any{"expire_at": b.now.Add(-time.Duration(i) * time.Second)})
	}
	put("young", map[string]any{"expire_at": b.now.Add(time.Microsecond)})
	put("forever", map[string]any{"n": int64(1)})
	put("text", map[string]any{"expire_at": "2001-01-01"})
	clean := func() (int, bool, error) { return dedupe.Clean(t.Context(), b, "things", b.now, 2) }
	for _, fail := range []func(int){b.FailReads, b.FailBefore} {
		fail(1)
		removed, _, err := clean()
		require.ErrorIs(t, err, storetest.ErrFault)
		require.Zero(t, removed)
	}
	for _, want := range []struct {
		removed int
		more    bool
	}{{2, true}, {2, true}, {1, false}, {0, false}} {
		removed, more := filetest.Both(clean())(t)
		require.Equal(t, want.removed, removed)
		require.Equal(t, want.more, more)
	}
	require.Len(t, storetest.All(t, b, "things"), 3)
}

// completed stores the record of an event that was completed and expired some time ago.
func (b *bench) completed(t *testing.T, id string, completed, expired time.Duration) {
	t.Helper()
	storetest.Put(t, b.calls, store.Set(keyOf(id), dedupe.Record{
		Identity: dedupe.Identity{Queue: "q", Tenant: dedupe.DefaultTenant, EventID: id, PayloadHash: "sha256:00"},
		Status:   dedupe.Completed, Tries: dedupe.Tries{LeaseToken: "t"},
		Times: dedupe.Times{
			CreatedAt: b.now.Add(-completed), ProcessedAt: b.now.Add(-completed), ExpireAt: b.now.Add(-expired),
		},
	}.Fields()))
}

func (b *bench) prune(t *testing.T) (dedupe.Pruned, error) {
	t.Helper()
	got, next, err := dedupe.Prune(t.Context(), b, b.now.Add(-time.Hour), b.now, store.Cursor{})
	require.Zero(t, next)
	return got, err
}

func TestAPruneKeepsRecordsThatStillCount(t *testing.T) {
	t.Parallel()
	done, dead, stays := dedupe.Completed, dedupe.DeadLettered, dedupe.Pruned{Remembered: 1}
	for name, test := range map[string]struct {
		completed, expired time.Duration
		want               dedupe.Pruned
		status             dedupe.Status
	}{
		"old and expired":                   {2 * time.Hour, time.Minute, dedupe.Pruned{Removed: 1}, done},
		"old, expiring now":                 {2 * time.Hour, 0, dedupe.Pruned{Removed: 1}, done},
		"old, expiring in a microsecond":    {2 * time.Hour, -time.Microsecond, stays, done},
		"completed at the limit":            {time.Hour, time.Minute, dedupe.Pruned{}, done},
		"completed later, although expired": {time.Minute, time.Second, dedupe.Pruned{}, done},
		"a dead letter's":                   {2 * time.Hour, time.Minute, dedupe.Pruned{}, dead},
	} {
		b := newBench(t)
		b.completed(t, "e1", test.completed, test.expired)
		storetest.Put(t, b.calls, store.Increment(keyOf("e1"), map[string]int64{"changed": 1},
			map[string]any{"status": string(test.status)}))
		got, err := b.prune(t)
		require.NoError(t, err, name)
		require.Equal(t, test.want, got, name)
		_, err = b.Get(t.Context(), keyOf("e1"))
		require.Equal(t, test.want.Removed == 1, errors.Is(err, store.ErrNotFound), name)
	}
}

func TestAPruneKeepsARecordThatIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, id := range []string{"e1", "e2", "e3"} {
		b.completed(t, id, 2*time.Hour, time.Hour)
	}
	b.OnRead = func(do func() error) error {
		err := do()
		b.completed(t, "e2", 2*time.Hour, -time.Hour) // after it was found expired
		return err
	}
	for _, fail := range []func(int){b.FailReads, b.FailBefore} {
		fail(1)
		got, err := b.prune(t)
		require.ErrorIs(t, err, storetest.ErrFault)
		require.Zero(t, got.Removed)
	}
	b.completed(t, "e2", 2*time.Hour, time.Hour)
	for _, want := range []dedupe.Pruned{{}, {Removed: 2, Remembered: 1}} { // the next reads it again
		require.Equal(t, want, filetest.Must(b.prune(t))(t))
		require.Equal(t, b.now.Add(time.Hour), b.record(t, "e2").ExpireAt)
	}
}
