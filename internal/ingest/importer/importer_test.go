package importer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/ingest/importer"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// everything is the shipped catalog with every queue enabled.
func everything(t *testing.T) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for i := range c.Queues {
		c.Queues[i].Enabled = true
	}
	return c
}

// store is a source in memory.
type store struct {
	waiting, claimed []importer.Message
	accepted         []string
	refused          []string
	limits           []int
	cut              error
}

func (s *store) Look(context.Context, int) ([]importer.Place, []importer.Message, error) {
	return nil, s.waiting, nil
}

func (s *store) Take(_ context.Context, limit int) ([]importer.Message, error) {
	s.limits = append(s.limits, limit)
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
	return s.cut
}

// door answers each request by the function.
type door struct {
	answer   func(call int, queue string, items []importer.Item) ([]importer.Result, error)
	requests [][]importer.Item
	queues   []string
}

func (d *door) Send(_ context.Context, queue string, items []importer.Item) ([]importer.Result, error) {
	d.requests, d.queues = append(d.requests, items), append(d.queues, queue)
	return d.answer(len(d.requests), queue, items)
}

func all(status int, items []importer.Item) []importer.Result {
	results := make([]importer.Result, len(items))
	for i := range results {
		results[i] = importer.Result{Status: status, Code: "code"}
	}
	return results
}

// waits is a clock that goes on when somebody waits.
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

func run(t *testing.T, s importer.Source, d importer.Door, clock *waits) *importer.Run {
	t.Helper()
	return &importer.Run{
		Source: s, Door: d, Catalog: everything(t), MaxBytes: 1 << 20, Patience: time.Minute, Now: clock.now, After: clock.after, Progress: func(importer.Report) {},
	}
}

func TestWhatIsAcceptedIsRemovedAndWhatIsRefusedStaysWithItsReason(t *testing.T) {
	t.Parallel()
	s := &store{waiting: refunds(250)}
	d := &door{answer: func(_ int, _ string, items []importer.Item) ([]importer.Result, error) {
		results := all(202, items)
		for i, item := range items {
			if strings.Contains(string(item.Message), `"m7"`) {
				results[i] = importer.Result{Status: 422, Code: "contract_broken", Fields: []string{"payload.email: undeclared"}}
			}
		}
		return results, nil
	}}
	report, err := run(t, s, d, &waits{at: now}).Do(t.Context())
	require.NoError(t, err)
	require.Equal(t, 249, report.Moved)
	require.Equal(t, map[string]int{"pay-refund-initiation": 249}, report.Queues)
	require.Equal(t, map[string]int{"contract_broken payload.email: undeclared": 1}, report.Reasons)
	require.Equal(t, []importer.Refusal{{
		Queue: "pay-refund-initiation", Part: importer.Waiting, EventID: "m7", Code: "contract_broken", Fields: []string{"payload.email: undeclared"},
	}}, report.Refusals)
	require.Equal(t, []string{"7"}, s.refused)
	require.Len(t, s.accepted, 249)
	require.True(t, slices.IsSortedFunc(d.requests, func(a, b []importer.Item) int { return len(b) - len(a) }))
	require.Len(t, d.requests[0], 100, "as many as the door takes")
}

func TestOnlyWhatTheDoorCouldNotTakeYetIsSentAgain(t *testing.T) {
	t.Parallel()
	s, clock := &store{waiting: refunds(3)}, &waits{at: now}
	d := &door{answer: func(call int, _ string, items []importer.Item) ([]importer.Result, error) {
		results := all(202, items)
		if call == 1 {
			results[1] = importer.Result{Status: 429, RetryAfter: 7 * time.Second}
		}
		return results, nil
	}}
	report, err := run(t, s, d, clock).Do(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, report.Moved)
	require.Equal(t, []time.Duration{7 * time.Second}, clock.slept, "as long as the door asked")
	require.Len(t, d.requests[1], 1)
	require.Contains(t, string(d.requests[1][0].Message), `"m1"`)
}

func TestADoorThatDoesNotAnswerIsWaitedForAsLongAsPatienceLasts(t *testing.T) {
	t.Parallel()
	s, clock := &store{waiting: refunds(3)}, &waits{at: now}
	d := &door{answer: func(int, string, []importer.Item) ([]importer.Result, error) {
		return nil, errors.New("connection refused")
	}}
	report, err := run(t, s, d, clock).Do(t.Context())
	require.ErrorContains(t, err, "gave up waiting for the door: connection refused")
	require.Equal(t, importer.Report{Queues: map[string]int{}, Reasons: map[string]int{}, Unknown: 3}, report)
	require.Empty(t, s.accepted)
	require.Empty(t, s.refused, "nothing is known of them")
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}, clock.slept)
}

