package pages_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/serve"
	"billhook/internal/retry"
)

// told is an API that answers by method and path, keeps what it was asked, and refuses all else.
type told struct {
	answers map[string]any
	asked   []string
}

func (a *told) Call(_ context.Context, method, path string, question, answer any) error {
	asked, err := json.Marshal(question)
	if err != nil {
		return err
	}
	a.asked = append(a.asked, strings.TrimSuffix(method+" "+path+" "+string(asked), " null"))
	found, ok := a.answers[method+" "+path]
	if !ok {
		return serve.Refuse(http.StatusNotFound, "unknown", "There is nothing of that id.")
	}
	if problem, is := found.(*serve.Problem); is {
		return problem
	}
	body, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, answer)
}

// send returns what is answered to a form.
func send(t *testing.T, site http.Handler, path string, form url.Values) (status int, body string) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	site.ServeHTTP(w, request)
	return w.Code, w.Body.String()
}

// shown is the text of a page: without its tags, each blank once.
func shown(body string) string {
	var text strings.Builder
	inside := false
	for _, r := range body {
		switch {
		case r == '<':
			inside = true
		case r == '>':
			inside = false
			_ = text.WriteByte(' ')
		case !inside:
			_, _ = text.WriteRune(r)
		}
	}
	return strings.Join(strings.Fields(text.String()), " ")
}

func TestTheJobLogIsAskedForWithTheFiltersOfTheAddress(t *testing.T) {
	t.Parallel()
	const line = "/v1/ops/events?event_id=e1&key=u%7C1&limit=50&page=p&queue=q1&since=7d&status=FAILED"
	api := &told{answers: map[string]any{"GET " + line: ops.List[ops.Line]{Next: "n", Items: []ops.Line{{
		EventID: "e:1", Queue: "q1", Tenant: "t", Status: dedupe.Failed, Reason: "order_not_seen", NextRetryAt: noon, CreatedAt: noon,
	}}}}}
	status, body := look(t, serving(t, api), "/ops/events?queue=q1&status=FAILED&since=7d&until=&type=&event_id=e1&key=u%7C1&page=p")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []string{"GET " + line}, api.asked)
	require.Contains(t, body, `href="/ops/events/e:1?queue=q1&amp;tenant=t"`)
	require.Contains(t, body, "page=n")
	require.Contains(t, body, `value="7d"`)
	require.Contains(t, shown(body), "order_not_seen, again 2026-11-22 12:00:00 UTC")
}

func TestTheJobLogSaysWhatWaitsBesideIt(t *testing.T) {
	t.Parallel()
	api := &told{answers: map[string]any{
		"GET /v1/ops/events?limit=50&queue=q1": ops.List[ops.Line]{},
		"GET /v1/ops/waiting?queue=q1":         ops.Elsewhere{InBroker: []ops.InBroker{{Queue: "q1", Messages: 1234, OldestSeconds: 61}}, Waiting: ops.Waiting{Outbox: ops.Count{Count: 3}}},
	}}
	_, body := look(t, serving(t, api), "/ops/events?queue=q1")
	require.Contains(t, shown(body), "No event is in this list.")
	require.Contains(t, shown(body), "1,234 in the broker for q1 , the oldest for 1m 1s")
	require.Contains(t, shown(body), "3 in the outbox")
}

func TestAFilterThatIsRefusedIsSaidAboveTheForm(t *testing.T) {
	t.Parallel()
	api := &told{answers: map[string]any{"GET /v1/ops/events?limit=50&since=yesterday": serve.Refuse(http.StatusBadRequest, "since_invalid", "The parameter since is a time.")}}
	status, body := look(t, serving(t, api), "/ops/events?since=yesterday")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "The parameter since is a time.")
	require.Contains(t, body, `value="yesterday"`)
	require.NotContains(t, body, "No event is in this list.")
}

