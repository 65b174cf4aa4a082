package push_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func announced(id string, change func(*contract.Envelope)) message {
	envelope := contract.Envelope{
		ID: id, Action: "renewal", CorrelationID: "corr-" + id, CreatedAt: "2026-03-02T10:14:59Z",
		Payload: contract.Payload{
			SubscriptionID: "s1", CustomerID: buyer, Currency: "EUR", Amount: "9.99", Cycle: 2,
		},
	}
	if change != nil {
		change(&envelope)
	}
	return message{id: "m-" + id, body: envelope, published: start, attributes: map[string]string{
		"event_id": id, "event_type": envelope.Action, "ordering_key": "s1", "contract": contract.EnvelopeV1,
		"correlation_id": "corr-" + id,
	}}
}

func raw(body string, attributes ...string) message {
	m := message{id: "m-raw", body: body, published: start, attributes: map[string]string{}}
	for i := 0; i < len(attributes); i += 2 {
		m.attributes[attributes[i]] = attributes[i+1]
	}
	return m
}

func (m message) set(name, value string) message {
	return m.with(func(m *message) { m.attributes[name] = value })
}

func (m message) without(name string) message {
	return m.with(func(m *message) { delete(m.attributes, name) })
}

func (m message) saying(body any) message { return m.with(func(m *message) { m.body = body }) }

func envelopes(q *catalog.Queue) {
	q.Contract, q.OrderingKey = contract.EnvelopeV1, []string{"subscription_id", "correlation_id"}
	q.Handlers = map[string]catalog.Handler{"renewal": q.Handlers["order.paid"]}
}