func TestADoorThatRefusesEveryMessageEndsTheRun(t *testing.T) {
	t.Parallel()
	s, clock := &store{waiting: refunds(3)}, &waits{at: now}
	d := &door{answer: func(int, string, []importer.Item) ([]importer.Result, error) {
		return nil, fmt.Errorf("%w: it answers 401", importer.ErrClosed)
	}}
	_, err := run(t, s, d, clock).Do(t.Context())
	require.ErrorIs(t, err, importer.ErrClosed)
	require.Len(t, d.requests, 1)
	require.Empty(t, s.accepted)
}

func TestResultsOfAnotherNumberProveNothing(t *testing.T) {
	t.Parallel()
	s := &store{waiting: refunds(3)}
	d := &door{answer: func(_ int, _ string, items []importer.Item) ([]importer.Result, error) {
		return all(202, items[1:]), nil
	}}
	_, err := run(t, s, d, &waits{at: now}).Do(t.Context())
	require.ErrorIs(t, err, importer.ErrClosed)
	require.Empty(t, s.accepted)
}

func TestARunThatIsStoppedFinishesWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	s := &store{waiting: refunds(250)}
	ctx, stop := context.WithCancel(t.Context())
	d := &door{answer: func(call int, _ string, items []importer.Item) ([]importer.Result, error) {
		if call == 2 {
			stop()
		}
		return all(202, items), nil
	}}
	report, err := run(t, s, d, &waits{at: now}).Do(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 200, report.Moved)
	require.Zero(t, report.Unknown)
	require.Len(t, s.accepted, 200)
}

// slow answers when its request has not ended.
type slow struct{ stop context.CancelFunc }

func (s slow) Send(ctx context.Context, _ string, items []importer.Item) ([]importer.Result, error) {
	s.stop()
	return all(202, items), ctx.Err()
}

func TestADoorIsGivenTheTimeToAnswerARunThatIsStopped(t *testing.T) {
	t.Parallel()
	s := &store{waiting: refunds(3)}
	ctx, stop := context.WithCancel(t.Context())
	_, err := run(t, s, slow{stop}, &waits{at: now}).Do(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, s.accepted, 3)
}

func TestARequestIsOfOneQueueAndNoLargerThanTheDoorTakes(t *testing.T) {
	t.Parallel()
	mixed := refunds(4)
	mixed[1].Queue, mixed[1].Body = "sub-usage-sync", []byte(`{"id":"u1","action":"usage_sync","payload":{"subscription_id":"s"}}`)
	mixed[3].Body = fmt.Appendf(nil, `{"id":"large","action":"refund","payload":{"payment_id":%q}}`, strings.Repeat("x", 4000))
	s := &store{waiting: mixed}
	d := &door{answer: func(_ int, _ string, items []importer.Item) ([]importer.Result, error) { return all(202, items), nil }}
	r := run(t, s, d, &waits{at: now})
	r.MaxBytes = 1024 + 2*400
	report, err := r.Do(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"pay-refund-initiation", "sub-usage-sync"}, d.queues)
	require.Equal(t, map[string]int{"too_large": 1}, report.Reasons)
	require.Equal(t, []string{"3"}, s.refused)
}

