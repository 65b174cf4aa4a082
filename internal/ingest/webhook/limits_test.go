package webhook_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/contract/routing"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
)

type limited struct {
	*webhook.Limits
	metrics *telemetry.Metrics
}

func instance(shared store.Store, now func() time.Time) limited {
	metrics := telemetry.NewMetrics()
	return limited{webhook.NewLimits(webhook.Config{
		Blocks: shared, Store: shared, Log: slog.New(slog.DiscardHandler), Metrics: metrics, Now: now,
	}), metrics}
}

func (l limited) refusal(ctx context.Context, t require.TestingT, q catalog.Queue, user string) string {
	err := l.Admit(ctx, q, user)
	if err == nil {
		return ""
	}
	problem, ok := errors.AsType[*serve.Problem](err)
	require.True(t, ok)
	require.Equal(t, http.StatusTooManyRequests, problem.Status)
	require.Equal(t, map[string]int{
		"queue_full": 60, "queue_rate_limited": 1, "user_rate_limited": 1,
	}[problem.Code], problem.RetryAfter)
	return problem.Code
}

func (l limited) admitted(t *testing.T, q catalog.Queue, messages int) (n int) {
	t.Helper()
	for range messages {
		if l.refusal(t.Context(), t, q, "") == "" {
			n++
		}
	}
	return n
}

func perSecond(rate int) catalog.Queue {
	return catalog.Queue{ID: "orders", Rate: catalog.Rate{PerSecond: rate}}
}

func perUser(rate int) catalog.Queue {
	return catalog.Queue{ID: "orders", Rate: catalog.Rate{PerUser: rate, User: []string{"user_id"}}}
}

// free is the part of a limit that an instance admits without the store.
func free(perSecond int) int { return max(1, perSecond/100) }

// The error of the limits, as docs/why/decisions.md states it: in a second of the clock instances admit at
// most the limit and the free share of each. They refuse once at least eight ninths of the limit were
// admitted, less one block for each other instance.
func TestInstancesTogetherKeepToTheirLimits(t *testing.T) {
	t.Parallel()
	shared := storetest.Open(t)
	var queues atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.SampledFrom([]int{0, 1, 3, 49, 50, 51, 120, 500}).Draw(t, "per second")
		perUser := rapid.IntRange(0, 5).Draw(t, "per user")
		q := catalog.Queue{
			ID:   fmt.Sprint("orders-", queues.Add(1)),
			Rate: catalog.Rate{PerSecond: rate, PerUser: perUser, User: []string{"user_id"}},
		}
		now := fixed
		instances := make([]limited, rapid.IntRange(1, 10).Draw(t, "instances"))
		for i := range instances {
			instances[i] = instance(shared, func() time.Time { return now })
		}
		for range rapid.IntRange(1, 3).Draw(t, "seconds") {
			admitted, byUser := 0, map[string]int{}
			for range rapid.IntRange(1, 2+rate*3/2).Draw(t, "messages") {
				// Fewer draws are faster, and instance and user need no shrinking of their own.
				at := rapid.Uint16().Draw(t, "at")
				user := ""
				if perUser > 0 && at%3 > 0 {
					user = fmt.Sprint("usr_", int(at>>8)%4)
				}
				switch instances[int(at)%len(instances)].refusal(t.Context(), t, q, user) {
				case "":
					admitted++
					byUser[user]++
				case "queue_rate_limited":
					require.Positive(t, rate)
					block := (rate + 49) / 50
					require.GreaterOrEqual(t, 9*admitted, 8*(rate-(len(instances)-1)*block), "refused too early")
				case "user_rate_limited":
					require.NotEmpty(t, user)
					require.Positive(t, perUser)
				default:
					require.Fail(t, "an unexpected refusal")
				}
			}
			if rate > 0 {
				require.LessOrEqual(t, admitted, rate+len(instances)*free(rate))
			}
			delete(byUser, "")
			for _, n := range byUser {
				require.LessOrEqual(t, n, perUser+len(instances)*free(perUser))
			}
			now = now.Add(time.Second)
		}
	})
	for _, doc := range storetest.All(t, shared, webhook.BlocksCollection) {
		require.NotContains(t, doc.Key.ID, "usr_", "no document names a user")
		require.Len(t, doc.Fields, 1)
		require.WithinDuration(t, fixed.Add(time.Minute), doc.Fields["expire_at"].(time.Time), 2*time.Second)
	}
}

