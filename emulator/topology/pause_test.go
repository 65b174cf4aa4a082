package topology_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator/emulatortest"
	"billhook/internal/platform/gcp/pubsub"
)

// restful is as much of Pub/Sub's REST API as Terraform uses. It keeps labels, which Google's emulator
// does not.
type restful struct {
	mu    sync.Mutex
	there map[string]map[string]any // by path
}

func (f *restful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body := map[string]any{}
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&body) // a request without a body has none
	}
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	switch have, ok := f.there[path]; {
	case r.Method == http.MethodPut:
		body["name"] = path
		f.there[path] = body
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodPatch:
		changed, _ := body["subscription"].(map[string]any)
		maps.Copy(have, changed)
	}
	_ = json.NewEncoder(w).Encode(f.there[path])
}

// change has a subscription changed past Terraform.
func (f *restful) change(id string, to func(subscription map[string]any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to(f.there["projects/p/subscriptions/"+id])
}

// A plan puts every queue's endpoint back where nothing says that its queue is paused. So it is refused
// where something does, and where the variable says so of a queue that is not.
func TestTerraformNeitherUndoesAPauseNorMakesOneInSilence(t *testing.T) {
	t.Parallel()
	broker := &restful{there: map[string]map[string]any{}}
	server := httptest.NewServer(broker)
	defer server.Close()
	queues := emulatortest.Terraform(t, "p", "")
	address, worker := strings.TrimPrefix(server.URL, "http://"), "https://worker.example"
	with := func(paused string) func() error {
		queues.Variables = []string{"emulator=false", "paused_queues=" + paused}
		return func() error { return queues.Unchanged(t.Context(), address, worker) }
	}
	none, one := `[]`, `["paynow-events"]`
	with(none)
	require.NoError(t, queues.Apply(t.Context(), address, worker))
	require.NoError(t, with(none)())
	require.ErrorContains(t, with(one)(), "is not paused", "nobody has paused it")

	var endpoint any
	broker.change("paynow-events-push", func(s map[string]any) {
		endpoint = s["pushConfig"]
		labels, _ := s["labels"].(map[string]any)
		if labels = maps.Clone(labels); labels == nil {
			labels = map[string]any{}
		}
		labels[pubsub.PausedLabel] = "20261122t114455z"
		s["labels"], s["pushConfig"] = labels, map[string]any{}
	})
	require.NotEmpty(t, endpoint)
	err := with(none)()
	require.ErrorContains(t, err, "Queue paynow-events is paused")
	require.ErrorContains(t, err, "paused_queues")
	require.NoError(t, with(one)(), "the plan is empty")
	require.NoError(t, queues.Apply(t.Context(), address, worker))
	broker.change("paynow-events-push", func(s map[string]any) {
		require.Empty(t, s["pushConfig"])
		require.Contains(t, s["labels"], pubsub.PausedLabel)
		s["pushConfig"] = endpoint
		labels, _ := s["labels"].(map[string]any)
		delete(labels, pubsub.PausedLabel)
	})
	require.ErrorContains(t, with(one)(), "is not paused", "it was resumed, and must be taken out")
	require.NoError(t, with(none)())
}
