package dedupe_test

import (
	"maps"
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
	for name, test := range map[string]struct {
		key  store.Key
		want string
	}{
		"plain parts":       {dedupe.Key("paynow-events", "default", "530217764480030001"), "-paynow-events~default~530217764480030001"},
		"a tilde":           {dedupe.Key("q", "t", "a~b"), "-q~t~a%7Eb"},
		"a slash":           {dedupe.Key("q", "t", "a/b"), "-q~t~a%2Fb"},
		"a percent sign":    {dedupe.Key("q", "t", "a%7Eb"), "-q~t~a%257Eb"},
		"another payload":   {dedupe.ConflictKey("q", "t", "a", "sha256:00ff"), "-q~t~a~sha256:00ff"},
		"a message at most": {dedupe.MessageKey("q", "17", []byte("x")), "-q~~message~17~2d711642b726b044"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, dedupe.Collection, test.key.Collection)
			require.Regexp(t, `^[0-9a-f]{8}-`, test.key.ID)
			require.Equal(t, test.want, test.key.ID[8:])
		})
	}
}

func TestTheKeyOfAnyAllowedShapeFitsTheStore(t *testing.T) {
	t.Parallel()
	shape := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`)
	longest := strings.Repeat("x:-._", 26)[:128]
	hash := "sha256:" + strings.Repeat("f", 64)
	require.NoError(t, store.CheckKey(dedupe.ConflictKey(longest, longest, longest, hash)))
	rapid.Check(t, func(t *rapid.T) {
		queue, tenant, id := shape.Draw(t, "queue"), shape.Draw(t, "tenant"), shape.Draw(t, "id")
		for _, key := range []store.Key{
			dedupe.Key(queue, tenant, id), dedupe.ConflictKey(queue, tenant, id, hash), dedupe.MessageKey(queue, id, []byte(tenant)),
		} {
			require.NoError(t, store.CheckKey(key))
		}
	})
}

func sample() dedupe.Record {
	at := func(second int) time.Time { return time.Date(2026, 3, 2, 10, 15, second, 123_456_000, time.UTC) }
	return dedupe.Record{
		Queue: "q", Tenant: "default", EventID: "e1", EventType: "order.paid", Status: dedupe.Failed,
		PayloadHash: "sha256:00", Attempts: 2, LeaseToken: "t1", LeaseUntil: at(1), Result: "r", LastError: "store_unavailable",
		CorrelationID: "c1", IdempotencyKey: "p1", OrderingKey: "u1", MessageID: "17", NextRetryAt: at(2), CreatedAt: at(3), UpdatedAt: at(4),
		ProcessedAt: at(5), DoorReceivedAt: at(7), PublishedAt: at(0), ExpireAt: at(6), ConflictsWith: "sha256:01", Emitted: []handler.Emitted{{EventID: "e2", EventType: "t", To: "q2"}, {EventID: "e3", EventType: "t", To: "q3"}},
		Log: []dedupe.Attempt{
			{Number: 1, Delivery: 3, MessageID: "16", Instance: "i1", Begun: at(0)},
			{Number: 2, MessageID: "17", Instance: "i2", Begun: at(1), Ended: at(2), Outcome: retry.Retry, Reason: "store_unavailable", Next: at(3)},
		},
		Message: &contract.Message{Data: []byte("{}"), Attributes: map[string]string{"event_id": "e1"}, OrderingKey: "u1"},
	}
}

func TestARecordComesBackAsItWas(t *testing.T) {
	t.Parallel()
	fields := sample().Fields()
	require.NoError(t, store.CheckWrites([]store.Write{store.Create(dedupe.Key("q", "default", "e1"), fields)}))
	got, err := dedupe.FromDocument(store.Document{Fields: fields})
	require.NoError(t, err)
	require.Equal(t, sample(), got)
	for _, name := range []string{
		"queue", "tenant", "event_id", "event_type", "action", "status", "payload_hash", "attempts", "lease_token", "lease_until", "result",
		"last_error", "correlation_id", "idempotency_key", "ordering_key", "message_id", "next_retry_at", "created_at",
		"updated_at", "processed_at", "expire_at", "conflicts_with", "emitted", "message", "shard", "attempts_log", "published_at", "door_received_at",
	} {
		require.Contains(t, fields, name)
	}
}

func TestARecordThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(map[string]any){
		"no fields at all":           func(f map[string]any) { clear(f) },
		"no status":                  func(f map[string]any) { delete(f, "status") },
		"a status nobody knows":      func(f map[string]any) { f["status"] = "DONE" },
		"no attempts":                func(f map[string]any) { delete(f, "attempts") },
		"attempts in a string":       func(f map[string]any) { f["attempts"] = "2" },
		"attempts below zero":        func(f map[string]any) { f["attempts"] = int64(-1) },
		"no payload hash":            func(f map[string]any) { delete(f, "payload_hash") },
		"no token":                   func(f map[string]any) { delete(f, "lease_token") },
		"no event id":                func(f map[string]any) { delete(f, "event_id") },
		"an expiry that is no time":  func(f map[string]any) { f["expire_at"] = "2026-01-01" },
		"a lease end that is no one": func(f map[string]any) { f["lease_until"] = int64(1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fields := maps.Clone(sample().Fields())
			change(fields)
			_, err := dedupe.FromDocument(store.Document{Key: store.Key{Collection: "c", ID: "i"}, Fields: fields})
			require.EqualError(t, err, "dedupe: record c/i is not readable")
		})
	}
}
