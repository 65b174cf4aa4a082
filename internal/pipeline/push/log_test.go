package push_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// errHandler is an error of other code, whose text holds personal data.
var errHandler = errors.New("ilse@example.org fell over")

func (m message) once() message { return m.set("max_attempts", "1") }

// outcome is a delivery of paid("e1", known, 1), or of message, and what becomes of it.
type outcome struct {
	queue   func(*catalog.Queue)
	do      handler.Tx
	message func(good message) message
	status  int
	outcome string
	reason  string
	line    map[string]any // fields of the log's line of the delivery
	detail  string         // what the dead letter says beside its reason
}

func says(err error) error { return retry.Says(`code "limit"`, err) }

var outcomes = map[string]outcome{
	"processed": {status: 200, outcome: "processed", reason: "done", line: map[string]any{
		"level": "INFO", "event_type": "order.paid", "ordering_key": buyer, "correlation_id": "corr-e1",
		"cause": "", "delivery_attempt": 1.0,
	}},
	"tried again": {
		do: always(retry.Down("down", errHandler)), status: 503, outcome: "retry", reason: "down",
		line: map[string]any{"level": "WARN", "cause": "*errors.errorString"},
	},
	"a panic": {
		do:     doing(func(handler.Event) handler.Effect { panic("ilse@example.org") }),
		status: 500, outcome: "retry", reason: "handler_panic",
	},
	"a full queue": {
		queue:  func(q *catalog.Queue) { q.Concurrency = 0 },
		status: 503, outcome: "retry", reason: "queue_full",
	},
	"an unreadable body": {
		message: func(good message) message { return good.saying(`{"ilse":`) },
		status:  400, outcome: "dead_lettered", reason: "body_malformed",
		line: map[string]any{"level": "ERROR", "event_type": "", "ordering_key": "", "correlation_id": ""},
	},
	"a broken contract": {
		message: func(message) message { return paid("e1", known, 0) },
		status:  422, outcome: "dead_lettered", reason: "contract_broken",
		detail: "contract: data.order.items[0].quantity: min=1",
	},
	"attempts used up": {
		do: always(retry.Down("down", errHandler)), message: message.once,
		status: 422, outcome: "dead_lettered", reason: "down", detail: "attempts_exhausted",
	},
	"a called service that says why": {
		do:     always(says(retry.Permanent("refused_422", errHandler))),
		status: 422, outcome: "dead_lettered", reason: "refused_422", detail: `code "limit"`,
	},
	"a called service that says why until the last attempt": {
		do: always(says(retry.Transient("failed_503", errHandler))), message: message.once,
		status: 422, outcome: "dead_lettered", reason: "failed_503", detail: `attempts_exhausted: code "limit"`,
	},
	"a handler that quotes personal data": {
		do: always(retry.Permanent("bad", errHandler)), status: 422, outcome: "dead_lettered", reason: "bad",
	},
	"a write that no store takes": {
		do: doing(func(handler.Event) handler.Effect {
			return handler.Effect{Writes: []store.Write{
				store.Set(store.Key{Collection: "ilse", ID: "ilse"}, map[string]any{"ilse": 1.5}),
			}}
		}),
		status: 422, outcome: "dead_lettered", reason: "effect_invalid",
	},
}

// TestAnswerLogAndDeadLetterHoldNothingOfTheMessage: codes, paths and ids alone.
func TestAnswerLogAndDeadLetterHoldNothingOfTheMessage(t *testing.T) {
	t.Parallel()
	filetest.Each(t, outcomes, func(t *testing.T, test outcome) {
		r, m, attempt := newRig(t, setup{queue: test.queue}), paid("e1", known, 1), 1
		if test.do != nil {
			r.do = test.do
		}
		if test.message != nil {
			m = test.message(m)
		}
		got := r.deliver(m.again(1))
		require.Equal(t, test.status, got.code)
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		if test.reason == "queue_full" {
			attempt = 0
		}
		require.JSONEq(t, fmt.Sprintf(`{"outcome":%q,"status":%d,"reason":%q,"event_id":"e1","attempt":%d}`,
			test.outcome, test.status, test.reason, attempt), got.text)
		line := r.log.lines("delivery")[0]
		for field, want := range test.line {
			require.Equal(t, want, line[field], field)
		}
		require.ElementsMatch(t, []string{
			"time", "level", "msg", "queue", "event_id", "event_type", "message_id", "instance", "ordering_key",
			"correlation_id", "attempt", "delivery_attempt", "outcome", "reason", "result", "cause", "status",
			"delayed", "duration_ms",
		}, slices.Collect(maps.Keys(line)))
		all := got.text + r.log.String()
		for _, dead := range r.deadLetters() {
			require.Equal(t, test.detail, dead.Attributes["dead_letter_detail"])
			all += fmt.Sprint(dead.Attributes)
		}
		require.NotContains(t, all, "ilse")
	})
}

