package importer_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/ingest/importer"
	"billhook/internal/ingest/importer/importertest"
)

// ids are event ids that sort by the time at which they were made. Each maker has its own.
func ids(maker string) func() string {
	var n atomic.Int64
	return func() string { return fmt.Sprintf("%s-%06d", maker, n.Add(1)) }
}

func drain(t *testing.T, s importer.Source, d *ingest) importer.Report {
	t.Helper()
	return filetest.Must(run(t, s, d, &waits{at: now}).Do(t.Context()))(t)
}

const list = "q:sub:plan_change"

func lists() []importer.Name {
	return []importer.Name{{Queue: "sub-plan-change", Source: list}}
}

func redisAt(t *testing.T, address string, failed bool, maker string) *importer.Redis {
	t.Helper()
	return filetest.Must(importer.NewRedis(t.Context(), address, lists(), failed, ids(maker)))(t)
}

func envelope(id string, attempts int) string {
	return fmt.Sprintf(`{"id":%q,"action":"upgrade","attempts":%d,"payload":{"subscription_id":"s"}}`,
		id, attempts)
}

func TestEachRedisListOfAQueueIsDrained(t *testing.T) {
	t.Parallel()
	do, address := importertest.Redis(t)
	ctx, due := t.Context(), now.Add(90*time.Minute+250*time.Millisecond)
	do("LPUSH", list, envelope("w1", 0), envelope("w2", 1))
	do("LPUSH", list+":processing", envelope("p1", 1))
	do("ZADD", list+":delayed", float64(due.UnixMilli())/1000, envelope("d1", 2), due.UnixMilli(),
		envelope("d2", 3))
	do("LPUSH", list+":failed", envelope("f1", 5))
	do("SET", "lock:"+list+":p1", "worker")
	s := redisAt(t, address, false, "a")

	places, messages := filetest.Both(s.Look(ctx, 10))(t)
	require.Len(t, messages, 4, "a preview reads the messages that would be moved")
	require.Equal(t, []string{"1 claimed stays", "2 waiting", "2 delayed", "1 failed stays"}, summary(places))

	ingest := newIngest()
	require.Equal(t, 4, drain(t, s, ingest).Moved)
	require.Equal(t, []string{"w1", "w2", "d1", "d2"}, ingest.order,
		"the oldest first, and delayed messages last")
	require.WithinDuration(t, due, ingest.due["d1"], time.Millisecond, "seconds")
	require.WithinDuration(t, due, ingest.due["d2"], time.Millisecond, "milliseconds")
	require.Contains(t, ingest.bodies["d1"], `"attempts":2`)
	require.EqualValues(t, 1, do("LLEN", list+":processing"), "its lock is held")

	do("DEL", "lock:"+list+":p1")
	s = redisAt(t, address, true, "b")
	require.Equal(t, 2, drain(t, s, ingest).Moved)
	require.NoError(t, s.Release(ctx))
	require.Contains(t, ingest.bodies["p1"], `"attempts":2`, "an unfinished attempt counts")
	require.Contains(t, ingest.bodies["f1"], `"attempts":0`, "failed messages have all attempts again")
	require.Empty(t, do("KEYS", "*"), "nothing is left in Redis")
}

func texts(t *testing.T, answer any) []string {
	t.Helper()
	return filetest.Must(redis.Strings(answer, nil))(t)
}

func summary(places []importer.Place) (lines []string) {
	for _, place := range places {
		line := fmt.Sprintf("%d %s", place.Count, place.Part)
		if place.Left != "" {
			line += " stays"
		}
		lines = append(lines, line)
	}
	return lines
}

func TestRefusedMessageIsPutBackToItsPlaceInTheList(t *testing.T) {
	t.Parallel()
	do, address := importertest.Redis(t)
	ctx := t.Context()
	for i := range 5 {
		do("LPUSH", list, fmt.Sprintf(`{"action":"upgrade","n":%d}`, i))
	}
	do("ZADD", list+":delayed", 1900000000.5, "no JSON\x00\n at all")
	s, ingest := redisAt(t, address, false, "a"), newIngest()
	ingest.refuse = `"n":`
	require.Equal(t, 6, drain(t, s, ingest).Refused)
	require.NoError(t, s.Release(ctx))
	require.Equal(t, []string{
		`{"action":"upgrade","n":4}`, `{"action":"upgrade","n":3}`, `{"action":"upgrade","n":2}`,
		`{"action":"upgrade","n":1}`, `{"action":"upgrade","n":0}`,
	}, texts(t, do("LRANGE", list, 0, -1)))
	require.Equal(t, []string{"no JSON\x00\n at all", "1900000000.5"},
		texts(t, do("ZRANGE", list+":delayed", 0, -1, "WITHSCORES")))
	require.Zero(t, do("EXISTS", list+":import"))
}

