package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/ingest/importer/importertest"
)

// serveIngest serves an ingest that takes everything but what says "refuse". It returns its address, and how
// many messages it has taken.
func serveIngest(t *testing.T) (address string, taken *int) {
	t.Helper()
	taken = new(int)
	address = listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Messages []json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&request)
		var results []string
		for _, message := range request.Messages {
			if strings.Contains(string(message), "refuse") {
				results = append(results, `{"status":422,"code":"contract_broken","violations":[{"path":"payload.email","rule":"unknown"}]}`)
				continue
			}
			results = append(results, `{"status":202}`)
			*taken++
		}
		_, _ = io.WriteString(w, `{"results":[`+strings.Join(results, ",")+`]}`)
	}))
	return address, taken
}

func TestAnImportPreviewsAsksMovesAndSaysWhatWasRefused(t *testing.T) {
	t.Parallel()
	do, from := importertest.Redis(t)
	for i := range 3 {
		do("LPUSH", "q:sub:plan_change", fmt.Sprintf(`{"id":"m%d","action":"upgrade","payload":{"subscription_id":"hunter2"}}`, i))
	}
	do("LPUSH", "q:sub:plan_change", `{"id":"m3","action":"downgrade","payload":{"email":"refuse"}}`, `not JSON: hunter2`)
	do("LPUSH", "q:sub:plan_change:failed", `{}`)
	do("LPUSH", "orders.process", `{}`)
	ingest, taken := serveIngest(t)
	idle := withoutOrders(t)
	run := func(input string, arguments ...string) (string, error) {
		out, err := sayWith(t, map[string]string{"REDIS_URL": from, "CATALOG_DIR": idle}, func(p *program) {
			p.stdin = strings.NewReader(input)
		}, append([]string{"admin", "import", "redis", "--webhook", ingest}, arguments...)...)
		require.NotContains(t, out, "hunter2")
		return out, err
	}
	said, err := run("", "--dry-run", "--wide")
	require.NoError(t, err)
	for _, line := range []string{
		"sub-plan-change  q:sub:plan_change         waiting  5         -\n",
		"sub-plan-change  q:sub:plan_change:failed  failed   1         they have failed; --failed takes them, with all attempts again\n",
		"orders-process   orders.process            waiting  1         the queue is not enabled\n",
		"TYPES OF THE FIRST  upgrade 3, downgrade 1, not_an_object 1\nWOULD BE MOVED      5\nSTAY                2\nFIRST LOOKED AT     5\n",
	} {
		require.Contains(t, said, line)
	}
	require.EqualError(t, errorOf(run("no\n")), "nothing was changed")
	require.Zero(t, *taken)

	said, err = run("5\n")
	require.EqualError(t, err, "2 messages were refused, and stay where they were")
	require.Equal(t, 3, *taken)
	require.Contains(t, said, "\nMoved: sub-plan-change 3\nRefused, and where they were, of which the first 2 are listed: contract_broken payload.email: unknown 1, not_an_object 1\n")
	require.EqualValues(t, 2, do("LLEN", "q:sub:plan_change"))

	said, err = run("", "--json", "--yes", "--member", "email=", "sub-plan-change")
	require.Error(t, err)
	var report struct{ Moved, Refused int }
	require.NoError(t, json.Unmarshal([]byte(said), &report))
	require.Equal(t, struct{ Moved, Refused int }{1, 1}, report)

	for argument, want := range map[string]string{
		"nobody":        `the catalog has no queue "nobody"`,
		"paynow-events": "the queue paynow-events had no name before: say paynow-events=<old name>",
	} {
		require.ErrorContains(t, errorOf(run("", argument)), want)
	}
}

// withoutOrders is a folder with the shipped catalog, in which the queue of orders is not enabled.
func withoutOrders(t *testing.T) (folder string) {
	t.Helper()
	return shipped(t, "queues.yaml", func(text string) string {
		before, after, _ := strings.Cut(text, "  - id: orders-process\n")
		return before + "  - id: orders-process\n" + strings.Replace(after, "enabled: true", "enabled: false", 1)
	})
}
