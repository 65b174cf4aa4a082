package webhook

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
	"billhook/internal/platform/serve"
)

// Nothing that is read of a provider's body may be free text.
func TestEveryPathThatIsReadOfAProvidersBodyIsBoundedByARule(t *testing.T) {
	t.Parallel()
	declared := catalogtest.Shipped()
	for name, provider := range declared.Providers {
		p := newProvider(provider, declared.Contracts, time.Now)
		for eventType, m := range p.events {
			read := m.projection.Rules()
			maps.Copy(read, p.head.Rules())
			for path, rule := range read {
				for _, value := range []string{
					"Ilse Brandvold", "ilse@example.org", "Storgata 7, Bodo", "+47 73 59 00 00", "4111 1111 1111 1111", "198.51.100.23/24", "NO93 8601 1117 947", " ",
				} {
					require.False(t, rule.Valid(value), "%s %s: %s (%s) allows %q", name, eventType, path, rule.Name(), value)
				}
			}
		}
	}
}

func TestThePageOfAnswersHasTheTableOfRefusals(t *testing.T) {
	t.Parallel()
	sorted := slices.SortedFunc(slices.Values(refusals), func(a, b *serve.Problem) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code))
	})
	text, known := "| answer | code | what it says | `Retry-After` |\n| ---: | --- | --- | ---: |\n", map[string]bool{}
	for _, refused := range sorted {
		require.False(t, known[refused.Code], "%s is said twice", refused.Code)
		known[refused.Code] = true
		after := ""
		if refused.RetryAfter > 0 {
			after = strconv.Itoa(refused.RetryAfter) + " s"
		}
		text += fmt.Sprintf("| %d | `%s` | %s | %s |\n", refused.Status, refused.Code, refused.Detail, after)
	}
	filetest.Part(t, text, "<!-- refusals: go test ./internal/ingest/webhook -update -->\n", "<!-- end of refusals -->", "../../../docs/answers.md")
}

func TestALargeBufferIsNotKeptForTheNextRequest(t *testing.T) {
	t.Parallel()
	for size, kept := range map[int]bool{1: true, mostKept - 1: true, mostKept: false, 1<<20 - 1: false} {
		s := &Service{bodies: semaphore.NewWeighted(4 << 20)}
		b := &buffers{minimized: make([]byte, size+1), encoded: make([]byte, size+1)}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(strings.Repeat("x", size)))
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
