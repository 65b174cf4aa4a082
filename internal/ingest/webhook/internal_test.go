package webhook

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
	"billhook/internal/platform/serve/servetest"
)

// Nothing that is read from a provider's body may be free text.
func TestEachPathReadFromAProvidersBodyHasARule(t *testing.T) {
	t.Parallel()
	declared := catalogtest.Shipped()
	for name, provider := range declared.Providers {
		p := newProvider(provider, declared.Contracts, time.Now)
		for eventType, m := range p.events {
			read := m.projection.Rules()
			maps.Copy(read, p.head.Rules())
			for path, rule := range read {
				for _, value := range []string{
					"Ilse Brandvold", "ilse@example.org", "Storgata 7, Bodo", "+47 73 59 00 00", "4111 1111 1111 1111",
					"198.51.100.23/24", "NO93 8601 1117 947", " ",
				} {
					require.False(t, rule.Valid(value), "%s %s: %s (%s) allows %q", name, eventType, path,
						rule.Name(), value)
				}
			}
		}
	}
}

func TestThePageOfAnswersHasTheTableOfRefusals(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, refused := range refusals {
		require.False(t, known[refused.Code], "%s is declared twice", refused.Code)
		known[refused.Code] = true
	}
	const begin, end = "<!-- refusals: go test ./internal/ingest/webhook -update -->\n",
		"<!-- end of refusals -->"
	filetest.Part(t, servetest.Table(refusals), begin, end, "../../../docs/reference/answers.md")
}

func TestLargeBufferIsNotKeptForTheNextRequest(t *testing.T) {
	t.Parallel()
	for size, kept := range map[int]bool{1: true, mostKept - 1: true, mostKept: false, 1<<20 - 1: false} {
		s := &Service{bodies: semaphore.NewWeighted(4 << 20)}
		b := &buffers{minimized: make([]byte, 4*size+1), encoded: make([]byte, 4*size+1)}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/",
			strings.NewReader(strings.Repeat("x", size)))
		require.NoError(t, b.body.Read(httptest.NewRecorder(), r, 1<<20, s.bodies))
		require.Len(t, b.body.Bytes(), size)
		require.False(t, s.bodies.TryAcquire(4<<20-int64(size)))
		s.release(b)
		for _, buffer := range [][]byte{b.body.Bytes(), b.minimized, b.encoded} {
			require.Equal(t, kept, buffer != nil, size)
		}
		require.True(t, s.bodies.TryAcquire(4<<20))
	}
}