// TestEachMessageIsReadByItsContractAndKnownAgain is the table of what messages are taken for: what the
// handler is given, what is remembered, and which dead letter they leave. Each row is delivered in order, and
// its last message twice more.
func TestEachMessageIsReadByItsContractAndKnownAgain(t *testing.T) {
	t.Parallel()
	paynow := func(*catalog.Queue) {}
	byKey := func(q *catalog.Queue) { envelopes(q); q.DedupeBy = catalog.ByIdempotencyKey }
	messages := func(q *catalog.Queue) {
		q.Contract, q.OrderingKey = contract.MessageV1, []string{"order_id"}
		q.Handlers = map[string]catalog.Handler{"order.shipped": q.Handlers["order.paid"]}
	}
	keyed := func(id, key string) message {
		return announced(id, func(e *contract.Envelope) { e.IdempotencyKey = key })
	}
	good := paid("e1", known, 1)
	receivedAt := func(second string) message {
		return good.set("webhook_received_at", "2026-03-02T10:14:"+second+"Z").with(func(m *message) {
			m.id = "m-" + second
		})
	}
	const shipped = `{"id":"e1","type":"order.shipped","timestamp":"2026-03-02T10:14:59Z","version":1,` +
		`"correlation_id":"c1",` +
		`"data":{"order_id":"o1"},"metadata":{"max_retries":2}}`
	order := []string{
		"event_id", "e1", "event_type", "order.shipped", "ordering_key", "o1", "contract", contract.MessageV1,
	}
	var table strings.Builder
	for _, row := range []struct {
		queue    func(*catalog.Queue)
		name     string
		messages []message
	}{
		{paynow, "PayNow: as it is", []message{good}},
		{
			paynow, "PayNow: not JSON, and then as it is",
			[]message{good.saying("nonsense").with(func(m *message) { m.id = "m-0" }), good},
		},
		{paynow, "PayNow: without attributes", []message{raw("nonsense")}},
		{paynow, "PayNow: nothing at all", []message{raw("")}},
		{paynow, "PayNow: the contract is broken", []message{paid("e1", known, -1)}},
		{paynow, "PayNow: of another shape", []message{good.saying(map[string]any{"eventId": 1})}},
		{paynow, "PayNow: attributes of another event", []message{good.set("event_id", "e2")}},
		{paynow, "PayNow: a tenant that is none", []message{good.set("tenant", "a/b")}},
		{
			paynow, "PayNow: another tenant with the same ids",
			[]message{good, paid("e1", known, 3).set("tenant", "other")},
		},
		{paynow, "PayNow: an unknown product", []message{paid("e1", unknown, 1)}},
		{paynow, "PayNow: another payload under a used id", []message{good, paid("e1", known, 2)}},
		{paynow, "PayNow: the same with an unknown product", []message{good, paid("e1", unknown, 1)}},
		{
			paynow, "PayNow: a broken body under a used id",
			[]message{good, paid("e1", known, 0).with(func(m *message) { m.id = "m-9" })},
		},
		{paynow, "PayNow: 95 attributes", []message{paid("e1", unknown, 1).with(crowd)}},
		{
			paynow, "PayNow: an attribute that is far too long",
			[]message{paid("e1", unknown, 1).set("own", strings.Repeat("x", 5000))},
		},
		{paynow, "PayNow: received by the webhook service twice", []message{receivedAt("01"), receivedAt("02")}},
		{envelopes, "envelope: as it is", []message{announced("e1", nil)}},
		{envelopes, "envelope: without its contract", []message{announced("e1", nil).without("contract")}},
		{envelopes, "envelope: names a key", []message{keyed("e1", "payment-7")}},
		{
			envelopes, "raw: without attributes",
			[]message{raw(`{"action":"renewal","subscription_id":"s1","status":"active"}`)},
		},
		{
			envelopes, "raw: with attributes",
			[]message{raw(`{"payment_id":"p1"}`, "event_id", "e1", "event_type", "renewal", "correlation_id", "c1")},
		},
		{
			envelopes, "raw: belongs to nothing",
			[]message{raw(`{"payment_id":"p1"}`, "event_id", "e1", "event_type", "renewal")},
		},
		{envelopes, "envelope: a PayNow event", []message{good}},
		{envelopes, "envelope: a PayNow event without its contract", []message{good.without("contract")}},
		{
			envelopes, "raw: names a contract",
			[]message{raw(`{"subscription_id":"s1"}`, "contract", contract.EnvelopeV1)},
		},
		{
			envelopes, "raw: names an unknown contract",
			[]message{raw(`{"subscription_id":"s1"}`, "contract", "envelope.v9")},
		},
		{
			envelopes, "raw: a field of its own",
			[]message{raw(`{"subscription_id":"s1","email":"x"}`, "event_type", "renewal")},
		},
		{envelopes, "raw: without an action", []message{raw(`{"subscription_id":"s1"}`)}},
		{
			envelopes, "raw: two actions",
			[]message{raw(`{"action":"renewal","subscription_id":"s1"}`, "event_type", "initial")},
		},
		{envelopes, "envelope: attributes of another event", []message{announced("e1", nil).set("event_id", "e2")}},
		{
			envelopes, "envelope: an unknown action",
			[]message{announced("e1", func(e *contract.Envelope) { e.Action = "upgrade" })},
		},
		{envelopes, "envelope: not JSON", []message{raw("nonsense")}},
		{byKey, "by key: two events of one key", []message{keyed("e1", "k1"), keyed("e2", "k1")}},
		{
			byKey, "by key: another payload", []message{
				keyed("e1", "k1"), announced("e3", func(e *contract.Envelope) {
					e.IdempotencyKey, e.Payload.Amount = "k1", "1.99"
				}),
			},
		},
		{byKey, "by key: names none", []message{announced("e4", nil)}},
		{byKey, "by key: attributes of another key", []message{keyed("e5", "k5").set("idempotency_key", "k6")}},
		{messages, "message: as it is", []message{raw(shipped, order...)}},
		{
			messages, "message: attributes of another event",
			[]message{raw(strings.Replace(shipped, `"id":"e1"`, `"id":"e2"`, 1), order...)},
		},
		{
			messages, "message: another contract",
			[]message{raw(shipped, order...).set("contract", contract.EnvelopeV1)},
		},
	} {
		var handled []string
		var r *rig
		r = newRig(t,
			setup{queue: row.queue, credit: func(ctx context.Context, e handler.Event) (handler.Effect, error) {
				id, _ := e.Body.Identity()
				require.NoError(t, e.Body.Validate())
				handled = append(handled,
					fmt.Sprintf("%s/%s of %s, body %s, correlation %s, key %s, %d attempts asked, attributes agree: %t",
						e.Tenant, e.Type, r.queue.Contract, id, e.CorrelationID, e.OrderingKey, e.Body.MaxAttempts(),
						e.Body.CheckAttributes(e.Attributes) == nil))
				if r.queue.Contract != contract.PaymentV1 {
					return handler.Effect{Result: "sent"}, nil
				}
				return credit(ctx, e)
			}})
		fmt.Fprintln(&table, row.name)
		var delivered []string
		last := row.messages[len(row.messages)-1]
		for _, m := range append(row.messages, last.again(2), last.again(3)) {
			got := r.deliver(m)
			delivered = append(delivered, m.id+string(m.data()))
			fmt.Fprintln(&table, strings.TrimRight(fmt.Sprintf("  %d %s %s %s", got.code, got.Outcome, got.Reason,
				got.EventID), " "))
		}
		for _, event := range handled {
			fmt.Fprintln(&table, "  handled "+event)
		}
		var lines []string
		for _, doc := range r.documents(dedupe.Collection) {
			record := filetest.Must(dedupe.FromDocument(doc))(t)
			lines = append(lines, fmt.Sprintf("  record %s/%s %s %d, type %q, key %q, message %s, received %s",
				record.Tenant, record.EventID, record.Status,
				record.Attempts, record.EventType, record.IdempotencyKey, record.MessageID,
				record.ReceivedAt.Format("04:05")))
		}
		slices.Sort(lines)
		for _, dead := range r.deadLetters() {
			at := dead.Attributes
			lines = append(lines, fmt.Sprintf("  dead letter %s %s %q of %s", at["dead_letter_status"],
				at["dead_letter_reason"], at["dead_letter_detail"], at["event_id"]))
			require.Contains(t, delivered, at["source_message_id"]+string(dead.Data), row.name)
			require.Empty(t, dead.OrderingKey)
			for name, want := range map[string]string{
				"source_queue": "orders", "source_subscription": "orders-push", "delivery_attempts": "1",
				"first_published_at": "2026-03-02T10:15:00Z", "dead_lettered_at": "2026-03-02T10:15:00Z",
				"replay_count": "0",
			} {
				require.Equal(t, want, at[name], name)
			}
		}
		for _, tenant := range []string{contract.DefaultTenant, "other"} {
			if n := r.effectsOf(tenant, "e1"); n > 0 {
				lines = append(lines, fmt.Sprintf("  effects %d of %s", n, tenant))
			}
		}
		fmt.Fprintln(&table, strings.Join(lines, "\n"))
	}
	filetest.Recorded(t, table.String(), "testdata", "messages.txt")
}

