package worker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/apps/payments"
	"billhook/internal/compose/worker"
	"billhook/internal/compose/worker/workertest"
	"billhook/internal/console"
	"billhook/internal/console/api"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
)

// One document of each listed collection is damaged.
func TestDamagedDocumentStopsNoList(t *testing.T) {
	t.Parallel()
	type fields = map[string]any
	now := time.Now().UTC().Truncate(time.Microsecond)
	const first, number = "9", int64(7) // an id that sorts before letters, and a number in place of a text
	tenant := sha256.Sum256([]byte("default"))
	shard := dedupe.Shard("orders-process", "default", "e1")
	for collection, test := range map[string]struct {
		id     string
		fields fields
		paths  string
	}{
		"deadLetters": {
			"x",
			fields{"queue": "orders-process", "state": "open", "kept_at": now, "reason": number},
			"/v1/ops/dead-letters?queue=orders-process /v1/ops/dead-letters?queue=orders-process&state=open " +
				"/ops/dead-letters?queue=orders-process",
		},
		"audit": {
			"~queue~~orders-process~0000000000000000001-x",
			fields{"kind": "pause", "at": now, "why": number},
			"/v1/ops/audit /v1/ops/queues/orders-process/changes /ops/audit",
		},
		"webhookEvents": {
			"x", fields{"shard": shard, "created_at": now, "queue": "orders-process"}, "/v1/ops/events /ops/events",
		},
		"orders":   {first, fields{"state": "PaymentInitiated"}, "/v1/ops/orders?state=PaymentInitiated"},
		"stock":    {"default~9", fields{"available": "many"}, "/v1/ops/stock"},
		"pauses":   {"orders-process", fields{"who": number}, "/v1/ops/pauses /v1/ops/queues /ops/"},
		"products": {"default~9", fields{"points": "many"}, "/v1/ops/products"},
		"refunds":  {"x", fields{"reserved_at": now, "state": "refunded"}, "/v1/ops/refunds?state=refunded"},
		"audit, an operation": {
			"x", fields{"created_at": now, "progress": "running"}, "/v1/ops/operations /ops/operations",
		},
		"usage": {first, fields{"month": "default~2026-03"}, "/v1/ops/usage?month=2026-03"},
		"periods": {
			hex.EncodeToString(tenant[:4]) + "-default~2026-01", fields{"who": number}, "/v1/ops/journal/periods",
		},
		"endpoints": {"x", fields{"created_at": now, "url": number}, "/v1/ops/endpoints"},
	} {
		t.Run(collection, func(t *testing.T) {
			t.Parallel()
			collection, _, _ := strings.Cut(collection, ",")
			var log strings.Builder
			metrics := telemetry.NewMetrics()
			var db store.Store
			w := open(t, func(c *worker.Config) {
				c.Log, c.Metrics, db = slog.New(slog.NewJSONHandler(&log, nil)), metrics, c.Store
			})
			storetest.Put(t, db, store.Create(store.Key{Collection: collection, ID: test.id}, test.fields))
			for _, path := range strings.Fields(test.paths) {
				answer := respond(w, http.MethodGet, path, "")
				require.Equal(t, http.StatusOK, answer.Code, "%s: %s", path, answer.Body)
				said := answer.Header().Get(api.HeaderSkipped)
				if strings.HasPrefix(path, "/ops/") {
					require.Contains(t, answer.Body.String(), "Documents that cannot be read are left out of this page")
					said = answer.Body.String()
				}
				require.Contains(t, said, collection+"/", path)
			}
			require.Contains(t, log.String(), `"msg":"document left out of a list","collection":"`+collection+`"`)
			counted := respond(metrics.Handler(), http.MethodGet, "/metrics", "")
			metric := `billhook_documents_unreadable_total{collection="` + collection + `"}`
			require.Contains(t, counted.Body.String(), metric)
		})
	}
}

