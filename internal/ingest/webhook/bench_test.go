//go:build !race

package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
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

func repeat(tb testing.TB, content []byte) (send func() int, service http.Handler) {
	tb.Helper()
	d := open(tb, func(c *webhook.Config) {
		unlimited(c)
		c.Publisher = nowhere{}
		c.Log = telemetry.NewLogger(io.Discard, slog.LevelInfo)
	})
	r, w, body := payNow(tb, content), &answer{header: http.Header{}}, &again{}
	send = func() int {
		clear(w.header)
		w.status = 0
		body.Reset(content)
		r.Body = body
		d.ServeHTTP(w, r)
		return w.status
	}
	require.Equal(tb, http.StatusAccepted, send())
	return send, d
}

// Only the broker is missing.
func BenchmarkWebhook(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1<<20 - 4096} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			body := webhooktest.Order(size)
			send, _ := repeat(b, body)
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

// peer is a service that takes a signed body as it is, or decodes what it wants of it.
func peer(tb testing.TB, decodes bool) http.Handler {
	tb.Helper()
	now, scheme := func() time.Time { return fixed }, loaded().Providers["paynow"].Signature
	verifier := filetest.Must(signature.NewVerifier(scheme, []string{paynowSecret}, time.Minute, now))(tb)
	log := telemetry.NewLogger(io.Discard, slog.LevelInfo)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		type line struct{ Price, Quantity int64 }
		type content struct{ Lines []line }
		var order struct{ Body content }
		body, err := io.ReadAll(r.Body)
		if err = errors.Join(err, verifier.Verify(r.Header.Values, body)); decodes && err == nil {
			err = json.Unmarshal(body, &order)
		}
		if err != nil {
			panic(err) // which ends the connection, and the benchmark
		}
		log.Info("webhook", "bytes", len(body))
		serve.WriteJSON(w, http.StatusAccepted, order)
	})
}

// Over a connection, with the client's part of the work.
func BenchmarkPeers(b *testing.B) {
	_, service := repeat(b, webhooktest.Order(1))
	for _, size := range []int{1, 64 << 10, 1<<20 - 4096} {
		body := webhooktest.Order(size)
		for i, handler := range []http.Handler{service, peer(b, false), peer(b, true)} {
			name := []string{"billhook", "parses nothing", "decodes"}[i]
			b.Run(fmt.Sprint(len(body), " bytes/", name), func(b *testing.B) {
				server := httptest.NewServer(handler)
				defer server.Close()
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

// Unlike time, allocations are the same on every machine. The race detector makes pools forget at random.
//
//nolint:paralleltest // AllocsPerRun counts those of every goroutine
func TestTheWholeHandlerAllocatesLittle(t *testing.T) {
	for size, most := range map[int][2]float64{4 << 10: {80, 8 << 10}, 1<<20 - 4096: {8300, 1 << 20}} {
		send, _ := repeat(t, webhooktest.Order(size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.LessOrEqual(t, testing.AllocsPerRun(200, func() { send() }), most[0])
		runtime.ReadMemStats(&after)
		require.LessOrEqual(t, float64(after.TotalAlloc-before.TotalAlloc)/201, most[1])
	}
}
