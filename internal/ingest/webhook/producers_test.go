package webhook_test

import (
	"bytes"
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
	"billhook/internal/platform/signature"
)

// producing serves the queues of which producers inside the house send the most. Notifications
// and analytics are unordered, and on shared topics.
func producing(change ...func(*catalog.Queue)) func(*webhook.Config) {
	return func(c *webhook.Config) {
		c.Catalog = new(*c.Catalog)
		c.Catalog.Queues = slices.Clone(c.Catalog.Queues)
		for i := range c.Catalog.Queues {
			q := &c.Catalog.Queues[i]
			if slices.Contains([]string{"orders-process", "notifications-send", "search-index", updates, "events-high", "fis-ingestion"}, q.ID) {
				q.Enabled = true
			}
			for _, f := range change {
				f(q)
			}
		}
	}
}

// sent opens a door for producers, and sends one body to a path of it.
func sent(t *testing.T, path, body string) (*door, int, string) {
	t.Helper()
	d := open(t, producing())
	w := d.send(generic(t, path, []byte(body)))
	return d, w.Code, w.Body.String()
}

const (
	toUpdates = "/queues/" + updates + "/messages"
	toOrders  = "/queues/orders-process/messages"
	onOrders  = "/topics/orders/messages"
	renewed   = `{"action":"renewal","subscription_id":"s1","period_end":"2026-05-02T10:15:00"}`
	shipped   = `{"type":"order.shipped","version":1,"data":{"order_id":"o1"}}`
)

