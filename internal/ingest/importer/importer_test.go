package importer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
	"billhook/internal/ingest/importer"
	"billhook/internal/pii"
	"billhook/internal/platform/signature"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func everything(t *testing.T) *catalog.Catalog {
	t.Helper()
	c := catalogtest.Shipped()
	for i := range c.Queues {
		c.Queues[i].Enabled = true
	}
	return c
}

type store struct {
	waiting, claimed []importer.Message
	accepted         []string
	refused          []string
}

func (s *store) Look(context.Context, int) ([]importer.Place, []importer.Message, error) {
	return nil, s.waiting, nil
}

func (s *store) Take(_ context.Context, limit int) ([]importer.Message, error) {
	n := min(limit, len(s.waiting))
	s.claimed, s.waiting = s.waiting[:n], s.waiting[n:]
	return s.claimed, nil
}

func (s *store) Settle(_ context.Context, accepted, refused []importer.Message) error {
	for _, m := range accepted {
		s.accepted = append(s.accepted, m.Handle)
	}
	for _, m := range refused {
		s.refused = append(s.refused, m.Handle)
	}
	return nil
}

func (*store) Release(context.Context) error { return nil }

// ingest accepts all messages but those that hold a text to refuse, or answers as its function does.
type ingest struct {
	answer   func(call int, items []importer.Item) ([]importer.Result, error)
	refuse   string
	requests [][]importer.Item
	queues   []string

	bodies map[string]string // of the accepted messages, by their ids
	due    map[string]time.Time
	order  []string
}

func newIngest() *ingest { return &ingest{bodies: map[string]string{}, due: map[string]time.Time{}} }