func TestSingleInstanceAdmitsTheWholeLimit(t *testing.T) {
	t.Parallel()
	shared := &storetest.Counter{Store: storetest.Open(t)}
	now := fixed
	one := instance(shared, func() time.Time { return now })
	q := perSecond(500)
	for range 3 {
		shared.Commits.Store(0)
		shared.Written.Store(0)
		require.Equal(t, 500+free(500), one.admitted(t, q, 500+free(500)))
		// The costs that docs/why/decisions.md states.
		require.Equal(t, int64(50), shared.Written.Load(), "blocks")
		require.Equal(t, int64(27), shared.Commits.Load(), "round trips")
		for i := range 100 { // also on a clock that is set back
			now = now.Add(-time.Duration(i%3) * time.Second)
			require.Equal(t, "queue_rate_limited", one.refusal(t.Context(), t, q, ""))
			now = now.Add(time.Duration(i%3) * time.Second)
		}
		require.Equal(t, int64(27), shared.Commits.Load(),
			"an instance that knows that nothing is left does not commit")
		now = now.Add(time.Second)
	}
	for range 60 { // a low rate does not need the store
		for user := range 5 {
			low := perUser(5)
			low.Rate.PerSecond = 500
			require.Empty(t, one.refusal(t.Context(), t, low, strconv.Itoa(user)))
		}
		now = now.Add(time.Second)
	}
	require.Equal(t, int64(27), shared.Commits.Load())
	require.Zero(t, shared.Queries.Load()+shared.Gets.Load())
}

func TestManyRequestsAtOnceOnManyInstancesKeepToTheLimit(t *testing.T) {
	t.Parallel()
	const instances, rate = 8, 300
	shared := storetest.Open(t)
	var admitted atomic.Int64
	var group sync.WaitGroup
	for range instances {
		one := instance(shared, func() time.Time { return fixed })
		for range 10 {
			group.Go(func() { admitted.Add(int64(one.admitted(t, perSecond(rate), rate/4))) })
		}
	}
	group.Wait()
	require.LessOrEqual(t, admitted.Load(), int64(rate+instances*free(rate)))
	require.GreaterOrEqual(t, admitted.Load(), int64(rate), "there were more messages than the limit")
}

func TestUsersBeyondTheCountedOnesAreNotLimited(t *testing.T) {
	t.Parallel()
	now := fixed
	one := instance(storetest.Open(t), func() time.Time { return now })
	refusal := func(user string) string { return one.refusal(t.Context(), t, perUser(1), user) }
	for user := range 10_000 {
		require.Empty(t, refusal(strconv.Itoa(user)))
	}
	for range 10 {
		require.Empty(t, refusal("one more"))
	}
	require.Empty(t, refusal("0"))
	require.Equal(t, "user_rate_limited", refusal("0"), "a counted user stays limited")
	now = now.Add(time.Second)
	require.Equal(t, []string{"", "", "user_rate_limited"},
		[]string{refusal("one more"), refusal("one more"), refusal("one more")})
}

func TestLimitsRefuseNothingWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	faults := &storetest.Faults{Store: storetest.Open(t)}
	commits := 0
	faults.OnCommit = func(ctx context.Context, _ []store.Write, do func() error) error {
		commits++
		_, bounded := ctx.Deadline()
		require.True(t, bounded, "the commit has a deadline")
		return do()
	}
	counter := &storetest.Counter{Store: faults}
	now := fixed
	one := instance(counter, func() time.Time { return now })
	faults.Down(true)
	require.Equal(t, 200, one.admitted(t, perSecond(50), 200))
	require.Equal(t, int64(1), counter.Commits.Load(), "it is tried once in a second")
	faults.Down(false)
	require.Equal(t, 200, one.admitted(t, perSecond(50), 200))
	now = now.Add(time.Second)
	require.Equal(t, 50+free(50), one.admitted(t, perSecond(50), 200))
	require.Positive(t, commits)
	require.Contains(t, (&service{metrics: one.metrics}).scrape(t),
		`billhook_limits_unknown_total{limit="rate",queue="orders"} 1`)
}

var full = catalog.Queue{
	ID: "orders", MaxBacklog: catalog.MaxBacklog{Messages: 100, OnFull: catalog.RefuseMore},
}

func TestFullQueueRefusesWhereItsBoundSaysSoByACountOfTenSeconds(t *testing.T) {
	t.Parallel()
	faults := &storetest.Faults{Store: storetest.Open(t)}
	counter := &storetest.Counter{Store: faults}
	now := fixed
	one := instance(counter, func() time.Time { return now })
	require.Equal(t, 1, one.admitted(t, full, 1), "the backlog was not counted yet")
	waiting := map[string]backlog.Held{
		full.ID: {Messages: 100}, "one-below": {Messages: 99}, "alert-alone": {Messages: 100},
		"boundless": {Messages: 1 << 40},
	}
	require.NoError(t, backlog.Write(t.Context(), faults, now, waiting))
	for _, step := range []struct {
		sentence string
		after    time.Duration
		admitted int
		gets     int64
		down     bool
	}{
		{"the last count is used", 9 * time.Second, 100, 1, false},
		{"and read again", time.Second, 0, 2, false},
		{"an older count is used while the store is down", backlog.GoodFor - 10*time.Second, 0, 3, true},
		{"until it is too old", 11 * time.Second, 100, 4, true},
	} {
		faults.Down(step.down)
		now = now.Add(step.after)
		require.Equal(t, step.admitted, one.admitted(t, full, 100), step.sentence)
		require.Equal(t, step.gets, counter.Gets.Load(), step.sentence)
		for id, onFull := range map[string]catalog.OnFull{
			"one-below": catalog.RefuseMore, "alert-alone": catalog.AlertAlone, "boundless": "",
			"uncounted": catalog.RefuseMore,
		} {
			bound := catalog.MaxBacklog{Messages: 100, OnFull: onFull}
			require.Equal(t, 1, one.admitted(t, catalog.Queue{ID: id, MaxBacklog: bound}, 1), id)
		}
	}
	require.Contains(t, (&service{metrics: one.metrics}).scrape(t),
		`billhook_limits_unknown_total{limit="backlog",queue="orders"} 2`)
}

