package dedupe_test

import (
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
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

func TestAKeyIsAHashThenItsEscapedParts(t *testing.T) {
	t.Parallel()
	for want, key := range map[string]store.Key{
		"-paynow-events~default~530217764480030001": dedupe.Key("paynow-events", "default", "530217764480030001"),
		"-q~t~a%7Eb~%2F%25":                         dedupe.ConflictKey("q", "t", "a~b", "/%"),
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
	require.NoError(t, store.CheckKey(dedupe.ConflictKey(longest, longest, longest, hash)))
	rapid.Check(t, func(t *rapid.T) {
		queue, tenant, id := shape.Draw(t, "queue"), shape.Draw(t, "tenant"), shape.Draw(t, "id")
		require.NoError(t, store.CheckKey(dedupe.ConflictKey(queue, tenant, id, hash)))
		require.NoError(t, store.CheckKey(dedupe.MessageKey(queue, id, []byte(tenant))))
	})
}

func TestThePartsOfTheTimeIndexAreAboutAsLarge(t *testing.T) {
	t.Parallel()
	var parts [dedupe.Shards]int
	for i := range 8000 {
		parts[dedupe.Shard("orders", "default", fmt.Sprint(502113004410990001+i))]++
	}
	for _, records := range parts {
		require.InDelta(t, 1000, records, 200)
	}
}

func sample() dedupe.Record {
	at := func(second int) time.Time { return morning.Add(time.Duration(second)*time.Second + 123_456_000) }
	return dedupe.Record{
		Queue: "q", Tenant: "default", EventID: "e1", EventType: "order.paid", Status: dedupe.Failed, PayloadHash: "sha256:00",
		ConflictsWith: "sha256:01", Attempts: 2, Replays: 1, Corrected: []string{"sha256:02"}, DeadLetters: []string{"l1"}, Again: true,
		LeaseToken: "t1", LeaseUntil: at(1), Message: &contract.Message{Data: []byte("{}"), Attributes: map[string]string{"event_id": "e1"}, OrderingKey: "u1"},
		Emitted: []handler.Emitted{{EventID: "e2", EventType: "t", To: "q2"}, {EventID: "e3", EventType: "t", To: "q3"}},
		Result:  "r", Ref: "r1", Entry: "n1", LastError: "store_unavailable", CorrelationID: "c1", IdempotencyKey: "p1", OrderingKey: "u1",
		Customer: "u1", MessageID: "17", DoorReceivedAt: at(7), PublishedAt: at(0), NextRetryAt: at(2), DelayTicket: "d1", DelayedBeside: true,
		CreatedAt: at(3), UpdatedAt: at(4), ProcessedAt: at(5), ExpireAt: at(6),
		Log: []dedupe.Attempt{
			{Number: 1, Delivery: 3, MessageID: "16", Instance: "i1", Begun: at(0), Trace: "0af7"},
			{Number: 2, MessageID: "17", Instance: "i2", Begun: at(1), Ended: at(2), Outcome: retry.Retry, Reason: "store_unavailable", Next: at(3)},
		},
	}
}

func TestARecordComesBackAsItWas(t *testing.T) {
	t.Parallel()
	fields := sample().Fields()
	require.NoError(t, store.CheckWrites([]store.Write{store.Create(dedupe.Key("q", "default", "e1"), fields)}))
	got, err := dedupe.FromDocument(store.Document{Fields: fields})
	require.NoError(t, err)
	require.Equal(t, sample(), got)
	require.Equal(t, strings.Fields(`action again attempts attempts_log conflicts_with corrected correlation_id created_at customer dead_letters
		delay_ticket delayed_beside door_received_at emitted entry event_id event_type expire_at idempotency_key last_error lease_token lease_until
		message message_id next_retry_at ordering_key payload_hash processed_at published_at queue ref replay_count result shard status tenant
		updated_at`), slices.Sorted(maps.Keys(fields)))
	require.Empty(t, got.Made(), "the event is not done")
	got.Status = dedupe.Completed
	require.Equal(t, "r1", got.Made())
}

func TestARecordThatDecidesWrongIsNotReadable(t *testing.T) {
	t.Parallel()
	for field, wrong := range map[string][]any{ // nil: it is missing
		"status": {nil, "DONE"}, "attempts": {nil, "2", int64(-1)}, "payload_hash": {nil}, "lease_token": {nil}, "event_id": {nil},
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
