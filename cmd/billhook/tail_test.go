package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/serve"
)

const (
	came    = `{"event_id":"e1","queue":"orders","event_type":"order.paid","status":"PROCESSING","attempts":1,"created_at":"2026-03-02T10:15:00Z"}`
	went    = `{"event_id":"e1","queue":"orders","event_type":"order.paid","status":"COMPLETED","attempts":1,"result":"credited","created_at":"2026-03-02T10:15:00Z"}`
	strange = `{"event_id":"an-id-that-is-long","queue":"orders","event_type":"order.paid","status":"FAILED","attempts":2,"reason":"a\u001b[2J\u202eb","created_at":"2026-03-02T10:15:01Z"}`
	later   = `{"event_id":"e3","queue":"orders","event_type":"order.paid","status":"COMPLETED","attempts":1,"created_at":"2026-03-02T10:20:00Z"}`
)

// tailed is what a tail prints while a worker gives these answers, of which one of three digits is a status, and what it asks.
func tailed(t *testing.T, answers []string, args ...string) (printed string, asked []string, err error) {
	t.Helper()
	worker := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := answers[len(asked)]
		if asked = append(asked, r.URL.RequestURI()); len(answer) > 3 {
			_, _ = io.WriteString(w, answer)
			return
		}
		status, _ := strconv.Atoi(answer)
		serve.Refuse(status, "told", "It says so.").Write(w)
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out strings.Builder
	p, err := newProgram(func(name string) string { return map[string]string{"BILLHOOK_SERVER": worker}[name] }, &out)
	require.NoError(t, err)
	p.after = func(every time.Duration) <-chan time.Time {
		require.Equal(t, tailEvery, every)
		if len(asked) == len(answers) {
			stop()
			return nil
		}
		over := make(chan time.Time)
		close(over)
		return over
	}
	err = p.execute(ctx, append([]string{"events", "tail"}, args...))
	return out.String(), asked, err
}

// page is a list, the newest event first.
func page(next string, lines ...string) string {
	return fmt.Sprintf(`{"items":[%s],"next":%q}`, strings.Join(lines, ","), next)
}

func TestATailPrintsWhatIsNewOrHasChanged(t *testing.T) {
	t.Parallel()
	answers := []string{page("", came), "503", "429", page("", strange, went), page("more", later), page("")}
	out, asked, err := tailed(t, answers, "--queue", "orders")
	require.NoError(t, err)
	require.Equal(t, `EVENT QUEUE STATUS RECORDED TYPE ATTEMPTS RESULT REASON NEXT ATTEMPT
e1 orders PROCESSING 2026-03-02T10:15:00Z order.paid 1 - - -
-- The worker cannot be asked: It says so. (told)
e1 orders COMPLETED 2026-03-02T10:15:00Z order.paid 1 credited - -
an-id-that-is-long orders FAILED 2026-03-02T10:15:01Z order.paid 2 - a\u001b[2J\u202eb -
-- The worker answers again.
-- More has come in than is shown here; see: bin/billhook events ls
e3 orders COMPLETED 2026-03-02T10:20:00Z order.paid 1 - - -
`, strings.Join(strings.FieldsFunc(out, func(r rune) bool { return r == ' ' }), " "))
	const list = "/v1/ops/events?limit=100&queue=orders&since=2026-03-02T10%3A15%3A00Z"
	require.Equal(t, []string{"/v1/ops/events?limit=20&queue=orders", list, list, list, list, list}, asked)

	out, _, err = tailed(t, answers, "--json")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 7)
	require.JSONEq(t, `{"message":"The worker answers again."}`, lines[4])
	require.Contains(t, lines[3], `"reason":"a\u001b[2J\u202eb"`)
}

func TestATailOfOneStatusAsksForNoTime(t *testing.T) {
	t.Parallel()
	_, asked, err := tailed(t, []string{page("", strange), page("", strange)}, "--status", "failed")
	require.NoError(t, err)
	require.Equal(t, "/v1/ops/events?limit=100&status=FAILED", asked[1])
}

func TestATailThatIsRefusedEnds(t *testing.T) {
	t.Parallel()
	for _, answers := range [][]string{{"400"}, {"403"}, {"503"}, {page("", came), "400"}} {
		_, asked, err := tailed(t, answers)
		require.ErrorContains(t, err, "It says so.")
		require.Len(t, asked, len(answers))
	}
	_, err := say(t, nil, "events", "tail", "--server", "nowhere")
	require.Equal(t, misused, serve.ExitCode(err))
}
