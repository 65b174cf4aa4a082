package push_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// errHandler is an error of somebody else's, whose text holds personal data.
var errHandler = errors.New("ilse@example.org fell over")

func once(m *message) { m.attributes["max_attempts"] = "1" }

// TestAnswerLogAndDeadLetterHoldNothingOfTheMessage: codes, paths and ids alone.
func TestAnswerLogAndDeadLetterHoldNothingOfTheMessage(t *testing.T) {
	t.Parallel()
	effect := func(do func() handler.Effect) handler.Tx {
		return func(context.Context, handler.Event) (handler.Effect, error) { return do(), nil }
	}
	says := func(err error) error { return retry.Says(`code "limit"`, err) }
	good := paid("e1", known, 1)
	full := func(q *catalog.Queue) { q.Concurrency = 0 }
	invalid := effect(func() handler.Effect {
		return handler.Effect{Writes: []store.Write{store.Set(store.Key{Collection: "ilse", ID: "ilse"}, map[string]any{"ilse": 1.5})}}
	})
	type fields map[string]any
	for name, test := range map[string]struct {
		with    setup
		m       message
		status  int
		outcome string
		reason  string
		// line is what the line of the delivery says, detail what the dead letter does beside its reason.
		line   fields
		detail string
	}{
		"processed": {setup{}, good, 200, "processed", "done", fields{
			"level": "INFO", "event_type": "order.paid", "ordering_key": buyer, "correlation_id": "corr-e1", "cause": "", "delivery_attempt": 1.0,
		}, ""},
		"tried again": {setup{credit: always(retry.Down("down", errHandler))}, good, 503, "retry", "down", fields{
			"level": "WARN", "cause": "*errors.errorString",
		}, ""},
		"a panic":      {setup{credit: effect(func() handler.Effect { panic("ilse@example.org") })}, good, 500, "retry", "handler_panic", nil, ""},
		"a full queue": {setup{queue: full}, good, 503, "retry", "queue_full", nil, ""},
		"an unreadable body": {setup{}, good.saying(`{"ilse":`), 400, "dead_lettered", "body_malformed", fields{
			"level": "ERROR", "event_type": "", "ordering_key": "", "correlation_id": "",
		}, ""},
		"a broken contract": {setup{}, paid("e1", known, 0), 422, "dead_lettered", "contract_broken", nil, "contract: data.order.items[0].quantity: min=1"},
		"attempts used up":  {setup{credit: always(retry.Down("down", errHandler))}, good.with(once), 422, "dead_lettered", "down", nil, "attempts_exhausted"},
		"a callee that says why": {
			setup{credit: always(says(retry.Permanent("refused_422", errHandler)))}, good, 422, "dead_lettered", "refused_422", nil, `code "limit"`,
		},
		"a callee that says why until the end": {
			setup{credit: always(says(retry.Transient("failed_503", errHandler)))}, good.with(once), 422, "dead_lettered", "failed_503", nil,
			`attempts_exhausted: code "limit"`,
		},
		"a handler that quotes others": {setup{credit: always(retry.Permanent("bad", errHandler))}, good, 422, "dead_lettered", "bad", nil, ""},
		"a write that no store takes":  {setup{credit: invalid}, good, 422, "dead_lettered", "effect_invalid", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.with)
			got := r.deliver(test.m.again(1))
			require.Equal(t, test.status, got.code)
			require.Equal(t, "application/json", got.header.Get("Content-Type"))
			attempt := 1
			if test.reason == "queue_full" {
				attempt = 0
			}
			require.JSONEq(t, fmt.Sprintf(`{"outcome":%q,"status":%d,"reason":%q,"event_id":"e1","attempt":%d}`, test.outcome, test.status, test.reason, attempt), got.text)
			line := r.log.lines(t, "delivery")[0]
			for field, want := range test.line {
				require.Equal(t, want, line[field], field)
			}
			require.ElementsMatch(t, []string{
				"time", "level", "msg", "queue", "event_id", "event_type", "message_id", "instance", "ordering_key", "correlation_id",
				"attempt", "delivery_attempt", "outcome", "reason", "result", "cause", "status", "delayed", "duration_ms",
			}, slices.Collect(maps.Keys(line)))
			all := got.text + r.log.String()
			for _, letter := range r.letters() {
				require.Equal(t, test.detail, letter.Attributes["dead_letter_detail"])
				all += fmt.Sprint(letter.Attributes)
			}
			require.NotContains(t, all, "ilse")
		})
	}
}

// TestAttemptIsLoggedBeforeItRuns: a worker that is killed in an attempt has told of it.
func TestAttemptIsLoggedBeforeItRuns(t *testing.T) {
	t.Parallel()
	var r *rig
	ran := false
	r = newRig(t, setup{credit: observing(func() {
		ran = true
		line := r.log.lines(t, "received")[0]
		for field, want := range map[string]any{
			"queue": "orders", "event_id": "e1", "message_id": "m-e1", "delivery_attempt": 4.0, "instance": "instance-1", "level": "INFO",
		} {
			require.Equal(t, want, line[field], field)
		}
		require.Empty(t, r.log.lines(t, "delivery"))
	})})
	require.Equal(t, 200, r.deliver(paid("e1", known, 1).again(4)).code)
	require.True(t, ran)
}