func TestEachMessageOfOldBecomesWhatTheDoorTakes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		message importer.Message
		compose importer.Composer
		want    string
		due     time.Time
		most    int
		refused string
	}{
		"an envelope as it is": {
			message: importer.Message{Queue: "sub-plan-change", Body: []byte(`{"id":"a","action":"upgrade","correlation_id":null,"attempts":2,"created_at":"2026-11-01T00:00:00","payload":{"subscription_id":"s"}}`)},
			want:    `{"id":"a","action":"upgrade","attempts":2,"created_at":"2026-11-01T00:00:00","payload":{"subscription_id":"s"}}`,
		},
		"an envelope that its worker never finished": {
			message: importer.Message{Queue: "sub-plan-change", Part: importer.Claimed, Body: []byte(`{"id":"a","action":"upgrade","attempts":2,"payload":{}}`)},
			want:    `{"id":"a","action":"upgrade","attempts":3,"created_at":"2026-11-22T12:00:00Z","payload":{}}`,
		},
		"an envelope that has failed": {
			message: importer.Message{Queue: "sub-plan-change", Part: importer.Failed, Body: []byte(`{"id":"a","action":"upgrade","attempts":5,"payload":{}}`)},
			want:    `{"id":"a","action":"upgrade","attempts":0,"created_at":"2026-11-22T12:00:00Z","payload":{}}`,
		},
		"a raw message, whose queue has one type": {
			message: importer.Message{Queue: "pay-refund-initiation", ID: "made", Created: now, Body: []byte(`{"payment_id":"p","amount":"1.00"}`)},
			want:    `{"id":"made","action":"refund","attempts":0,"created_at":"2026-11-22T12:00:00Z","payload":{"payment_id":"p","amount":"1.00"}}`,
		},
		"a raw message with what an envelope has beside the payload": {
			message: importer.Message{Queue: "sub-plan-change", ID: "made", Body: []byte(`{"action":"upgrade","attempts":1,"idempotency_key":"k","subscription_id":"s"}`)},
			want:    `{"id":"made","action":"upgrade","attempts":1,"created_at":"2026-11-22T12:00:00Z","idempotency_key":"k","payload":{"subscription_id":"s"}}`,
		},
		"a raw message of a queue with several types": {
			message: importer.Message{Queue: "sub-plan-change", ID: "made", Body: []byte(`{"subscription_id":"s"}`)}, refused: "no_type",
		},
		"the same with --type": {
			message: importer.Message{Queue: "sub-plan-change", ID: "made", Body: []byte(`{"subscription_id":"s"}`)}, compose: importer.Composer{Type: "downgrade"},
			want: `{"id":"made","action":"downgrade","attempts":0,"created_at":"2026-11-22T12:00:00Z","payload":{"subscription_id":"s"}}`,
		},
		"a message of the queue design": {
			message: importer.Message{Queue: "orders-process", Attempts: 3, Body: []byte(`{"id":"m","type":"order.created","version":1,"timestamp":"2026-11-22T12:00:00Z","data":{"order_id":"o"},"metadata":{"attempt":2,"max_retries":5}}`)},
			want:    `{"id":"m","type":"order.created","version":1,"timestamp":"2026-11-22T12:00:00Z","data":{"order_id":"o"},"metadata":{"attempt":4,"max_retries":5}}`,
		},
		"its first attempt": {
			message: importer.Message{Queue: "orders-process", Type: "order.created", ID: "made", Body: []byte(`{"order_id":"o"}`)},
			want:    `{"id":"made","type":"order.created","version":1,"timestamp":"2026-11-22T12:00:00Z","data":{"order_id":"o"},"metadata":{"attempt":1}}`,
		},
		"a row": {
			message: importer.Message{Queue: "events-normal", Content: true, Type: "quota_warning", ID: "t-7", Attempts: 1, MaxAttempts: 2, Due: now.Add(time.Hour), Body: []byte(`{"id":"x","type":"y"}`)},
			want:    `{"id":"t-7","type":"quota_warning","version":1,"timestamp":"2026-11-22T12:00:00Z","data":{"id":"x","type":"y"},"metadata":{"attempt":2}}`, due: now.Add(time.Hour), most: 2,
		},
		"a limit above the queue's, and a time that has come": {
			message: importer.Message{Queue: "events-normal", Content: true, Type: "quota_warning", ID: "t-7", MaxAttempts: 5, Due: now, Body: []byte(`{}`)},
			want:    `{"id":"t-7","type":"quota_warning","version":1,"timestamp":"2026-11-22T12:00:00Z","data":{},"metadata":{"attempt":1}}`,
		},
		"members renamed and left out": {
			message: importer.Message{Queue: "events-normal", Content: true, Type: "quota_warning", ID: "t", Body: []byte(`{"subscriptionId":"s","email":"a@b.c","percent":80}`)},
			compose: importer.Composer{Members: map[string]string{"subscriptionId": "subscription_id", "email": ""}},
			want:    `{"id":"t","type":"quota_warning","version":1,"timestamp":"2026-11-22T12:00:00Z","data":{"subscription_id":"s","percent":80},"metadata":{"attempt":1}}`,
		},
		"two members of one name": {
			message: importer.Message{Queue: "events-normal", Content: true, Type: "quota_warning", ID: "t", Body: []byte(`{"a":1,"b":2}`)},
			compose: importer.Composer{Members: map[string]string{"a": "b"}}, refused: "member_twice",
		},
		"no JSON":           {message: importer.Message{Queue: "sub-plan-change", Body: []byte(`gASVIAAAAAAAAAB9`)}, refused: "not_an_object"},
		"a list":            {message: importer.Message{Queue: "sub-plan-change", Body: []byte(`[1]`)}, refused: "not_an_object"},
		"attempts that lie": {message: importer.Message{Queue: "sub-plan-change", Body: []byte(`{"id":"a","action":"upgrade","attempts":-1,"payload":{}}`)}, refused: "bad_attempts"},
		"nobody's":          {message: importer.Message{Queue: "", Body: []byte(`{}`)}, refused: "no_queue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &store{waiting: []importer.Message{test.message}}
			d := &door{answer: func(_ int, _ string, items []importer.Item) ([]importer.Result, error) { return all(202, items), nil }}
			r := run(t, s, d, &waits{at: now})
			r.Compose = test.compose
			report, err := r.Do(t.Context())
			require.NoError(t, err)
			if test.refused != "" {
				require.Equal(t, map[string]int{test.refused: 1}, report.Reasons)
				require.Empty(t, d.requests)
				return
			}
			item := d.requests[0][0]
			require.JSONEq(t, test.want, string(item.Message))
			require.True(t, json.Valid(item.Message))
			require.Equal(t, test.due, item.DeliverAt)
			require.Equal(t, test.most, item.MaxAttempts)
		})
	}
}
