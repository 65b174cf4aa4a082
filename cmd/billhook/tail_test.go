package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/console/ops"
	"billhook/internal/platform/serve"
)

// streams answers each request for a tail with the next of its answers, and then with 204. An answer of
// a few digits is a status.
func streams(t *testing.T, answers ...string) (address string, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var requests []string
	address = listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, r.URL.RequestURI()+" "+r.Header.Get("Last-Event-ID")+" "+r.Header.Get("X-Operator"))
		switch n := len(requests); {
		case n > len(answers):
			w.WriteHeader(http.StatusNoContent)
		case len(answers[n-1]) == 3:
			var status int
			_, _ = fmt.Sscan(answers[n-1], &status)
			serve.Refuse(status, "told", "It says so.").Write(w)
		default:
			_, _ = w.Write([]byte(answers[n-1]))
		}
	}))
	return address, func() []string { mu.Lock(); defer mu.Unlock(); return requests }
}

const (
	came    = `{"event_id":"e1","queue":"orders","event_type":"order.paid","status":"PROCESSING","attempts":1,"created_at":"2026-03-02T10:15:00Z"}`
	went    = `{"event_id":"e1","queue":"orders","event_type":"order.paid","status":"COMPLETED","attempts":1,"result":"credited","created_at":"2026-03-02T10:15:00Z"}`
	strange = `{"event_id":"an-id-that-is-long","queue":"orders","event_type":"order.paid","status":"FAILED","attempts":2,"reason":"a\u001b[2J\u202eb","created_at":"2026-03-02T10:15:01Z"}`
)

// lineOf is an event of a stream.
func lineOf(id string, skipped bool, lines ...string) string {
	return fmt.Sprintf("retry: 2000\n\nid: %s\nevent: lines\ndata: {\"items\":[%s],\"skipped\":%v}\n\n:\n\n", id, strings.Join(lines, ","), skipped)
}

func tailed(t *testing.T, p *program, server string) string {
	t.Helper()
	var out strings.Builder
	p.stdout = &out
	p.writeLines()
	one := &tail{program: p, ask: client{base: server, operator: "ada", http: &http.Client{}}, query: url.Values{"queue": {"orders"}}, known: map[string]ops.Line{}}
	require.NoError(t, one.run(t.Context()))
	return out.String()
}

func TestATailIsPrintedAndGoesOnWhereItsStreamEnded(t *testing.T) {
	t.Parallel()
	told := []string{
		lineOf("a1", false, came),
		"503",
		lineOf("a2", true, came, went) + "event: problem\ndata: {\"title\":\"x\",\"detail\":\"The store did not answer.\",\"code\":\"store_unavailable\"}\n\n" + lineOf("", false),
		lineOf("a3", false, strange),
		"429",
	}
	server, asked := streams(t, told...)
	shown := strings.Join(strings.FieldsFunc(tailed(t, &program{}, server), func(r rune) bool { return r == ' ' }), " ")
	require.Equal(t, `EVENT QUEUE STATUS RECORDED TYPE ATTEMPTS RESULT REASON NEXT ATTEMPT
e1 orders PROCESSING 2026-03-02T10:15:00Z order.paid 1 - - -
-- No stream: It says so. (told). It is asked for again.
-- More has come in than is shown here; see: bin/billhook events ls
e1 orders COMPLETED 2026-03-02T10:15:00Z order.paid 1 credited - -
-- The worker cannot look: The store did not answer. (store_unavailable)
-- The worker looks again.
an-id-that-is-long orders FAILED 2026-03-02T10:15:01Z order.paid 2 - a\x1b[2J\u202eb -
-- No stream: It says so. (told). It is asked for again.
`, shown)
	ask := tailPath + "?queue=orders "
	require.Equal(t, []string{ask + " ada", ask + "a1 ada", ask + "a1 ada", ask + "a2 ada", ask + "a3 ada", ask + "a3 ada"}, asked())

	server, _ = streams(t, told...)
	lines := strings.Split(strings.TrimSpace(tailed(t, &program{asJSON: true}, server)), "\n")
	require.Len(t, lines, 8)
	require.JSONEq(t, `{"message":"No stream: It says so. (told). It is asked for again."}`, lines[1])
	require.Contains(t, lines[6], `"reason":"a\u001b[2J\u202eb"`)
}

func TestATailThatIsRefusedEnds(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"400", "403", "503"} {
		server, asked := streams(t, status, lineOf("a1", false, came))
		_, err := say(t, nil, "events", "tail", "--server", server)
		require.ErrorContains(t, err, "It says so.")
		require.Len(t, asked(), 1, "nobody is there to begin with")
	}
	server, asked := streams(t, lineOf("a1", false, came), "400")
	one := &tail{program: &program{stdout: &strings.Builder{}}, ask: client{base: server, http: &http.Client{}}, known: map[string]ops.Line{}}
	require.ErrorContains(t, one.run(t.Context()), "It says so.")
	require.Len(t, asked(), 2)
	_, err := say(t, nil, "events", "tail", "--server", "nowhere")
	require.Equal(t, misused, serve.ExitCode(err))
}
