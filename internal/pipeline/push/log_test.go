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
	"sync"
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

// errHandler is an error of somebody else's, whose text holds personal data.
var errHandler = errors.New("ilse@example.org fell over")

func once(m *message) { m.attributes["max_attempts"] = "1" }

// journal keeps what the rig's service logs.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) lines(t *testing.T, message string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range bytes.Lines([]byte(j.String())) {
		if fields := filetest.JSON[map[string]any](t, line); fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

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
		return handler.Effect{
			Writes: []store.Write{store.Set(store.Key{Collection: "ilse", ID: "ilse"}, map[string]any{"ilse": 1.5})},
		}
	})
	type fields map[string]any
	type row struct {
		with    setup
		m       message
		status  int
		outcome string
		reason  string
		// line is what the line of the delivery says, detail what the dead letter does beside its reason.
		line   fields
		detail string
	}
	filetest.Each(t, map[string]row{
		"processed": {setup{}, good, 200, "processed", "done", fields{
			"level": "INFO", "event_type": "order.paid", "ordering_key": buyer, "correlation_id": "corr-e1",
			"cause": "", "delivery_attempt": 1.0,
		}, ""},
		"tried again": {setup{credit: always(retry.Down("down", errHandler))}, good, 503, "retry", "down", fields{
			"level": "WARN", "cause": "*errors.errorString",
		}, ""},
		"a panic": {
			setup{credit: effect(func() handler.Effect { panic("ilse@example.org") })},
			good, 500, "retry",
			"handler_panic", nil, "",
		},
		"a full queue": {setup{queue: full}, good, 503, "retry", "queue_full", nil, ""},
		"an unreadable body": {setup{}, good.saying(`{"ilse":`), 400, "dead_lettered", "body_malformed", fields{
			"level": "ERROR", "event_type": "", "ordering_key": "", "correlation_id": "",
		}, ""},
		"a broken contract": {
			setup{},
			paid("e1", known, 0), 422, "dead_lettered", "contract_broken", nil,
			"contract: data.order.items[0].quantity: min=1",
		},
		"attempts used up": {
			setup{credit: always(retry.Down("down", errHandler))},
			good.with(once), 422, "dead_lettered", "down", nil,
			"attempts_exhausted",
		},
		"a callee that says why": {
			setup{credit: always(says(retry.Permanent("refused_422", errHandler)))},
			good, 422, "dead_lettered",
			"refused_422", nil, `code "limit"`,
		},
		"a callee that says why until the end": {
			setup{credit: always(says(retry.Transient("failed_503", errHandler)))},
			good.with(once), 422,
			"dead_lettered", "failed_503", nil,
			`attempts_exhausted: code "limit"`,
		},
		"a handler that quotes others": {
			setup{credit: always(retry.Permanent("bad", errHandler))}, good, 422, "dead_lettered", "bad", nil, "",
		},
		"a write that no store takes": {
			setup{credit: invalid}, good, 422, "dead_lettered", "effect_invalid", nil, "",
		},
	}, func(t *testing.T, test row) {
		r := newRig(t, test.with)
		got := r.deliver(test.m.again(1))
		require.Equal(t, test.status, got.code)
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		attempt := 1
		if test.reason == "queue_full" {
			attempt = 0
		}
		require.JSONEq(t, fmt.Sprintf(`{"outcome":%q,"status":%d,"reason":%q,"event_id":"e1","attempt":%d}`,
			test.outcome, test.status, test.reason, attempt), got.text)
		line := r.log.lines(t, "delivery")[0]
		for field, want := range test.line {
			require.Equal(t, want, line[field], field)
		}
		require.ElementsMatch(t, []string{
			"time", "level", "msg", "queue", "event_id", "event_type", "message_id", "instance", "ordering_key",
			"correlation_id",
			"attempt", "delivery_attempt", "outcome", "reason", "result", "cause", "status", "delayed", "duration_ms",
		}, slices.Collect(maps.Keys(line)))
		all := got.text + r.log.String()
		for _, dead := range r.deadLetters() {
			require.Equal(t, test.detail, dead.Attributes["dead_letter_detail"])
			all += fmt.Sprint(dead.Attributes)
		}
		require.NotContains(t, all, "ilse")
	})
}

