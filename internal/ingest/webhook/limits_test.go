package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
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
	"billhook/internal/ingest/webhook"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
)

// temporary is a store of the test's own.
func temporary(tb testing.TB) *standin.Store {
	tb.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(tb.TempDir(), "store.db"))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

// instance is the limits of one instance of the door.
func instance(shared store.Store, now func() time.Time) (*webhook.Limits, *telemetry.Metrics) {
	metrics := telemetry.NewMetrics()
	return webhook.NewLimits(webhook.LimitsConfig{
		Blocks: shared, Backlogs: shared, Log: slog.New(slog.DiscardHandler), Metrics: metrics, Now: now, Dice: rand.IntN,
	}), metrics
}

// code is that of a refusal; empty where there is none.
func code(t require.TestingT, err error) string {
	if err == nil {
		return ""
	}
	problem, ok := errors.AsType[*serve.Problem](err)
	require.True(t, ok)
	require.Equal(t, http.StatusTooManyRequests, problem.Status)
	require.Positive(t, problem.RetryAfter)
	return problem.Code
}

// free is what an instance lets through of a limit without asking the others.
func free(perSecond int) int { return max(1, perSecond/100) }

// The error of the limits, as docs/design.md states it: in a second of the clock instances let
// through at most the limit and the free share of each. A queue is refused where at least eight
// ninths of the limit were let through, less one block for each other instance.
func TestInstancesTogetherKeepToTheirLimits(t *testing.T) {
	t.Parallel()
	shared := temporary(t)
	var queues atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.SampledFrom([]int{0, 1, 3, 49, 50, 51, 120, 500}).Draw(t, "per second")
		perUser := rapid.IntRange(0, 5).Draw(t, "per user")
		q := catalog.Queue{ID: fmt.Sprint("orders-", queues.Add(1)), Rate: catalog.Rate{PerSecond: rate, PerUser: perUser, User: []string{"user_id"}}}
		now := fixed
		doors := make([]*webhook.Limits, rapid.IntRange(1, 10).Draw(t, "instances"))
		for i := range doors {
			doors[i], _ = instance(shared, func() time.Time { return now })
		}
		for range rapid.IntRange(1, 3).Draw(t, "seconds") {
			let, letUser := 0, map[string]int{}
			for range rapid.IntRange(1, 2+rate*3/2).Draw(t, "messages") {
				// Few values draw fast: where a message goes needs no shrinking of its own.
				at := rapid.Uint16().Draw(t, "at")
				user := ""
				if perUser > 0 && at%3 > 0 {
					user = strconv.Itoa(int(at>>8) % 4)
				}
				switch code(t, doors[int(at)%len(doors)].Admit(t.Context(), q, user)) {
				case "":
					let++
					letUser[user]++
				case "queue_rate_limited":
					require.Positive(t, rate)
					block := (rate + 49) / 50
					require.GreaterOrEqual(t, 9*let, 8*(rate-(len(doors)-1)*block), "refused too early")
				case "user_rate_limited":
					require.NotEmpty(t, user)
					require.Positive(t, perUser)
				default:
					require.Fail(t, "an answer that was not expected")
				}
			}
			if rate > 0 {
				require.LessOrEqual(t, let, rate+len(doors)*free(rate))
			}
			delete(letUser, "")
			for _, n := range letUser {
				require.LessOrEqual(t, n, perUser+len(doors)*free(perUser))
			}
			now = now.Add(time.Second)
		}
	})
}

func TestOneInstanceAloneMayHaveTheWholeLimit(t *testing.T) {
	t.Parallel()
	shared := &storetest.Counter{Store: temporary(t)}
	now := fixed
	door, _ := instance(shared, func() time.Time { return now })
	q := catalog.Queue{ID: "orders", Rate: catalog.Rate{PerSecond: 500}}
	for range 3 {
		shared.Commits.Store(0)
		shared.Written.Store(0)
		for range 500 + free(500) {
			require.NoError(t, door.Admit(t.Context(), q, ""))
		}
		// What docs/design.md says that it costs.
		require.Equal(t, int64(50), shared.Written.Load(), "blocks")
		require.Equal(t, int64(27), shared.Commits.Load(), "round trips")
		for range 100 {
			require.Equal(t, "queue_rate_limited", code(t, door.Admit(t.Context(), q, "")))
		}
		require.Equal(t, int64(27), shared.Commits.Load(), "who knows that there is nothing left does not ask")
		now = now.Add(time.Second)
	}
	require.Zero(t, shared.Queries.Load())
}

