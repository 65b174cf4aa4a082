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

func (m message) saying(body any) message { m.body = body; return m }

func (m message) as(id string) message { m.id = id; return m }

// padded is the message with a body of so many bytes.
func (m message) padded(bytes int) message {
	return m.saying(string(m.data()) + strings.Repeat(" ", bytes-len(m.data())))
}

func envelopes(q *catalog.Queue) {
	q.Contract, q.OrderingKey = contract.EnvelopeV1, []string{"subscription_id", "correlation_id"}
	q.Handlers = map[string]catalog.Handler{"renewal": q.Handlers["order.paid"]}
}

func byKey(q *catalog.Queue) { envelopes(q); q.DedupeBy = catalog.ByIdempotencyKey }

func general(q *catalog.Queue) {
	q.Contract, q.OrderingKey = contract.MessageV1, []string{"order_id"}
	q.Handlers = map[string]catalog.Handler{"order.shipped": q.Handlers["order.paid"]}
}

func withKey(id, key string) message {
	return announced(id, func(e *contract.Envelope) { e.IdempotencyKey = key })
}

func receivedAt(second string) message {
	return paid("e1", known, 1).as("m-"+second).set("webhook_received_at", "2026-03-02T10:14:"+second+"Z")
}

// order is a message of the general contract, with attributes that agree with its body.
func order(body string) message {
	return raw(body,
		"event_id", "e1", "event_type", "order.shipped", "ordering_key", "o1", "contract", contract.MessageV1)
}

// messageQueues are the queues of messageCases, by the first word of a case's name.
var messageQueues = map[string]func(*catalog.Queue){
	"PayNow": func(*catalog.Queue) {}, "envelope": envelopes, "raw": envelopes, "by key": byKey,
	"message": general,
}

type messageCase struct {
	name     string
	messages []message
}

func given(name string, messages ...message) messageCase { return messageCase{name, messages} }

func messageCases() []messageCase {
	good := paid("e1", known, 1)
	const shipped = `{"id":"e1","type":"order.shipped","timestamp":"2026-03-02T10:14:59Z","version":1,` +
		`"correlation_id":"c1","data":{"order_id":"o1"},"metadata":{"max_retries":2}}`
	cheaper := func(e *contract.Envelope) { e.IdempotencyKey, e.Payload.Amount = "k1", "1.99" }
	return []messageCase{
		given("PayNow: as it is", good),
		given("PayNow: not JSON, and then as it is", good.saying("nonsense").as("m-0"), good),
		given("PayNow: without attributes", raw("nonsense")),
		given("PayNow: nothing at all", raw("")),
		given("PayNow: the contract is broken", paid("e1", known, -1)),
		given("PayNow: of another shape", good.saying(map[string]any{"eventId": 1})),
		given("PayNow: attributes of another event", good.set("event_id", "e2")),
		given("PayNow: an invalid tenant", good.set("tenant", "a/b")),
		given("PayNow: another tenant with the same ids", good, paid("e1", known, 3).set("tenant", "other")),
		given("PayNow: an unknown product", paid("e1", unknown, 1)),
		given("PayNow: another payload under a used id", good, paid("e1", known, 2)),
		given("PayNow: the same with an unknown product", good, paid("e1", unknown, 1)),
		given("PayNow: a broken body under a used id", good, paid("e1", known, 0).as("m-9")),
		given("PayNow: 95 attributes", paid("e1", unknown, 1).with(crowd)),
		given("PayNow: an attribute that is far too long",
			paid("e1", unknown, 1).set("own", strings.Repeat("x", 5000))),
		given("PayNow: received by the webhook service twice", receivedAt("01"), receivedAt("02")),
		given("envelope: as it is", announced("e1", nil)),
		given("envelope: without its contract", announced("e1", nil).without("contract")),
		given("envelope: names a key", withKey("e1", "payment-7")),
		given("raw: without attributes", raw(`{"action":"renewal","subscription_id":"s1","status":"active"}`)),
		given("raw: with attributes", raw(`{"payment_id":"p1"}`, "event_id", "e1", "event_type", "renewal",
			"correlation_id", "c1")),
		given("raw: belongs to nothing", raw(`{"payment_id":"p1"}`, "event_id", "e1", "event_type", "renewal")),
		given("envelope: a PayNow event", good),
		given("envelope: a PayNow event without its contract", good.without("contract")),
		given("raw: names a contract", raw(`{"subscription_id":"s1"}`, "contract", contract.EnvelopeV1)),
		given("raw: names an unknown contract", raw(`{"subscription_id":"s1"}`, "contract", "envelope.v9")),
		given("raw: a field of its own", raw(`{"subscription_id":"s1","email":"x"}`, "event_type", "renewal")),
		given("raw: without an action", raw(`{"subscription_id":"s1"}`)),
		given("raw: two actions", raw(`{"action":"renewal","subscription_id":"s1"}`, "event_type", "initial")),
		given("envelope: attributes of another event", announced("e1", nil).set("event_id", "e2")),
		given("envelope: an unknown action", announced("e1", func(e *contract.Envelope) { e.Action = "upgrade" })),
		given("envelope: not JSON", raw("nonsense")),
		given("by key: two events of one key", withKey("e1", "k1"), withKey("e2", "k1")),
		given("by key: another payload", withKey("e1", "k1"), announced("e3", cheaper)),
		given("by key: without a key", announced("e4", nil)),
		given("by key: attributes of another key", withKey("e5", "k5").set("idempotency_key", "k6")),
		given("message: as it is", order(shipped)),
		given("message: attributes of another event", order(strings.Replace(shipped, `"id":"e1"`, `"id":"e2"`, 1))),
		given("message: another contract", order(shipped).set("contract", contract.EnvelopeV1)),
	}
}

