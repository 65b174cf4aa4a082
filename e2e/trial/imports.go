package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/contract"
	"billhook/internal/ingest/importer/importertest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// imports moves messages of Redis, RabbitMQ and Postgres to a whole Billhook. Each import is killed twice with SIGKILL,
// where the webhook service has accepted a request and the import has not learned of it. It needs a message to have an id
// of its own: the importer's own tests have those without.
//
// It fails unless each message was handled once, none before its time, and none is left behind.
func imports(flags *flag.FlagSet) func(*run) {
	messages := flags.Int("messages", 1_000, "how many messages are imported of each kind")
	only := flags.String("only", "", "redis, rabbitmq or postgres; all if empty")
	return func(r *run) {
		systems := map[string]func(r *run, n int, due time.Time) system{"redis": fillRedis, "rabbitmq": fillRabbitMQ, "postgres": fillPostgres}
		if *only != "" {
			maps.DeleteFunc(systems, func(name string, _ func(*run, int, time.Time) system) bool { return name != *only })
		}
		binary := r.program()
		var all sync.WaitGroup
		for _, name := range slices.Sorted(maps.Keys(systems)) {
			all.Go(func() { r.part(name, func(r *run) { move(r, binary, name, *messages, systems[name]) }) })
		}
		all.Wait()
	}
}

type system struct {
	address string // of the old system, as the import's environment has it
	queues  []string
	// queue is the one that takes its messages, and ids are the event ids, with the time at which each is due; zero: at once.
	queue string
	ids   map[string]time.Time
	rest  func() int
}

func move(r *run, binary, name string, n int, fill func(*run, int, time.Time) system) {
	c := catalogtest.Shipped()
	// A store without a sync for each commit: no process that writes to it is killed here.
	documents, err := standin.OpenTemporaryStore(filepath.Join(r.TempDir(), "documents.db"))
	r.must(err)
	r.Cleanup(func() { r.must(documents.Close()) })
	e := embed(r, devstack.Config{Catalog: c, WrapStore: func(store.Store) store.Store { return documents }})
	// Later than the import takes, so that it has to keep it.
	due := time.Now().Add(20*time.Second + time.Duration(n)*8*time.Millisecond).Truncate(time.Second)
	old := fill(r, n, due)
	if rest := old.rest(); rest != n {
		r.Fatalf("%d of %d messages wait", rest, n)
	}
	for id := range old.ids {
		e.note(id, time.Now())
	}
	k := newKiller(r, e.WebhookURL)
	requests := int64(n / 100)
	k.run(r, binary, name, old, requests/4)
	k.run(r, binary, name, old, requests/2)
	if said := k.run(r, binary, name, old, -1); !strings.Contains(said, "\nMoved: ") {
		r.Errorf("the import says %s", said)
	}
	if rest := old.rest(); rest > 0 {
		r.broken("%d messages are left behind", rest)
	}
	e.await(r, n)
	handled := map[string][]time.Time{}
	for _, d := range e.Service.Deliveries() {
		handled[d.Key] = append(handled[d.Key], d.At)
	}
	old.check(r, handled)
	r.printf("%-9s %d messages in 3 runs, of which 2 ended by kill -9: %d handled, %d left behind\n", name, n, len(handled), old.rest())
}

// check compares with the messages when the service handled each, by the key that it knows.
func (s system) check(r *run, handled map[string][]time.Time) {
	if len(handled) != len(s.ids) {
		r.broken("%d events were handled of %d messages", len(handled), len(s.ids))
	}
	for id, due := range s.ids {
		switch times := handled[handler.CalleeKey(s.queue, contract.DefaultTenant, id)]; {
		case len(times) != 1:
			r.broken("%s was handled %d times", id, len(times))
		case times[0].Before(due):
			r.broken("%s was handled %s before its time", id, due.Sub(times[0]))
		}
	}
}

// killer stands between an import and the webhook service. It kills the import when the service
// has accepted a request, and the import has not learned of it.
type killer struct {
	*httputil.ReverseProxy
	url string
	// left is how many requests there are before that one; below 0: there is none.
	left atomic.Int64
	// starting is held while the import starts, which may send its first request before Start returns.
	starting sync.Mutex
	process  *os.Process
}

func newKiller(r *run, webhookURL string) *killer {
	to, err := url.Parse(webhookURL)
	r.must(err)
	k := &killer{ReverseProxy: httputil.NewSingleHostReverseProxy(to)}
	k.ModifyResponse = func(*http.Response) error {
		if k.left.Add(-1) == 0 {
			k.starting.Lock()
			defer k.starting.Unlock()
			return k.process.Kill()
		}
		return nil
	}
	server := httptest.NewServer(k)
	r.Cleanup(server.Close)
	k.url = server.URL
	return k
}

