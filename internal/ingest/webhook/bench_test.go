package webhook_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
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

// nowhere confirms everything and keeps nothing.
type nowhere struct{}

func (nowhere) Publish(context.Context, string, contract.Message) (string, error) { return "1", nil }

// answer is as little of a response as there can be.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return len(p), nil }

// again is a body that can be read again.
type again struct{ bytes.Reader }

func (*again) Close() error { return nil }

// repeat returns a function that sends the same signed webhook once more, from the
// request to the answer, and returns the status.
func repeat(tb testing.TB, content []byte) func() int {
	tb.Helper()
	d := open(tb, func(c *webhook.Config) {
		unlimited(c)
		c.Publisher = nowhere{}
		c.Log = telemetry.NewLogger(io.Discard, slog.LevelInfo)
	})
	r, w, body := payNow(tb, content), &answer{header: http.Header{}}, &again{}
	send := func() int {
		clear(w.header)
		w.status = 0
		body.Reset(content)
		r.Body = body
		d.ServeHTTP(w, r)
		return w.status
	}
	require.Equal(tb, http.StatusAccepted, send())
	return send
}

// sizes are the bodies that are measured.
func sizes() []struct {
	name string
	body []byte
} {
	return []struct {
		name string
		body []byte
	}{
		{"4KiB", webhooktest.Order(4 << 10)},
		{"64KiB", webhooktest.Order(64 << 10)},
		{"1MiB", webhooktest.Order(1<<20 - 4096)},
	}
}

// BenchmarkWebhook is the whole handler, from the request to the answer; only the
// broker is missing.
func BenchmarkWebhook(b *testing.B) {
	for _, size := range sizes() {
		b.Run(size.name, func(b *testing.B) {
			send := repeat(b, size.body)
			b.SetBytes(int64(len(size.body)))
			b.ReportAllocs()
			for b.Loop() {
				if status := send(); status != http.StatusAccepted {
					b.Fatal(status)
				}
			}
		})
	}
}

// BenchmarkFloor is what any handler of these bodies does at the least with the
// standard library: the HMAC, a map, and JSON again. It is what to hold
// BenchmarkWebhook against.
func BenchmarkFloor(b *testing.B) {
	for _, size := range sizes() {
		b.Run(size.name, func(b *testing.B) {
			b.SetBytes(int64(len(size.body)))
			b.ReportAllocs()
			for b.Loop() {
				mac := hmac.New(sha256.New, []byte(paynowSecret))
				mac.Write(size.body)
				_ = mac.Sum(nil)
				var document map[string]any
				if err := json.Unmarshal(size.body, &document); err != nil {
					b.Fatal(err)
				}
				if _, err := json.Marshal(document); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestTheWholeHandlerAllocatesLittle holds the number of allocations, which, unlike
// time, is the same on every machine.
//
//nolint:paralleltest // AllocsPerRun counts those of every goroutine
func TestTheWholeHandlerAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget at random")
	}
	const most = 90
	send := repeat(t, webhooktest.Order(4<<10))
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() { send() }), float64(most))
}
