package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/ingest/webhook"
	"billhook/internal/platform/serve"
)

// listed is the answer to a list.
type listed struct {
	Results []struct {
		problem
		EventID    string `json:"event_id"`
		Queue      string `json:"queue"`
		RetryAfter int    `json:"retry_after"`
	} `json:"results"`
}

// list sends a list of items, and returns its results.
func (d *service) list(t *testing.T, path string, items ...string) listed {
	t.Helper()
	w := d.send(generic(t, path, []byte(`{"messages":[`+strings.Join(items, ",")+`]}`)))
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	var answer listed
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	require.Len(t, answer.Results, len(items))
	requireNothingLeaks(t, d, w, "Mette")
	return answer
}

// codes are the statuses and codes of a list's results.
func (l listed) codes() (all []string) {
	for _, r := range l.Results {
		all = append(all, fmt.Sprint(r.Status, r.Code))
	}
	return all
}

// of is the item of an order's message.
func of(order, id string) string {
	return fmt.Sprintf(`{"message":{"id":%q,"type":"order.shipped","version":1,"data":{"order_id":%q}}}`, id, order)
}

func TestEachMessageOfAListHasItsOwnResult(t *testing.T) {
	t.Parallel()
	d := open(t, producing())
	answer := d.list(t, toOrders,
		of("o1", "e1"), `{"message":{"type":"order.shipped","version":1,"data":{"order_id":"o1","name":"Mette"}}}`, `"Mette"`, `{"message":[]}`, `{}`,
		`{"message":{"order_id":"o2"},"routing_key":"order.shipped"}`, `{"message":`+shipped+`,"priority":"low"}`, `{"message":{"eventId":"1","eventType":"order.paid"}}`, of("o1", "e9"),
	)
	var paths []string
	for _, r := range answer.Results {
		for _, v := range r.Violations {
			paths = append(paths, v.Path)
		}
	}
	const broken = "422contract_broken"
	require.Equal(t, []string{"202", broken, broken, broken, broken, "202", broken, "422contract_unsupported", "202"}, answer.codes())
	require.Equal(t, []string{"data.name", "", "message", "message", "priority"}, paths)
	require.Equal(t, []string{"e1", "orders-process"}, []string{answer.Results[0].EventID, answer.Results[0].Queue})
	require.Len(t, d.broker.all(), 3)
	require.Equal(t, 9, strings.Count(d.log.String(), `"message":"webhook"`), "each has its line")
}

// moody is a broker that confirms once enough messages wait for it, does not confirm some, and breaks down at others.
type moody struct {
	recorder
	wants, arrived int
	gather         chan struct{}
	fails, panics  []string
}

func (p *moody) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	p.mu.Lock()
	if p.arrived++; p.arrived == p.wants {
		close(p.gather)
	}
	p.mu.Unlock()
	if p.wants > 0 {
		select {
		case <-p.gather:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	switch id := m.Attributes["event_id"]; {
	case slices.Contains(p.panics, id):
		panic("Mette")
	case slices.Contains(p.fails, id):
		return "", errors.New("Mette")
	}
	return p.recorder.Publish(ctx, topic, m)
}

func TestAListIsPublishedConcurrentlyAndInTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	broker := &moody{wants: 10, gather: make(chan struct{})}
	d := open(t, func(c *webhook.Config) { producing()(c); c.Publisher = broker })
	var items []string
	for i := range 100 {
		items = append(items, of(fmt.Sprint("o", i%10), fmt.Sprintf("e%02d", i)))
	}
	for _, r := range d.list(t, toOrders, items...).Results {
		require.Equal(t, http.StatusAccepted, r.Status)
	}
	last := map[string]string{}
	for _, got := range broker.all() {
		require.Less(t, last[got.message.OrderingKey], got.message.Attributes["event_id"], "in order")
		last[got.message.OrderingKey] = got.message.Attributes["event_id"]
	}
	require.Len(t, broker.all(), 100)
}