// run runs an import, which is killed after so many requests, and returns what it has said.
func (k *killer) run(r *run, binary, name string, of system, kill int64) string {
	k.left.Store(kill)
	command := exec.CommandContext(context.WithoutCancel(r.ctx), binary, append([]string{"admin", "import", name, "--yes", "--rate", "0", "--webhook", k.url}, of.queues...)...)
	command.Env = []string{"WEBHOOK_SIGNING_SECRET=" + e2e.Secret, of.address}
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	k.starting.Lock()
	err := command.Start()
	k.process = command.Process
	k.starting.Unlock()
	r.must(err)
	err = command.Wait()
	if killed := err != nil && err.Error() == "signal: killed"; killed != (kill > 0) || err != nil && !killed {
		r.Fatalf("the import has ended otherwise, %w: %s", err, output.String())
	}
	return output.String()
}

// posting is the shipped queue that posts an event type to a path.
func posting(r *run, eventType, path string) catalog.Queue {
	c := catalogtest.Shipped()
	for _, q := range c.Queues {
		if q.Handlers[eventType].Post.Path == path {
			return q
		}
	}
	r.Fatalf("no queue posts %s to %s", eventType, path)
	return catalog.Queue{}
}

func fillRedis(r *run, n int, due time.Time) system {
	do, address := importertest.Redis(r)
	changes := posting(r, "upgrade", "/v1/plan-changes")
	name := changes.Alias
	old := system{address: "REDIS_URL=" + address, queue: changes.ID, ids: map[string]time.Time{}}
	for i := range n {
		id := fmt.Sprintf("plan-%d", i)
		body := fmt.Sprintf(`{"id":%q,"action":"upgrade","correlation_id":null,"created_at":"2026-11-01T00:00:00.123456","attempts":1,"payload":{"subscription_id":"s%d"}}`, id, i)
		switch old.ids[id] = (time.Time{}); i % 10 {
		case 0:
			old.ids[id] = due
			do("ZADD", name+":delayed", due.Unix(), body)
		case 1:
			do("LPUSH", name+":processing", body)
		default:
			do("LPUSH", name, body)
		}
	}
	old.rest = func() (left int) {
		for key, count := range map[string]string{name: "LLEN", name + ":processing": "LLEN", name + ":delayed": "ZCARD", name + ":import": "HLEN"} {
			left += int(do(count, key).(int64))
		}
		return left
	}
	return old
}

func fillRabbitMQ(r *run, n int, due time.Time) system {
	connection, address := importertest.RabbitMQ(r)
	channel, err := connection.Channel()
	r.must(err)
	changes := posting(r, "upgrade", "/v1/plan-changes").ID
	const name = "plan.changes"
	_, err = channel.QueueDeclare(name, true, false, false, false, nil)
	r.must(err)
	r.must(channel.Tx())
	old := system{address: "RABBITMQ_URL=" + address, queues: []string{changes + "=" + name}, queue: changes, ids: map[string]time.Time{}}
	for i := range n {
		id := fmt.Sprintf("plan-%d", i)
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, `{"id":%q,"action":"downgrade","payload":{"subscription_id":"s%d"}}`, id, i)}
		if old.ids[id] = (time.Time{}); i%10 == 0 {
			old.ids[id] = due
			m.Timestamp, m.Headers = due.Add(-time.Hour), amqp.Table{"x-delay": int32(time.Hour.Milliseconds())}
		}
		r.must(channel.PublishWithContext(r.ctx, "", name, true, false, m))
	}
	r.must(channel.TxCommit())
	old.rest = func() int {
		var queue amqp.Queue
		for range 100 { // the broker counts what a connection that is gone gives back
			queue, err = channel.QueueDeclarePassive(name, true, false, false, false, nil)
			r.must(err)
		}
		return queue.Messages
	}
	return old
}

func fillPostgres(r *run, n int, due time.Time) system {
	connection, address := importertest.Postgres(r)
	_, err := connection.Exec(r.ctx, `CREATE TABLE event_queue (
		id serial PRIMARY KEY, type varchar(100) NOT NULL, payload text NOT NULL, priority varchar(20), status varchar(20),
		attempts integer, max_attempts integer, next_retry_at timestamp, error text, created_at timestamp, updated_at timestamp, processed_at timestamp)`)
	r.must(err)
	_, err = connection.Exec(r.ctx, `INSERT INTO event_queue (type, payload, priority, status, attempts, max_attempts, next_retry_at, created_at, updated_at)
		SELECT 'quota_warning', '{"subscription_id":"s' || n || '","meter":"calls","percent":80}', 'normal', 'pending', 1, 5,
			CASE WHEN n % 10 = 0 THEN $2::timestamp ELSE now() - interval '1 minute' END, now(), now() FROM generate_series(1, $1::int) AS n`, n, due.UTC())
	r.must(err)
	old := system{address: "DATABASE_URL=" + address, queue: posting(r, "quota_warning", "/v1/quota-warnings").ID, ids: map[string]time.Time{}}
	for i := 1; i <= n; i++ {
		id := fmt.Sprintf("event_queue-%d", i)
		if old.ids[id] = (time.Time{}); i%10 == 0 {
			old.ids[id] = due
		}
	}
	old.rest = func() (left int) {
		r.must(connection.QueryRow(r.ctx, `SELECT count(*) FROM event_queue WHERE status <> 'moved'`).Scan(&left))
		return left
	}
	return old
}
