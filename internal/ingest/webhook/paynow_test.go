package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/platform/signature"
)

// submission is a row of testdata/requests.yaml, which says what each member is.
type submission struct {
	What, Path, Of, Old, With, Body, Code, Where, Rule, Secret, Event, Reason string
	More                                                                      [][2]string
}

type rows map[string][]submission

// configurations of the service by the names that testdata/requests.yaml has for them.
var configurations = map[string]func(*webhook.Config){
	"paynow":  nil,
	"updates": lenient,
	"directory": func(c *webhook.Config) {
		c.UID = people{uids: map[string]string{customer: "user-1"}}.UID
	},
	"no_uid":         unmapped("uid"),
	"no_order":       unmapped("shop_order_id"),
	"neither":        unmapped("uid", "shop_order_id"),
	"uid_first":      keyed("uid", "paynow_customer_id"),
	"customer_first": keyed("paynow_customer_id", "uid"),
	"by_order":       keyed("order_id"),
	"by_nothing":     keyed(),
	"no_topics":      producing(func(q *catalog.Queue) { q.Enabled = q.Enabled && q.SharedTopic == "" }),
	"producing":      producing(),
	"no_producers": func(c *webhook.Config) {
		c.Catalog = new(*c.Catalog)
		c.Catalog.Sources = map[string]catalog.Source{"paynow": c.Catalog.Sources["paynow"]}
	},
	"producers": func(c *webhook.Config) {
		producing()(c)
		queueOf("fis-ingestion", func(q *catalog.Queue) { q.Enabled = false })(c)
	},
}

func unmapped(members ...string) func(*webhook.Config) {
	return func(c *webhook.Config) {
		declared, provider := *c.Catalog, c.Catalog.Providers["paynow"]
		provider.Mappings = maps.Clone(provider.Mappings)
		provider.Mappings["order"] = maps.Clone(provider.Mappings["order"])
		for _, member := range members {
			delete(provider.Mappings["order"], member)
		}
		declared.Providers = maps.Clone(declared.Providers)
		declared.Providers["paynow"] = provider
		c.Catalog = &declared
	}
}

func keyed(fields ...string) func(*webhook.Config) {
	return queueOf(queue, func(q *catalog.Queue) { q.OrderingKey = fields })
}

type recorded struct {
	Bodies                      map[string]string
	Published, Refused, Ignored rows
	Headers                     []headed
	Signed, Reads, Accounts     []destined
	Spoiled, Answered           []provider
}

// provider is a change of a provider's sample, or an answer of its API, and what the service says of it.
type provider struct {
	What, Of, Old, With, Answer, Says string

	Code, Status int
	Uncalled     bool
}

// destined is a request that is signed for a destination, or whose token is for it.
type destined struct {
	What, Path, Destination, Account, Config, Secret, Code string

	Ago    time.Duration
	Status int
}

func requests(t *testing.T) recorded {
	t.Helper()
	all := filetest.YAML[recorded](t, "testdata", "requests.yaml")
	bodies := all.Bodies
	maps.Copy(bodies, map[string]string{
		"order": order, "small_refund": refundOf(`"currency":"USD","amount":2000`), "shipped": shipped,
	})
	for _, name := range samples.Names() {
		bodies[name] = string(samples.Read(name, samples.Event{}))
	}
	for _, format := range []string{contract.PaymentV1, contract.EnvelopeV1, contract.MessageV1} {
		for name, body := range goldens(t, format) {
			bodies[format+"/"+strings.TrimSuffix(name, ".json")] = string(body)
		}
	}
	for _, of := range []rows{all.Published, all.Refused, all.Ignored} {
		for name, requests := range of {
			require.Contains(t, configurations, name)
			for i := range requests {
				r := &requests[i]
				if r.Of == "" {
					continue
				}
				require.Contains(t, bodies[r.Of], r.Old, r.What)
				r.Body = strings.Replace(bodies[r.Of], r.Old, r.With, 1)
				for _, change := range r.More {
					require.Contains(t, r.Body, change[0], r.What)
					r.Body = strings.ReplaceAll(r.Body, change[0], change[1])
				}
			}
		}
	}
	return all
}

func (r submission) sent(t *testing.T) *http.Request {
	t.Helper()
	if r.Path == "" {
		return payNow(t, []byte(r.Body))
	}
	return generic(t, r.Path, []byte(r.Body))
}

