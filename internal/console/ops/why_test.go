package ops_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
)

// noReason are the routes that are no look, and take no reason. Every other refuses a request without one, and
// one that must not be kept.
var noReason = map[string]string{
	"POST /v1/ops/operations/{id}/run":                 "goes on with what was begun",
	"POST /v1/ops/events/try":                          "changes nothing",
	"POST /api/v1/events/dead-letter/{event_id}/retry": "scripts send no body: the audit has where it came from",
	"POST /v1/ops/endpoints/{id}/test":                 "sends a test event",
	"DELETE /api/v1/events/cleanup":                    "removes what has expired",
}

func TestEveryRouteThatChangesSomethingNeedsAReasonThatMayBeKept(t *testing.T) {
	t.Parallel()
	r := open(t)
	parameter, routes, left := regexp.MustCompile(`\{[a-z_]+\}`), 0, maps.Clone(noReason)
	require.NoError(t, chi.Walk(r.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		name := method + " " + route
		if method == http.MethodGet || noReason[name] != "" {
			delete(left, name)
			return nil
		}
		routes++
		for why, says := range map[string]string{
			"": "needs a reason", " \t ": "needs a reason",
			"mended\u202e": "not seen", "mended\x1b[2J": "not seen", "mended\u009b": "not seen", "two\nlines": "not seen",
			"asked by ilse@example.org": "(email)", "card 4111 1111 1111 1111": "(card)", "call +49 30 901820": "(phone)",
			strings.Repeat("w", 1001): "longer than 1000 bytes",
		} {
			body, err := json.Marshal(map[string]string{"why": why})
			require.NoError(t, err)
			got := r.request(t, method, parameter.ReplaceAllString(route, "orders"), string(body))
			require.Equal(t, http.StatusUnprocessableEntity, got.Code, "%s: %s", name, got.Body)
			require.Contains(t, got.Body.String(), says, name)
			for _, value := range []string{"ilse@", "4111", "901820", "\u202e"} {
				require.NotContains(t, got.Body.String(), value, "the value is not repeated")
			}
		}
		return nil
	}))
	require.Greater(t, routes, 15)
	require.Empty(t, left, "these routes are gone")
}
