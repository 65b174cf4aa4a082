//go:build !race

package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
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

// The difference to the baselines is what they leave out: minimizing, validation, limits, message and log.
func BenchmarkWebhook(b *testing.B) {
	for name, handler := range peers(b) {
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

// peers are the handler, without a broker, and the baselines.
func peers(tb testing.TB) map[string]http.Handler {
	tb.Helper()
	return map[string]http.Handler{
		"read": webhooktest.Baseline(paynowSecret, false), "decode": webhooktest.Baseline(paynowSecret, true),
		"handler": silent(tb),
	}
}

// BenchmarkPeers measures over a connection, with the work of the client.
func BenchmarkPeers(b *testing.B) {
	for name, handler := range peers(b) {
		for _, size := range []int{1, 64 << 10, 1<<20 - 4096} {
			body := webhooktest.Order(size)
			b.Run(fmt.Sprintf("of=%s/size=%d", name, len(body)), func(b *testing.B) {
				server := httptest.NewServer(handler)
				defer server.Close()
				b.ReportAllocs()
				for b.Loop() {
					r := payNow(b, body)
					r.URL.Scheme, r.URL.Host, r.RequestURI = "http", server.Listener.Addr().String(), ""
					response, err := server.Client().Do(r)
					require.NoError(b, err)
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
					require.Equal(b, http.StatusAccepted, response.StatusCode)
				}
			})
		}
	}
}

// Unlike time, allocations are the same on every machine. The race detector empties pools at random.
//
//nolint:paralleltest // AllocsPerRun counts those of every goroutine
func TestHandlerAllocatesLittle(t *testing.T) {
	for size, most := range map[int][2]float64{4 << 10: {55, 5 << 10}, 1<<20 - 4096: {4200, 195 << 10}} {
		send := repeat(t, silent(t), webhooktest.Order(size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.LessOrEqual(t, testing.AllocsPerRun(200, func() { send() }), most[0])
		runtime.ReadMemStats(&after)
		require.LessOrEqual(t, float64(after.TotalAlloc-before.TotalAlloc)/201, most[1])
	}
}
