package push_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// bodies are push requests of new credits, each of an event and an order of its own.
func bodies(n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = paid(fmt.Sprintf("5302177644800%05d", i), known, 1).again(1).envelope()
	}
	return all
}

// BenchmarkPush is the whole push handler, new credits on the embedded store without
// waiting for the disk.
func BenchmarkPush(b *testing.B) {
	r := newRig(b, setup{log: slog.NewJSONHandler(sink{}, nil)})
	run(b, r.http, "/push/orders", http.StatusOK)
}

// sink takes log lines: what writing them to a pipe costs is not the handler's.
type sink struct{}

func (sink) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkPushFloor is a bare handler that decodes the push envelope and answers.
func BenchmarkPushFloor(b *testing.B) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var envelope struct {
			Message struct {
				Data        []byte            `json:"data"`
				Attributes  map[string]string `json:"attributes"`
				MessageID   string            `json:"messageId"`
				OrderingKey string            `json:"orderingKey"`
				PublishTime time.Time         `json:"publishTime"`
			} `json:"message"`
			Subscription    string `json:"subscription"`
			DeliveryAttempt int    `json:"deliveryAttempt"`
		}
		if json.Unmarshal(body, &envelope) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	run(b, bare, "/push/orders", http.StatusNoContent)
}

func run(b *testing.B, h http.Handler, path string, want int) {
	b.Helper()
	all := bodies(b.N)
	b.SetBytes(int64(len(all[0])))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		request := httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, bytes.NewReader(all[i]))
		request.Header.Set("Authorization", "Bearer good")
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, request)
		if recorder.Code != want {
			b.Fatalf("status %d: %s", recorder.Code, recorder.Body)
		}
	}
}
