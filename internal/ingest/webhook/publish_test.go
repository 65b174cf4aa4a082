package webhook_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func TestEventThatCannotBePublishedNowStaysWithItsSender(t *testing.T) {
	t.Parallel()
	const lookup, unconfirmed = "customer_lookup_failed", "publish_unconfirmed"
	const address = "mette.lindqvist@example.com"
	fails := func(err error) func(*webhook.Config) {
		return func(c *webhook.Config) {
			c.Publisher.(*recorder).before = func(context.Context, contract.Message) error {
				defer func() { err = nil }() // it succeeds again
				if err == nil {
					return nil
				}
				return fmt.Errorf("publish: %w: %w", err, errDown)
			}
		}
	}
	directory := func(of func(ctx context.Context, tenant, id string) (string, error)) func(*webhook.Config) {
		return func(c *webhook.Config) { c.UID, c.PublishTimeout = of, 20*time.Millisecond }
	}
	type row struct {
		change func(*webhook.Config)
		status int
		code   string
		cause  string // in the log alone
		again  bool   // it is accepted when it is sent again
	}
	filetest.Each(t, map[string]row{
		"a directory that fails": {directory(people{err: errDown}.UID), 503, lookup, "", false},
		"a directory that never answers": {directory(func(ctx context.Context, _, _ string) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}), 503, lookup, "", false},
		"a directory whose uid is an address": {
			directory(people{uids: map[string]string{samples.CustomerID: address}}.UID), 422, broken, "", false,
		},
		"a broker that fails":        {fails(errDown), 503, unconfirmed, "unknown", true},
		"a broker without the topic": {fails(contract.ErrTopicMissing), 503, unconfirmed, "topic_missing", true},
		"a broker that never answers": {func(c *webhook.Config) {
			c.PublishTimeout = time.Millisecond
			c.Publisher.(*recorder).before = func(ctx context.Context, _ contract.Message) error {
				<-ctx.Done()
				return ctx.Err()
			}
		}, 503, unconfirmed, "broker_unavailable", false},
		"a limit, which is final": {fails(contract.ErrLimit), 422, "message_limit", "", false},
	}, func(t *testing.T, test row) {
		d := open(t, test.change)
		body := samples.Read(samples.Refund, samples.Event{})
		w := d.send(payNow(t, body))
		requireProblem(t, d, w, test.status, test.code, address)
		require.Equal(t, test.status == http.StatusServiceUnavailable, w.Header().Get("Retry-After") != "")
		require.Equal(t, test.cause != "", strings.Contains(d.log.String(), `"cause":"`+test.cause+`"`))
		if test.cause == "" {
			return
		}
		require.NotContains(t, w.Body.String(), test.cause)
		require.Contains(t, d.scrape(t), fmt.Sprintf("billhook_webhook_unconfirmed_total{cause=%q,queue=%q} 1",
			test.cause, queue))
		if test.again {
			require.Empty(t, d.send(payNow(t, body)).Header().Get("Retry-After"))
			require.Len(t, d.broker.all(), 1, "it is accepted when it is sent again")
			require.Equal(t, 1, strings.Count(d.log.String(), `"cause"`))
		}
	})
}

// The time of the request is not that of its publication.
func TestMessageHasTheTimeOfItsRequestAndTheRelease(t *testing.T) {
	t.Parallel()
	list := `{"messages":[{"message":` + renewed + `},{"message":` + renewed + `}]}`
	for release, r := range map[string]*http.Request{
		"v1.4.0:1a2b3c4d": payNow(t, samples.Read(samples.OrderCompleted, samples.Event{})),
		"":                generic(t, toUpdates, []byte(list)),
	} {
		var ticks atomic.Int64
		d := open(t, func(c *webhook.Config) {
			c.Now = func() time.Time { return fixed.Add(time.Duration(ticks.Add(1)) * time.Millisecond) }
			c.Release = release
		})
		answer, sent := d.send(r), d.broker.all()
		require.Len(t, sent, map[bool]int{true: 2, false: 1}[release == ""], "%s", answer.Body)
		for _, one := range sent {
			attributes := one.message.Attributes
			received := filetest.Must(time.Parse(time.RFC3339Nano, attributes[contract.AttrReceived]))(t)
			published, err := time.Parse(time.RFC3339Nano, attributes[contract.AttrFirstPublished])
			require.NoError(t, err)
			require.True(t, received.Before(published))
			require.Equal(t, sent[0].message.Attributes[contract.AttrReceived], attributes[contract.AttrReceived],
				"messages of one request have the same time")
			said, is := attributes[contract.AttrRelease]
			require.Equal(t, []any{release, release != ""}, []any{said, is})
		}
	}
}

