package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/importer/importertest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
)

// imports moves messages of Redis, RabbitMQ and Postgres to a whole Billhook, and kills each import twice.
// Each message has its own id; the importer's tests cover messages without one.
//
// It fails unless each message was handled once, not before it was due, and no message is left behind.
func imports(flags *flag.FlagSet) func(*run) {
	messages := flags.Int("messages", 1_000, "how many messages are imported of each kind")
	return func(r *run) {
		binary := r.program()
		var all sync.WaitGroup
		fills := map[string]func(*system){"redis": fillRedis, "rabbitmq": fillRabbitMQ, "postgres": fillPostgres}
		for name, fill := range fills {
			all.Go(func() { r.part(name, func(r *run) { move(r, binary, name, *messages, fill) }) })
		}
		all.Wait()
	}
}

// system is the system to import from.
type system struct {
	*run
	// many is the number of messages; every tenth is due after the import has ended.
	many int
	due  time.Time

	address string // NAME=value, for the import
	queues  []string
	// queue takes the messages. ids has the due time by event id; zero: at once.
	queue catalog.Queue
	ids   map[string]time.Time
	rest  func() int
}

// takes chooses the shipped queue that posts the event type to the path.
func (s *system) takes(eventType, path string) {
	c := catalogtest.Shipped()
	i := slices.IndexFunc(c.Queues, func(q catalog.Queue) bool {
		return q.Handlers[eventType].Post.Path == path
	})
	require.GreaterOrEqual(s, i, 0, "a queue posts %s to %s", eventType, path)
	s.queue = c.Queues[i]
}

// holds calls put for each message, numbered from 1, with an id of this form.
func (s *system) holds(form string, put func(i int, id string, later bool)) {
	for i := 1; i <= s.many; i++ {
		id, later := fmt.Sprintf(form, i), i%10 == 0
		if s.ids[id] = (time.Time{}); later {
			s.ids[id] = s.due
		}
		put(i, id, later)
	}
}

func move(r *run, binary, name string, many int, fill func(*system)) {
	// The store does not sync each commit, because no process that writes to it is killed here.
	documents := r.temporary()
	e := embed(r, devstack.Config{
		Catalog: catalogtest.Shipped(), WrapStore: func(store.Store) store.Store { return documents },
	})
	due := time.Now().Add(20*time.Second + time.Duration(many)*8*time.Millisecond).Truncate(time.Second)
	old := &system{run: r, many: many, due: due, ids: map[string]time.Time{}}
	fill(old)
	require.Equal(r, many, old.rest(), "messages wait")
	for id := range old.ids {
		e.sent.Store(id, time.Now())
	}
	said := ""
	for _, kill := range []int{many / 400, many / 200, never} {
		said = old.drain(e, binary, name, kill)
	}
	require.Contains(r, said, "\nMoved: ")
	e.await(many)
	handled := e.posted()
	old.check(r, handled)
	r.printf("%-9s %d messages in 3 runs, of which 2 ended by kill -9: %d handled, %d left behind\n", name, many,
		len(handled), old.rest())
	if rest := old.rest(); rest > 0 {
		r.broken("%d messages are left behind", rest)
	}
}

const never = -1

// drain runs an import, and kills it before it gets the answer to the request with this number.
func (s *system) drain(to *embedded, binary, name string, kill int) string {
	at := filetest.Must(url.Parse(to.webhookURL))(to)
	life, end := context.WithCancel(context.WithoutCancel(to.ctx))
	defer end()
	var requests atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.ModifyResponse = func(accepted *http.Response) error {
		if requests.Add(1) == int64(kill) {
			end()
			<-accepted.Request.Context().Done() // the import is dead
		}
		return nil
	}
	server := httptest.NewServer(proxy)
	defer server.Close()
	arguments := append([]string{"admin", "import", name, "--yes", "--rate", "0", "--webhook", server.URL},
		s.queues...)
	command := exec.CommandContext(life, binary, arguments...)
	command.Env = []string{"WEBHOOK_SIGNING_SECRET=" + e2e.Secret, s.address}
	said, err := command.CombinedOutput()
	killed := err != nil && err.Error() == "signal: killed"
	if killed != (kill != never) || err != nil && !killed {
		to.Fatalf("the import has ended otherwise, %w: %s", err, said)
	}
	return string(said)
}

