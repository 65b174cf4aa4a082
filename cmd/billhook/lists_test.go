package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/operations/operationstest"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/platform/screen"
	"billhook/internal/platform/serve"
)

// job is an item of a list, whose columns but three can be left out.
type job struct {
	Created  string `show:"Created"`
	Queue    string `show:"Queue"`
	Event    string `show:"Event"`
	Type     string `show:"Type,less"`
	Attempts int    `show:"Attempts,less"`
	Result   string `show:"Result"`
	Why      string `show:"Why,less"`
}

// printed is a table of jobs on a screen.
func printed(width int, jobs ...job) string {
	var out strings.Builder
	p := &program{stdout: &out, output: asTable, width: width}
	p.items(console.Columns[job](), reflect.ValueOf(jobs))
	return out.String()
}

func TestTableFitsTheScreenByLeavingColumnsOut(t *testing.T) {
	t.Parallel()
	const id = "7286d212-2d1c-541f-8d0d-f444efc5ed70"
	jobs := []job{
		{"2026-11-22T12:05:04Z", "pay-refund-initiation", id, "refund", 1, "refunded", ""},
		{"2026-11-22T12:05:03Z", "orders-process", "order-7", "order.payment_confirmed", 2, "größer", ""},
	}
	require.Equal(t, `
CREATED               QUEUE                  EVENT                                 RESULT    WHY
2026-11-22T12:05:04Z  pay-refund-initiation  7286d212-2d1c-541f-8d0d-f444efc5ed70  refunded  -
2026-11-22T12:05:03Z  orders-process         order-7                               größer    -
Left out: TYPE, ATTEMPTS. See all with --wide.
`, "\n"+printed(98, jobs...))
	require.Contains(t, printed(110, jobs...), "Left out: TYPE.", "it leaves out no more than it must")
	require.Contains(t, printed(200, jobs...), "RESULT    WHY\n", "it leaves out nothing where there is room")
	require.Equal(t, printed(200, jobs...), printed(0, jobs...), "it leaves out nothing with --wide")
}

func TestAnAnswerIsPrintedInEachForm(t *testing.T) {
	t.Parallel()
	play(t, nil, "", walk(t, "an answer is printed in each form"))
}

func TestAListIsRepeatedUntilItIsStopped(t *testing.T) {
	t.Parallel()
	server := listen(t, answering(`{"items":[{"product_id":"=1+1","tenant":"default"}],"next":""}`))
	ctx, stop := context.WithCancel(t.Context())
	var out strings.Builder
	p := programOf(t, nil, &out)
	waited := 0
	p.after = func(every time.Duration) <-chan time.Time {
		require.Equal(t, 5*time.Second, every)
		if waited++; waited == 3 {
			stop()
			return nil
		}
		tick := make(chan time.Time, 1)
		tick <- time.Time{}
		return tick
	}
	require.NoError(t, p.execute(ctx, []string{"stock", "ls", "--watch=5s", "--server", server}))
	require.Equal(t, 3, strings.Count(out.String(), "=1+1"))
}

func TestACommandThatPrintsCodesNamesTheirPageOnce(t *testing.T) {
	t.Parallel()
	worker := func(answer string) string { return " --server " + listen(t, answering(answer)) }
	list := worker(
		`{"items":[{"event_id":"e1","reason":"order_not_seen"},{"event_id":"e2","reason":"unmapped"}]}`)
	for line, want := range map[string]int{
		"events ls" + list: 1, "events ls --json" + list: 0, "events ls -o csv" + list: 0,
		"events ls" + worker(`{"items":[{"event_id":"e1","reason":"nothing_known"}]}`): 0,
		"events ls" + worker(`{"items":[{"event_id":"e1","status":"COMPLETED"}]}`):     1,
		"events ls" + worker(`{"items":[{"event_id":"e1","result":"credited"}]}`):      1,
		"refunds ls" + worker(`{"items":[{"payment_id":"p1","state":"under_way"}]}`):   1,
		"stock ls" + worker(`{"items":[{"product_id":"cap"}]}`):                        0,
		"dlq show d1" + worker(`{"id":"d1","state":"open","reason":"order_not_seen"}`): 1,
	} {
		out := succeeds(t, asAda, strings.Fields(line)...)
		require.Equal(t, want, strings.Count(out, reasonsPage), "%s prints %s", line, out)
	}
}