func crowd(m *message) {
	for i := range 90 {
		m.attributes[fmt.Sprintf("own-%02d", i)] = "x"
	}
}

// TestMessageHasTheAttemptsThatItAsksForAndHasLeft is the table of how often an event is tried that always
// fails: its message may ask for fewer attempts than the queue's three, in an attribute and in its body, and
// may have had some elsewhere. A replay has them all.
func TestMessageHasTheAttemptsThatItAsksForAndHasLeft(t *testing.T) {
	t.Parallel()
	table, _ := enumerate([]dimension{
		{"asks in its attribute for", []string{"none", "0", "1", "2", "999"}},
		{"in its body for", []string{"0", "1", "2", "1000"}},
		{"had before", []string{"0", "1", "2", "3", "1000"}},
		{"handler", []string{tx, leasedMany}},
	}, func(c cell) (what, cost string) {
		calls := 0
		failing := func(context.Context, handler.Event) (string, error) {
			calls++
			return "", retry.Transient("away", nil)
		}
		with := setup{queue: envelopes, credit: func(ctx context.Context, e handler.Event) (handler.Effect, error) {
			_, err := failing(ctx, e)
			return handler.Effect{}, err
		}}
		if c["handler"] == leasedMany {
			with.leased = repeats(failing)
		}
		r := newRig(t, with)
		m := announced("e1", func(e *contract.Envelope) {
			_, err := fmt.Sscan(c["in its body for"]+" "+c["had before"], &e.MaxAttempts, &e.Attempts)
			require.NoError(t, err)
		})
		if asked := c["asks in its attribute for"]; asked != "none" {
			m = m.set("max_attempts", asked)
		}
		hour := func(int) time.Duration { return time.Hour }
		first := r.exhaust(t, m, hour)
		record, _ := r.record("e1")
		what = fmt.Sprintf("tried %d, dead after %d, record %d", calls, first.Attempt, record.Attempts)
		calls = 0
		r.exhaust(t, r.replay(t, r.keep(t, 0)), hour)
		return fmt.Sprint(what, ", replayed ", calls), ""
	})
	filetest.Recorded(t, table, "testdata", "attempts.txt")
}

// exhaust delivers a message until it is dead, from the broker after its wait or from its lane at the alarm.
func (r *rig) exhaust(t require.TestingT, m message, brokerWaits func(attempt int) time.Duration) reply {
	for delivery, tried := 1, 0; ; delivery++ {
		got := r.deliverNow(m.again(delivery))
		if got.Outcome == "dead_lettered" {
			return got
		}
		require.Less(t, delivery, 20)
		if tried = max(tried, got.Attempt); !got.Delayed {
			r.pass(brokerWaits(tried))
			continue
		}
		r.pass(r.alarms.at[len(r.alarms.at)-1].Sub(r.config.Now()))
		back := r.release(t)
		require.Len(t, back, 1)
		m, delivery = back[0], 0
	}
}

