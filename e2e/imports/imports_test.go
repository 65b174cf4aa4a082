// Package imports_test imports messages of each kind into a whole Billhook: 1,000, or as many as the
// flag -messages says. With 10,000 it takes minutes.
package imports_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/importer/importertest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

var messages = flag.Int("messages", 1_000, "how many messages are imported of each kind")

// handled is a service that is told of events, and remembers when it was first told of each.
type handled struct {
	mu    sync.Mutex
	at    map[string]time.Time
	times map[string]int
	news  chan struct{}
}

func (h *handled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var told struct {
		EventID string `json:"event_id"`
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&told) != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	h.mu.Lock()
	h.times[told.EventID]++
	if h.at[told.EventID].IsZero() {
		h.at[told.EventID] = time.Now()
	}
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
	_, _ = io.WriteString(w, "{}")
}

// await waits until n events were handled, and returns when each was.
func (h *handled) await(t *testing.T, n int) map[string]time.Time {
	t.Helper()
	patience, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for {
		h.mu.Lock()
		count := len(h.at)
		h.mu.Unlock()
		if count >= n {
			return h.at
		}
		select {
		case <-h.news:
		case <-patience.Done():
			require.Failf(t, "not handled", "%d of %d", count, n)
		}
	}
}

// killer stands between an import and the webhook service. It kills the import when the service
// has accepted a request, and the import has not learned of it.
type killer struct {
	*httputil.ReverseProxy
	// left is how many requests there are before that one; below 0: there is none.
	left atomic.Int64
	// starting is held while the import starts, which may send its first request before Start returns.
	starting sync.Mutex
	process  *os.Process
}

func newKiller(t *testing.T, webhookURL string) (*killer, string) {
	t.Helper()
	to, err := url.Parse(webhookURL)
	require.NoError(t, err)
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
	t.Cleanup(server.Close)
	return k, server.URL
}

// imported is the system of old of one case.
type imported struct {
	// arguments are those of `billhook import`.
	arguments []string
	// queue is the one that takes its messages, and ids are the event ids, with the time at which each is due; zero: at once.
	queue string
	ids   map[string]time.Time
	// rest is how many messages of n are left behind.
	rest func() int
}

// TestNothingIsLostOrDoubledWhereAnImportIsKilledTwice needs a message to have an id of its own:
// the importer's own tests have those without.
func TestNothingIsLostOrDoubledWhereAnImportIsKilledTwice(t *testing.T) {
	t.Parallel()
	n := *messages
	if testing.Short() {
		n = 600
	}
	binary := filepath.Join(t.TempDir(), "billhook")
	said, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "billhook/cmd/billhook").CombinedOutput()
	require.NoError(t, err, string(said))
	for name, fill := range map[string]func(t *testing.T, n int, due time.Time) imported{
		"redis": fillRedis, "rabbitmq": fillRabbitMQ, "postgres": fillPostgres,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			platform := &handled{at: map[string]time.Time{}, times: map[string]int{}, news: make(chan struct{}, 1)}
			service := httptest.NewServer(platform)
			t.Cleanup(service.Close)
			c, err := catalog.Load("")
			require.NoError(t, err)
			// A store without a sync for each commit: no process that writes to it is killed here.
			documents, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "documents.db"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, documents.Close()) })
			stack, err := devstack.Start(t.Context(), devstack.Config{
				Catalog: c, ProjectID: "import-" + name, Secrets: map[string][]string{"paynow": {e2e.Secret}, "generic": {e2e.Secret}},
				Targets:     map[string]devstack.Place{"platform": {URL: service.URL, Secret: e2e.Secret}},
				WebhookPort: "0", WorkerPort: "0", ServicePort: "0", StorePath: filepath.Join(t.TempDir(), "store.db"), Log: telemetry.NewLogger(io.Discard, nil),
				WrapStore: func(store.Store) store.Store { return documents },
			})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, stack.Close()) })
			// Later than the import takes, so that it has to keep it.
			due := time.Now().Add(20*time.Second + time.Duration(n)*8*time.Millisecond).Truncate(time.Second)
			old := fill(t, n, due)
			require.Equal(t, n, old.rest())
			killing, door := newKiller(t, stack.WebhookURL)
			run := func(kill int64) string {
				killing.left.Store(kill)
				command := exec.Command(binary, append([]string{"import", name, "--yes", "--rate", "0", "--webhook", door}, old.arguments...)...) //nolint:noctx // it is killed, or ends
				command.Env = []string{"WEBHOOK_SIGNING_SECRET=" + e2e.Secret}
				var output strings.Builder
				command.Stdout, command.Stderr = &output, &output
				killing.starting.Lock()
				err := command.Start()
				killing.process = command.Process
				killing.starting.Unlock()
				require.NoError(t, err)
				if err := command.Wait(); kill > 0 {
					require.EqualError(t, err, "signal: killed", output.String())
				} else {
					require.NoError(t, err, output.String())
				}
				return output.String()
			}
			requests := int64(n / 100)
			run(requests / 4)
			run(requests / 2)
			require.Contains(t, run(-1), " moved: ")
			require.Zero(t, old.rest(), "nothing is left behind")
			at := platform.await(t, n)
			platform.mu.Lock()
			defer platform.mu.Unlock()
			require.Len(t, at, n)
			for id, due := range old.ids {
				key := handler.CalleeKey(old.queue, dedupe.DefaultTenant, id)
				require.False(t, at[key].IsZero(), "%s is lost", id)
				require.Equal(t, 1, platform.times[key], "%s was handled more than once", id)
				require.False(t, at[key].Before(due), "%s was handled %s before its time", id, due.Sub(at[key]))
			}
		})
	}
}

