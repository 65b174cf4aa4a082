//go:build !race

package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/platform/telemetry"
)

type nowhere struct{}

func (nowhere) Publish(context.Context, string, contract.Message) (string, error) { return "1", nil }

type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return len(p), nil }

type again struct{ bytes.Reader }

func (*again) Close() error { return nil }

func repeat(tb testing.TB, handler http.Handler, content []byte) func() int {
	tb.Helper()
	r, w, body := payNow(tb, content), &answer{header: http.Header{}}, &again{}
	send := func() int {
		clear(w.header)
		w.status = 0
		body.Reset(content)
		r.Body = body
		handler.ServeHTTP(w, r)
		return w.status
	}
	require.Equal(tb, http.StatusAccepted, send())
	return send
}

func silent(tb testing.TB) http.Handler {
	tb.Helper()
	return open(tb, func(c *webhook.Config) {
		unlimited(c)
		c.Publisher = nowhere{}
		c.Log = telemetry.NewLogger(io.Discard, slog.LevelInfo)
	})
}

// Of the handler only the broker is missing. What it costs more than the baselines is what they leave out: minimizing,
// validation, what may pass, the message and the log line.
func BenchmarkWebhook(b *testing.B) {
	for name, handler := range map[string]http.Handler{
		"read": webhooktest.Baseline(paynowSecret, false), "decode": webhooktest.Baseline(paynowSecret, true), "handler": silent(b),
	} {
		for _, size := range []int{4 << 10, 64 << 10, 1<<20 - 4096} {
			b.Run(fmt.Sprintf("of=%s/size=%dKiB", name, size>>10), func(b *testing.B) {
				body := webhooktest.Order(size)
				send := repeat(b, handler, body)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if status := send(); status != http.StatusAccepted {
						b.Fatal(status)
					}
				}
			})
		}
	}
}

// Unlike time, allocations are the same on every machine. The race detector makes pools forget at random.
//
//nolint:paralleltest // AllocsPerRun counts those of every goroutine
func TestTheWholeHandlerAllocatesLittle(t *testing.T) {
	const most = 80
	send := repeat(t, silent(t), webhooktest.Order(4<<10))
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() { send() }), float64(most))
}