// TestAttemptsMadeElsewhereExplainNoDelivery: four deliveries here that have left no trace are four, and the
// attempt is counted before it runs.
func TestAttemptsMadeElsewhereExplainNoDelivery(t *testing.T) {
	t.Parallel()
	for delivery, counted := range map[int]bool{3: false, 4: true} {
		var r *rig
		var found bool
		r = newRig(t, setup{queue: envelopes, credit: func(context.Context, handler.Event) (handler.Effect, error) {
			_, found = r.record("e1")
			return handler.Effect{}, nil
		}})
		require.Equal(t, "processed", r.deliverNow(announced("e1", func(e *contract.Envelope) {
			e.Attempts = 1
		}).again(delivery)).Outcome)
		require.Equal(t, counted, found, "delivery %d, before the attempt", delivery)
	}
}

// FuzzEvent posts any message in a sound envelope to a healthy worker, as a message and as a dead letter.
func FuzzEvent(f *testing.F) {
	names := []string{"event_id", "event_type", "contract", "tenant", "max_attempts"}
	for _, m := range []message{
		paid("e1", known, 1), paid("e1", known, 2), paid("e2", known, 1), paid("e2", unknown, 1),
		paid("e2", known, 0),
		paid("e2", known, 1).set("tenant", "~/%"), paid("e2", known, 1).set("contract", "envelope.v1"),
		paid("e2", known, 1).with(once),
		paid("e2", known, 1).set("tenant", "other"), paid("e2", known, 1).without("contract"), raw(""),
		raw("[]"), raw("{}"),
		raw(`{"eventId":"e1","eventType":"order.paid","timestamp":"x","data":{}}`), raw("\x00"),
		raw(`{"eventId":`, "", "", "__x__", "y"),
	} {
		f.Add(m.data(), m.attributes[names[0]], m.attributes[names[1]], m.attributes[names[2]],
			m.attributes[names[3]], m.attributes[names[4]])
	}
	r := newRig(f, setup{log: slog.DiscardHandler})
	f.Fuzz(func(t *testing.T, data []byte, id, kind, format, tenant, attempts string) {
		m := raw(string(data), "ordering_key", buyer)
		for i, value := range []string{id, kind, format, tenant, attempts} {
			if value != "" {
				m = m.set(names[i], value)
			}
		}
		r.settles(t, m.envelope())
		require.Equal(t, http.StatusNoContent, r.post("/push/dead-letters/orders", m.envelope()).code)
	})
}

// settles posts a body twice to a worker that has done e1 and nothing else. What is acked is kept, in the
// store or as a dead letter, and the second delivery of what was settled is acked and changes nothing.
func (r *rig) settles(t *testing.T, body []byte) {
	t.Helper()
	db := storetest.Open(t)
	r.db, r.counter.Store, r.broker.taken[dlq] = db, db, nil
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 2)).code)
	kept := func() [2]int { return [2]int{len(r.documents(dedupe.Collection)), len(r.deadLetters())} }
	got := r.post("/push/orders", body)
	want, is := map[string][2]int{"processed": {2, 0}, "dead_lettered": {2, 1}, "": {1, 0}}[got.Outcome]
	require.True(t, is, got.text)
	require.Equal(t, want, kept(), got.text)
	if got.Outcome == "dead_lettered" {
		require.EqualValues(t, 1, r.effects("e1"))
	}
	require.Equal(t, http.StatusNoContent, r.post("/push/orders", body).code,
		"what is settled is acked when it comes again")
	require.Equal(t, want, kept())
}

func BenchmarkPush(b *testing.B) {
	r := newRig(b, setup{log: slog.DiscardHandler})
	all := make([][]byte, b.N)
	for i := range all {
		all[i] = paid(fmt.Sprintf("5302177644800%05d", i), known, 1).again(1).envelope()
	}
	b.SetBytes(int64(len(all[0])))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		recorder := httptest.NewRecorder()
		r.http.ServeHTTP(recorder, request(context.Background(), "/push/orders", all[i]))
		if recorder.Code != http.StatusOK {
			b.Fatalf("status %d: %s", recorder.Code, recorder.Body)
		}
	}
}
