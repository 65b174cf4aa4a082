package pages_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/docs/runbooks"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/compose/operations"
	"billhook/internal/compose/system"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/queues"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/env"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

type fixed struct {
	answers map[string]any
	asked   []string
}

func (a *fixed) Call(_ context.Context, o console.Operation, in console.Input) (any, error) {
	address := o.Method + " " + o.URL(in)
	a.asked = append(a.asked, address+" "+string(in.Body))
	switch found := a.answers[address].(type) {
	case nil:
		return nil, serve.Refuse(http.StatusNotFound, "unknown", "There is nothing of that id.")
	case *serve.Problem:
		return nil, found
	default:
		return found, nil
	}
}

func visit(
	t *testing.T, path, sent string, answers map[string]any,
) (status int, body string, asked []string) {
	t.Helper()
	api := &fixed{answers: answers}
	site := opened(t, api, operations.All(operations.Apps{}), access.Access{OpenOnLoopback: true}, time.Minute)
	method := map[bool]string{true: http.MethodGet, false: http.MethodPost}[sent == ""]
	w := visited(t, site, method, path, sent, func(r *http.Request) { r.Header.Set("X-Operator", "ada") })
	requireExplained(t, path, w.Body.String())
	return w.Code, w.Body.String(), api.asked
}

var tags = regexp.MustCompile(`<[^>]*>`)

func shown(body string) string {
	return strings.Join(strings.Fields(tags.ReplaceAllString(body, " ")), " ")
}

func TestAPageShowsWhatTheAPIAnswers(t *testing.T) {
	t.Parallel()
	for path, test := range map[string]struct {
		answers map[string]any
		status  int
		says    []string
	}{
		"/ops/events?queue=q1": {map[string]any{
			"GET /v1/ops/events?limit=50&queue=q1": console.List[events.Line]{},
			"GET /v1/ops/waiting?queue=q1": queues.Elsewhere{
				InBroker: []queues.InBroker{{Queue: "q1", Messages: 1234, OldestSeconds: 61}},
				Waiting:  queues.Waiting{Outbox: queues.Count{Count: 3}},
			},
		}, 200, []string{"No event is in this list.", "1234 in the broker, of q1 for 1m 1s", "3 in the outbox"}},
		"/ops/events?since=yesterday": {map[string]any{
			"GET /v1/ops/events?limit=50&since=yesterday": serve.Refuse(http.StatusBadRequest, "since_invalid",
				"The parameter since is a time."),
		}, 400, []string{"The parameter since is a time.", `value="yesterday"`}},
		"/ops/events/e1": {map[string]any{
			"GET /v1/ops/events/e1": serve.Refuse(http.StatusConflict, "queue_needed", "Several."),
			"GET /v1/ops/events?event_id=e1&limit=50": console.List[events.Line]{
				Items: []events.Line{
					{EventID: "e1", Queue: "q1", Tenant: "t"}, {EventID: "e1", Queue: "q2", Tenant: "t"},
				},
			},
		}, 200, []string{`/ops/events/e1?queue=q1&amp;tenant=t"`, `/ops/events/e1?queue=q2&amp;tenant=t"`}},
		"/ops/status": {map[string]any{"GET /v1/ops/status": system.Status{
			Self: system.Self{Build: serve.Build{Version: "v1.4.0"}, Instance: "one"}, Catalog: "1a2b3c4d",
			Deployed: []string{"00000000"}, Agreement: system.Differs,
			Services: []system.ServiceStatus{
				{Service: rates.Service{Name: "worker", Instance: "one"}, SeenSeconds: 61, Agreement: system.Differs},
			},
			Configuration: []env.Setting{
				{Name: "OPS_TOKEN", Value: "[redacted]", About: "the tokens"}, {Name: "POOL", About: "the pool"},
			},
			Doctor: system.Diagnosis{
				ExaminedAt: noon, Examination: system.Examination{Unread: 7, Findings: []finding.Finding{
					finding.New("wrong_filter", "Messages are passed by.", "Ask.").Of("subscription", "one-queue-push",
						"none", "x"),
				}},
			},
		}}, 200, []string{
			"differs from the catalog: findings: 1.", "deployed from another catalog", "1m 1s", "[redacted]",
			"wrong_filter", "Messages are passed by.", "may not look at 7 topics",
			`status-warn" href="/ops/reasons/differs">differs`,
		}},
		"/ops/nothing-here": {nil, 404, []string{"There is no page at this address."}},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			status, body, _ := visit(t, path, "", test.answers)
			require.Equal(t, test.status, status)
			for _, part := range test.says {
				require.Contains(t, body+"\n"+shown(body), part)
			}
		})
	}
}