func TestOrderIsAcceptedWithAnyProducts(t *testing.T) {
	t.Parallel()
	type row struct {
		known  bool
		err    error
		points string
	}
	filetest.Each(t, map[string]row{
		"worth what the store says":         {true, nil, "14"},
		"unknown, which the worker refuses": {false, nil, ""},
		"not known now":                     {false, errDown, ""},
	}, func(t *testing.T, test row) {
		d := open(t, func(c *webhook.Config) {
			c.Points = func(ctx context.Context, _, _ string) (int64, bool, error) {
				deadline, bounded := ctx.Deadline()
				require.True(t, bounded)
				require.LessOrEqual(t, time.Until(deadline), 500*time.Millisecond)
				return 7, test.known, test.err
			}
		})
		got := requireSent(t, d, payNow(t, samples.Read(samples.OrderCompleted, samples.Event{})), "")
		require.Empty(t, got.dropped)
		points, ok := got.message.Attributes["points"]
		require.Equal(t, []any{test.points, test.points != ""}, []any{points, ok})
	})
}

func TestOnlyAnAnswerOfTheDirectoryIsCached(t *testing.T) {
	t.Parallel()
	const known, unknown = time.Minute, 5 * time.Second
	faults := &storetest.Faults{Store: storetest.Open(t)}
	from := &storetest.Counter{Store: faults}
	for id, uid := range map[string]any{
		"c1": "u1", "no uid": nil, "an empty one": "", "a number": int64(7),
		"an address": "ilse.brandvold@example.org",
	} {
		storetest.Put(t, faults, store.Set(customers.Key("default", id), map[string]any{"uid": uid}))
	}
	now, reads := fixed, int64(0)
	directory := webhook.UIDs(from, func() time.Time { return now })
	for _, id := range []string{"no uid", "an empty one", "a number", "an address", "c1"} {
		faults.Down(id == "c1")
		for range 2 { // it is not cached
			uid, err := directory(t.Context(), "default", id)
			require.Empty(t, uid)
			require.Equal(t, id == "c1", errors.Is(err, storetest.ErrFault), "%v", err)
			require.NotContains(t, err.Error(), "ilse")
			reads++
			require.Equal(t, reads, from.Gets.Load(), id)
		}
	}
	faults.Down(false)
	for _, step := range []struct {
		sentence, id string
		after        time.Duration
		uid          string
		reads        int64
	}{
		{"the store is read", "c1", 0, "u1", 1},
		{"then its answer is cached", "c1", known - 1, "u1", 0},
		{"until it expires", "c1", 1, "u1", 1},
		{"a customer without a uid is read", "c2", 0, "", 1},
		{"and cached", "c2", unknown - 1, "", 0},
		{"for a shorter time", "c2", 1, "", 1},
	} {
		now, reads = now.Add(step.after), reads+step.reads
		uid, err := directory(t.Context(), "default", step.id)
		require.NoError(t, err, step.sentence)
		require.Equal(t, []any{step.uid, reads}, []any{uid, from.Gets.Load()}, step.sentence)
	}
}

type shelfOfOrders struct{}

func (shelfOfOrders) Get(_ context.Context, key store.Key) (store.Document, error) {
	switch {
	case strings.Contains(key.ID, "broken"):
		return store.Document{}, errors.New("the database is down")
	case !strings.HasSuffix(key.ID, "~o-1"):
		return store.Document{}, store.ErrNotFound
	}
	_, rest, _ := strings.Cut(key.ID, "-")
	tenant, _, _ := strings.Cut(rest, "~")
	return store.Document{Key: key, Version: 1, Fields: map[string]any{
		"order_id": "o-1", "tenant": tenant, "user_id": "usr_1", "state": "OrderCancelled",
		"reason": "out_of_stock", "short_of": "p-" + tenant,
		"items": map[string]any{"p-" + tenant: int64(3)}, "created_at": fixed, "updated_at": fixed.Add(time.Second),
		"history": []any{map[string]any{"state": "OrderCancelled", "at": fixed, "event_id": "e1"}},
	}}, nil
}

