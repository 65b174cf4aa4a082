package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
)

type listed struct {
	Results []struct {
		problem
		EventID    string `json:"event_id"`
		Queue      string `json:"queue"`
		RetryAfter int    `json:"retry_after"`
	} `json:"results"`
}

func (d *service) list(t *testing.T, path string, items ...string) listed {
	t.Helper()
	w := d.send(generic(t, path, []byte(`{"messages":[`+strings.Join(items, ",")+`]}`)))
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	answer := filetest.JSON[listed](t, w.Body.Bytes())
	require.Len(t, answer.Results, len(items))
	requireNothingLeaks(t, d, w, "Mette")
	return answer
}

func (l listed) codes() (all []string) {
	for _, r := range l.Results {
		all = append(all, fmt.Sprint(r.Status, r.Code))
	}
	return all
}

func of(order, id string) string {
	return fmt.Sprintf(`{"message":{"id":%q,"type":"order.shipped","version":1,"data":{"order_id":%q}}}`, id,
		order)
}

// failing makes the broker fail for these events, and panic for others.
func failing(fails, panics string) func(*webhook.Config) {
	return func(c *webhook.Config) {
		producing()(c)
		c.Publisher.(*recorder).before = func(_ context.Context, m contract.Message) error {
			switch m.Attributes["event_id"] {
			case panics:
				panic("Mette")
			case fails:
				return errors.New("Mette")
			}
			return nil
		}
	}
}

func TestEachMessageOfAListHasItsOwnResult(t *testing.T) {
	t.Parallel()
	event := func(eventType, order string) string {
		return `{"message":{"eventId":"5","eventType":"` + eventType + `","timestamp":"2026-03-02T10:00:00Z",` +
			`"data":{"order":` + order + `}}}`
	}
	const broken = "422contract_broken"
	type row struct {
		change func(*webhook.Config)
		queue  string
		items  []string
		codes  []string
		paths  []string // of what breaks the contract
	}
	filetest.Each(t, map[string]row{
		"good and broken ones": {
			producing(), "orders-process",
			[]string{
				of("o1", "e1"),
				`{"message":{"type":"order.shipped","version":1,"data":{"order_id":"o1","name":"Mette"}}}`,
				`"Mette"`, `{"message":[]}`, `{}`,
				`{"message":{"order_id":"o2"},"routing_key":"order.shipped"}`,
				`{"message":` + shipped + `,"priority":"low"}`,
				`{"message":{"eventId":"1","eventType":"order.paid"}}`, of("o1", "e9"),
			},
			[]string{"202", broken, broken, broken, broken, "202", broken, "422contract_unsupported", "202"},
			[]string{"data.name", "", "message", "message", "priority"},
		},
		"one does not overtake an unpublished one of its key": {
			failing("e2", "p1"), "orders-process",
			[]string{
				of("o1", "e1"), of("o1", "e2"), of("o1", "e3"), of("o2", "e4"), of("o3", "p1"),
				of("o3", "e6"), of("o2", "e7"),
			},
			[]string{"202", "503publish_unconfirmed", "503key_held_up", "202", "500internal", "500internal", "202"},
			nil,
		},
		"one behind another of unknown key is held back": {
			func(c *webhook.Config) { c.UID = people{err: errDown}.UID }, queue,
			[]string{
				`{"message":{}}`, event("order.refunded", `{"id":"7","customerId":"8"}`),
				event("order.chargeback_closed", `{"id":"7"}`),
			},
			[]string{broken, "503customer_lookup_failed", "503key_held_up"},
			[]string{"eventId", "eventType", "timestamp"},
		},
	}, func(t *testing.T, test row) {
		d := open(t, test.change)
		answer := d.list(t, "/queues/"+test.queue+"/messages", test.items...)
		require.Equal(t, test.codes, answer.codes())
		var paths, accepted, published []string
		for _, r := range answer.Results {
			require.Equal(t, r.Status == http.StatusServiceUnavailable, r.RetryAfter > 0)
			for _, v := range r.Violations {
				paths = append(paths, v.Path)
			}
			if r.Status == http.StatusAccepted {
				require.Equal(t, test.queue, r.Queue)
				accepted = append(accepted, r.EventID)
			}
		}
		require.Equal(t, test.paths, paths)
		for _, got := range d.broker.all() {
			published = append(published, got.message.Attributes["event_id"])
		}
		require.ElementsMatch(t, accepted, published)
		require.Equal(t, len(test.items), strings.Count(d.log.String(), `"message":"webhook"`), "each is logged")
	})
}

func TestListIsPublishedConcurrentlyAndInOrderOfEachKey(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int64
	gathered := make(chan struct{}) // once ten messages have arrived, of as many keys
	d := open(t, func(c *webhook.Config) {
		producing()(c)
		c.Publisher.(*recorder).before = func(ctx context.Context, _ contract.Message) error {
			if arrived.Add(1) == 10 {
				close(gathered)
			}
			select {
			case <-gathered:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
	})
	var items []string
	for i := range 100 {
		items = append(items, of(fmt.Sprint("o", i%10), fmt.Sprintf("e%02d", i)))
	}
	for _, r := range d.list(t, toOrders, items...).Results {
		require.Equal(t, http.StatusAccepted, r.Status)
	}
	last := map[string]string{}
	for _, got := range d.broker.all() {
		require.Less(t, last[got.message.OrderingKey], got.message.Attributes["event_id"], "in order")
		last[got.message.OrderingKey] = got.message.Attributes["event_id"]
	}
	require.Len(t, d.broker.all(), 100)
}