// TestLogAndRecordNameEachAttempt: the log before it runs, for a worker may be killed in it.
func TestLogAndRecordNameEachAttempt(t *testing.T) {
	t.Parallel()
	const pushed, published, span = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736",
		"-b7ad6b7169203331-01"
	for name, test := range map[string]struct{ header, attribute, want string }{
		"the trace of the push":              {"00-" + pushed + span, "00-" + published + span, pushed},
		"of who published it, without one":   {"", "00-" + published + span, published},
		"of a later version of the header":   {"01-" + pushed + span + "-more", "", pushed},
		"where there is none":                {"", "", ""},
		"where there is one of zeros":        {"00-00000000000000000000000000000000" + span, "", ""},
		"where there is one of another kind": {"00-" + pushed[1:] + span, "<b>", ""},
	} {
		var r *rig
		ran := 0
		r = newRig(t, setup{credit: func(ctx context.Context, event handler.Event) (handler.Effect, error) {
			ran++
			line := r.log.lines(t, "received")[ran-1]
			require.Equal(t, []any{"orders", "e1", "m-e1", "instance-1", "INFO"},
				[]any{line["queue"], line["event_id"], line["message_id"], line["instance"], line["level"]})
			require.Len(t, r.log.lines(t, "delivery"), ran-1)
			if ran == 1 {
				return handler.Effect{}, errHandler
			}
			return credit(ctx, event)
		}})
		first := paid("e1", known, 1).again(1).set("webhook_received_at", "2026-03-02T10:14:59.5Z").
			set("googclient_traceparent", test.attribute)
		r.deliver(first)
		r.pass(10 * time.Second)
		q := request(t.Context(), "/push/orders", first.again(3).envelope()) // nothing is known of the second
		q.Header.Set("Traceparent", test.header)
		require.Equal(t, http.StatusOK, r.serve(q).code)
		require.InDelta(t, 3, r.log.lines(t, "received")[1]["delivery_attempt"], 0)
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

// TestDeliveriesAreCountedByWhatBecameOfThem: and the webhook's release by what it let in lately.
func TestDeliveriesAreCountedByWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{credit: times(1, errors.New("down"))})
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

// TestPushThatIsNotAdmittedIsNotReadAndChangesNothing: a message and a dead letter are admitted alike.
func TestPushThatIsNotAdmittedIsNotReadAndChangesNothing(t *testing.T) {
	t.Parallel()
	type refusal func(r *rig, q *http.Request)
	header := func(name string, values ...string) refusal {
		return func(_ *rig, q *http.Request) { q.Header[name] = values }
	}
	token := func(err error) refusal { return func(r *rig, _ *http.Request) { r.bouncer.err = err } }
	at := func(queue string) refusal {
		return func(_ *rig, q *http.Request) { q.URL.Path = strings.Replace(q.URL.Path, "orders", queue, 1) }
	}
	body := func(announced int64, content string) refusal {
		return func(_ *rig, q *http.Request) {
			q.ContentLength, q.Body = announced, io.NopCloser(strings.NewReader(content))
		}
	}
	endless := func(announced int64) refusal {
		return func(_ *rig, q *http.Request) { q.ContentLength, q.Body = announced, io.NopCloser(zeros{}) }
	}
	breaksOff := func(_ *rig, q *http.Request) {
		q.Body = io.NopCloser(io.MultiReader(strings.NewReader("{}"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	}
	drains := func(r *rig, _ *http.Request) { r.Drain() }
	for name, test := range map[string]struct {
		refusal refusal
		code    int
		problem string
		// most is how much of the body may be read.
		most int
	}{
		"without a token":       {header("Authorization"), 401, "unauthorized", 0},
		"a token that is wrong": {token(errors.New("ilse@example.org")), 401, "unauthorized", 0},
		"a token of somebody else": {
			token(fmt.Errorf("%w: ilse@example.org", serve.ErrNotAllowed)), 403, "forbidden", 0,
		},
		"a token that cannot be checked now": {
			token(fmt.Errorf("%w: ilse@example.org", serve.ErrKeysUnavailable)), 503, "keys_unavailable", 0,
		},
		"two tokens": {header("Authorization", "Bearer good", "Bearer another"), 403, "forbidden", 0},
		"a token of Cloud Run beside the other": {
			header("X-Serverless-Authorization", "Bearer another"), 403, "forbidden", 0,
		},
		"an empty one":                     {header("X-Serverless-Authorization", ""), 403, "forbidden", 0},
		"a browser's page of another site": {header("Origin", "https://elsewhere.example"), 403, "cross_origin", 0},
		"a page that hides where it is from": {
			header("Origin", ""), 403, "cross_origin", 0,
		},
		"a browser that names no origin": {header("Sec-Fetch-Site", "none"), 403, "cross_origin", 0},
		"a queue that is unknown":        {at("nobody"), 404, "queue_unknown", 0},
		"a queue that is disabled":       {at("asleep"), 404, "queue_unknown", 0},
		"a service that drains":          {drains, 503, "shutting_down", 0},
		"a body that is no push":         {body(2, "{}"), 400, "envelope_malformed", 2},
		"a body that breaks off":         {breaksOff, 503, "body_unread", 2},
		"a body that is too large, and says so": {
			endless(1 << 30), 413, "too_large", 0,
		},
		"a body that is too large, and does not": {
			endless(-1), 413, "too_large", 32 << 20,
		},
		"a body for which others have left no memory": {
			func(r *rig, _ *http.Request) { r.BodyBudget(100) }, 503, "bodies_in_flight", 0,
		},
	} {
		for _, path := range []string{"/push/orders", "/push/dead-letters/orders"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, setup{})
				free := r.BodyBudget(64 << 20)
				q := request(t.Context(), path, paid("e1", known, 1).envelope())
				test.refusal(r, q)
				content := &sent{Reader: q.Body}
				q.Body = io.NopCloser(content)
				got := r.serve(q)
				require.Equal(t, []any{test.code, test.problem}, []any{got.code, got.Code})
				require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
				require.LessOrEqual(t, content.read, test.most)
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
	var free func(but int) bool
	m, during := paid("e1", known, 1), true
	r := newRig(t, setup{credit: func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		during = free(len(m.envelope()) - 1)
		return credit(ctx, event)
	}})
	free = r.BodyBudget(64 << 20)
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

func TestLargestMessageOfPubSubIsTaken(t *testing.T) {
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
