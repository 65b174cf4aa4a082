package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	require.Equal(t, `2026-03-02T10:15:00Z orders e1 order.paid PROCESSING
The worker cannot be asked: It says so. (told)
The worker cannot be asked: It says so. (told)
2026-03-02T10:15:00Z orders e1 order.paid COMPLETED credited
2026-03-02T10:15:01Z orders an-id-that-is-long order.paid FAILED a\u001b[2J\u202eb
More has come in than is shown here; see: bin/billhook events ls
2026-03-02T10:20:00Z orders e3 order.paid COMPLETED
`, strings.ReplaceAll(strings.Join(strings.FieldsFunc(out, func(r rune) bool { return r == ' ' }), " "), " \n", "\n"))
	require.Equal(t, slices.Repeat([]string{"/v1/ops/events?queue=orders"}, 6), asked)

	out, _, err = tailed(t, answers, "--json")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[2], `"reason":"a\u001b[2J\u202eb"`)
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