func TestALowRateAsksNobody(t *testing.T) {
	t.Parallel()
	shared := &storetest.Counter{Store: temporary(t)}
	now := fixed
	door, _ := instance(shared, func() time.Time { return now })
	q := catalog.Queue{ID: "orders", Rate: catalog.Rate{PerSecond: 500, PerUser: 5, User: []string{"user_id"}}}
	for range 60 {
		for user := range 5 {
			require.NoError(t, door.Admit(t.Context(), q, strconv.Itoa(user)))
		}
		now = now.Add(time.Second)
	}
	require.Zero(t, shared.Gets.Load()+shared.Commits.Load()+shared.Queries.Load())
}

func TestManyRequestsAtOnceOnManyInstancesKeepToTheLimit(t *testing.T) {
	t.Parallel()
	const doors, rate = 8, 300
	shared := temporary(t)
	q := catalog.Queue{ID: "orders", Rate: catalog.Rate{PerSecond: rate}}
	var let atomic.Int64
	var group sync.WaitGroup
	for range doors {
		door, _ := instance(shared, func() time.Time { return fixed })
		for range 10 {
			group.Go(func() {
				for range rate / 4 {
					if door.Admit(context.WithoutCancel(t.Context()), q, "") == nil {
						let.Add(1)
					}
				}
			})
		}
	}
	group.Wait()
	require.LessOrEqual(t, let.Load(), int64(rate+doors*free(rate)))
	require.GreaterOrEqual(t, let.Load(), int64(rate), "each instance had more than it could use")
}

func TestUsersBeyondThoseThatAreCountedAreNotLimitedEachForItself(t *testing.T) {
	t.Parallel()
	shared := &storetest.Counter{Store: temporary(t)}
	now := fixed
	door, _ := instance(shared, func() time.Time { return now })
	q := catalog.Queue{ID: "orders", Rate: catalog.Rate{PerUser: 1, User: []string{"user_id"}}}
	for user := range 10_000 {
		require.NoError(t, door.Admit(t.Context(), q, strconv.Itoa(user)))
	}
	for range 10 {
		require.NoError(t, door.Admit(t.Context(), q, "one more"))
	}
	require.NoError(t, door.Admit(t.Context(), q, "0"))
	require.Equal(t, "user_rate_limited", code(t, door.Admit(t.Context(), q, "0")), "who is counted stays limited")
	now = now.Add(time.Second)
	for range 2 {
		require.NoError(t, door.Admit(t.Context(), q, "one more"))
	}
	require.Equal(t, "user_rate_limited", code(t, door.Admit(t.Context(), q, "one more")))
}

func TestAUserStandsInNoDocument(t *testing.T) {
	t.Parallel()
	shared := temporary(t)
	door, _ := instance(shared, func() time.Time { return fixed })
	q := catalog.Queue{ID: "orders", Rate: catalog.Rate{PerUser: 5, User: []string{"user_id"}}}
	for range 4 {
		require.NoError(t, door.Admit(t.Context(), q, "usr_42"))
	}
	page, err := shared.Query(t.Context(), store.Query{Collection: webhook.BlocksCollection, Limit: 100})
	require.NoError(t, err)
	require.Len(t, page.Documents, 4-free(5))
	for _, doc := range page.Documents {
		require.NotContains(t, doc.Key.ID, "usr_42")
		require.Equal(t, map[string]any{"expire_at": fixed.Truncate(time.Second).Add(time.Minute)}, doc.Fields)
	}
}

