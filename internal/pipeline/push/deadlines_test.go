package push_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
)

func request(ctx context.Context, m message) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/push/orders", strings.NewReader(string(m.envelope())))
	r.Header.Set("Authorization", "Bearer good")
	return r
}

// TestAttemptWhoseTimeIsUpOrWhoseCallerLeaves is the table of what ends an attempt from outside: whether it counts,
// whether its lease stands, and what the deliveries after it find. What returns too late changes nothing.
func TestAttemptWhoseTimeIsUpOrWhoseCallerLeaves(t *testing.T) {
	t.Parallel()
	const ignored, asks, commits = "it ignores that", "it asks and ignores that", "its effect is committed"
	table, _ := enumerate([]dimension{
		{"ended by", []string{"its deadline", "its caller"}},
		{"while", []string{"it runs", ignored, asks, commits}},
		{"handler", []string{tx, leasedMany}},
		{"returns", []string{
			"nothing: it is done", "writes that no store takes", "permanent 422", "transient 500", "timeout 504", "down 503", "outage of what all need",
			"busy, not counted",
		}},
	}, func(c cell) (what, cost string) {
		invalid := c["returns"] == "writes that no store takes"
		done := c["returns"] == failures[0].name
		switch {
		case c["while"] == commits && !done && !invalid, c["while"] == asks && (c["handler"] == tx || !done),
			c["while"] == "it runs" && c["handler"] == tx && (invalid || c["returns"] == "permanent 422"): // which of the two comes first is by chance
			return "", ""
		}
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, c["handler"] == leasedMany, setup{live: true})
			m := b.event()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ends := func() {
				if c["ended by"] == "its caller" {
					leave()
				}
			}
			if invalid {
				b.effect = func(handler.Event) handler.Effect {
					return handler.Effect{Writes: []store.Write{store.Set(store.Key{Collection: "c", ID: "i"}, map[string]any{"n": 1.5})}}
				}
			}
			returns := make(chan struct{})
			switch c["while"] {
			case commits:
				b.faults.OnCommit = func(ctx context.Context, _ []store.Write, do func() error) error {
					if b.calls.Load() == 0 || b.faults.OnCommit == nil { // that of a claim
						return do()
					}
					b.faults.OnCommit = nil
					if ends(); c["ended by"] == "its deadline" {
						<-ctx.Done()
					}
					return do()
				}
			case asks:
				b.seed("failed and due", m)
				b.reconcile(func() (handler.Effect, bool, error) {
					ends()
					<-returns
					return handler.Effect{Result: "found"}, true, nil
				})
			default:
				b.during = func(ctx context.Context) {
					if ends(); c["while"] == ignored {
						<-returns
						return
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute): // a leased handler has all its time
					}
				}
			}
			b.failing(c)
			what, _ = b.observe(m, func() reply { return b.serve(request(ctx, m)) })
			synctest.Wait()
			before, _ := b.record(m.attributes["event_id"])
			close(returns)
			synctest.Wait()
			after, _ := b.record(m.attributes["event_id"])
			require.Equal(t, before, after, "what comes too late is nobody's: %s", c)
			b.fails, b.faults.OnCommit, b.effect = nil, nil, nil
			then, _ := b.observe(m, func() reply { return b.deliverNow(m.again(2)) })
			b.pass(2*time.Minute + time.Second)
			got, _ := b.observe(m, func() reply { return b.deliverNow(m.again(3)) })
			what += " -- then: " + then + " -- after its lease: " + got
		})
		return what, ""
	})
	golden(t, "deadlines.txt", table)
}