type record struct {
	Topic       string            `json:"topic"`
	Answer      json.RawMessage   `json:"answer"`
	Data        json.RawMessage   `json:"data"`
	Attributes  map[string]string `json:"attributes"`
	OrderingKey string            `json:"ordering_key"`
	Dropped     []string          `json:"dropped,omitempty"`
}

// The effect of an order needs its lines. Other bad values are dropped, since the buyer has paid.
func TestEachRequestIsPublishedAsRecorded(t *testing.T) {
	t.Parallel()
	published := requests(t).Published
	all := map[string]record{}
	for name, requests := range published {
		for _, r := range requests {
			d := open(t, configurations[name])
			got := requireSent(t, d, r.sent(t), r.Secret)
			requireWhole(t, got.message)
			if r.Path == "" {
				require.Contains(t, d.log.String(), fmt.Sprintf(`"event_id":%q`, got.message.Attributes["event_id"]))
			}
			require.Equal(t, 1, strings.Count(d.log.String(), "\n"), "one line per webhook")
			all[name+": "+r.What] = record{
				got.topic, got.answer, got.message.Data, got.message.Attributes, got.message.OrderingKey, got.dropped,
			}
		}
	}
	asRecorded(t, "testdata/published.json", all)
}

// asRecorded compares what was published with a file, or writes it there.
func asRecorded(t *testing.T, file string, all any) {
	t.Helper()
	recorded := filetest.Must(json.MarshalIndent(all, "", "  "))(t)
	filetest.Recorded(t, string(recorded), file)
}

func TestLargeOrderIsPublishedWholeWithAWarning(t *testing.T) {
	t.Parallel()
	for points, body := range map[string][]byte{
		"2000":    append([]byte(order), bytes.Repeat([]byte(" "), 1<<20-len(order))...),
		"2030000": webhooktest.Order(1<<20 - 4096),
		"9000000": spoil(t, oneLine, strings.TrimSuffix(strings.Repeat(oneLine+",", 4500), ",")),
	} {
		d := open(t, nil)
		got := accepted(t, d, payNow(t, body)).broker.all()[0].message
		require.Equal(t, points, got.Attributes["points"])
		large := len(got.Data) > contract.WarnDataBytes
		require.Equal(t, points == "9000000", large)
		require.Equal(t, large, strings.Contains(d.log.String(), "large message"))
		require.Equal(t, large, strings.Contains(d.scrape(t),
			`billhook_large_messages_total{queue="paynow-events"} 1`))
		require.Contains(t, d.scrape(t), `billhook_webhook_duration_seconds_count{source="paynow"} 1`)
		require.Contains(t, d.scrape(t), `billhook_webhooks_total{reason="",source="paynow",status="202"} 1`)
	}
	odd := strings.Replace(oneLine, "1000", "-7319", 1) + "," + strings.Replace(oneLine, "1000", `"7319"`, 1)
	lines := spoil(t, oneLine, strings.TrimSuffix(strings.Repeat(odd+",", 1000), ","))
	got := requireSent(t, open(t, nil), payNow(t, lines), "7319")
	require.Equal(t, []string{"body.lines[].price: integer", "body.lines[].price: negative"}, got.dropped,
		"the dropped fields of thousands of lines are logged once")
	require.Len(t, paid(t, got.message).Data.Order.Items, 2000)
}

func TestEventWithoutAQueueIsVerifiedAndIgnored(t *testing.T) {
	t.Parallel()
	for _, r := range requests(t).Ignored["paynow"] {
		d, from := open(t, nil), "paynow"
		if r.Path != "" {
			from = "generic"
		}
		w := d.send(r.sent(t))
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.JSONEq(t, fmt.Sprintf(`{"event_id":%q,"ignored":true,"reason":%q}`, r.Event, r.Reason),
			w.Body.String(), r.What)
		require.Empty(t, d.broker.all())
		requireNothingLeaks(t, d, w, "")
		require.Contains(t, d.scrape(t), fmt.Sprintf(`billhook_webhooks_total{reason=%q,source=%q,status="200"} 1`,
			r.Reason, from), "it is counted")
	}
}

func refundOf(members string) string {
	return `{"event_type":"ON_REFUND","event_id":"5","body":{"id":"6","order_id":"7","status":"completed",` +
		members + `}}`
}

// Notifications and analytics are unordered, and on shared topics.
func producing(change ...func(*catalog.Queue)) func(*webhook.Config) {
	enable := func(q *catalog.Queue) {
		q.Enabled = q.Enabled || slices.Contains([]string{
			"orders-process", "notifications-send", "search-index", updates, "events-high", "fis-ingestion",
		}, q.ID)
	}
	return queues(append([]func(*catalog.Queue){enable}, change...)...)
}

