package push_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkPush is the whole push handler, new credits on the embedded store without
// waiting for the disk.
func BenchmarkPush(b *testing.B) {
	r := newRig(b, setup{log: slog.DiscardHandler})
	all := make([][]byte, b.N)
	for i := range all {
		all[i] = paid(fmt.Sprintf("5302177644800%05d", i), known, 1).again(1).envelope()
	}
	b.SetBytes(int64(len(all[0])))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		request := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/push/orders", bytes.NewReader(all[i]))
		request.Header.Set("Authorization", "Bearer good")
		recorder := httptest.NewRecorder()
		r.http.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusOK {
			b.Fatalf("status %d: %s", recorder.Code, recorder.Body)
		}
	}
}