// TestLogAndRecordNameEachAttempt: the log before it runs, since it may kill its worker.
func TestLogAndRecordNameEachAttempt(t *testing.T) {
	t.Parallel()
	const pushed, published, span = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736",
		"-b7ad6b7169203331-01"
	for name, test := range map[string]struct{ header, attribute, want string }{
		"the trace of the push":              {"00-" + pushed + span, "00-" + published + span, pushed},
		"of its publisher, without one":      {"", "00-" + published + span, published},
		"of a later version of the header":   {"01-" + pushed + span + "-more", "", pushed},
		"where there is none":                {"", "", ""},
		"where there is one of zeros":        {"00-00000000000000000000000000000000" + span, "", ""},
		"where there is one of another kind": {"00-" + pushed[1:] + span, "<b>", ""},
	} {
		r := newRig(t, setup{})
		r.fails = []error{errHandler}
		r.during = func(context.Context) {
			line := r.log.lines("received")[0]
			require.Equal(t, []any{"orders", "e1", "m-e1", "instance-1", "INFO"},
				[]any{line["queue"], line["event_id"], line["message_id"], line["instance"], line["level"]})
			require.Empty(t, r.log.lines("delivery"))
		}
		first := paid("e1", known, 1).again(1).set("webhook_received_at", "2026-03-02T10:14:59.5Z").
			set("googclient_traceparent", test.attribute)
		r.deliver(first)
		r.pass(10 * time.Second)
		q := request(t.Context(), "/push/orders", first.again(3).envelope()) // the second has left no trace
		q.Header.Set("Traceparent", test.header)
		require.Equal(t, http.StatusOK, r.serve(q).code)
		require.InDelta(t, 3, r.log.lines("received")[1]["delivery_attempt"], 0)
		record, _ := r.record("e1")
		require.Equal(t, []time.Time{start, start.Add(-time.Second / 2)},
			[]time.Time{record.PublishedAt, record.ReceivedAt})
		require.Len(t, record.Log, 2)
		two := start.Add(10 * time.Second)
		require.Equal(t, dedupe.Attempt{
			Number: 2, Delivery: 3, MessageID: "m-e1", Instance: "instance-1", Trace: test.want, Begun: two,
			Ended: two, Outcome: retry.Processed,
		}, record.Log[1], name)
	}
}

// TestDeliveriesAreCountedByOutcome: and the webhook's releases by the messages that they published lately.
func TestDeliveriesAreCountedByOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.fails = []error{errors.New("down")}
	received := func(event, product, release string, ago time.Duration) message {
		return paid(event, product, 1).set(contract.AttrReceived, start.Add(-ago).Format(time.RFC3339Nano)).
			set(contract.AttrRelease, release)
	}
	first := received("e1", known, "v2:1a2b3c4d", time.Second)
	r.deliver(first)                                                  // it fails
	r.deliver(first.again(2))                                         // it is done
	r.deliver(first.again(3))                                         // it is a duplicate
	r.deliver(received("e2", "unknown", "v1:00000000", 24*time.Hour)) // no attempt helps
	commits := r.counter.Commits.Load()
	require.NoError(t, r.config.Rates.Flush(t.Context()))
	require.Equal(t, commits, r.counter.Commits.Load(), "the rig's deliveries have written no counts")
	now := filetest.Must(rates.Recent(t.Context(), r.db, r.config.Now()))(t)
	require.Equal(t, rates.Counts{In: 2, Processed: 1, Other: 1, Dead: 1, Failed: 1}, now.Queues["orders"])
	require.Len(t, now.Releases, 1)
	require.Equal(t, "v2:1a2b3c4d", now.Releases[0].Name)
	page := httptest.NewRecorder()
	r.config.Metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet,
		"/metrics", nil))
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

// sent is a body that counts what is read of it.
type sent struct {
	io.Reader
	read int
}

func (s *sent) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.read += n
	return n, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// refusal changes a service or a request so that the request is refused.
type refusal func(r *rig, q *http.Request)

func header(name string, values ...string) refusal {
	return func(_ *rig, q *http.Request) { q.Header[name] = values }
}

func token(err error) refusal { return func(r *rig, _ *http.Request) { r.bouncer.err = err } }

func toQueue(queue string) refusal {
	return func(_ *rig, q *http.Request) { q.URL.Path = strings.Replace(q.URL.Path, "orders", queue, 1) }
}

// content replaces a request's body, of an announced length, by a text and what follows it.
func content(length int64, text string, then io.Reader) refusal {
	return func(_ *rig, q *http.Request) {
		q.ContentLength, q.Body = length, io.NopCloser(io.MultiReader(strings.NewReader(text), then))
	}
}

type refusedPush struct {
	refusal refusal
	code    int
	problem string
	most    int // how much of the body may be read
}

