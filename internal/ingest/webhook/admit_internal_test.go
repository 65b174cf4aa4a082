package webhook

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/serve"
)

func TestALargeBufferIsNotKeptForTheNextRequest(t *testing.T) {
	t.Parallel()
	for size, kept := range map[int]bool{1: true, mostKept - 1: true, mostKept: false, 1<<20 - 1: false} {
		s := &Service{bodies: serve.NewBudget(4 << 20)}
		b := &buffers{minimized: make([]byte, size+1), encoded: make([]byte, size+1)}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(strings.Repeat("x", size)))
		require.NoError(t, b.body.Read(httptest.NewRecorder(), r, 1<<20, s.bodies))
		require.Len(t, b.body.Bytes(), size)
		require.Greater(t, s.bodies.Held(), int64(size))
		s.release(b)
		for _, buffer := range [][]byte{b.body.Bytes(), b.minimized, b.encoded} {
			require.Equal(t, kept, buffer != nil, size)
		}
		require.Zero(t, s.bodies.Held())
	}
}