func TestAStoreThatDoesNotAnswerRefusesNothing(t *testing.T) {
	t.Parallel()
	faults := &storetest.Faults{Store: temporary(t)}
	asked := 0
	faults.OnCommit = func(ctx context.Context, _ []store.Write, do func() error) error {
		asked++
		_, bounded := ctx.Deadline()
		require.True(t, bounded, "the answer does not wait for ever")
		return do()
	}
	counter := &storetest.Counter{Store: faults}
	now := fixed
	door, metrics := instance(counter, func() time.Time { return now })
	q := catalog.Queue{ID: "orders", Rate: catalog.Rate{PerSecond: 50}}
	faults.Down(true)
	for range 200 {
		require.NoError(t, door.Admit(t.Context(), q, ""))
	}
	require.Equal(t, int64(1), counter.Commits.Load(), "it is asked once in a second")
	faults.Down(false)
	for range 200 {
		require.NoError(t, door.Admit(t.Context(), q, ""))
	}
	now = now.Add(time.Second)
	let := 0
	for range 200 {
		if code(t, door.Admit(t.Context(), q, "")) == "" {
			let++
		}
	}
	require.Equal(t, 50+free(50), let)
	require.Positive(t, asked)
	require.Contains(t, scraped(t, metrics), `billhook_limits_unknown_total{limit="rate",queue="orders"} 1`)
}

// A clock that is set back, as on a machine that slept, gives no second twice.
func TestAClockThatIsSetBackGivesNothingTwice(t *testing.T) {
	t.Parallel()
	now := fixed
	door, _ := instance(temporary(t), func() time.Time { return now })
	q := catalog.Queue{ID: "orders", Rate: catalog.Rate{PerSecond: 50}}
	let := 0
	for i := range 300 {
		now = fixed.Add(-time.Duration(i%3) * time.Second)
		if door.Admit(t.Context(), q, "") == nil {
			let++
		}
	}
	require.Equal(t, 50+free(50), let)
}

func TestAFullQueueRefusesWhereItsBoundSaysSo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bound   catalog.MaxBacklog
		waiting map[string]backlog.Held
		age     time.Duration
		want    string
	}{
		"full":                     {catalog.MaxBacklog{Messages: 100, OnFull: catalog.RefuseMore}, map[string]backlog.Held{"orders": {Messages: 100}}, time.Minute, "queue_full"},
		"one below":                {catalog.MaxBacklog{Messages: 100, OnFull: catalog.RefuseMore}, map[string]backlog.Held{"orders": {Messages: 99}}, time.Minute, ""},
		"full, and an alert alone": {catalog.MaxBacklog{Messages: 100, OnFull: catalog.AlertAlone}, map[string]backlog.Held{"orders": {Messages: 100}}, time.Minute, ""},
		"without a bound":          {catalog.MaxBacklog{}, map[string]backlog.Held{"orders": {Messages: 1 << 40}}, time.Minute, ""},
		"counted too long ago":     {catalog.MaxBacklog{Messages: 100, OnFull: catalog.RefuseMore}, map[string]backlog.Held{"orders": {Messages: 100}}, backlog.GoodFor + time.Second, ""},
		"another queue is full":    {catalog.MaxBacklog{Messages: 100, OnFull: catalog.RefuseMore}, map[string]backlog.Held{"letters": {Messages: 100}}, time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := temporary(t)
			door, _ := instance(shared, func() time.Time { return fixed })
			require.NoError(t, backlog.Write(t.Context(), shared, fixed.Add(-test.age), test.waiting))
			require.Equal(t, test.want, code(t, door.Admit(t.Context(), catalog.Queue{ID: "orders", MaxBacklog: test.bound}, "")))
		})
	}
}

func TestABacklogIsReadEveryTenSecondsAndRefusesNothingWhereItIsNotKnown(t *testing.T) {
	t.Parallel()
	faults := &storetest.Faults{Store: temporary(t)}
	counter := &storetest.Counter{Store: faults}
	now := fixed
	door, metrics := instance(counter, func() time.Time { return now })
	q := catalog.Queue{ID: "orders", MaxBacklog: catalog.MaxBacklog{Messages: 100, OnFull: catalog.RefuseMore}}
	admit := func() string { return code(t, door.Admit(t.Context(), q, "")) }

	require.Empty(t, admit(), "nobody has counted yet")
	require.NoError(t, backlog.Write(t.Context(), faults, now, map[string]backlog.Held{"orders": {Messages: 100}}))
	now = now.Add(9 * time.Second)
	require.Empty(t, admit())
	require.Equal(t, int64(1), counter.Gets.Load())
	now = now.Add(time.Second)
	for range 100 {
		require.Equal(t, "queue_full", admit())
	}
	require.Equal(t, int64(2), counter.Gets.Load())

	faults.Down(true)
	now = now.Add(backlog.GoodFor - 10*time.Second)
	require.Equal(t, "queue_full", admit(), "what is known still counts")
	now = now.Add(11 * time.Second)
	require.Empty(t, admit())
	require.Contains(t, scraped(t, metrics), `billhook_limits_unknown_total{limit="backlog",queue="orders"} 2`)
}