// whole is an event of which everything is there.
func whole() ops.Event {
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	had, has := int64(30), int64(1030)
	posted := ledger.Entry{
		ID: "x~0", Tenant: "t", Kind: ledger.KindCredit, EventID: "e1", Order: "o1", Period: "2026-11", PostedAt: second(20),
		Lines: []ledger.Line{{Account: "points:issued:o1", Currency: "points", Debit: 1000}, {Account: "points:user:u1", Currency: "points", Credit: 1000}},
	}
	return ops.Event{
		Line:   ops.Line{EventID: "e1", Queue: "q1", Tenant: "t", Status: dedupe.Completed, Result: "credited", OrderingKey: "u1", ProcessedAt: second(21)},
		Places: []ops.Spot{{Place: ops.PlaceDelayed, Until: second(9), OrderingKey: "u1", Behind: "e0"}},
		History: []ops.Step{
			{At: second(0), What: ops.StepReceived}, {At: second(1), What: ops.StepPublished},
			{At: second(2), What: ops.StepSilent, Delivery: 1, Last: 2, MessageID: "17"},
			{At: second(3), End: second(3).Add(12 * time.Millisecond), What: ops.StepTried, Attempt: 1, Delivery: 3, Instance: "i1", Outcome: retry.DeadLettered, Reason: "unknown_product", Trace: "0af7", TraceLink: "https://trace.example/0af7"},
			{At: second(4), What: ops.StepDied, DeadLetter: "d1", Reason: "unknown_product"},
			{At: second(10), What: ops.StepReplayed, DeadLetter: "d1", Operation: "op1", Who: "ada", Why: "mended"},
			{At: second(19), End: second(21), What: ops.StepTried, Attempt: 1, Instance: "i2", Outcome: retry.Processed},
			{At: second(22), What: ops.StepReplayEnded, Outcome: retry.Processed},
		},
		DeadLetters: []ops.DeadLetter{{ID: "d1", Reason: "unknown_product", State: deadletter.Processed}},
		Emitted:     []string{"m1", "m2", "m3"},
		Emissions: []ops.Emission{
			{EventID: "m1", Tenant: "t", EventType: "refund.done", Queue: "q2", State: ops.EmissionProcessed},
			{EventID: "m2", Tenant: "t", EventType: "mail.sent", Queue: "mails", State: ops.EmissionWaiting},
		},
		Effect:  []ops.Posted{{JournalEntry: ops.JournalEntry{Entry: posted}, Balances: []ops.Balance{{Account: "points:user:u1", Currency: "points", Before: &had, After: &has}}}},
		LogLink: "https://log.example/?q=e1",
	}
}

func TestAnEventIsOneStoryInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	api := &told{answers: map[string]any{"GET /v1/ops/events/e1?queue=q1&tenant=t": whole()}}
	status, body := look(t, serving(t, api), "/ops/events/e1?queue=q1&tenant=t")
	require.Equal(t, http.StatusOK, status)
	text := shown(body)
	at := 0
	for _, step := range []string{
		"COMPLETED credited", "Kept until 2026-11-22 12:00:09 UTC , in the line of ordering key u1 , behind event e0", "Received and verified by the door", "Published",
		"Deliveries 1 to 2 of message 17", "dead_lettered Attempt 1: unknown_product , after 12ms Delivery 3, instance i1, trace 0af7", "d1 : unknown_product",
		"Replayed by ada, in an operation . “mended”", "processed Attempt 1, after 2s instance i2",
		"Moved in the books: x~0 , credit", "points:user:u1 credit 1,000 points", "points:user:u1 had 30 before, and 1,030 points after",
		"Emitted refund.done to q2, event m1 : processed mail.sent to mails, event m2 : waiting in the outbox and 1 more", "The replay ended: processed", "Ordering key",
	} {
		found := strings.Index(text[at:], step)
		require.GreaterOrEqual(t, found, 0, "%q, behind what comes before it in\n%s", step, text)
		at += found
	}
	for _, link := range []string{
		`/ops/dead-letters/d1"`, `/ops/events/e1/payload?queue=q1&amp;tenant=t"`, `https://log.example/?q=e1"`, `https://trace.example/0af7"`,
		`/ops/operations/op1"`, `/ops/journal/entries/x~0?tenant=t"`, `/ops/accounts/points:user:u1?period=2026-11&amp;tenant=t"`, `/ops/events/m1?queue=q2&amp;tenant=t"`, `/ops/events/m2?tenant=t"`,
	} {
		require.Contains(t, body, link)
	}
}

