package ops_test

import (
	"context"
	"encoding/json"
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

// looks are the audit's entries about a payload.
func (r *rig) looks(t *testing.T, subject string) []audit.Entry {
	t.Helper()
	entries, err := audit.Subject{Kind: ops.PayloadKind, ID: subject}.All(t.Context(), r.store)
	require.NoError(t, err)
	return entries
}

// lateCommits calls before each commit.
type lateCommits struct {
	store.Store
	before func() error
}

func (s *lateCommits) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	if err := s.before(); err != nil {
		return nil, err
	}
	return s.Store.Commit(ctx, writes)
}

func TestAPayloadIsShownAsItWasWrittenToSomebodyWhoSaysWhy(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.bury(t, 1, "unknown_product", []byte(exact))
	letter := deadletter.ItemID(queues.Queues[0], "101", contract.Message{Data: []byte(exact)})
	for path, subject := range map[string]string{"/v1/ops/dead-letters/" + letter + "/payload": letter, "/v1/ops/events/e1/payload?queue=q:orders": "e1"} {
		answer := r.post(t, path, ops.Reason{Why: "OPS-7"}, "ada")
		require.Equal(t, http.StatusOK, answer.Code, answer.Body)
		require.Contains(t, answer.Body.String(), exact[1:len(exact)-1])
		looked := r.looks(t, subject)
		require.Len(t, looked, 1)
		require.Equal(t, []string{"look", "local:ada", "OPS-7"}, []string{looked[0].Action, looked[0].Who, looked[0].Why})
		require.Equal(t, "e1", looked[0].After["event_id"])
		require.Equal(t, "orders", looked[0].After["queue"])
		require.Equal(t, []any{letter}, looked[0].After["dead_letters"])
	}
	for _, path := range []string{"/v1/ops/dead-letters/" + letter, "/v1/ops/events/e1", "/v1/ops/dead-letters?queue=orders"} {
		require.NotContains(t, r.ask(t, path, nil, nil).Body.String(), "12345678901234567890", path)
	}
	require.NotContains(t, r.log.String(), "12345678901234567890")
}

func TestNoPayloadIsShownThatTheAuditDoesNotTellOf(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.bury(t, 1, "unknown_product", []byte(exact))
	letter := deadletter.ItemID(queues.Queues[0], "101", contract.Message{Data: []byte(exact)})
	paths := []string{"/v1/ops/dead-letters/" + letter + "/payload", "/v1/ops/events/e1/payload"}
	for _, path := range paths {
		for why, want := range map[string]int{
			`{"why":""}`: http.StatusUnprocessableEntity, `{"why":" "}`: http.StatusUnprocessableEntity, `{}`: http.StatusUnprocessableEntity,
			`{"why":"for ilse@example.org"}`: http.StatusUnprocessableEntity, `{"why":"a\nb"}`: http.StatusUnprocessableEntity,
			`{"who":"b"}`: http.StatusBadRequest, ``: http.StatusBadRequest,
		} {
			answer := r.post(t, path, why, "ada")
			require.Equal(t, want, answer.Code, why)
			require.NotContains(t, answer.Body.String(), "1234567890")
		}
		require.Equal(t, http.StatusMethodNotAllowed, r.ask(t, path, nil, nil).Code, "a look changes nothing, and this does")
	}
	r.over(&lateCommits{r.store, func() error { return errors.New("no answer") }})
	for _, path := range paths {
		answer := r.post(t, path, ops.Reason{Why: "OPS-7"}, "ada")
		require.Equal(t, http.StatusServiceUnavailable, answer.Code)
		require.NotContains(t, answer.Body.String(), "1234567890")
	}
	require.Empty(t, append(r.looks(t, "e1"), r.looks(t, letter)...))
}

func TestAPayloadIsFoundWhereverTheEventWaits(t *testing.T) {
	t.Parallel()
	held := record("orders", "default", "e1")
	held.Status, held.LeaseUntil, held.Message = dedupe.Processing, at.Add(time.Minute), &contract.Message{Data: []byte(`{"held":1}`)}
	for name, test := range map[string]struct {
		write store.Write
		place ops.Where
		data  string
	}{
		"delayed":                     {waits(lane.Delayed, "l-1", "e1", "", nil), ops.PlaceDelayed, `{}`},
		"in the outbox, for a replay": {waits(lane.Outbox, "l-1", "e1", "", replay), ops.PlaceOutbox, `{}`},
		"in the outbox, emitted":      {waits(lane.Outbox, "l-1", "e0", "e1", nil), ops.PlaceOutbox, `{}`},
		"with a worker":               {own(held), ops.PlaceLease, `{"held":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			r.commit(t, test.write)
			answer := r.post(t, "/v1/ops/events/e1/payload", ops.Reason{Why: "OPS-7"}, "ada")
			require.Equal(t, http.StatusOK, answer.Code, answer.Body)
			var payload ops.Payload
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &payload))
			require.Len(t, payload.Items, 1)
			require.Equal(t, test.place, payload.Items[0].Place)
			require.JSONEq(t, test.data, string(payload.Items[0].Data))
			require.Equal(t, "orders", payload.Queue)
			require.False(t, payload.More)
			require.Len(t, r.looks(t, "e1"), 1)
		})
	}
}

// replay makes a waiting message that of a replay.
func replay(fields map[string]any) {
	fields["message"] = store.Encode(&contract.Message{Data: []byte("{}"), Attributes: map[string]string{"event_id": "e1", deadletter.AttrReplayOf: "d1"}})
}

func TestAPayloadThatIsNotThereIsSaidToBeMissing(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e1")), own(record("orders", "default", "e2")), own(record("refunds", "default", "e2")))
	r.bury(t, 3, "too_large", nil)
	for path, code := range map[string]string{
		"events/e1/payload": "payload_not_kept", "events/e2/payload": "queue_needed", "events/e3/payload": "payload_not_kept", "events/e9/payload": "event_unknown",
		"events/e1/payload?queue=nobody": "queue_unknown", "events/a%2Fb/payload": "event_id_invalid", "dead-letters/nothing/payload": "unknown",
		"dead-letters/" + deadletter.ItemID(queues.Queues[0], "103", contract.Message{}) + "/payload": "payload_not_kept",
	} {
		answer := r.post(t, "/v1/ops/"+path, ops.Reason{Why: "OPS-7"}, "ada")
		require.Contains(t, answer.Body.String(), `"code":"`+code+`"`, path)
	}
	page, err := r.store.Query(t.Context(), store.Query{Collection: audit.Collection, Limit: 1})
	require.NoError(t, err)
	require.Empty(t, page.Documents, "what was not shown was not looked at")
}

func TestAnEventWithManyPayloadsShowsTen(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 12 {
		r.keep(t, "e1", strings.Repeat("7", i+1))
	}
	answer := r.post(t, "/v1/ops/events/e1/payload", ops.Reason{Why: "OPS-7"}, "ada")
	var payload ops.Payload
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &payload))
	require.Len(t, payload.Items, 10)
	require.True(t, payload.More)
}