func TestBurstOfPayNowIsAccepted(t *testing.T) {
	t.Parallel()
	d, body := open(t, nil), samples.Read(samples.OrderCompleted, samples.Event{})
	for range 1500 {
		require.Equal(t, http.StatusAccepted, d.send(payNow(t, body)).Code)
	}
}

func TestRateLimitCountsOnlySignedRequests(t *testing.T) {
	t.Parallel()
	now := fixed
	d := open(t, func(c *webhook.Config) {
		source("paynow", func(s *catalog.Source) { s.RatePerSecond, s.Burst = 1, 1 })(c)
		c.Now = func() time.Time { return now }
	})
	body := samples.Read(samples.OrderCompleted, samples.Event{})
	for range 5 {
		r := payNow(t, body)
		r.Header.Set("PayNow-Signature", base64.StdEncoding.EncodeToString(make([]byte, 32)))
		requireProblem(t, d, d.send(r), http.StatusUnauthorized, "signature_mismatch", "")
	}
	require.Equal(t, http.StatusAccepted, d.send(payNow(t, body)).Code)
	w := d.send(payNow(t, body))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Contains(t, w.Body.String(), `"rate_limited"`)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Len(t, d.broker.all(), 1)
	requireNothingLeaks(t, d, w, "")

	now = now.Add(time.Second)
	require.Equal(t, http.StatusAccepted, d.send(payNow(t, body)).Code)
}

// A producer has a rate for each queue, so that analytics do not hold up orders.
func TestFloodIntoOneQueueRefusesNothingOfAnother(t *testing.T) {
	t.Parallel()
	const second = "orders-seen"
	filetest.Each(t, map[string]string{
		"over its own path": "/queues/" + second + "/messages", "over their shared topic": onOrders,
	}, func(t *testing.T, flood string) {
		d := open(t, func(c *webhook.Config) {
			producing()(c)
			queueOf("orders-process", func(q *catalog.Queue) { q.Bindings = []routing.Pattern{"order.shipped"} })(c)
			q, _ := c.Catalog.Queue("orders-process")
			q.ID, q.Alias, q.Bindings = second, "", []routing.Pattern{"order.created"}
			c.Catalog.Queues = append(slices.Clip(c.Catalog.Queues), q)
			source("generic", func(s *catalog.Source) { s.RatePerSecond, s.Burst = 1, 20 })(c)
		})
		refused := 0
		for i := range 60 {
			created := fmt.Appendf(nil,
				`{"id":"flood_%d","type":"order.created","version":1,"data":{"order_id":"o1","user_id":"u1"}}`, i)
			if d.send(generic(t, flood, created)).Code == http.StatusTooManyRequests {
				refused++
			}
		}
		require.Equal(t, 40, refused)
		for i := range 20 {
			accepted(t, d, generic(t, toOrders,
				fmt.Appendf(nil, `{"id":"order_%d","type":"order.shipped","version":1,"data":{"order_id":"o2"}}`, i)))
		}
	})
}

func TestRefusedMessageOfAListHoldsBackItsKeyAlone(t *testing.T) {
	t.Parallel()
	by := func(order, user, id string) string {
		return fmt.Sprintf(`{"message":{"id":%q,"type":"order.created","version":1,"data":{"order_id":%q,`+
			`"user_id":%q}}}`, id, order, user)
	}
	shared := storetest.Open(t)
	d := open(t, func(c *webhook.Config) { // one is free, and the limit is one
		producing(func(q *catalog.Queue) { q.Rate.User, q.Rate.PerUser = []string{"user_id"}, 1 })(c)
		c.Store, c.Blocks = shared, shared
	})
	answer := d.list(t, toOrders, by("o1", "u1", "e0"), by("o1", "u1", "e1"), by("o1", "u1", "e2"),
		by("o1", "u2", "e3"), by("o2", "u2", "e4"), by("o2", "u2", "e5"))
	require.Equal(t, []string{"202", "202", "429user_rate_limited", "503key_held_up", "202", "202"},
		answer.codes(), "a held back message is not counted")

	_, message, _ := strings.Cut(strings.TrimSuffix(by("o3", "u1", "e6"), "}"), `"message":`)
	w := d.send(generic(t, toOrders, []byte(message)))
	require.Equal(t, []any{http.StatusTooManyRequests, "1"}, []any{w.Code, w.Header().Get("Retry-After")})
	require.Contains(t, w.Body.String(), `"user_rate_limited"`)
	require.Contains(t, d.scrape(t),
		`billhook_webhooks_total{reason="user_rate_limited",source="generic",status="429"} 2`)
}
