package worker_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/emulator/emulatortest"
	"billhook/internal/compose/worker"
	"billhook/internal/compose/worker/workertest"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// BenchmarkPush delivers events one after the other to the whole worker: each credits points, is posted to a
// target or in the journal. looked: each read was made before.
func BenchmarkPush(b *testing.B) {
	answers := httptest.NewServer(&services{})
	b.Cleanup(answers.Close)
	events := map[string]func(id string) contract.Body{
		"points.credit": func(id string) contract.Body {
			return paidOrder(id, "customer-"+id[len(id)-2:], "411486491630370501")
		},
		"post": func(id string) contract.Body {
			return ordered(id, "renewal", contract.Payload{SubscriptionID: "subscription-" + id})
		},
		catalog.JournalPost: func(id string) contract.Body {
			return contract.Of(&contract.Event{
				ID: id, Type: "billing.invoice.paid", Version: 1, Timestamp: "2026-03-02T10:15:00Z",
				Data: map[string]any{"invoice_id": id, "amount": "119.00", "tax_amount": "19.00", "currency": "EUR"},
			})
		},
	}
	for name, body := range events {
		for _, looked := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/looked=%t", name, looked), func(b *testing.B) {
				c := config(b, nil)
				c.Targets = workertest.Targets(b, c.Catalog, answers.URL)
				w := filetest.Must(worker.New(c))(b)
				if looked {
					w.LookOnce(b.Context())
				}
				q, ok := c.Catalog.HandledBy(name)
				if !ok {
					q.ID = "pay-subscription-update"
				}
				requests := make([]*http.Request, b.N)
				for i := range requests {
					m := carrying(b, body(fmt.Sprintf("event-%07d", i)))
					requests[i] = pushOf(b, "/push/"+q.ID, m.Attributes["event_id"], morning, m)
				}
				b.ReportAllocs()
				b.ResetTimer()
				for _, r := range requests {
					answer := httptest.NewRecorder()
					w.ServeHTTP(answer, r)
					require.Equal(b, http.StatusOK, answer.Code, answer.Body)
				}
			})
		}
	}
}

var (
	pageEvents = flag.Int("pages.events", 1_000_000,
		"how many events BenchmarkPages shows; every hundredth has a dead letter")
	pageEmulated = flag.Int("pages.emulated", 1000,
		"how many it shows on Firestore's emulator, which has no indexes and reads all of them for each page")
)

// BenchmarkPages opens each kind of linked page, with many events and dead letters, on both stacks, as
// somebody who is signed in. It prints the times of the first opening and the median of the others, and the
// documents that a page reads, as Firestore counts them.
func BenchmarkPages(b *testing.B) {
	b.Run("embedded", func(b *testing.B) {
		db := storetest.Open(b)
		openPages(b, db, *pageEvents)
	})
	b.Run("emulator", func(b *testing.B) {
		db := filetest.Must(firestore.NewEmulated(context.WithoutCancel(b.Context()), emulatortest.Firestore(b),
			fmt.Sprintf("pages-%d", time.Now().UnixNano()), ""))(b)
		b.Cleanup(func() { require.NoError(b, db.Close()) })
		openPages(b, db, *pageEmulated)
	})
}

func openPages(b *testing.B, db store.Store, events int) {
	b.Helper()
	counter := &storetest.Counter{Store: db}
	slowest := time.Duration(0)
	eachPage(b, counter, events, func(path string, visit func() string) (body string) {
		var took []time.Duration
		before := counter.Reads.Load()
		const looks = 5
		for range 1 + looks {
			began := time.Now()
			body = visit()
			took = append(took, time.Since(began))
		}
		first, others := took[0], took[1:]
		slices.Sort(others)
		slowest = max(slowest, others[looks/2])
		b.Logf("first %9.1f ms, then %7.1f ms, %5d reads  %s", first.Seconds()*1000, others[looks/2].Seconds()*1000,
			(counter.Reads.Load()-before)/(1+looks), kindOfPage(path))
		return body
	})
	b.ReportMetric(slowest.Seconds()*1000, "ms/slowest")
}

// eachPage fills a store on which each read was made once and the tasks ran, as at the start of dev. It runs
// these again, and visits each kind of linked page.
func eachPage(
	tb testing.TB, db store.Store, events int, look func(path string, visit func() string) (body string),
) {
	tb.Helper()
	config := config(tb, func(c *worker.Config) { c.Store = db })
	w := filetest.Must(worker.New(config))(tb)
	w.LookOnce(tb.Context())
	runTasks := func() string {
		for _, name := range tasks.Names {
			task(tb, w, name)
		}
		return ""
	}
	runTasks()
	fillPages(tb, db, config.Catalog.Queues[0].ID, events)
	var cookies []*http.Cookie
	visit := func(method, path, form string) *httptest.ResponseRecorder {
		return respond(w, method, path, form, func(r *http.Request) {
			r.Header.Del("X-Operator")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			for _, cookie := range cookies {
				r.AddCookie(cookie)
			}
		})
	}
	cookies = visit(http.MethodPost, "/ops/sign-in", "name=ada").Result().Cookies()
	look("/tasks", runTasks)
	seen := map[string]bool{}
	for paths := []string{"/ops/"}; len(paths) > 0; paths = paths[1:] {
		body := look(paths[0], func() string {
			answer := visit(http.MethodGet, paths[0], "")
			require.Less(tb, answer.Code, http.StatusInternalServerError, "%s: %s", paths[0], answer.Body)
			return answer.Body.String()
		})
		for _, link := range regexp.MustCompile(`href="(/ops/[^"#]*)"`).FindAllStringSubmatch(body, -1) {
			path := strings.ReplaceAll(link[1], "&amp;", "&")
			if of := kindOfPage(path); of != "" && !seen[of] {
				seen[of] = true
				paths = append(paths, path)
			}
		}
	}
}