func TestEachPlaceAndEachStepIsSaidInWords(t *testing.T) {
	t.Parallel()
	event := ops.Event{Line: ops.Line{EventID: "e1", Queue: "q1"}}
	for _, place := range []ops.Where{
		ops.PlaceBroker, ops.PlaceLease, ops.PlaceDelayed, ops.PlaceOutbox, ops.PlaceDeadLetterTopic, ops.PlaceDeadLetter, ops.PlaceApproval, ops.PlaceReplay, ops.PlacePaused,
	} {
		event.Places = append(event.Places, ops.Spot{Place: place, Since: noon, Until: noon, DeadLetters: []string{"d1"}, Operation: "op1", Queue: "q1", Who: "ada", Why: "w"})
	}
	for _, what := range []ops.What{
		ops.StepReceived, ops.StepPublished, ops.StepKept, ops.StepSilent, ops.StepTried, ops.StepRecorded, ops.StepDone, ops.StepConflicted, ops.StepDied,
		ops.StepAskedFor, ops.StepReplayed, ops.StepDiscarded, ops.StepReplayEnded, ops.StepCorrected, ops.StepPaused,
	} {
		event.History = append(event.History, ops.Step{At: noon, What: what, Who: "ada", Why: "w", Operation: "op1", DeadLetter: "d1"})
	}
	event.Emissions = []ops.Emission{{EventID: "m1", State: ops.EmissionPublished}, {EventID: "m2", State: ops.EmissionDelayed, Until: noon}}
	status, body := look(t, serving(t, &told{answers: map[string]any{"GET /v1/ops/events/e1": event}}), "/ops/events/e1")
	require.Equal(t, http.StatusOK, status)
	for _, bare := range []string{"dead_letter_topic", "approval_asked", "replay_ended", "<li>paused"} {
		require.NotContains(t, body, bare)
	}
	require.Contains(t, body, `data-refresh="5"`)
	require.Contains(t, shown(body), "no end yet")
}

func TestAnEventOfSeveralQueuesOffersThem(t *testing.T) {
	t.Parallel()
	api := &told{answers: map[string]any{
		"GET /v1/ops/events/e1":                   serve.Refuse(http.StatusConflict, "queue_needed", "Several."),
		"GET /v1/ops/events?event_id=e1&limit=50": ops.List[ops.Line]{Items: []ops.Line{{EventID: "e1", Queue: "q1", Tenant: "t"}, {EventID: "e1", Queue: "q2", Tenant: "t"}}},
	}}
	_, body := look(t, serving(t, api), "/ops/events/e1")
	require.Contains(t, body, `/ops/events/e1?queue=q1&amp;tenant=t"`)
	require.Contains(t, body, `/ops/events/e1?queue=q2&amp;tenant=t"`)
}

func TestAPayloadIsHiddenUntilSomebodySaysWhy(t *testing.T) {
	t.Parallel()
	message := ops.TriedMessage{Data: jsontext.Value(`{"n":12345678901234567890.10,"who":"<script>"}`), Attributes: map[string]string{"uid": "u1"}}
	large := ops.TriedMessage{Data: jsontext.Value(`{"n":"` + strings.Repeat("x", 20_000) + `"}`)}
	api := &told{answers: map[string]any{
		"POST /v1/ops/events/e1/payload?queue=q1":  ops.Payload{EventID: "e1", Items: []ops.KeptMessage{{Place: ops.PlaceDelayed, TriedMessage: message}, {Place: ops.PlaceOutbox, TriedMessage: large}}},
		"POST /v1/ops/dead-letters/d1/payload":     ops.Letter{Item: deadletter.Item{ID: "d1", State: deadletter.Open}, Base64: []byte("no\xffJSON")},
		"POST /v1/ops/dead-letters/secret/payload": serve.Refuse(http.StatusUnprocessableEntity, "refused", "the reason has what looks like personal data"),
	}}
	site := serving(t, api)
	for _, path := range []string{"/ops/events/e1/payload?queue=q1", "/ops/dead-letters/d1/payload"} {
		status, body := look(t, site, path)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, `name="why"`)
	}
	require.Empty(t, api.asked, "the form asks for nothing")
	status, body := send(t, site, "/ops/events/e1/payload?queue=q1", url.Values{"why": {"OPS-7"}})
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []string{`POST /v1/ops/events/e1/payload?queue=q1 {"why":"OPS-7"}`}, api.asked)
	require.Contains(t, body, "12345678901234567890.10,\n")
	require.Contains(t, body, "&lt;script&gt;")
	require.Contains(t, shown(body), "7,725 more bytes are not shown here")
	_, body = send(t, site, "/ops/dead-letters/d1/payload", url.Values{"why": {"OPS-7"}})
	require.Contains(t, body, "no\ufffdJSON")
	status, body = send(t, site, "/ops/dead-letters/secret/payload", url.Values{"why": {"for ilse"}})
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, body, "the reason has what looks like personal data")
	require.Contains(t, body, "for ilse</textarea>")
}