// TestRecordHasALogOfItsAttempts: also of one under a lease, from its claim on.
func TestRecordHasALogOfItsAttempts(t *testing.T) {
	t.Parallel()
	for name, leased := range map[string]bool{"of a Tx handler": false, "of a leased handler": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with, calls := setup{credit: times(1, errHandler)}, 0
			var r *rig
			if leased {
				with = setup{leased: repeats(func(context.Context, handler.Event) (string, error) {
					record, found := r.record("e1")
					require.True(t, found)
					calls++
					require.Len(t, record.Log, calls)
					require.Zero(t, record.Log[calls-1].Ended, "it runs")
					if calls == 1 {
						return "", errHandler
					}
					return "sent", nil
				})}
			}
			r = newRig(t, with)
			first := paid("e1", known, 1).again(1).set("door_received_at", "2026-03-02T10:14:59.5Z")
			r.deliver(first)
			r.deliver(first.again(3)) // nothing is known of the second
			record, _ := r.record("e1")
			require.Equal(t, []time.Time{start, start.Add(-time.Second / 2)}, []time.Time{record.PublishedAt, record.DoorReceivedAt})
			one := dedupe.Attempt{
				Number: 1, Delivery: 1, MessageID: "m-e1", Instance: "instance-1", Begun: start, Ended: start, Outcome: retry.Retry, Reason: "handler_error",
				Next: start.Add(10 * time.Second),
			}
			two := dedupe.Attempt{
				Number: 2, Delivery: 3, MessageID: "m-e1", Instance: "instance-1", Begun: one.Next, Ended: one.Next, Outcome: retry.Processed,
			}
			require.Equal(t, []dedupe.Attempt{one, two}, record.Log)
		})
	}
}

func TestLogNamesTheTraceOfEachDelivery(t *testing.T) {
	t.Parallel()
	const pushed, published, span = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736", "-b7ad6b7169203331-01"
	for name, test := range map[string]struct{ header, attribute, want string }{
		"of the push":                        {"00-" + pushed + span, "00-" + published + span, pushed},
		"of who published it, without one":   {"", "00-" + published + span, published},
		"of a later version of the header":   {"01-" + pushed + span + "-more", "", pushed},
		"where there is none":                {"", "", ""},
		"where there is one of zeros":        {"00-00000000000000000000000000000000" + span, "", ""},
		"where there is one of another kind": {"00-" + pushed[1:] + span, "<b>", ""},
	} {
		r := newRig(t, setup{})
		q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/push/orders",
			bytes.NewReader(paid("e1", known, 1).set("googclient_traceparent", test.attribute).envelope()))
		q.Header.Set("Authorization", "Bearer good")
		q.Header.Set("Traceparent", test.header)
		require.Equal(t, http.StatusOK, r.serve(q).code)
		record, _ := r.record("e1")
		require.Equal(t, test.want, record.Log[0].Trace, name)
	}
}

// TestDeliveriesAreCountedByWhatBecameOfThem: and the release of the webhook service by what it has let in lately.
func TestDeliveriesAreCountedByWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{credit: times(1, errors.New("down"))})
	received := func(event, product, release string, ago time.Duration) message {
		return paid(event, product, 1).set(contract.AttrDoorReceived, start.Add(-ago).Format(time.RFC3339Nano)).set(contract.AttrDoorRelease, release)
	}
	first := received("e1", known, "v2:1a2b3c4d", time.Second)
	r.deliver(first)                                                  // it fails
	r.deliver(first.again(2))                                         // it is done
	r.deliver(first.again(3))                                         // it is a duplicate
	r.deliver(received("e2", "unknown", "v1:00000000", 24*time.Hour)) // no attempt helps
	commits := r.counter.Commits.Load()
	require.NoError(t, r.config.Rates.Flush(t.Context()))
	require.Equal(t, commits, r.counter.Commits.Load(), "the rig's deliveries have written no counts")
	now, err := rates.Recent(t.Context(), r.db, r.config.Now())
	require.NoError(t, err)
	require.Equal(t, rates.Counts{In: 2, Processed: 1, Other: 1, Dead: 1, Failed: 1}, now.Queues["orders"])
	require.Len(t, now.Doors, 1)
	require.Equal(t, "v2:1a2b3c4d", now.Doors[0].Release)
	page := httptest.NewRecorder()
	r.config.Metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`billhook_deliveries_total{outcome="processed",queue="orders",reason="done"} 1`,
		`billhook_deliveries_total{outcome="retry",queue="orders",reason="handler_error"} 1`,
		`billhook_deliveries_total{outcome="duplicate",queue="orders",reason="processed_before"} 1`,
		`billhook_deliveries_total{outcome="dead_lettered",queue="orders",reason="unknown_product"} 1`,
		`billhook_delivery_duration_seconds_count{queue="orders"} 4`,
	} {
		require.Contains(t, page.Body.String(), want+"\n")
	}
}