func fillRedis(t *testing.T, n int, due time.Time) imported {
	do, address := importertest.Redis(t)
	const name = "q:sub:plan_change"
	old := imported{arguments: []string{"--from", address}, queue: "sub-plan-change", ids: map[string]time.Time{}}
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

func fillRabbitMQ(t *testing.T, n int, due time.Time) imported {
	connection, address := importertest.RabbitMQ(t)
	channel, err := connection.Channel()
	require.NoError(t, err)
	const name = "plan.changes"
	_, err = channel.QueueDeclare(name, true, false, false, false, nil)
	require.NoError(t, err)
	require.NoError(t, channel.Tx())
	old := imported{arguments: []string{"--from", address, "sub-plan-change=" + name}, queue: "sub-plan-change", ids: map[string]time.Time{}}
	for i := range n {
		id := fmt.Sprintf("plan-%d", i)
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, `{"id":%q,"action":"downgrade","payload":{"subscription_id":"s%d"}}`, id, i)}
		if old.ids[id] = (time.Time{}); i%10 == 0 {
			old.ids[id] = due
			m.Timestamp, m.Headers = due.Add(-time.Hour), amqp.Table{"x-delay": int32(time.Hour.Milliseconds())}
		}
		require.NoError(t, channel.PublishWithContext(t.Context(), "", name, true, false, m))
	}
	require.NoError(t, channel.TxCommit())
	old.rest = func() int {
		var queue amqp.Queue
		for range 100 { // the broker counts what a connection that is gone gives back
			queue, err = channel.QueueDeclarePassive(name, true, false, false, false, nil)
			require.NoError(t, err)
		}
		return queue.Messages
	}
	return old
}

func fillPostgres(t *testing.T, n int, due time.Time) imported {
	connection, address := importertest.Postgres(t)
	_, err := connection.Exec(t.Context(), `CREATE TABLE event_queue (
		id serial PRIMARY KEY, type varchar(100) NOT NULL, payload text NOT NULL, priority varchar(20), status varchar(20),
		attempts integer, max_attempts integer, next_retry_at timestamp, error text, created_at timestamp, updated_at timestamp, processed_at timestamp)`)
	require.NoError(t, err)
	_, err = connection.Exec(t.Context(), `INSERT INTO event_queue (type, payload, priority, status, attempts, max_attempts, next_retry_at, created_at, updated_at)
		SELECT 'quota_warning', '{"subscription_id":"s' || n || '","meter":"calls","percent":80}', 'normal', 'pending', 1, 5,
			CASE WHEN n % 10 = 0 THEN $2::timestamp ELSE now() - interval '1 minute' END, now(), now() FROM generate_series(1, $1::int) AS n`, n, due.UTC())
	require.NoError(t, err)
	old := imported{arguments: []string{"--from", address}, queue: "events-normal", ids: map[string]time.Time{}}
	for i := range n {
		old.ids[fmt.Sprintf("event_queue-%d", i+1)] = time.Time{}
		if (i+1)%10 == 0 {
			old.ids[fmt.Sprintf("event_queue-%d", i+1)] = due
		}
	}
	old.rest = func() int {
		rows, err := connection.Query(t.Context(), `SELECT count(*) FROM event_queue WHERE status <> 'moved'`)
		require.NoError(t, err)
		rest, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		require.NoError(t, err)
		return rest
	}
	return old
}