func TestNothingOvertakesAMessageOfItsKeyThatIsToBeSentAgain(t *testing.T) {
	t.Parallel()
	broker := &moody{fails: []string{"e2"}, panics: []string{"p1"}}
	d := open(t, func(c *webhook.Config) { producing()(c); c.Publisher = broker })
	answer := d.list(t, toOrders, of("o1", "e1"), of("o1", "e2"), of("o1", "e3"), of("o2", "e4"), of("o3", "p1"), of("o3", "e6"), of("o2", "e7"))
	for _, r := range answer.Results {
		require.Equal(t, r.Status == http.StatusServiceUnavailable, r.RetryAfter > 0)
	}
	require.Equal(t, []string{"202", "503publish_unconfirmed", "503key_held_up", "202", "500internal", "500internal", "202"}, answer.codes())
	require.Len(t, broker.all(), 3)
}

func TestWhatMayBeOfTheKeyOfAMessageWithoutOneIsHeldUp(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) { c.Customers = people{err: errDown} })
	refunded := `{"message":{"eventId":"5","eventType":"order.refunded","timestamp":"2026-03-02T10:00:00Z","data":{"order":{"id":"7","customerId":"8"}}}}`
	paid := `{"message":` + string(goldens(t, contract.PayNowV1)["order_paid.json"]) + `}`
	answer := d.list(t, "/queues/"+queue+"/messages", `{"message":{}}`, refunded, refunded, paid)
	got := answer.codes()
	require.Equal(t, []string{"422contract_broken", "503customer_lookup_failed", "503customer_lookup_failed", "503"}, []string{got[0], got[1], got[2], got[3][:3]})
	require.Empty(t, d.broker.all())
}

// A producer's rate is for each queue: analytics may fail to keep up, orders may not wait for it.
func TestAFloodIntoOneQueueRefusesNothingOfAnother(t *testing.T) {
	t.Parallel()
	const second = "orders-seen"
	each(t, map[string]string{
		"over its address": "/queues/" + second + "/messages", "over the topic that both take from": onOrders,
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
			created := fmt.Appendf(nil, `{"id":"flood_%d","type":"order.created","version":1,"data":{"order_id":"o1","user_id":"u1"}}`, i)
			if d.send(generic(t, flood, created)).Code == http.StatusTooManyRequests {
				refused++
			}
		}
		require.Equal(t, 40, refused)
		for i := range 20 {
			taken(t, d, generic(t, toOrders, fmt.Appendf(nil, `{"id":"order_%d","type":"order.shipped","version":1,"data":{"order_id":"o2"}}`, i)))
		}
	})
}

// admitting refuses the messages of a user beyond some.
type admitting struct {
	mu    sync.Mutex
	asked []string
	most  map[string]int
}

func (a *admitting) Admit(_ context.Context, q catalog.Queue, user string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, user)
	if a.most[user]--; a.most[user] < 0 {
		return serve.Refuse(http.StatusTooManyRequests, "user_rate_limited", q.ID).After(1)
	}
	return nil
}

func TestAMessageOfAListThatIsNotAdmittedHoldsUpItsKeyAlone(t *testing.T) {
	t.Parallel()
	by := func(order, user, id string) string {
		return fmt.Sprintf(`{"message":{"id":%q,"type":"order.created","version":1,"data":{"order_id":%q,"user_id":%q}}}`, id, order, user)
	}
	admission := &admitting{most: map[string]int{"u1": 1, "u2": 9}}
	d := open(t, func(c *webhook.Config) {
		producing(func(q *catalog.Queue) { q.Rate.User = []string{"user_id"} })(c)
		c.Admission = admission
	})
	answer := d.list(t, toOrders, by("o1", "u1", "e1"), by("o1", "u1", "e2"), by("o1", "u2", "e3"), by("o2", "u2", "e4"), by("o2", "u2", "e5"))
	require.Equal(t, []string{"202", "429user_rate_limited", "503key_held_up", "202", "202"}, answer.codes())
	slices.Sort(admission.asked)
	require.Equal(t, []string{"u1", "u1", "u2", "u2"}, admission.asked, "each that may be published is counted once")

	_, message, _ := strings.Cut(strings.TrimSuffix(by("o3", "u1", "e6"), "}"), `"message":`)
	w := d.send(generic(t, toOrders, []byte(message)))
	require.Equal(t, []any{http.StatusTooManyRequests, "1"}, []any{w.Code, w.Header().Get("Retry-After")})
	require.Contains(t, w.Body.String(), `"user_rate_limited"`)
	require.Contains(t, d.scrape(t), `billhook_webhooks_total{reason="user_rate_limited",source="generic",status="429"} 2`)
}