func (d *ingest) Send(ctx context.Context, queue string, items []importer.Item) ([]importer.Result, error) {
	d.requests, d.queues = append(d.requests, items), append(d.queues, queue)
	if d.answer != nil {
		results, err := d.answer(len(d.requests), items)
		return results, errors.Join(err, ctx.Err())
	}
	results := all(202, items)
	for i, item := range items {
		if d.refuse != "" && strings.Contains(string(item.Message), d.refuse) {
			results[i] = importer.Result{Status: 422, Code: "contract_broken"}
			continue
		}
		_, rest, _ := strings.Cut(string(item.Message), `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		d.bodies[id], d.due[id], d.order = string(item.Message), item.DeliverAt, append(d.order, id)
	}
	return results, ctx.Err()
}

func all(status int, items []importer.Item) []importer.Result {
	results := make([]importer.Result, len(items))
	for i := range results {
		results[i] = importer.Result{Status: status, Code: "code"}
	}
	return results
}

type waits struct {
	at    time.Time
	slept []time.Duration
}

func (w *waits) now() time.Time { return w.at }

func (w *waits) after(d time.Duration) <-chan time.Time {
	w.at, w.slept = w.at.Add(d), append(w.slept, d)
	over := make(chan time.Time, 1)
	over <- w.at
	return over
}

func refunds(n int) (messages []importer.Message) {
	for i := range n {
		messages = append(messages, importer.Message{
			Handle: fmt.Sprint(i), Queue: "pay-refund-initiation", Part: importer.Waiting,
			Body: fmt.Appendf(nil, `{"id":"m%d","action":"refund","payload":{"payment_id":"p%d"}}`, i, i),
		})
	}
	return messages
}

func run(t *testing.T, s importer.Source, d *ingest, clock *waits) *importer.Run {
	t.Helper()
	return &importer.Run{
		Source: s, Send: d.Send, Catalog: everything(t), MaxBytes: 1 << 20, Patience: time.Minute, Now: clock.now,
		After: clock.after, Progress: func(importer.Report) {},
	}
}

func TestAcceptedMessagesAreRemovedAndRefusedOnesStayWithTheirReason(t *testing.T) {
	t.Parallel()
	s := &store{waiting: refunds(250)}
	d := &ingest{answer: func(_ int, items []importer.Item) ([]importer.Result, error) {
		results := all(202, items)
		for i, item := range items {
			if strings.Contains(string(item.Message), `"m7"`) {
				results[i] = importer.Result{
					Status: 422, Code: "contract_broken",
					Violations: []pii.Violation{{Path: "payload.email", Rule: "undeclared"}},
				}
			}
		}
		return results, nil
	}}
	report := filetest.Must(run(t, s, d, &waits{at: now}).Do(t.Context()))(t)
	require.Equal(t, 249, report.Moved)
	require.Equal(t, map[string]int{"pay-refund-initiation": 249}, report.Queues)
	require.Equal(t, map[string]int{"contract_broken payload.email: undeclared": 1}, report.Reasons)
	require.Equal(t, []importer.Refusal{{
		Queue: "pay-refund-initiation", Part: importer.Waiting, EventID: "m7", Code: "contract_broken",
		Fields: []string{"payload.email: undeclared"},
	}}, report.Refusals)
	require.Equal(t, []string{"7"}, s.refused)
	require.Len(t, s.accepted, 249)
	require.True(t, slices.IsSortedFunc(d.requests, func(a, b []importer.Item) int { return len(b) - len(a) }))
	require.Len(t, d.requests[0], 100, "as many as it takes")
}

func TestRunEndsAsTheWebhookServiceAnswers(t *testing.T) {
	t.Parallel()
	type answer = func(stop context.CancelFunc, call int, items []importer.Item) ([]importer.Result, error)
	accepted := func(items []importer.Item) ([]importer.Result, error) { return all(202, items), nil }
	type example struct {
		waiting, requests, moved, unknown int
		answer                            answer
		is                                error
		says                              string
		slept                             []time.Duration
	}
	filetest.Each(t, map[string]example{
		"a message that is refused for now is sent again, alone, after the requested time": {
			waiting: 3, requests: 2, moved: 3, slept: []time.Duration{7 * time.Second},
			answer: func(_ context.CancelFunc, call int, items []importer.Item) ([]importer.Result, error) {
				results := all(202, items)
				if call == 1 {
					results[1] = importer.Result{Status: 429, RetryAfter: 7}
				} else if len(items) != 1 || !strings.Contains(string(items[0].Message), `"m1"`) {
					return nil, importer.ErrClosed
				}
				return results, nil
			},
		},
		"a service that does not answer is retried until patience ends": {
			waiting: 3, requests: 6, unknown: 3, says: "gave up waiting for the webhook service: connection refused",
			slept: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second},
			answer: func(context.CancelFunc, int, []importer.Item) ([]importer.Result, error) {
				return nil, errors.New("connection refused")
			},
		},
		"a service that refuses every message ends the run": {
			waiting: 3, requests: 1, unknown: 3, is: importer.ErrClosed,
			answer: func(context.CancelFunc, int, []importer.Item) ([]importer.Result, error) {
				return nil, fmt.Errorf("%w: it answers 401", importer.ErrClosed)
			},
		},
		"another number of results counts as no answer": {
			waiting: 3, requests: 1, unknown: 3, is: importer.ErrClosed,
			answer: func(_ context.CancelFunc, _ int, items []importer.Item) ([]importer.Result, error) {
				return accepted(items[1:])
			},
		},
		"a run that is stopped finishes the requests in flight": {
			waiting: 250, requests: 2, moved: 200, is: context.Canceled,
			answer: func(stop context.CancelFunc, call int, items []importer.Item) ([]importer.Result, error) {
				if call == 2 {
					stop() // and the service may still answer
				}
				return accepted(items)
			},
		},
	}, func(t *testing.T, test example) {
		s, clock := &store{waiting: refunds(test.waiting)}, &waits{at: now}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		d := &ingest{answer: func(call int, items []importer.Item) ([]importer.Result, error) {
			return test.answer(stop, call, items)
		}}
		report, err := run(t, s, d, clock).Do(ctx)
		require.True(t, test.says == "" || strings.Contains(err.Error(), test.says))
		require.True(t, test.says != "" || errors.Is(err, test.is), "%v", err)
		require.Equal(t, []int{test.requests, test.moved, test.unknown},
			[]int{len(d.requests), report.Moved, report.Unknown})
		require.Len(t, s.accepted, test.moved)
		require.Empty(t, s.refused)
		require.Equal(t, test.slept, clock.slept)
	})
}

func TestRequestIsOfOneQueueAndWithinTheSizeLimit(t *testing.T) {
	t.Parallel()
	mixed := refunds(4)
	mixed[1].Queue, mixed[1].Body = "sub-usage-sync",
		[]byte(`{"id":"u1","action":"usage_sync","payload":{"subscription_id":"s"}}`)
	mixed[3].Body = fmt.Appendf(nil, `{"id":"large","action":"refund","payload":{"payment_id":%q}}`,
		strings.Repeat("x", 4000))
	s, d := &store{waiting: mixed}, newIngest()
	r := run(t, s, d, &waits{at: now})
	r.MaxBytes = 1024 + 2*400
	report := filetest.Must(r.Do(t.Context()))(t)
	require.Equal(t, []string{"pay-refund-initiation", "sub-usage-sync"}, d.queues)
	require.Equal(t, map[string]int{"too_large": 1}, report.Reasons)
	require.Equal(t, []string{"3"}, s.refused)
}

// ofOld is a row of testdata/messages.yaml.
type ofOld struct {
	What, Queue, Part, Type, ID, Body, As, Want, Refused string

	Content                     bool
	Attempts, MaxAttempts, Most int
	Due, Later, Created         *time.Duration
	Members                     map[string]string
}

func TestOldMessageIsComposedForTheWebhookService(t *testing.T) {
	t.Parallel()
	after := func(d *time.Duration) time.Time {
		if d == nil {
			return time.Time{}
		}
		return now.Add(*d)
	}
	for _, test := range filetest.YAML[[]ofOld](t, "testdata", "messages.yaml") {
		s, d := &store{waiting: []importer.Message{{
			Queue: test.Queue, Part: importer.Part(test.Part), Type: test.Type, ID: test.ID, Body: []byte(test.Body),
			Content:  test.Content,
			Attempts: test.Attempts, MaxAttempts: test.MaxAttempts, Due: after(test.Due), Created: after(test.Created),
		}}}, newIngest()
		r := run(t, s, d, &waits{at: now})
		r.Compose = importer.Composer{Type: test.As, Members: test.Members}
		report, err := r.Do(t.Context())
		require.NoError(t, err, test.What)
		if test.Refused != "" {
			require.Equal(t, map[string]int{test.Refused: 1}, report.Reasons, test.What)
			require.Empty(t, d.requests, test.What)
			continue
		}
		item := d.requests[0][0]
		require.JSONEq(t, test.Want, string(item.Message), test.What)
		require.Equal(t, []any{after(test.Later), test.Most}, []any{item.DeliverAt, item.MaxAttempts}, test.What)
	}
}

const secret = "import-secret-of-more-than-24-bytes"

func ingestAt(t *testing.T, answer http.HandlerFunc) *importer.HTTPIngest {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	signer := filetest.Must(signature.NewSigner(signature.Generic, secret))(t)
	return &importer.HTTPIngest{
		Base: server.URL, Signer: signer, Client: server.Client(), Now: func() time.Time { return now },
	}
}

func TestMessagesArePostedSignedAndEachResultIsRead(t *testing.T) {
	t.Parallel()
	verifier, err := signature.NewVerifier(signature.Generic, []string{secret}, time.Minute, func() time.Time {
		return now
	})
	require.NoError(t, err)
	var path string
	var body []byte
	ingest := ingestAt(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		body, _ = io.ReadAll(r.Body)
		if verifier.Verify(r.Header.Values, body) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"results":[{"status":202,"event_id":"a","message_id":"1"},{"status":422,`+
			`"code":"contract_broken","detail":"d","violations":[{"path":"payload.email","rule":"undeclared"}]},`+
			`{"status":503,"code":"key_held_up","retry_after":5}]}`)
	})
	results, err := ingest.Send(t.Context(), "orders", []importer.Item{
		{Message: []byte(`{"id":"a","n":1.0}`), DeliverAt: now.Add(time.Hour), MaxAttempts: 3},
		{Message: []byte(`{"id":"b"}`)},
	})
	require.NoError(t, err)
	require.Equal(t, "/queues/orders/messages", path)
	require.JSONEq(t, `{"messages":[{"message":{"id":"a","n":1.0},"deliver_at":"2026-11-22T13:00:00Z",`+
		`"max_attempts":3},{"message":{"id":"b"}}]}`, string(body))
	require.Equal(t, []importer.Result{
		{Status: 202, EventID: "a", MessageID: "1"},
		{
			Status: 422, Code: "contract_broken", Detail: "d",
			Violations: []pii.Violation{{Path: "payload.email", Rule: "undeclared"}},
		},
		{Status: 503, Code: "key_held_up", RetryAfter: 5},
	}, results)
}

func TestAnswerToTheWholeRequestIsRetriedRefusedOrFinal(t *testing.T) {
	t.Parallel()
	for _, test := range filetest.YAML[[]struct {
		What, Body    string
		Status, Items int
		Want          importer.Result
	}](t, "testdata", "answers.yaml") {
		ingest := ingestAt(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(test.Status)
			_, _ = io.WriteString(w, cmp.Or(test.Body, `{"code":"c"}`))
		})
		items := slices.Repeat([]importer.Item{{Message: []byte(`{}`)}}, test.Items)
		results, err := ingest.Send(t.Context(), "orders", items)
		if test.Want.Status == 0 {
			require.ErrorIs(t, err, importer.ErrClosed, test.What)
			continue
		}
		require.NoError(t, err, test.What)
		require.Equal(t, slices.Repeat([]importer.Result{test.Want}, test.Items), results, test.What)
	}
}