const (
	toUpdates = "/queues/" + updates + "/messages"
	toOrders  = "/queues/orders-process/messages"
	onOrders  = "/topics/orders/messages"
	renewed   = `{"action":"renewal","subscription_id":"s1","period_end":"2026-05-02T10:15:00"}`
	shipped   = `{"type":"order.shipped","version":1,"data":{"order_id":"o1"}}`
)

// The message that announces an upgrade has the same body as the one that charges it.
func TestMessageSignedForOneQueueIsRefusedAtAnother(t *testing.T) {
	t.Parallel()
	upgrade := []byte(`{"id":"u1","action":"upgrade","payload":{"subscription_id":"s1","payment_id":"p1",` +
		`"amount":"9.99","currency":"EUR"}}`)
	for _, test := range requests(t).Signed {
		d, r := open(t, producing()), request(t, test.Path, bytes.NewReader(upgrade))
		sign(t, r, test.Destination, signature.Generic, genericSecret, upgrade)
		if test.Code == "" {
			accepted(t, d, r)
			continue
		}
		requireProblem(t, d, d.send(r), http.StatusUnauthorized, test.Code, "")
	}
}

func TestRepeatedMessageIsTheSameEvent(t *testing.T) {
	t.Parallel()
	d := open(t, producing())
	for _, body := range []string{
		renewed, renewed, `{"message":` + renewed + `}`, `{"messages":[{"message":` + renewed + `}]}`,
	} {
		require.Less(t, d.send(generic(t, toUpdates, []byte(body))).Code, 300)
	}
	require.Len(t, d.broker.all(), 4)
	for _, got := range d.broker.all() {
		require.Equal(t, d.broker.all()[0].message.Attributes["event_id"], got.message.Attributes["event_id"])
	}
}

// A source may send bodies that are larger than a message of Pub/Sub, or than a document that keeps one.
func TestMessageBeyondALimitIsRefusedAloneAndNotCounted(t *testing.T) {
	t.Parallel()
	parts, row := contract.Member{Name: "parts"}, ""
	for i := range 17 {
		name := fmt.Sprint("p", i)
		parts.List = append(parts.List, contract.Member{Name: name, Shape: "id"})
		row += fmt.Sprintf(",%q:%q", name, strings.Repeat("p", 120))
	}
	sized := func(rows int) string {
		return `{"id":"huge","type":"order.shipped","version":1,"data":{"order_id":"o1","parts":[` +
			strings.Repeat("{"+row[1:]+"},", rows) + "{}]}}"
	}
	contracts := filetest.Must(contract.NewSet(contract.Formats, []contract.Declaration{{
		Format: contract.MessageV1, Type: "order.shipped", Version: 1,
		Members: []contract.Member{parts, {Name: "order_id", Shape: "id", Required: true}},
	}}))(t)
	roomy := func(c *webhook.Config) {
		producing()(c)
		c.Catalog.Contracts = contracts
		source("generic", func(s *catalog.Source) { s.MaxBodyBytes, s.RatePerSecond, s.Burst = 16<<20, 1, 2 })(c)
	}
	huge, d := sized(4999), open(t, roomy)
	require.Greater(t, len(huge), contract.MaxMessageBytes)
	answer := d.list(t, toOrders, of("o1", "e1"), `{"message":`+huge+`}`, of("o1", "e2"))
	require.Equal(t, []string{"202", "422message_limit", "202"}, answer.codes(),
		"it holds back nothing, and does not count for the rate")
	require.Len(t, d.broker.all(), 2)
	answer = d.list(t, toOrders, of("o2", "e3"))
	require.Equal(t, []string{"429rate_limited"}, answer.codes(), "each of a list counts for the rate")
	require.Equal(t, 1, answer.Results[0].RetryAfter)
	d = open(t, roomy)
	w := d.send(generic(t, toOrders, []byte(huge)))
	requireProblem(t, d, w, http.StatusUnprocessableEntity, "message_limit", "")
	require.Contains(t, w.Body.String(), "10000000 bytes")
	kept := `{"message":` + sized(contract.MaxKept/len(row)+1)
	accepted(t, open(t, roomy), generic(t, toOrders, []byte(kept+`}`)))
	submission{
		Path: toOrders, Body: kept + `,"deliver_at":"2026-03-04T10:00:00Z"}`, Code: broken, Where: "deliver_at",
		Rule: "too_large_to_wait",
	}.check(t, roomy)
}