// TestUnreadableEntryOfALaneBecomesADeadLetter damages an entry of each kind of lane, with a readable message
// and without one, and runs the task that publishes it.
func TestUnreadableEntryOfALaneBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	now := morning
	for kind, does := range map[lane.Kind]string{lane.Outbox: "relay-outbox", lane.Delayed: "release-delayed"} {
		for name, damage := range map[string]func(fields map[string]any){
			"its topic is lost":   func(fields map[string]any) { delete(fields, "topic") },
			"its message is lost": func(fields map[string]any) { delete(fields, "message") },
			"all is lost":         func(fields map[string]any) { clear(fields); fields["x"] = int64(7) },
		} {
			t.Run(string(kind)+", "+name, func(t *testing.T) {
				t.Parallel()
				broker := &shelves{}
				var db store.Store
				w := open(t, func(c *worker.Config) {
					c.Publisher, c.Now, db = broker, func() time.Time {
						return now
					}, c.Store
				})
				for _, event := range []string{"e1", "e2"} {
					m := contract.Message{
						Data: []byte(`{}`), Attributes: map[string]string{"event_id": event, "ordering_key": "k"},
						OrderingKey: "k",
					}
					var writes []store.Write
					if kind == lane.Outbox {
						batch := lane.NewBatch(now.Add(-time.Hour))
						batch.Add("orders", event, m, lane.Source{Queue: "orders-process", Tenant: "default", EventID: event})
						writes = batch.Writes()
					} else {
						kept := filetest.Must(lane.Open(t.Context(), db,
							lane.Name{Queue: "orders-process", OrderingKey: "k", Message: event}))(t)
						_, writes = filetest.Both(kept.Put(lane.Kept{
							Topic: "orders", Content: lane.Content{Message: m}, Source: lane.Source{EventID: event},
							DueAt: now.Add(-time.Minute),
						}, now, "", now.Add(-time.Hour)))(t)
					}
					if event == "e1" {
						damage(writes[0].Fields)
					}
					storetest.Put(t, db, writes...)
				}
				require.EqualValues(t, 1, task(t, w, does)["published"])
				require.Equal(t, "e2", broker.all()[0].message.Attributes["event_id"],
					"the next one is published")
				var listed console.List[deadletter.Item]
				queue := "orders-process"
				if kind == lane.Outbox && name == "all is lost" {
					queue = catalogtest.Shipped().Queues[0].ID // any
				}
				answered(t, w, "/v1/ops/dead-letters?state=open&queue="+queue, &listed)
				require.Len(t, listed.Items, 1)
				require.Equal(t, "entry_unreadable", listed.Items[0].Reason)
				require.Contains(t, listed.Items[0].Detail, "-")
				letter := storetest.Get(t, db, listed.Items[0].Key())
				if name == "its topic is lost" {
					require.Equal(t, "e1", listed.Items[0].EventID)
					require.Equal(t, `{}`, letter.Fields["data"], "its message, to be replayed")
				} else {
					require.Contains(t, letter.Fields["data"], `"`, "the document")
				}
			})
		}
	}
}

func ordered(id, action string, payload contract.Payload) contract.Body {
	return contract.Of(&contract.Envelope{
		ID: id, Action: action, CreatedAt: "2026-03-02T10:15:00Z", Payload: payload,
	})
}

// The status of the gateway's answers decides whether it is reconciled, and the outcome. What each status
// means is a table of the package delivery, and what each answer means of the package payments.
func TestStatusOfTheGatewayDecidesThePayment(t *testing.T) {
	t.Parallel()
	const succeeded = `{"payment_id":"pay-1","subscription_id":"s-1","status":"succeeded"}`
	type answer struct {
		status int
		body   string
	}
	for name, test := range map[string]struct {
		post, get answer
		status    dedupe.Status
		says      string // the record's result or last error
	}{
		"it has the order already":   {answer{409, ""}, answer{200, succeeded}, dedupe.Completed, "refunded"},
		"it has the payment already": {answer{409, ""}, answer{200, succeeded}, dedupe.Completed, payments.Paid},
		"it has another order":       {answer{409, ""}, answer{404, ""}, dedupe.DeadLettered, "callee_refused_409"},
		"it refuses, and has the order": {
			answer{422, ""}, answer{200, succeeded}, dedupe.Completed, "refunded",
		},
		"it refuses, and reconciling too": {
			answer{422, ""}, answer{403, ""}, dedupe.Failed, "callee_unauthorized_403",
		},
		"it has it already, and its read is refused": {
			answer{409, ""}, answer{405, ""}, dedupe.Failed, "callee_unclear_405",
		},
		"it fails": {answer{500, succeeded}, answer{404, ""}, dedupe.Failed, "callee_failed_500"},
		"its answer is too long": {
			answer{200, succeeded + strings.Repeat(" ", payments.MaxAnswer)},
			answer{404, ""},
			dedupe.Failed,
			"callee_answer_too_long",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				a := test.post
				if r.Method == http.MethodGet {
					a = test.get
				}
				w.WriteHeader(a.status)
				if a.body != "" {
					_, _ = w.Write([]byte(a.body))
				}
			}))
			t.Cleanup(server.Close)
			c := config(t, func(c *worker.Config) {
				c.Now, c.Targets = func() time.Time { return morning }, workertest.Targets(t, c.Catalog, server.URL)
			})
			p := filetest.Must(worker.New(c))(t)
			name, body := "refunds.initiate", ordered("r-1", "refund", contract.Payload{PaymentID: "pay-1"})
			if strings.HasPrefix(test.says, payments.Paid) {
				name, body = "payments.initiate", ordered("r-1", "renewal", contract.Payload{SubscriptionID: "s-1"})
			}
			q, _ := c.Catalog.HandledBy(name)
			posted(t, p, q.PushPath(), body)
			doc := storetest.Get(t, c.Store, dedupe.Key(q.ID, dedupe.DefaultTenant, "r-1"))
			record := filetest.Must(dedupe.FromDocument(doc))(t)
			require.Equal(t, test.status, record.Status)
			require.Contains(t, []string{record.Result, record.LastError}, test.says)
		})
	}
}