// queueOf returns a change that replaces one queue of the catalog.
func queueOf(id string, change func(*catalog.Queue)) func(*webhook.Config) {
	return func(c *webhook.Config) {
		declared := *c.Catalog
		declared.Queues = slices.Clone(declared.Queues)
		for i := range declared.Queues {
			if declared.Queues[i].ID == id {
				change(&declared.Queues[i])
			}
		}
		c.Catalog = &declared
	}
}

// The catalog's own order queue, its rates made small.
func TestTheDoorAnswers429WithATimeAndPublishesNothing(t *testing.T) {
	t.Parallel()
	const orders = "orders-process"
	created := func(n int, user string) []byte {
		return fmt.Appendf(nil, `{"id":"msg_%d","type":"order.created","timestamp":"2026-02-23T14:30:00Z","version":1,"producer":"shop",`+
			`"data":{"order_id":"ord_%d","user_id":%q,"total":5497,"items_count":3}}`, n, n, user)
	}
	shared := temporary(t)
	limits, _ := instance(shared, func() time.Time { return fixed })
	d := open(t, func(c *webhook.Config) {
		unlimited(c)
		queueOf(orders, func(q *catalog.Queue) {
			q.Enabled, q.Rate.PerSecond = true, 20
			require.Equal(t, 5, q.Rate.PerUser)
		})(c)
		c.Admission = limits
	})
	n := 0
	send := func(user string) (status int, reason, after string) {
		n++
		body := created(n, user)
		w := d.send(generic(t, "/queues/"+orders+"/messages", body))
		require.NotContains(t, w.Body.String(), user)
		_, reason, _ = strings.Cut(w.Body.String(), `"code":"`)
		reason, _, _ = strings.Cut(reason, `"`)
		return w.Code, reason, w.Header().Get("Retry-After")
	}
	for range 5 + free(5) {
		status, _, _ := send("usr_42")
		require.Equal(t, http.StatusAccepted, status)
	}
	status, reason, after := send("usr_42")
	require.Equal(t, []any{http.StatusTooManyRequests, "user_rate_limited", "1"}, []any{status, reason, after})
	for user := range 20 + free(20) - 6 {
		status, _, _ := send(fmt.Sprint("usr_1", user))
		require.Equal(t, http.StatusAccepted, status)
	}
	status, reason, after = send("usr_7")
	require.Equal(t, []any{http.StatusTooManyRequests, "queue_rate_limited", "1"}, []any{status, reason, after})
	require.Len(t, d.broker.all(), 20+free(20))
	require.Contains(t, d.scrape(t), `billhook_webhooks_total{reason="user_rate_limited",source="generic",status="429"} 1`)

	require.NoError(t, backlog.Write(t.Context(), shared, fixed, map[string]backlog.Held{orders: {Messages: 100_000}}))
	limits, _ = instance(shared, func() time.Time { return fixed })
	d = open(t, func(c *webhook.Config) {
		queueOf(orders, func(q *catalog.Queue) { q.Enabled = true })(c)
		c.Admission = limits
	})
	status, reason, after = send("usr_8")
	require.Equal(t, []any{http.StatusTooManyRequests, "queue_full", "60"}, []any{status, reason, after})
	require.Empty(t, d.broker.all())
}

// scraped is what metrics say.
func scraped(t *testing.T, metrics *telemetry.Metrics) string {
	t.Helper()
	return (&door{metrics: metrics}).scrape(t)
}