// TestEachMessageIsReadByItsContractAndRecognizedAgain is the table of how messages are read: what the
// handler is given, what is recorded, and which dead letter is published. The messages of a case are
// delivered in order, and the last of them twice more.
func TestEachMessageIsReadByItsContractAndRecognizedAgain(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	for _, test := range messageCases() {
		kind, _, _ := strings.Cut(test.name, ":")
		r := newRig(t, setup{queue: messageQueues[kind]})
		fmt.Fprintf(&table, "%s\n%s\n", test.name, strings.Join(r.each(t, test), "\n"))
	}
	filetest.Recorded(t, table.String(), "testdata", "messages.txt")
}

// each delivers the messages of a case, and describes the answers, the handled events, the records, the dead
// letters and the effects.
func (r *rig) each(t *testing.T, test messageCase) (lines []string) {
	var handled, delivered, records []string
	r.do = func(ctx context.Context, e handler.Event) (handler.Effect, error) {
		id, _ := e.Body.Identity()
		require.NoError(t, e.Body.Validate())
		handled = append(handled, fmt.Sprintf(
			"  handled %s/%s of %s, body %s, correlation %s, key %s, %d attempts requested, attributes agree: %t",
			e.Tenant, e.Type, r.queue.Contract, id, e.CorrelationID, e.OrderingKey, e.Body.MaxAttempts(),
			e.Body.CheckAttributes(e.Attributes) == nil))
		if r.queue.Contract != contract.PaymentV1 {
			return handler.Effect{Result: "sent"}, nil
		}
		return credit(ctx, e)
	}
	last := test.messages[len(test.messages)-1]
	for _, m := range append(test.messages, last.again(2), last.again(3)) {
		got := r.deliver(m)
		delivered = append(delivered, m.id+string(m.data()))
		lines = append(lines, strings.TrimRight(fmt.Sprintf("  %d %s %s %s", got.code, got.Outcome, got.Reason,
			got.EventID), " "))
	}
	for _, doc := range r.documents(dedupe.Collection) {
		record := filetest.Must(dedupe.FromDocument(doc))(t)
		records = append(records, fmt.Sprintf("  record %s/%s %s %d, type %q, key %q, message %s, received %s",
			record.Tenant, record.EventID, record.Status, record.Attempts, record.EventType, record.IdempotencyKey,
			record.MessageID, record.ReceivedAt.Format("04:05")))
	}
	slices.Sort(records)
	lines = slices.Concat(lines, handled, records)
	for _, dead := range r.deadLetters() {
		at := dead.Attributes
		lines = append(lines, fmt.Sprintf("  dead letter %s %s %q of %s", at["dead_letter_status"],
			at["dead_letter_reason"], at["dead_letter_detail"], at["event_id"]))
		require.Contains(t, delivered, at["source_message_id"]+string(dead.Data), test.name)
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
	return lines
}

func crowd(m *message) {
	for i := range 90 {
		m.attributes[fmt.Sprintf("own-%02d", i)] = "x"
	}
}

// TestMessageLimitsItsAttempts is the table of how often an event is tried that always fails: its message may
// request fewer attempts than the queue's three, in an attribute and in its body, and may have had some
// elsewhere. A replay has them all.
func TestMessageLimitsItsAttempts(t *testing.T) {
	t.Parallel()
	table, _ := enumerate([]dimension{
		{"requests in its attribute", []string{"none", "0", "1", "2", "999"}},
		{"in its body", []string{"0", "1", "2", "1000"}},
		{"had before", []string{"0", "1", "2", "3", "1000"}},
		{"handler", []string{tx, leasedMany}},
	}, func(c cell) (what, cost string) {
		r := newRig(t, setup{queue: envelopes, leased: c["handler"] == leasedMany})
		r.do = always(retry.Transient("away", nil))
		m := announced("e1", func(e *contract.Envelope) {
			_, err := fmt.Sscan(c["in its body"]+" "+c["had before"], &e.MaxAttempts, &e.Attempts)
			require.NoError(t, err)
		})
		if limit := c["requests in its attribute"]; limit != "none" {
			m = m.set("max_attempts", limit)
		}
		hour := func(int) time.Duration { return time.Hour }
		first := r.exhaust(t, m, hour)
		record, _ := r.record("e1")
		what = fmt.Sprintf("tried %d, dead after %d, record %d", r.calls.Swap(0), first.Attempt, record.Attempts)
		r.exhaust(t, r.replay(t, r.keep(t, 0)), hour)
		return fmt.Sprint(what, ", replayed ", r.calls.Load()), ""
	})
	filetest.Recorded(t, table, "testdata", "attempts.txt")
}

// TestAttemptsMadeElsewhereExplainNoDelivery: after more than three deliveries without a recorded attempt,
// the attempt is counted before it runs. One that was made elsewhere changes nothing about that.
func TestAttemptsMadeElsewhereExplainNoDelivery(t *testing.T) {
	t.Parallel()
	for delivery, counted := range map[int]bool{3: false, 4: true} {
		r, found := newRig(t, setup{queue: envelopes}), false
		r.do, r.during = returns("sent"), func(context.Context) { _, found = r.record("e1") }
		require.Equal(t, "processed", r.deliverNow(announced("e1", func(e *contract.Envelope) {
			e.Attempts = 1
		}).again(delivery)).Outcome)
		require.Equal(t, counted, found, "delivery %d, before the attempt", delivery)
	}
}

// FuzzEvent posts any message in a valid envelope to a worker, as a message and as a dead letter.
func FuzzEvent(f *testing.F) {
	names := []string{"event_id", "event_type", "contract", "tenant", "max_attempts"}
	for _, m := range []message{
		paid("e1", known, 1), paid("e1", known, 2), paid("e2", known, 1), paid("e2", unknown, 1),
		paid("e2", known, 0),
		paid("e2", known, 1).set("tenant", "~/%"), paid("e2", known, 1).set("contract", "envelope.v1"),
		paid("e2", known, 1).once(),
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

// settles posts a body twice to a worker that has processed e1 and nothing else. An acknowledged message is
// in the store or a dead letter, and its second delivery is acknowledged and changes nothing.
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
		"the second delivery is acknowledged")
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
