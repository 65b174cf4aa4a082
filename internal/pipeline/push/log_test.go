package push_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// TestAnAttemptHasItsLineBeforeItRuns: a worker that is killed in an attempt has told of it.
func TestAnAttemptHasItsLineBeforeItRuns(t *testing.T) {
	t.Parallel()
	ran := false
	r := newRig(t, setup{credit: func(r *rig, own handler.Tx) handler.Tx {
		return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
			ran = true
			lines := r.log.lines(t, "received")
			require.Len(t, lines, 1)
			for field, want := range map[string]any{
				"queue": "orders", "event_id": "e1", "message_id": "m-e1", "delivery_attempt": 4.0, "instance": "instance-1", "level": "INFO",
			} {
				require.Equal(t, want, lines[0][field], field)
			}
			require.Empty(t, r.log.lines(t, "delivery"))
			return own(ctx, event)
		}
	}})
	require.Equal(t, 200, r.deliver(paid("e1", known, 1).again(4)).code)
	require.True(t, ran)
}

// TestTheRecordHasALogOfItsAttempts: also of one under a lease, from its claim on.
func TestTheRecordHasALogOfItsAttempts(t *testing.T) {
	t.Parallel()
	for name, leased := range map[string]bool{"of a Tx handler": false, "of a leased handler": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with, calls := setup{credit: times(1, errHandler)}, 0
			var r *rig
			if leased {
				with = setup{leased: repeats(func(context.Context, handler.Event) (string, error) {
					record, found := r.record(t, "e1")
					require.True(t, found)
					calls++
					require.Len(t, record.Log, calls)
					require.Zero(t, record.Log[calls-1].Ended, "it runs")
					require.Equal(t, retry.Outcome(""), record.Log[calls-1].Outcome)
					if calls == 1 {
						return "", errHandler
					}
					return "sent", nil
				})}
			}
			r = newRig(t, with)
			first := paid("e1", known, 1).again(1).with(func(m *message) { m.attributes["door_received_at"] = "2026-03-02T10:14:59.5Z" })
			r.deliver(first)
			r.deliver(first.again(3)) // nothing is known of the second
			record, _ := r.record(t, "e1")
			require.Equal(t, dedupe.Completed, record.Status)
			require.Equal(t, start, record.PublishedAt)
			require.Equal(t, start.Add(-time.Second/2), record.DoorReceivedAt)
			require.Len(t, record.Log, 2)
			one, two := record.Log[0], record.Log[1]
			require.Equal(t, start.Add(10*time.Second), one.Next)
			one.Next = time.Time{}
			require.Equal(t, dedupe.Attempt{
				Number: 1, Delivery: 1, MessageID: "m-e1", Instance: "instance-1", Begun: start, Ended: start, Outcome: retry.Retry, Reason: "handler_error",
			}, one)
			require.Equal(t, dedupe.Attempt{
				Number: 2, Delivery: 3, MessageID: "m-e1", Instance: "instance-1", Begun: start.Add(10 * time.Second), Ended: start.Add(10 * time.Second), Outcome: retry.Processed,
			}, two)
		})
	}
}

func TestTheLogNamesTheTraceOfEachDelivery(t *testing.T) {
	t.Parallel()
	const pushed, published = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
	for name, test := range map[string]struct{ header, attribute, want string }{
		"of the push":                        {"00-" + pushed + "-b7ad6b7169203331-01", "00-" + published + "-b7ad6b7169203331-01", pushed},
		"of who published it, without one":   {"", "00-" + published + "-b7ad6b7169203331-01", published},
		"of a later version of the header":   {"01-" + pushed + "-b7ad6b7169203331-01-more", "", pushed},
		"where there is none":                {"", "", ""},
		"where there is one of zeros":        {"00-00000000000000000000000000000000-b7ad6b7169203331-01", "", ""},
		"where there is one of another kind": {"00-" + pushed[1:] + "-b7ad6b7169203331-01", "<b>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{})
			m := paid("e1", known, 1).with(func(m *message) {
				if test.attribute != "" {
					m.attributes["googclient_traceparent"] = test.attribute
				}
			})
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/push/orders", bytes.NewReader(m.envelope()))
			request.Header.Set("Authorization", "Bearer good")
			request.Header.Set("Traceparent", test.header)
			require.Equal(t, http.StatusOK, r.serve(request).code)
			record, _ := r.record(t, "e1")
			require.Equal(t, test.want, record.Log[0].Trace)
		})
	}
}

// TestTheDoorsTimeTellsNoEventFromAnother: what its sender sends again has the same id and another time.
func TestTheDoorsTimeTellsNoEventFromAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	at := func(second string) message {
		return paid("e1", known, 1).with(func(m *message) { m.id, m.attributes["door_received_at"] = "m-"+second, "2026-03-02T10:14:"+second+"Z" })
	}
	require.Equal(t, "processed", r.deliver(at("01")).Outcome)
	require.Equal(t, http.StatusNoContent, r.deliver(at("02")).code, "a duplicate")
	record, _ := r.record(t, "e1")
	require.Equal(t, start.Add(-59*time.Second), record.DoorReceivedAt, "of the first")
}