var refusedPushes = map[string]refusedPush{
	"without a token":  {header("Authorization"), 401, "unauthorized", 0},
	"an invalid token": {token(errors.New("ilse@example.org")), 401, "unauthorized", 0},
	"a token of another account": {
		token(fmt.Errorf("%w: ilse@example.org", serve.ErrNotAllowed)), 403, "forbidden", 0,
	},
	"a token that cannot be checked now": {
		token(fmt.Errorf("%w: ilse@example.org", serve.ErrKeysUnavailable)), 503, "keys_unavailable", 0,
	},
	"two tokens": {header("Authorization", "Bearer good", "Bearer another"), 403, "forbidden", 0},
	"a token of Cloud Run beside the other": {
		header("X-Serverless-Authorization", "Bearer another"), 403, "forbidden", 0,
	},
	"an empty one":                   {header("X-Serverless-Authorization", ""), 403, "forbidden", 0},
	"a page of another site":         {header("Origin", "https://elsewhere.example"), 403, "cross_origin", 0},
	"a page that hides its origin":   {header("Origin", ""), 403, "cross_origin", 0},
	"a browser that names no origin": {header("Sec-Fetch-Site", "none"), 403, "cross_origin", 0},
	"an unknown queue":               {toQueue("nobody"), 404, "queue_unknown", 0},
	"a disabled queue":               {toQueue("asleep"), 404, "queue_unknown", 0},
	"a service that drains":          {func(r *rig, _ *http.Request) { r.Drain() }, 503, "shutting_down", 0},
	"a body that is no push":         {content(2, "{}", http.NoBody), 400, "envelope_malformed", 2},
	"a body that breaks off": {
		content(1000, "{}", iotest.ErrReader(io.ErrUnexpectedEOF)), 503, "body_unread", 2,
	},
	"a body that is too large, of a known length": {content(1<<30, "", zeros{}), 413, "too_large", 0},
	"a body that is too large, of unknown length": {content(-1, "", zeros{}), 413, "too_large", 32 << 20},
	"a body for which others have left no memory": {
		func(r *rig, _ *http.Request) { r.BodyBudget(100) }, 503, "bodies_in_flight", 0,
	},
}

// TestPushThatIsNotAdmittedIsNotReadAndChangesNothing: a message and a dead letter are admitted alike.
func TestPushThatIsNotAdmittedIsNotReadAndChangesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range refusedPushes {
		for _, path := range []string{"/push/orders", "/push/dead-letters/orders"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, setup{})
				free := r.BodyBudget(64 << 20)
				q := request(t.Context(), path, paid("e1", known, 1).envelope())
				test.refusal(r, q)
				body := &sent{Reader: q.Body}
				q.Body = io.NopCloser(body)
				got := r.serve(q)
				require.Equal(t, []any{test.code, test.problem}, []any{got.code, got.Code})
				require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
				require.LessOrEqual(t, body.read, test.most)
				require.NotContains(t, got.text+r.log.String(), "ilse")
				require.Zero(t, r.counter.Commits.Load()+r.counter.Gets.Load())
				require.Empty(t, r.deadLetters())
				require.True(t, free(0))
			})
		}
	}
}

// TestPushHoldsItsMemoryUntilItIsAnswered: also while its message is handled.
func TestPushHoldsItsMemoryUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	m, during := paid("e1", known, 1), true
	r := newRig(t, setup{})
	free := r.BodyBudget(64 << 20)
	r.during = func(context.Context) { during = free(len(m.envelope()) - 1) }
	require.Equal(t, http.StatusOK, r.deliver(m).code)
	require.False(t, during)
	require.True(t, free(0))
	r.broker.before = func(string) { during = free(0) }
	during = true
	require.Equal(t, http.StatusBadRequest, r.deliver(paid("e2", unknown, 1)).code)
	require.False(t, during)
	require.Equal(t, http.StatusNoContent, r.post("/push/dead-letters/orders", m.envelope()).code)
	require.True(t, free(0))
}

func TestLargestMessageOfPubSubIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	m := paid("e1", known, 1).with(func(m *message) {
		for i := range 70 {
			m.attributes[fmt.Sprintf("own-%02d", i)] = strings.Repeat("\x01", 1024)
		}
		m.body = strings.Repeat("x", contract.MaxMessageBytes-contract.Message{Attributes: m.attributes}.Size())
	})
	got := r.deliver(m)
	require.Equal(t, []any{http.StatusBadRequest, "body_malformed"}, []any{got.code, got.Reason})
	require.Len(t, r.documents(dedupe.Collection), 1)
	dead := r.deadLetters()[0]
	require.True(t, bytes.Equal(m.data(), dead.Data))
	require.Contains(t, dead.Attributes["dead_letter_detail"], "attributes left out or cut",
		"for those of the dead letter")
}