// cut ends its connection after ingest has accepted, before anything is removed.
type cut struct{ importer.Source }

var errCut = fmt.Errorf("cut off")

func (c cut) Settle(context.Context, []importer.Message, []importer.Message) error { return errCut }

func cutOff(t *testing.T, s importer.Source, d *ingest) {
	t.Helper()
	require.ErrorIs(t, filetest.ErrorOf(run(t, cut{s}, d, &waits{at: now}).Do(t.Context())), errCut)
}

func TestEqualMessagesWithoutAnIDStayTwoAfterAnInterruptedRun(t *testing.T) {
	t.Parallel()
	do, address := importertest.Redis(t)
	same := `{"action":"upgrade","subscription_id":"s"}`
	do("LPUSH", list, same, same, same)
	ingest := newIngest()
	cutOff(t, redisAt(t, address, false, "a"), ingest)
	require.Len(t, ingest.bodies, 3)
	do("LPUSH", list, same)
	require.Equal(t, 4, drain(t, redisAt(t, address, false, "b"), ingest).Moved)
	require.Len(t, ingest.bodies, 4, "three are sent again under the ids that they had")
	require.Empty(t, do("KEYS", "*"))
}

func TestClaimsOfAnInterruptedRunCanBePutBack(t *testing.T) {
	t.Parallel()
	do, address := importertest.Redis(t)
	ctx := t.Context()
	do("LPUSH", list, envelope("w1", 0), envelope("w2", 0))
	cutOff(t, redisAt(t, address, false, "a"), newIngest())
	require.Zero(t, do("LLEN", list))
	s := redisAt(t, address, false, "b")
	places, _ := filetest.Both(s.Look(ctx, 10))(t)
	require.Equal(t, []importer.Place{
		{Queue: "sub-plan-change", Name: list + ":import", Part: importer.Claimed, Count: 2},
	}, places)
	require.Equal(t, 2, filetest.Must(s.PutBack(ctx))(t))
	require.Equal(t, []string{envelope("w2", 0), envelope("w1", 0)}, texts(t, do("LRANGE", list, 0, -1)))
}

func TestMessageWithAnInvalidScoreIsReportedAndStays(t *testing.T) {
	t.Parallel()
	do, address := importertest.Redis(t)
	ctx := t.Context()
	odd := map[string]float64{
		"d1": 1e300, "d2": -1e300, "d3": math.Inf(1), "d4": math.Inf(-1), "d5": 1e18, "d6": 253402300800000,
	}
	for id, score := range odd {
		do("ZADD", list+":delayed", score, envelope(id, 1))
	}
	late := float64(now.AddDate(0, 0, 1).UnixMilli())
	do("ZADD", list+":delayed", late, envelope("due", 1), 0, envelope("epoch", 1))
	s, ingest := redisAt(t, address, false, "a"), newIngest()
	report := drain(t, s, ingest)
	require.NoError(t, s.Release(ctx))
	require.Equal(t, 2, report.Moved)
	require.ElementsMatch(t, []string{"epoch", "due"}, ingest.order, "the rest moves")
	var named []string
	for _, refusal := range report.Refusals {
		require.Equal(t, "odd", refusal.Code)
		require.Equal(t, "its score is not a time before the year 10000", refusal.Detail)
		named = append(named, refusal.EventID)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(odd)), named)
	for id, score := range odd {
		kept := filetest.Must(redis.Float64(do("ZSCORE", list+":delayed", envelope(id, 1)), nil))(t)
		require.InDelta(t, score, kept, 0, "with its score: %s", id)
	}
}

const orders = "orders.process"

func rabbitAt(t *testing.T, address string, failed bool, maker string) *importer.RabbitMQ {
	t.Helper()
	names := []importer.Name{{Queue: "orders-process", Source: orders}}
	return filetest.Must(importer.NewRabbitMQ(address, names, everything(t), failed, ids(maker)))(t)
}