// A narrow table leaves columns out, and shortens the first one only where it is an id.
func TestAFirstColumnIsShortenedOnlyIfItIsAnID(t *testing.T) {
	t.Parallel()
	for _, o := range known().Operations {
		columns := slices.DeleteFunc(slices.Clone(o.Columns), func(c console.Column) bool { return c.Detail })
		if !o.List || len(columns) < 2 || console.Blocks(columns) {
			continue
		}
		const first = "its-first-column-is-one-of-forty-letters"
		list := reflect.ValueOf(o.Answer()).Elem().FieldByName("Items")
		operationstest.Fill(list, first)
		item := list.Index(0)
		var out strings.Builder
		p := programOf(t, nil, &out)
		p.commands()
		p.items(o.Columns, list)
		lines := strings.Split(out.String(), "\n")
		want := columns[0].Text(item.Interface())
		if columns[0].ID {
			want = want[:screen.Shortest]
		}
		require.True(t, strings.HasPrefix(lines[0], strings.ToUpper(columns[0].Label)), "%s: %s", o.Name, lines[0])
		require.True(t, strings.HasPrefix(lines[1], want+" ") || lines[1] == want, "%s: %s", o.Name, lines[1])
	}
}

const (
	came = `{"event_id":"e1","queue":"orders","event_type":"order.paid","status":"PROCESSING","attempts":1,` +
		`"created_at":"2026-03-02T10:15:00Z"}`
	went = `{"event_id":"e1","queue":"orders","event_type":"order.paid","status":"COMPLETED","attempts":1,` +
		`"result":"credited","created_at":"2026-03-02T10:15:00Z"}`
	strange = `{"event_id":"an-id-that-is-long","queue":"orders","event_type":"order.paid","status":"FAILED",` +
		`"attempts":2,"reason":"a\u001b[2J\u202eb","created_at":"2026-03-02T10:15:01Z"}`
	later = `{"event_id":"e3","queue":"orders","event_type":"order.paid","status":"COMPLETED","attempts":1,` +
		`"created_at":"2026-03-02T10:20:00Z"}`
)

// tailed is what a tail prints while a worker gives these answers, or statuses of three digits, and the
// addresses that it requests.
func tailed(t *testing.T, answers []string, args ...string) (printed string, requested []string, err error) {
	t.Helper()
	worker := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := answers[len(requested)]
		if requested = append(requested, r.URL.RequestURI()); len(answer) > 3 {
			_, _ = io.WriteString(w, answer)
			return
		}
		status, _ := strconv.Atoi(answer)
		serve.Refuse(status, "refused", "It says so.").Write(w)
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out strings.Builder
	p := programOf(t, map[string]string{"BILLHOOK_SERVER": worker}, &out)
	p.after = func(every time.Duration) <-chan time.Time {
		require.Equal(t, tailEvery, every)
		if len(requested) == len(answers) {
			stop()
			return nil
		}
		over := make(chan time.Time)
		close(over)
		return over
	}
	err = p.execute(ctx, append([]string{"events", "tail"}, args...))
	return out.String(), requested, err
}

// page is a list, the newest event first.
func page(next string, lines ...string) string {
	return fmt.Sprintf(`{"items":[%s],"next":%q}`, strings.Join(lines, ","), next)
}

func TestATailPrintsNewAndChangedEvents(t *testing.T) {
	t.Parallel()
	answers := []string{page("", came), "503", "429", page("", strange, went), page("more", later), page("")}
	out, requested := filetest.Both(tailed(t, answers, "--queue", "orders"))(t)
	out = strings.Join(strings.FieldsFunc(out, func(r rune) bool { return r == ' ' }), " ")
	require.Equal(t, `2026-03-02T10:15:00Z orders e1 order.paid PROCESSING
The worker cannot be asked: It says so. (refused, see docs/reference/reasons.md)
The worker cannot be asked: It says so. (refused, see docs/reference/reasons.md)
2026-03-02T10:15:00Z orders e1 order.paid COMPLETED credited
2026-03-02T10:15:01Z orders an-id-that-is-long order.paid FAILED a\u001b[2J\u202eb
More has come in than is shown here; see: bin/billhook events ls
2026-03-02T10:20:00Z orders e3 order.paid COMPLETED
`, strings.ReplaceAll(out, " \n", "\n"))
	require.Equal(t, slices.Repeat([]string{"/v1/ops/events?queue=orders"}, 6), requested)

	out, _ = filetest.Both(tailed(t, answers, "--json"))(t)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[2], `"reason":"a\u001b[2J\u202eb"`)
}

func TestATailThatIsRefusedEnds(t *testing.T) {
	t.Parallel()
	for _, answers := range [][]string{{"400"}, {"403"}, {"503"}, {page("", came), "400"}} {
		_, requested, err := tailed(t, answers)
		require.ErrorContains(t, err, "It says so.")
		require.Len(t, requested, len(answers))
	}
}