func TestTheOverviewHasTheWorstQueueFirst(t *testing.T) {
	t.Parallel()
	var all []queues.Queue
	for i, state := range []queues.QueueState{
		queues.Off, queues.Working, queues.IsPaused, queues.Backlogged, queues.Failing, queues.BreakerOpen,
		queues.Alerting, queues.PauseFailed, queues.OffWaiting,
	} {
		all = append(all, queues.Queue{
			ID: string(state), State: state, Cause: "a\u202eb\x1b[2J<script>",
			DeadLetters: queues.Depth{Count: queues.Count{Count: int64(i)}},
		})
	}
	answers := map[string]any{
		"GET /v1/ops/rates":  queues.Rates{},
		"GET /v1/ops/queues": queues.Queues{List: console.ListOf(all, store.Cursor{})},
	}
	for sort, want := range map[string]string{
		"":                   "pause_failed alert breaker_open failing backlog off_waiting paused ok off",
		"?sort=dead_letters": "off_waiting pause_failed alert breaker_open failing backlog paused ok off",
		"?sort=queue":        "alert backlog breaker_open failing off_waiting pause_failed paused off ok",
	} {
		_, body, _ := visit(t, "/ops/"+sort, "", answers)
		links := regexp.MustCompile(`<th scope="row"><a href="/ops/queues/([^"]+)">`)
		names := links.FindAllStringSubmatch(body, -1)
		order := filetest.Map(names, func(name []string) string { return name[1] })
		require.Equal(t, want, strings.Join(order, " "), sort)
		require.Contains(t, body, "<h1>6 of 9 queues need you</h1>")
		require.Contains(t, body, "2 of 9 are well or do not run")
		books := regexp.MustCompile(`href="(/ops/runbooks/[^"]+)"`).FindAllStringSubmatch(body, -1)
		require.Len(t, books, 6, "each state that needs somebody")
		for _, book := range books {
			page, _, _ := strings.Cut(book[1], "#")
			status, _, _ := visit(t, page, "", nil)
			require.Equal(t, http.StatusOK, status, book[1])
		}
		require.Contains(t, body, `a\u202eb\u001b[2J&lt;script&gt;`, "what is not seen is shown as a number")
	}
}

func whole() events.Event {
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	posted := ledger.Entry{
		ID: "x~0", Tenant: "t", Kind: ledger.KindCredit, EventID: "e1", Order: "o1", Period: "2026-11",
		PostedAt: second(20),
		Lines: []ledger.Line{
			{Account: "points:issued:o1", Currency: "points", Debit: 1000},
			{Account: "points:user:u1", Currency: "points", Credit: 1000},
		},
	}
	return events.Event{
		Line: events.Line{
			EventID: "e1", Queue: "q1", Tenant: "t", Status: dedupe.Completed, Attempts: 1, Result: "credited",
			OrderingKey: "u1", ProcessedAt: second(21),
		},
		Places: []events.Spot{{Place: events.PlaceDelayed, Until: second(9), OrderingKey: "u1", Behind: "e0"}},
		History: []events.Step{
			{At: second(0), What: events.StepReceived},
			{At: second(1), What: events.StepPublished},
			{At: second(2), What: events.StepSilent, Delivery: 1, Last: 2, MessageID: "17"},
			{
				At: second(3), End: second(3).Add(12 * time.Millisecond), What: events.StepTried, Attempt: 1,
				Delivery: 3, Instance: "i1", Outcome: retry.DeadLettered, Reason: "unknown_product", Trace: "0af7",
				TraceLink: "https://trace.example/0af7",
			},
			{At: second(4), What: events.StepDied, DeadLetter: "d1", Reason: "unknown_product"},
			{At: second(10), What: events.StepReplayed, DeadLetter: "d1", Operation: "op1", Who: "ada", Why: "mended"},
			{
				At: second(19), End: second(21), What: events.StepTried, Attempt: 1, Instance: "i2",
				Outcome: retry.Processed,
			},
			{At: second(22), What: events.StepReplayEnded, Outcome: retry.Processed},
		},
		DeadLetters: []deadletter.Item{
			{ID: "d1", Death: deadletter.Death{Reason: "unknown_product"}, State: deadletter.Processed},
		},
		Emitted: []string{"m1", "m2", "m3"},
		Emissions: []events.Emission{
			{EventID: "m1", Tenant: "t", EventType: "refund.done", Queue: "q2", State: events.EmissionProcessed},
			{EventID: "m2", Tenant: "t", EventType: "mail.sent", Queue: "mails", State: events.EmissionWaiting},
		},
		Effect:  []events.Posted{{Entry: journal.Entry{Entry: posted}}},
		LogLink: "https://log.example/?q=e1",
	}
}

func TestAnEventIsOneStoryInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	_, body, _ := visit(t, "/ops/events/e1?queue=q1&tenant=t", "",
		map[string]any{"GET /v1/ops/events/e1?queue=q1&tenant=t": whole()})
	text, at := shown(body), 0
	for _, step := range []string{
		"COMPLETED It is processed at 2026-11-22 12:00:21 UTC , after 1 attempt: credited.",
		"kept until 2026-11-22 12:00:09 UTC , in the line of ordering key u1 behind event e0 Event",
		"received and verified", "published", "deliveries 1 to 2 of message 17", "dead lettered attempt 1, " +
			"delivery 3, instance i1: dead_lettered unknown_product after 12ms, trace 0af7 Trace",
		"dead-lettered as d1: unknown_product Dead letter", "replayed by ada, operation op1: mended",
		"processed attempt 1, instance i2: processed after 2s", "the replay ended: processed",
		"credit x~0: debit points:issued:o1 1000 points; credit points:user:u1 1000 points Entry",
		"refund.done to q2, event m1: processed Event", "mail.sent to mails, event m2: waits in the outbox",
		"Ordering key u1",
	} {
		found := strings.Index(text[at:], step)
		require.GreaterOrEqual(t, found, 0, "%q, behind what comes before it in\n%s", step, text)
		at += found
	}
	for _, link := range []string{
		`/ops/dead-letters/d1"`, `/ops/events/e1/payload?queue=q1&amp;tenant=t"`, `https://log.example/?q=e1"`,
		`https://trace.example/0af7"`,
		`/ops/operations/op1"`, `/ops/journal/entries/x~0?tenant=t"`, `/ops/events/m1?tenant=t"`,
		`data-refresh="5"`,
	} {
		require.Contains(t, body, link)
	}
}

func TestThePageOfAnEventOffersWhatItsOpenDeadLetterNeeds(t *testing.T) {
	t.Parallel()
	event := whole()
	event.DeadLetters = append(event.DeadLetters, deadletter.Item{ID: "d2", State: deadletter.Open})
	dead := deadletters.Kept{Item: deadletter.Item{
		ID: "d2", Queue: "q1", State: deadletter.Open, Source: deadletter.Source{EventID: "e1"},
		Death: deadletter.Death{Reason: "callee_failed_503", Attempts: 5}, Times: deadletter.Times{Kept: noon},
	}, Target: "platform", Path: "/v1/labels", Size: 7, Later: &deadletters.Later{Waiting: 3}}
	_, body, _ := visit(t, "/ops/events/e1?queue=q1", "",
		map[string]any{"GET /v1/ops/events/e1?queue=q1": event, "GET /v1/ops/dead-letters/d2": dead})
	require.Contains(t, shown(body),
		"The platform service answered 503 five times; Billhook gave up on 2026-11-22 at 12:00 UTC.")
	require.Contains(t, shown(body),
		"Target platform /v1/labels Later messages of its key 0 done, 0 dead-lettered, 3 waiting")
	for _, link := range []string{
		"-/replay?items=d2&amp;queue=q1", "-/discard?items=d2&amp;queue=q1", "-/complete?items=d2&amp;queue=q1",
		"d2/payload", "d2",
	} {
		require.Contains(t, body, `href="/ops/dead-letters/`+link+`"`)
	}
	require.Contains(t, body, `href="/ops/runbooks/dead-letters"`)
}

func TestAPayloadIsHiddenUntilSomebodySaysWhy(t *testing.T) {
	t.Parallel()
	const path = "/ops/events/e1/payload?queue=q1"
	message := events.Message{Data: jsontext.Value(`{"n":12345678901234567890.10,"who":"<script>"}`)}
	large := events.Message{Data: jsontext.Value(`{"n":"` + strings.Repeat("x", 20_000) + `"}`)}
	answers := map[string]any{
		"POST /v1" + path: events.Payload{
			EventID: "e1", Items: []events.KeptMessage{
				{Place: events.PlaceDelayed, Message: message}, {Place: events.PlaceOutbox, Message: large},
			},
		},
	}
	_, body, asked := visit(t, path, "", answers)
	require.Contains(t, body, `name="why"`)
	require.Empty(t, asked, "to show the form takes no request")
	_, body, asked = visit(t, path, form("OPS-7"), answers)
	require.Contains(t, asked[0], `{"why":"OPS-7"}`)
	for _, part := range []string{"12345678901234567890.10,\n", "&lt;script&gt;", "7725 more bytes"} {
		require.Contains(t, body, part)
	}
	answers["POST /v1"+path] = serve.Refuse(http.StatusUnprocessableEntity, "refused",
		"the reason has what looks like personal data")
	_, body, _ = visit(t, path, form("for ilse"), answers)
	require.Contains(t, body, "for ilse</textarea>")
}

func TestARunbookIsShownWithoutItsMarks(t *testing.T) {
	t.Parallel()
	files := filetest.Must(runbooks.Files.ReadDir("."))(t)
	for _, file := range files {
		status, body, _ := visit(t, "/ops/runbooks/"+strings.TrimSuffix(file.Name(), ".md"), "", nil)
		require.Equal(t, http.StatusOK, status, file.Name())
		require.NotRegexp(t, `\*\*|\]\(|(?m)^(#|\||\x60)`, body, file.Name())
	}
	_, body, _ := visit(t, "/ops/runbooks/dead-letters", "", nil)
	for _, part := range []string{
		"<h1>Dead letters</h1>", `<a href="/ops/runbooks/push-failures">push failures</a>`,
		"<strong>Look first</strong>", "<code>unknown_product</code></td>",
		"<h2 id=\"an-unknown-product\">An unknown product</h2>",
	} {
		require.Contains(t, body, part)
	}
	for _, unknown := range []string{"nothing", "..%2Frunbooks"} {
		status, _, _ := visit(t, "/ops/runbooks/"+unknown, "", nil)
		require.Equal(t, http.StatusNotFound, status)
	}
}