func TestEachQueueOfABrokerIsDrainedOverAMQP(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out: it starts RabbitMQ, which takes seconds")
	}
	connection, address := importertest.RabbitMQ(t)
	channel := filetest.Must(connection.Channel())(t)
	ctx := t.Context()
	for _, name := range []string{orders, orders + ".dlq"} {
		require.NoError(t, filetest.ErrorOf(channel.QueueDeclare(name, true, false, false, false, nil)))
	}
	require.NoError(t, channel.ExchangeDeclare("orders", "direct", true, false, false, false, nil))
	require.NoError(t, channel.QueueBind(orders, "order.created", "orders", false, nil))
	publish := func(exchange, key, body string, m amqp.Publishing) {
		m.Body, m.DeliveryMode = []byte(body), amqp.Persistent
		require.NoError(t, channel.PublishWithContext(ctx, exchange, key, true, false, m))
	}
	count := func(name string) int {
		t.Helper()
		queue := filetest.Must(channel.QueueDeclarePassive(name, true, false, false, false, nil))(t)
		return queue.Messages
	}
	message := func(id string, attempt int) string {
		return fmt.Sprintf(`{"id":%q,"type":"order.created","version":1,"data":{"order_id":"o"},`+
			`"metadata":{"attempt":%d}}`, id, attempt)
	}
	publish("orders", "order.created", message("plain", 1), amqp.Publishing{})
	publish("orders", "order.created", message("delayed", 1),
		amqp.Publishing{Headers: amqp.Table{"x-delay": int32(-30000)}})
	publish("orders", "order.created", message("waits", 1),
		amqp.Publishing{Headers: amqp.Table{"x-delay": int32(120000)}, Timestamp: now.Add(-time.Minute)})
	publish("orders", "order.created", message("forever", 1),
		amqp.Publishing{Headers: amqp.Table{"x-delay": int64(1) << 60}})
	publish("orders", "order.created", message("died", 1), amqp.Publishing{Headers: amqp.Table{"x-death": []any{
		amqp.Table{"count": int64(2), "queue": "orders.wait", "reason": "expired"},
		amqp.Table{"count": int64(4), "queue": orders, "reason": "rejected"},
	}}})
	publish("", orders+".dlq", message("dead", 5), amqp.Publishing{})
	for range 2 {
		publish("orders", "order.created", `{"order_id":"same"}`, amqp.Publishing{})
	}
	publish("orders", "order.created", `{"order_id":"named"}`, amqp.Publishing{MessageId: "of-amqp"})
	require.Eventually(t, func() bool { return count(orders) == 8 && count(orders+".dlq") == 1 }, time.Minute,
		10*time.Millisecond)

	s := rabbitAt(t, address, false, "a")
	places, messages := filetest.Both(s.Look(ctx, 10))(t)
	require.Len(t, messages, 8)
	require.Equal(t, []string{"8 waiting", "1 failed stays"}, summary(places))
	require.NoError(t, s.Release(ctx))
	require.Eventually(t, func() bool { return count(orders) == 8 }, time.Minute, 10*time.Millisecond,
		"a preview changes nothing")

	ingest := newIngest()
	s = rabbitAt(t, address, false, "b")
	cutOff(t, s, ingest)
	require.NoError(t, s.Release(ctx))
	require.Eventually(t, func() bool { return count(orders) == 8 }, time.Minute, 10*time.Millisecond,
		"a message that is not settled returns")

	ingest.refuse = `"plain"`
	s = rabbitAt(t, address, true, "c")
	report := drain(t, s, ingest)
	require.Equal(t, 7, report.Moved)
	require.Equal(t, map[string]int{"contract_broken": 1, "odd": 1}, report.Reasons)
	require.NoError(t, s.Release(ctx))
	require.Len(t, ingest.bodies, 8, "the two that are equal, under the ids that they had: %v", ingest.order)
	require.Contains(t, ingest.bodies["delayed"], `"attempt":3`, "two attempts made: the third waits 30 seconds")
	require.Contains(t, ingest.bodies["waits"], `"attempt":4`)
	require.Equal(t, now.Add(time.Minute), ingest.due["waits"])
	require.Contains(t, ingest.bodies["died"], `"attempt":5`, "four attempts made")
	require.Contains(t, ingest.bodies["dead"], `"attempt":1`, "failed messages have all attempts again")
	require.Contains(t, ingest.bodies["of-amqp"], `"type":"order.created"`, "the routing key is the type")
	require.Contains(t, ingest.bodies["b-000001"], `"type":"order.created"`)
	require.Eventually(t, func() bool { return count(orders) == 2 && count(orders+".dlq") == 0 }, time.Minute,
		10*time.Millisecond, "refused messages are where they were")
}

func textOf(t *testing.T, file string) string { return filetest.Read(t, "testdata", file) }

func TestErrorNeverRepeatsAnAddress(t *testing.T) {
	t.Parallel()
	_, err := importer.NewRedis(t.Context(), "http://:hunter2@127.0.0.1", nil, false, ids("a"))
	require.EqualError(t, err, "redis: the address is no redis:// URL")
	_, err = importer.NewRabbitMQ("http://guest:hunter2@127.0.0.1", nil, nil, false, ids("a"))
	require.EqualError(t, err, "rabbitmq: the address is no amqp:// URL")
	_, err = importer.NewPostgres(t.Context(), "postgres://old:hunter2@127.0.0.1:x/", "event_queue", nil, false)
	require.EqualError(t, err, "postgres: the address is no postgres:// URL")
}