// kinds is a store that records the kinds of its queries: the embedded store makes an index for each.
type kinds struct {
	store.Store

	mu   sync.Mutex
	seen map[string]bool
	// fresh are those since it was cleared.
	fresh []string
}

func (k *kinds) Query(ctx context.Context, q store.Query) (store.Page, error) {
	kind := fmt.Sprint(q.Collection, slices.Sorted(maps.Keys(q.Equal)), slices.Sorted(maps.Keys(q.Contains)))
	if q.Due != nil {
		kind += q.Due.Field
	}
	if q.Newest != nil {
		kind += q.Newest.Field
	}
	k.mu.Lock()
	// a query by ids needs none
	if of := len(q.Equal) + len(q.Contains); !k.seen[kind] && (of > 0 || q.Due != nil || q.Newest != nil) {
		k.seen[kind], k.fresh = true, append(k.fresh, kind)
	}
	k.mu.Unlock()
	return k.Store.Query(ctx, q)
}

func TestEachQueryOfAPageIsMadeByLookOnce(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	// The counts of each reason have few documents: dead letters are rare.
	const ofReasons = "deadLetters[ordering_key queue reason state] []kept_at"
	queried, pages := &kinds{Store: db, seen: map[string]bool{ofReasons: true}}, 0
	eachPage(t, queried, 500, func(path string, visit func() string) string {
		if pages++; pages == 1 {
			queried.fresh = nil
		}
		body := visit()
		require.Empty(t, queried.fresh, path)
		return body
	})
	require.Greater(t, pages, 40)
}

// kindOfPage is the first name of its path, the depth of the path, and the names of its parameters.
func kindOfPage(path string) string {
	of, err := url.Parse(path)
	if err != nil || strings.Contains(path, "/static/") || strings.Contains(path, ".csv") {
		return "" // no page
	}
	parts := strings.Split(strings.Trim(of.Path, "/"), "/")
	kind := strings.Join(parts[:min(2, len(parts))], "/") + strings.Repeat("/+", max(0, len(parts)-2))
	return kind + " " + strings.Join(slices.Sorted(maps.Keys(of.Query())), ",")
}

// fillPages writes events of one queue, one a second, some with dead letters.
func fillPages(b testing.TB, db store.Store, queue string, events int) {
	b.Helper()
	var group errgroup.Group
	group.SetLimit(4)
	now := time.Now()
	for from := 0; from < events; from += store.MaxWrites / 2 {
		group.Go(func() error {
			var writes []store.Write
			for i := from; i < min(from+store.MaxWrites/2, events); i++ {
				id, at := fmt.Sprintf("event-%07d", i), now.Add(-time.Duration(i)*time.Second)
				record := dedupe.Record{
					Identity: dedupe.Identity{
						Queue: queue, Tenant: contract.DefaultTenant, EventID: id, EventType: contract.OrderPaid,
						PayloadHash: "sha256:00",
						OrderingKey: fmt.Sprint("customer-", i%5000), MessageID: fmt.Sprint(i),
					},
					Status: dedupe.Completed, Tries: dedupe.Tries{Attempts: 1}, Result: "credited",
					Times: dedupe.Times{CreatedAt: at, UpdatedAt: at, ProcessedAt: at, ExpireAt: at.AddDate(0, 2, 0)},
				}
				if i%100 == 0 {
					record.Status = dedupe.DeadLettered
					item := deadletter.Item{
						ID: fmt.Sprintf("dead-%07d", i), Queue: queue, State: deadletter.Open,
						Death:  deadletter.Death{Reason: "unknown_product"},
						Source: deadletter.Source{EventType: record.EventType, EventID: id, OrderingKey: record.OrderingKey},
						Times:  deadletter.Times{FirstPublished: at, DeadLettered: at, Kept: at}, Expires: at.AddDate(0, 1, 0),
					}
					writes = append(writes, store.Create(item.Key(), store.Encode(&item)))
				}
				writes = append(writes, store.Create(dedupe.Key(queue, contract.DefaultTenant, id), record.Fields()))
			}
			_, err := db.Commit(b.Context(), writes)
			return err
		})
	}
	require.NoError(b, group.Wait())
}
