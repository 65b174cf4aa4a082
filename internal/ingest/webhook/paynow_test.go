package webhook_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/ingest/webhook/webhooktest"
)

var update = flag.Bool("update", false, "write testdata/published.json anew")

// submission is a row of testdata/requests.yaml, which says what each member is.
type submission struct {
	What, Path, Of, Old, With, Body, Code, Where, Rule, Secret, Event, Reason string

	More [][2]string
}

// rows are the requests of testdata/requests.yaml, by the configurations that they are for.
type rows map[string][]submission

// configurations of the service by the names that testdata/requests.yaml has for them.
var configurations = map[string]func(*webhook.Config){
	"paynow":         nil,
	"told":           told,
	"directory":      func(c *webhook.Config) { c.Customers = people{uids: map[string]string{customer: "user-1"}} },
	"no_uid":         source("paynow", func(s *catalog.Source) { s.UIDMetadataKey = "" }),
	"no_order":       source("paynow", func(s *catalog.Source) { s.OrderIDMetadataKey = "" }),
	"neither":        source("paynow", func(s *catalog.Source) { s.OrderIDMetadataKey, s.UIDMetadataKey = "", "" }),
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

// keyed is a change of what PayNow's events are ordered by.
func keyed(fields ...string) func(*webhook.Config) {
	return queueOf(queue, func(q *catalog.Queue) { q.OrderingKey = fields })
}

// recorded is testdata/requests.yaml.
type recorded struct {
	Bodies                      map[string]string
	Published, Refused, Ignored rows
	Headers                     []headed
	Signed, Reads, Accounts     []destined
}

// destined is a request that is signed for a destination, or whose token is for it.
type destined struct {
	What, Path, Destination, Account, Config, Secret, Code string

	Ago    time.Duration
	Status int
}

func requests(t *testing.T) (all recorded) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "requests.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &all))
	bodies := all.Bodies
	maps.Copy(bodies, map[string]string{"order": order, "small_refund": refundOf(`"currency":"USD","amount":2000`), "shipped": shipped})
	for _, name := range samples.Names() {
		bodies[name] = string(samples.Read(name, samples.Event{}))
	}
	for _, format := range []string{contract.PayNowV1, contract.EnvelopeV1, contract.MessageV1} {
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

// sent is the request, signed by whoever sends to its path.
func (r submission) sent(t *testing.T) *http.Request {
	t.Helper()
	if r.Path == "" {
		return payNow(t, []byte(r.Body))
	}
	return generic(t, r.Path, []byte(r.Body))
}

// record is what is published of a request and where, what was left out of it, and the answer.
type record struct {
	Topic       string            `json:"topic"`
	Answer      json.RawMessage   `json:"answer"`
	Data        json.RawMessage   `json:"data"`
	Attributes  map[string]string `json:"attributes"`
	OrderingKey string            `json:"ordering_key"`
	Dropped     []string          `json:"dropped,omitempty"`
}

// The effect of an event is what its lines say: whatever else is odd about it is left out, for the buyer has paid.
func TestEachRequestIsPublishedAsRecorded(t *testing.T) {
	t.Parallel()
	const file = "testdata/published.json"
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
			all[name+": "+r.What] = record{got.topic, got.answer, got.message.Data, got.message.Attributes, got.message.OrderingKey, got.dropped}
		}
	}
	recorded, err := json.MarshalIndent(all, "", "  ")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, recorded, 0o644))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(text), string(recorded), "run: go test ./internal/ingest/webhook -update")
}

func TestALargeOrderIsTakenToTheLastByteAndWarnedAbout(t *testing.T) {
	t.Parallel()
	for points, body := range map[string][]byte{
		"2000": append([]byte(order), bytes.Repeat([]byte(" "), 1<<20-len(order))...), "2030000": webhooktest.Order(1<<20 - 4096),
		"9000000": spoil(t, oneLine, strings.TrimSuffix(strings.Repeat(oneLine+",", 4500), ",")),
	} {
		d := open(t, nil)
		got := taken(t, d, payNow(t, body)).broker.all()[0].message
		require.Equal(t, points, got.Attributes["points"])
		large := len(got.Data) > contract.WarnDataBytes
		require.Equal(t, points == "9000000", large)
		require.Equal(t, large, strings.Contains(d.log.String(), "large message"))
		require.Equal(t, large, strings.Contains(d.scrape(t), `billhook_large_messages_total{queue="paynow-events"} 1`))
	}
	odd := strings.Replace(oneLine, "1000", "-7319", 1) + "," + strings.Replace(oneLine, "1000", `"7319"`, 1)
	lines := spoil(t, oneLine, strings.TrimSuffix(strings.Repeat(odd+",", 1000), ","))
	got := requireTaken(t, open(t, nil), payNow(t, lines), []string{"body.lines[].price: integer", "body.lines[].price: negative"}, "7319")
	require.Len(t, paid(t, got).Data.Order.Items, 2000, "what is left out of thousands of lines is a short line")
}

func TestAnEventThatNoQueueWantsIsVerifiedAndIgnored(t *testing.T) {
	t.Parallel()
	for _, r := range requests(t).Ignored["paynow"] {
		d, from := open(t, nil), "paynow"
		if r.Path != "" {
			from = "generic"
		}
		w := d.send(r.sent(t))
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.JSONEq(t, fmt.Sprintf(`{"event_id":%q,"ignored":true,"reason":%q}`, r.Event, r.Reason), w.Body.String(), r.What)
		require.Empty(t, d.broker.all())
		requireNothingLeaks(t, d, w, "")
		require.Contains(t, d.scrape(t), fmt.Sprintf(`billhook_webhooks_total{reason=%q,source=%q,status="200"} 1`, r.Reason, from), "it is counted")
	}
}

// refundOf is a refund with these members.
func refundOf(members string) string {
	return `{"event_type":"ON_REFUND","event_id":"5","body":{"id":"6","order_id":"7","status":"completed",` + members + `}}`
}