func TestWhatAMessageLacksIsMadeUpAtTheDoor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ path, body, want string }{
		"a raw object on a queue of envelopes": {
			toUpdates, renewed,
			`{"action":"renewal","created_at":"2026-03-02T10:02:03.45Z","attempts":0,"payload":{"subscription_id":"s1","period_end":"2026-05-02T10:15:00Z"}}`,
		},
		"a message without an id and a time": {toOrders, shipped, `{"type":"order.shipped","timestamp":"2026-03-02T10:02:03.45Z","version":1,"data":{"order_id":"o1"}}`},
		"a raw object on a topic": {
			onOrders, `{"message":{"order_id":"o1"},"routing_key":"order.shipped"}`,
			`{"type":"order.shipped","timestamp":"2026-03-02T10:02:03.45Z","version":1,"data":{"order_id":"o1"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, code, answer := sent(t, test.path, test.body)
			require.Equal(t, http.StatusAccepted, code, answer)
			m := d.broker.all()[0].message
			var body, want map[string]any
			require.NoError(t, json.Unmarshal(m.Data, &body))
			require.NoError(t, json.Unmarshal([]byte(test.want), &want))
			require.Equal(t, m.Attributes["event_id"], body["id"])
			require.Contains(t, answer, `"event_id":"`+m.Attributes["event_id"]+`"`)
			if want["id"] == nil {
				require.Regexp(t, `^sha256:[0-9a-f]{64}$`, body["id"])
				delete(body, "id")
			}
			require.Equal(t, want, body)
		})
	}
}

// TestAMessageSignedForOneQueueIsNotTakenAtAnother: an upgrade of a plan is, byte for byte, an upgrade that is paid.
func TestAMessageSignedForOneQueueIsNotTakenAtAnother(t *testing.T) {
	t.Parallel()
	const plan, paid, refunds = "/queues/sub-plan-change/messages", "/queues/q:sub:payment_initiation/messages", "/queues/pay-refund-initiation/messages"
	upgrade := []byte(`{"id":"u1","action":"upgrade","payload":{"subscription_id":"s1","payment_id":"p1","amount":"9.99","currency":"EUR"}}`)
	signer, err := signature.NewSigner(signature.Generic, genericSecret)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		destination, path string
		status            int
		code              string
	}{
		"for the queue that it is put on":         {plan, plan, http.StatusAccepted, ""},
		"for any queue":                           {"", plan, http.StatusAccepted, ""},
		"for another queue":                       {plan, paid, http.StatusUnauthorized, "destination_mismatch"},
		"for another queue that moves money":      {refunds, paid, http.StatusUnauthorized, "destination_mismatch"},
		"for no queue, where it would move money": {"", paid, http.StatusUnauthorized, "destination_missing"},
		"for a queue that moves money":            {paid, paid, http.StatusAccepted, ""},
		"for it, escaped":                         {"/queues/q%3Asub%3Apayment_initiation/messages", paid, http.StatusAccepted, ""},
		"with a query that the path has not":      {paid + "?a=b", paid, http.StatusUnauthorized, "destination_mismatch"},
		"without a query that the path has":       {paid, paid + "?a=b", http.StatusUnauthorized, "destination_mismatch"},
		"for another service":                     {"https://elsewhere.example" + paid, paid, http.StatusUnauthorized, "destination_mismatch"},
		"for no path":                             {"queue", paid, http.StatusUnauthorized, "destination_mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, producing())
			r := request(t, test.path, bytes.NewReader(upgrade))
			for header, value := range signer.SignFor(test.destination, "", upgrade, fixed) {
				r.Header.Set(header, value)
			}
			w := d.send(r)
			if test.code == "" {
				require.Equal(t, test.status, w.Code, w.Body)
				return
			}
			requireProblem(t, d, w, test.status, test.code, "")
		})
	}
}

func TestAMessageThatIsSentAgainIsTheSameEvent(t *testing.T) {
	t.Parallel()
	d := open(t, producing())
	for _, body := range []string{renewed, renewed, `{"message":` + renewed + `}`, `{"messages":[{"message":` + renewed + `}]}`} {
		require.Less(t, d.send(generic(t, toUpdates, []byte(body))).Code, 300)
	}
	require.Len(t, d.broker.all(), 4)
	for _, got := range d.broker.all() {
		require.Equal(t, d.broker.all()[0].message.Attributes["event_id"], got.message.Attributes["event_id"])
	}
}

func TestAQueueOrTopicIsFoundByItsAlias(t *testing.T) {
	t.Parallel()
	const paid = `{"type":"billing.invoice.paid","version":1,"data":{"invoice_id":"i1","amount":"9.99","currency":"EUR"}}`
	for path, test := range map[string]struct{ body, topic string }{
		"/queues/q:pay:subscription_update/messages":     {renewed, updates},
		"/queues/q%3Apay%3Asubscription_update/messages": {renewed, updates},
		"/queues/orders.process/messages":                {shipped, "orders"},
		"/topics/fis-events/messages":                    {paid, "fis-events"},
		"/topics/fis.events.exchange/messages":           {paid, "fis-events"},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			d, code, answer := sent(t, path, test.body)
			require.Equal(t, http.StatusAccepted, code, answer)
			require.Equal(t, test.topic, d.broker.all()[0].topic)
		})
	}
	for path, code := range map[string]string{
		"/topics/orders/messages": "topic_unknown", "/topics/" + updates + "/messages": "topic_unknown", "/topics/fis-domain-events/messages": "topic_unknown",
		"/queues/orders/messages": "queue_unknown",
	} {
		t.Run("not "+path, func(t *testing.T) {
			t.Parallel()
			d := open(t, producing(func(q *catalog.Queue) { q.Enabled = q.Enabled && q.SharedTopic == "" }))
			requireProblem(t, d, d.send(generic(t, path, []byte(shipped))), http.StatusNotFound, code, "")
		})
	}
}

func TestATopicsMessageIsForTheQueuesThatAreBound(t *testing.T) {
	t.Parallel()
	d, code, answer := sent(t, onOrders, shipped)
	require.Equal(t, http.StatusAccepted, code)
	got := d.broker.all()[0]
	require.JSONEq(t, `{"event_id":"`+got.message.Attributes["event_id"]+`","topic":"orders","message_id":"1","ordering_key":"o1"}`, answer)
	require.Equal(t, "order.shipped", got.message.Attributes["routing_key"], "without one the type is it")
	require.NotContains(t, got.message.Attributes, "queue")
	require.Equal(t, "o1", got.message.OrderingKey)

	d, code, _ = sent(t, toOrders, shipped)
	require.Equal(t, http.StatusAccepted, code)
	require.Equal(t, "orders-process", d.broker.all()[0].message.Attributes["queue"], "what is put on a queue by name reaches no other")
}

func TestWhatIsAskedForIsHonoured(t *testing.T) {
	t.Parallel()
	d, code, answer := sent(t, toOrders, `{"message":`+shipped+`,"deliver_at":"2026-03-04T10:00:00","priority":"high","tenant":"acme","max_attempts":2,"routing_key":"order.shipped"}`)
	require.Equal(t, http.StatusAccepted, code, answer)
	attributes := d.broker.all()[0].message.Attributes
	for name, want := range map[string]string{
		"deliver_at": "2026-03-04T10:00:00Z", "priority": "high", "tenant": "acme", "max_attempts": "2", "routing_key": "order.shipped",
	} {
		require.Equal(t, want, attributes[name], name)
	}
}

func TestWhatCannotBeHonouredIsRefused(t *testing.T) {
	t.Parallel()
	const email = "/topics/notifications/messages"
	const welcome = `{"type":"notification.email.order_confirmed","version":1,"data":{"user_id":"u1"}}`
	for name, test := range map[string]struct{ path, body, where, rule string }{
		"another priority":                       {toOrders, `{"message":` + shipped + `,"priority":"low"}`, "priority", "not_of_queue"},
		"more attempts than the queue gives":     {toOrders, `{"message":` + shipped + `,"max_attempts":6}`, "max_attempts", "max=5"},
		"no attempt":                             {toOrders, `{"message":` + shipped + `,"max_attempts":0}`, "max_attempts", "min=1"},
		"half an attempt":                        {toOrders, `{"message":` + shipped + `,"max_attempts":1.5}`, "max_attempts", "min=1"},
		"a time that is none":                    {toOrders, `{"message":` + shipped + `,"deliver_at":"tomorrow"}`, "deliver_at", "timestamp"},
		"a time in 31 days":                      {toOrders, `{"message":` + shipped + `,"deliver_at":"2026-04-02T10:02:04Z"}`, "deliver_at", "too_far"},
		"a time after the message has gone off":  {email, `{"message":` + welcome + `,"deliver_at":"2026-03-03T10:02:04Z"}`, "deliver_at", "beyond_message_ttl"},
		"a tenant that is text":                  {toOrders, `{"message":` + shipped + `,"tenant":"Mette Lindqvist"}`, "tenant", "id"},
		"a tenant that is an address":            {toOrders, `{"message":` + shipped + `,"tenant":"ip-203.0.113.77"}`, "tenant", "ip"},
		"a tenant that is a number":              {toOrders, `{"message":` + shipped + `,"tenant":7}`, "tenant", "text"},
		"a routing key that nothing is bound to": {onOrders, `{"message":` + shipped + `,"routing_key":"order.lost"}`, "routing_key", "unroutable"},
		"a type that nothing is bound to":        {onOrders, strings.Replace(shipped, "shipped", "confirmed", 1), "routing_key", "unroutable"},
		"a type that its queue does not handle":  {onOrders, `{"message":` + strings.Replace(shipped, "shipped", "confirmed", 1) + `,"routing_key":"order.shipped"}`, "type", "not_of_queue"},
		"something else":                         {toOrders, `{"message":` + shipped + `,"delay":5}`, "delay", "unknown"},
		"something else that may be anything":    {toOrders, `{"message":` + shipped + `,"Mette Lindqvist":5}`, "?", "unknown"},
		"a raw object of no known type":          {toOrders, `{"order_id":"o1"}`, "type", "required"},
		"a member that the type does not have":   {toOrders, `{"message":{"order_id":"o1","email":"x"},"routing_key":"order.shipped"}`, "data.email", "unknown"},
		"a list of nothing":                      {toOrders, `{"messages":[]}`, "messages", "1 to 100"},
		"a list that is too long":                {toOrders, `{"messages":[` + strings.TrimSuffix(strings.Repeat(`{"message":`+shipped+`},`, 101), ",") + `]}`, "messages", "1 to 100"},
		"a list with something beside it":        {toOrders, `{"messages":[{"message":` + shipped + `}],"Mette":1}`, "?", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, producing())
			p := requireProblem(t, d, d.send(generic(t, test.path, []byte(test.body))), http.StatusUnprocessableEntity, "contract_broken", "Mette")
			require.Equal(t, []string{test.where, test.rule}, []string{p.Violations[0].Path, p.Violations[0].Rule})
		})
	}
}

// listed is the answer to a list.
type listed struct {
	Results []struct {
		Status     int    `json:"status"`
		EventID    string `json:"event_id"`
		Queue      string `json:"queue"`
		MessageID  string `json:"message_id"`
		Code       string `json:"code"`
		RetryAfter int    `json:"retry_after"`
		Violations []struct {
			Path string `json:"path"`
		} `json:"violations"`
	} `json:"results"`
}

// list sends a list of items, and returns its results.
func (d *door) list(t *testing.T, path string, items ...string) listed {
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

func TestWhatNoHandlerCouldTakeIsRefusedByTheContract(t *testing.T) {
	t.Parallel()
	order := func(items int) string {
		return `{"type":"order.created","version":1,"data":{"order_id":"o1","items":[` +
			strings.TrimSuffix(strings.Repeat(`{"product_id":"p1","quantity":1},`, items), ",") + `]}}`
	}
	used := func(quantity string) string {
		return `{"type":"usage_tracking","version":1,"data":{"subscription_id":"s1","meter":"calls","quantity":` + quantity + `}}`
	}
	invoice := func(amount string) string {
		return `{"type":"billing.invoice.paid","version":1,"data":{"invoice_id":"i1","currency":"EUR","amount":"` + amount + `"}}`
	}
	for name, test := range map[string]struct{ path, most, more, field, rule string }{
		"an order's items":         {toOrders, order(100), order(101), "data.items", "max=100"},
		"a quantity of usage":      {"/queues/events-high/messages", used("1000000000"), used("1000000001"), "data.quantity", "max=1000000000"},
		"a correction of usage":    {"/queues/events-high/messages", used("-1000000000"), used("-1000000001"), "data.quantity", "min=-1000000000"},
		"an amount for the ledger": {"/topics/fis-events/messages", invoice("10000000000000.00"), invoice("10000000000000.01"), "data.amount", "amount"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, code, answer := sent(t, test.path, test.most)
			require.Equal(t, http.StatusAccepted, code, answer)
			d, code, answer := sent(t, test.path, test.more)
			require.Equal(t, http.StatusUnprocessableEntity, code, answer)
			require.Contains(t, answer, `"path":"`+test.field+`","rule":"`+test.rule+`"`)
			require.Empty(t, d.broker.all())
		})
	}
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
	require.Equal(t, "e1", answer.Results[0].EventID)
	require.Equal(t, "orders-process", answer.Results[0].Queue)
	require.Len(t, d.broker.all(), 3)
	require.Equal(t, 9, strings.Count(d.log.String(), `"message":"webhook"`), "each has its line")
}

// A source may be let send more than Pub/Sub takes in one message.
func TestAMessageAboveWhatPubSubTakesRefusesItselfAlone(t *testing.T) {
	t.Parallel()
	parts, row := contract.Member{Name: "parts"}, ""
	for i := range 32 {
		name := fmt.Sprint("p", i)
		parts.List = append(parts.List, contract.Member{Name: name, Shape: "code"})
		row += fmt.Sprintf(",%q:%q", name, strings.Repeat("p", 64))
	}
	huge := `{"id":"huge","type":"order.shipped","version":1,"data":{"order_id":"o1","parts":[` + strings.Repeat("{"+row[1:]+"},", 4999) + "{}]}}"
	require.Greater(t, len(huge), contract.MaxMessageBytes)
	contracts, err := contract.NewSet(contract.Formats, []contract.Declaration{{
		Format: contract.MessageV1, Type: "order.shipped", Version: 1, Members: []contract.Member{{Name: "order_id", Shape: "id", Required: true}, parts},
	}})
	require.NoError(t, err)
	roomy := func(c *webhook.Config) {
		producing()(c)
		c.Catalog.Contracts = contracts
		source("generic", func(s *catalog.Source) { s.MaxBodyBytes, s.RatePerSecond, s.Burst = 16<<20, 1, 2 })(c)
	}
	d := open(t, roomy)
	answer := d.list(t, toOrders, of("o1", "e1"), `{"message":`+huge+`}`, of("o1", "e2"))
	require.Equal(t, []string{"202", "422message_limit", "202"}, answer.codes(), "it holds up nothing, and takes nothing of the rate")
	require.Len(t, d.broker.all(), 2)
	d = open(t, roomy)
	w := d.send(generic(t, toOrders, []byte(huge)))
	requireProblem(t, d, w, http.StatusUnprocessableEntity, "message_limit", "")
	require.Contains(t, w.Body.String(), "10000000 bytes")
}

// slow is a broker that confirms once enough messages wait for it, in the order of their keys.
type slow struct {
	recorder
	wants   int
	gather  chan struct{}
	arrived int
}

func (p *slow) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	p.mu.Lock()
	if p.arrived++; p.arrived == p.wants {
		close(p.gather)
	}
	p.mu.Unlock()
	select {
	case <-p.gather:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return p.recorder.Publish(ctx, topic, m)
}

func TestAListIsPublishedConcurrentlyAndInTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	broker := &slow{wants: 10, gather: make(chan struct{})}
	d := open(t, func(c *webhook.Config) {
		producing()(c)
		c.Publisher = broker
	})
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

// failing is a broker that does not confirm some messages, and breaks down at others.
type failing struct {
	recorder
	fails, panics []string
}

func (p *failing) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	id := m.Attributes["event_id"]
	switch {
	case slices.Contains(p.panics, id):
		panic("Mette")
	case slices.Contains(p.fails, id):
		return "", errors.New("Mette")
	}
	return p.recorder.Publish(ctx, topic, m)
}

func TestNothingOvertakesAMessageOfItsKeyThatIsToBeSentAgain(t *testing.T) {
	t.Parallel()
	broker := &failing{fails: []string{"e2"}, panics: []string{"p1"}}
	d := open(t, func(c *webhook.Config) {
		producing()(c)
		c.Publisher = broker
	})
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

func TestEachMessageOfAListCountsForTheRate(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) {
		producing()(c)
		source("generic", func(s *catalog.Source) { s.RatePerSecond, s.Burst = 1, 3 })(c)
	})
	answer := d.list(t, toOrders, of("o1", "e1"), of("o2", "e2"), of("o3", "e3"), of("o4", "e4"))
	got := map[string]int{}
	for _, r := range answer.Results {
		got[fmt.Sprint(r.Status, r.Code, r.RetryAfter)]++
	}
	require.Equal(t, map[string]int{"2020": 3, "429rate_limited1": 1}, got)
	require.Equal(t, http.StatusTooManyRequests, d.send(generic(t, toOrders, []byte(shipped))).Code)
	require.Len(t, d.broker.all(), 3)
}

// A producer's rate is for each queue: analytics may fail to keep up, orders may not wait for it.
func TestAFloodIntoOneQueueRefusesNothingOfAnother(t *testing.T) {
	t.Parallel()
	const second = "orders-seen"
	for name, flood := range map[string]string{"over its address": "/queues/" + second + "/messages", "over the topic that both take from": "/topics/orders/messages"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
				order := fmt.Appendf(nil, `{"id":"order_%d","type":"order.shipped","version":1,"data":{"order_id":"o2"}}`, i)
				require.Equal(t, http.StatusAccepted, d.send(generic(t, toOrders, order)).Code)
			}
		})
	}
}

// admitting refuses the messages of a queue beyond some.
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
}

func TestAMessageThatCannotWaitInADocumentIsNotAskedToWait(t *testing.T) {
	t.Parallel()
	contracts, err := contract.NewSet(contract.Formats, []contract.Declaration{{Format: contract.MessageV1, Type: "order.created", Version: 1, Members: []contract.Member{
		{Name: "order_id", Shape: "id", Required: true}, {Name: "items", List: []contract.Member{{Name: "product_id", Shape: "id"}, {Name: "quantity", Shape: "quantity"}}},
	}}})
	require.NoError(t, err)
	var items []string
	for i := range 5000 {
		items = append(items, fmt.Sprintf(`{"product_id":"%0100d","quantity":1}`, i+1))
	}
	body := `{"message":{"id":"e1","type":"order.created","version":1,"timestamp":"2026-03-02T10:00:00Z","data":{"order_id":"o1","items":[` + strings.Join(items, ",") + `]}},"deliver_at":"2026-03-04T10:00:00Z"}`
	d := open(t, func(c *webhook.Config) {
		producing()(c)
		c.Catalog.Contracts = contracts
	})
	p := requireProblem(t, d, d.send(generic(t, toOrders, []byte(body))), http.StatusUnprocessableEntity, "contract_broken", "")
	require.Equal(t, "too_large_to_wait", p.Violations[0].Rule)
	require.Equal(t, http.StatusAccepted, d.send(generic(t, toOrders, []byte(strings.Replace(body, `"deliver_at":"2026-03-04T10:00:00Z"`, `"tenant":"t1"`, 1)))).Code)
}

// FuzzProducers sends signed bodies of any content to the producers' doors. What is published is whole
// and valid, and each message of a list has its result.
func FuzzProducers(f *testing.F) {
	for _, body := range []string{
		renewed, shipped, `{"message":` + shipped + `,"deliver_at":"2026-03-04T10:00:00"}`, `{"messages":[` + of("o1", "e1") + `,{"message":` + renewed + `}]}`,
		`{"messages":[]}`, `{"messages":{}}`, `{"message":null}`, `{"data":{}}`, `{"type":1,"data":{"order_id":"o1"}}`, `{"id":"","type":"order.shipped","order_id":"o1"}`,
	} {
		f.Add([]byte(body))
	}
	d := open(f, func(c *webhook.Config) {
		producing()(c)
		unlimited(c)
	})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{toUpdates, toOrders, onOrders} {
			d.broker.got = nil
			d.log.Reset()
			w := d.send(generic(t, path, body))
			require.Less(t, w.Code, http.StatusInternalServerError, "%s", w.Body)
			taken := 0
			switch w.Code {
			case http.StatusAccepted:
				taken = 1
			case http.StatusOK:
				var answer listed
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
				require.NotEmpty(t, answer.Results)
				for _, r := range answer.Results {
					require.Less(t, r.Status, http.StatusInternalServerError)
					if r.Status == http.StatusAccepted {
						taken++
					}
				}
			}
			require.Len(t, d.broker.got, taken)
			for _, got := range d.broker.got {
				m, err := contracts(t).Decode(got.message.Attributes["contract"], got.message.Data)
				require.NoError(t, err)
				require.NoError(t, m.Validate())
				require.NoError(t, m.CheckAttributes(got.message.Attributes))
			}
		}
	})
}