func TestProducerReadsTheStateOfItsOrder(t *testing.T) {
	t.Parallel()
	for _, test := range requests(t).Reads {
		d := open(t, func(c *webhook.Config) {
			producing()(c)
			c.Store, c.Now = shelfOfOrders{}, func() time.Time { return fixed.Add(test.Ago) }
		})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, test.Path, http.NoBody)
		sign(t, r, test.Destination, signature.Generic, cmp.Or(test.Secret, genericSecret), nil)
		w := d.send(r)
		if test.Status != http.StatusOK {
			requireProblem(t, d, w, test.Status, test.Code, "")
			continue
		}
		require.JSONEq(t, `{"order_id":"o-1","state":"OrderCancelled","reason":"out_of_stock",
			"short_of":"`+test.Code+`",
			"created_at":"2026-03-02T10:02:03.45Z","updated_at":"2026-03-02T10:02:04.45Z"}`,
			w.Body.String(), "and nothing about the buyer")
		require.Contains(t, d.log.String(), `"reason":"order_read"`)
	}
}

func TestNewNamesEachMistakeOfItsConfiguration(t *testing.T) {
	t.Parallel()
	const both, short = "WEBHOOK_SECRET_PAYNOW WEBHOOK_SIGNING_SECRET", "too-short-a-secret"
	secrets := func(paynow, generic []string) func(*webhook.Config) {
		return func(c *webhook.Config) { c.Secrets = map[string][]string{"paynow": paynow, "generic": generic} }
	}
	for _, test := range []struct {
		variables, says string
		change          func(*webhook.Config)
	}{
		{both, "no secret", secrets(nil, nil)},
		{both, "", secrets([]string{""}, []string{short})},
		{"WEBHOOK_SECRET_PAYNOW", "secret 2", secrets([]string{paynowSecret, short}, []string{genericSecret})},
		{"WEBHOOK_SIGNING_SECRET", "secret 2", secrets([]string{paynowSecret}, []string{genericSecret, ""})},
		{
			"", "a body budget of 1048576 bytes is too small", func(c *webhook.Config) { c.BodyBudget = 1 << 20 },
		},
		{"", `the catalog has no account "nobody"`, func(c *webhook.Config) {
			c.Accounts = webhook.Accounts{Tokens: issued{}, Emails: map[string]string{"nobody": "jobs@shop.example"}}
		}},
	} {
		c, _, _ := config(t)
		test.change(&c)
		service, err := webhook.New(c)
		require.Nil(t, service)
		require.ErrorContains(t, err, test.says)
		require.ElementsMatch(t, strings.Fields(test.variables),
			regexp.MustCompile(`WEBHOOK_[A-Z_]+`).FindAllString(err.Error(), -1))
		require.NotContains(t, err.Error(), short)
		require.NotContains(t, err.Error(), paynowSecret)
	}
}

func TestConcurrentWebhooksDoNotShareABuffer(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	const n = 64
	var group sync.WaitGroup
	for i := range n {
		id := strconv.Itoa(800_000 + i)
		r := payNow(t, samples.Read(samples.OrderCompleted,
			samples.Event{EventID: id, OrderID: "o" + id, UID: "u" + id}))
		group.Go(func() { d.send(r) })
	}
	group.Wait()
	require.Len(t, d.broker.all(), n)
	seen := map[string]bool{}
	for _, got := range d.broker.all() {
		m := paid(t, got.message)
		require.Equal(t, "o"+m.EventID, m.Data.Order.ID)
		require.Equal(t, "u"+m.EventID, got.message.OrderingKey)
		seen[m.EventID] = true
	}
	require.Len(t, seen, n)
}

func TestDrainingServiceIsNotReadyButStillAnswers(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		require.Equal(t, want, d.send(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/ready",
			http.NoBody)).Code)
		d.Drain()
	}
	accepted(t, d, payNow(t, samples.Read(samples.OrderCompleted, samples.Event{})))
}
