package ops_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// exact is a payload whose numbers no float holds, in an order that is nobody's.
const exact = `{"z":12345678901234567890.1234567890,"a":1e400,"b":[0.10]}`

// looked are the audit's entries about a payload.
func (r *rig) looked(t *testing.T, subject string) []audit.Entry {
	t.Helper()
	entries, err := audit.Subject{Kind: ops.PayloadKind, ID: subject}.All(t.Context(), r.store)
	require.NoError(t, err)
	return entries
}

func TestAPayloadIsShownAsItWasWrittenToSomebodyWhoSaysWhy(t *testing.T) {
	t.Parallel()
	r := open(t)
	letter := r.bury(t, queues.Queues[0], "e1", "101", exact)
	paths := map[string]string{"dead-letters/" + letter + "/payload": letter, "events/e1/payload?queue=q:orders": "e1"}
	for path := range paths {
		for _, why := range []string{`{"why":" "}`, `{}`, `{"why":"for ilse@example.org"}`} {
			answer := r.send(t, http.MethodPost, "/v1/ops/"+path, why)
			require.Equal(t, http.StatusUnprocessableEntity, answer.Code, why)
			require.NotContains(t, answer.Body.String(), "1234567890")
		}
		require.Equal(t, http.StatusMethodNotAllowed, r.send(t, http.MethodGet, "/v1/ops/"+path, "").Code, "a look changes nothing, and this does")
		r.store.OnCommit = func(context.Context, []store.Write, func() error) error { return errors.New("no answer") }
		answer := r.send(t, http.MethodPost, "/v1/ops/"+path, `{"why":"OPS-7"}`)
		r.store.OnCommit = nil
		require.Equal(t, http.StatusServiceUnavailable, answer.Code, "nothing is shown that the audit does not tell of")
		require.NotContains(t, answer.Body.String(), "1234567890")
	}
	for path, subject := range paths {
		require.Empty(t, r.looked(t, subject))
		require.Contains(t, r.does(t, http.MethodPost, "/v1/ops/"+path, `{"why":"OPS-7"}`, nil), exact[1:len(exact)-1])
		looked := r.looked(t, subject)
		require.Len(t, looked, 1)
		require.Equal(t, []string{"look", "local:ada", "OPS-7"}, []string{looked[0].Action, looked[0].Who, looked[0].Why})
		require.Equal(t, []any{"e1", "orders", []any{letter}}, []any{looked[0].After["event_id"], looked[0].After["queue"], looked[0].After["dead_letters"]})
	}
	for _, path := range []string{"dead-letters/" + letter, "events/e1", "dead-letters?queue=orders"} {
		require.NotContains(t, r.get(t, path, nil), "12345678901234567890", path)
	}
	require.NotContains(t, r.log.String(), "12345678901234567890")
}

func TestAPayloadIsFoundWhereverTheEventWaits(t *testing.T) {
	t.Parallel()
	held := record("orders", "default", "e1")
	held.Status, held.LeaseUntil, held.Message = dedupe.Processing, at.Add(time.Minute), &contract.Message{Data: []byte("no\xffJSON")}
	replay := func(fields map[string]any) {
		fields["message"] = store.Encode(&contract.Message{Data: []byte("{}"), Attributes: map[string]string{"event_id": "e1", deadletter.AttrReplayOf: "d1"}})
	}
	for name, test := range map[string]struct {
		write store.Write
		place ops.Where
	}{
		"delayed":                     {waits(lane.Delayed, "l-1", "e1", "", nil), ops.PlaceDelayed},
		"in the outbox, for a replay": {waits(lane.Outbox, "l-1", "e1", "", replay), ops.PlaceOutbox},
		"in the outbox, emitted":      {waits(lane.Outbox, "l-1", "e0", "e1", nil), ops.PlaceOutbox},
		"with a worker":               {own(held), ops.PlaceLease},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			r.commit(t, test.write)
			var payload ops.Payload
			r.does(t, http.MethodPost, "/v1/ops/events/e1/payload", `{"why":"OPS-7"}`, &payload)
			require.Len(t, payload.Items, 1)
			require.Equal(t, []any{test.place, "orders", false}, []any{payload.Items[0].Place, payload.Queue, payload.More})
			require.Contains(t, []string{"{}", "no\xffJSON"}, string(payload.Items[0].Data)+string(payload.Items[0].Base64))
			require.Len(t, r.looked(t, "e1"), 1)
		})
	}
	r := open(t)
	for i := range 12 {
		r.bury(t, queues.Queues[0], "e1", strings.Repeat("7", i+1), "{}")
	}
	var payload ops.Payload
	r.does(t, http.MethodPost, "/v1/ops/events/e1/payload", `{"why":"OPS-7"}`, &payload)
	require.Len(t, payload.Items, 10)
	require.True(t, payload.More)
}

func TestAPayloadThatIsNotThereIsSaidToBeMissing(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e1")), own(record("orders", "default", "e2")), own(record("refunds", "default", "e2")))
	large := r.bury(t, queues.Queues[0], "e3", "103", "")
	for path, code := range map[string]string{
		"events/e1/payload": "payload_not_kept", "events/e2/payload": "queue_needed", "events/e3/payload": "payload_not_kept", "events/e9/payload": "event_unknown",
		"events/a%2Fb/payload": "event_id_invalid", "dead-letters/nothing/payload": "unknown", "dead-letters/" + large + "/payload": "payload_not_kept",
	} {
		got := r.send(t, http.MethodPost, "/v1/ops/"+path, `{"why":"OPS-7"}`)
		require.Equal(t, code, codeOf(got.Body.String()), path)
	}
	page, err := r.store.Query(t.Context(), store.Query{Collection: audit.Collection, Limit: 1})
	require.NoError(t, err)
	require.Empty(t, page.Documents, "what was not shown was not looked at")
}