// check requires that each message was handled exactly once, and not before it was due.
func (s *system) check(r *run, handled map[string][]time.Time) {
	if len(handled) != len(s.ids) {
		r.broken("%d events were handled of %d messages", len(handled), len(s.ids))
	}
	for id, due := range s.ids {
		switch times := handled[handler.CalleeKey(s.queue.ID, contract.DefaultTenant, id)]; {
		case len(times) != 1:
			r.broken("%s was handled %d times", id, len(times))
		case times[0].Before(due):
			r.broken("%s was handled %s before it was due", id, due.Sub(times[0]))
		}
	}
}

func fillRedis(s *system) {
	do, address := importertest.Redis(s)
	s.address = "REDIS_URL=" + address
	s.takes("upgrade", "/v1/plan-changes")
	name := s.queue.Alias
	s.holds("plan-%d", func(i int, id string, later bool) {
		body := fmt.Sprintf(`{"id":%q,"action":"upgrade","correlation_id":null,"attempts":1,`+
			`"created_at":"2026-11-01T00:00:00.123456","payload":{"subscription_id":"s%d"}}`, id, i)
		switch {
		case later:
			do("ZADD", name+":delayed", s.due.Unix(), body)
		case i%10 == 1:
			do("LPUSH", name+":processing", body)
		default:
			do("LPUSH", name, body)
		}
	})
	s.rest = func() (left int) {
		for key, count := range map[string]string{
			name: "LLEN", name + ":processing": "LLEN", name + ":delayed": "ZCARD", name + ":import": "HLEN",
		} {
			left += int(do(count, key).(int64))
		}
		return left
	}
}

func fillRabbitMQ(s *system) {
	connection, address := importertest.RabbitMQ(s)
	s.address = "RABBITMQ_URL=" + address
	s.takes("upgrade", "/v1/plan-changes")
	channel := filetest.Must(connection.Channel())(s)
	const name = "plan.changes"
	s.queues = []string{s.queue.ID + "=" + name}
	s.must(filetest.ErrorOf(channel.QueueDeclare(name, true, false, false, false, nil)))
	s.must(channel.Tx())
	s.holds("plan-%d", func(i int, id string, later bool) {
		body := fmt.Appendf(nil, `{"id":%q,"action":"downgrade","payload":{"subscription_id":"s%d"}}`, id, i)
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body}
		if later {
			m.Timestamp, m.Headers = s.due.Add(-time.Hour), amqp.Table{"x-delay": int32(time.Hour.Milliseconds())}
		}
		s.must(channel.PublishWithContext(s.ctx, "", name, true, false, m))
	})
	s.must(channel.TxCommit())
	s.rest = func() int {
		var queue amqp.Queue
		for range 100 { // until the broker counts a lost connection's messages again
			queue = filetest.Must(channel.QueueDeclarePassive(name, true, false, false, false, nil))(s)
		}
		return queue.Messages
	}
}

func fillPostgres(s *system) {
	connection, address := importertest.Postgres(s)
	s.address = "DATABASE_URL=" + address
	s.takes("quota_warning", "/v1/quota-warnings")
	s.must(filetest.ErrorOf(connection.Exec(s.ctx, `CREATE TABLE event_queue (id serial PRIMARY KEY,
		type varchar(100) NOT NULL, payload text NOT NULL, priority varchar(20), status varchar(20),
		attempts integer, max_attempts integer, next_retry_at timestamp, error text,
		created_at timestamp, updated_at timestamp, processed_at timestamp)`)))
	s.must(filetest.ErrorOf(connection.Exec(s.ctx, `INSERT INTO event_queue
		(type, payload, priority, status, attempts, max_attempts, created_at, updated_at, next_retry_at)
		SELECT 'quota_warning', '{"subscription_id":"s' || n || '","meter":"calls","percent":80}', 'normal',
			'pending', 1, 5, now(), now(),
			CASE WHEN n % 10 = 0 THEN $2::timestamp ELSE now() - interval '1 minute' END
		FROM generate_series(1, $1::int) AS n`, s.many, s.due.UTC())))
	s.holds("event_queue-%d", func(int, string, bool) {})
	s.rest = func() (left int) {
		s.must(connection.QueryRow(s.ctx, `SELECT count(*) FROM event_queue WHERE status <> 'moved'`).Scan(&left))
		return left
	}
}
