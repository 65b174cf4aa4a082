package delivery_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
	"billhook/internal/retry"
)

var shipped = catalogtest.Shipped().Contracts

// changed is an event of a product's change; version 0 is none.
func changed(t testing.TB, id, document string, version int) handler.Event {
	t.Helper()
	return productEvent(t, "product.updated", id, document, version)
}

func productEvent(t testing.TB, eventType, id, document string, version int) handler.Event {
	t.Helper()
	data := fmt.Sprintf(`{"id":%q,"type":%q,"timestamp":"2026-11-20T08:59:58Z","version":1,`+
		`"data":{"document_id":%q,"version":%d}}`, id, eventType, document, version)
	body := filetest.Must(shipped.Decode(contract.MessageV1, []byte(data)))(t)
	return handler.Event{
		Queue: "documents", Tenant: "acme", ID: id, Type: eventType, OrderingKey: document, Attempt: 1, Body: body,
	}
}

type posted struct{ key, contentType, body string }

// batched posts the events at once, as one batch, and returns what became of each, and the
// requests. What cannot be mended ends "for good". The target's answers are those of answer.
func batched(
	t *testing.T, form catalog.Form, answer func(w http.ResponseWriter, lines []string), events ...handler.Event,
) (got []string, requests []posted) {
	t.Helper()
	verifier, err := signature.NewVerifier(signature.Generic, []string{secret}, time.Second, clock)
	require.NoError(t, err)
	post := target(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || verifier.Verify(r.Header.Values, body) != nil || r.URL.Path != "/products/_bulk" {
			t.Error("the signature is not over what arrived, or it arrived elsewhere")
		}
		requests = append(requests,
			posted{r.Header.Get("Idempotency-Key"), r.Header.Get("Content-Type"), string(body)})
		answer(w, strings.Split(strings.TrimSuffix(string(body), "\n"), "\n"))
	}).Batch(catalog.Post{Target: "service", Path: "/products/_bulk", Form: form},
		func(id string) (catalog.Queue, bool) {
			return catalog.Queue{ID: id, Batch: catalog.Batch{Size: len(events), Wait: time.Second}}, true
		},
		// never late
		func(time.Duration) (<-chan time.Time, func() bool) { return nil, func() bool { return true } })
	require.True(t, post.SafeToRepeat)
	got = make([]string, len(events))
	attempts := make(chan int)
	for i, event := range events {
		go func() {
			effect, err := post.Do(t.Context(), event)
			switch {
			case err != nil:
				if got[i] = retry.Decide(err).Reason; retry.Decide(err).Class.Terminal() {
					got[i] += " for good"
				}
			case effect.Superseded:
				got[i] = "superseded " + effect.Result
			default:
				got[i] = effect.Result
			}
			attempts <- i
		}()
	}
	for range events {
		<-attempts
	}
	return got, requests
}

func status(code int, body string) func(http.ResponseWriter, []string) {
	return func(w http.ResponseWriter, _ []string) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// bulkOf answers with the items of a bulk: a status for each document.
func bulkOf(statuses map[string]int) func(http.ResponseWriter, []string) {
	return func(w http.ResponseWriter, lines []string) {
		var items []string
		for _, line := range lines {
			var action map[string]struct {
				ID string `json:"_id"`
			}
			if _ = json.Unmarshal([]byte(line), &action); action["index"].ID+action["delete"].ID == "" {
				continue // a document
			}
			for name, of := range action {
				items = append(items, fmt.Sprintf(`{%q:{"_id":%q,"_version":2,"status":%d}}`, name, of.ID,
					statuses[strings.TrimPrefix(of.ID, "acme~")]))
			}
		}
		_, _ = io.WriteString(w, `{"took":1,"errors":true,"items":[`+strings.Join(items, ",")+`]}`)
	}
}

func TestABulkHasAnActionForEachEventAndTheDocumentOfEachThatIsNotDeleted(t *testing.T) {
	t.Parallel()
	priced := changed(t, "e1", "p-1", 7)
	var err error
	priced.Body, err = shipped.Decode(contract.MessageV1,
		[]byte(`{"id":"e1","type":"product.created","timestamp":"2026-11-20T08:59:58Z","version":1,`+
			`"data":{"document_id":"p-1","version":7,"price":"9.99","currency":"EUR","status":"listed"}}`))
	require.NoError(t, err)
	type row struct {
		event handler.Event
		want  string
	}
	filetest.Each(t, map[string]row{
		"with its version": {
			changed(t, "e1", "p-1", 7),
			`{"index":{"_id":"acme~p-1","version":7,"version_type":"external"}}` + "\n" +
				`{"document_id":"p-1","tenant":"acme","version":7}` + "\n",
		},
		"without one": {
			changed(t, "e1", "p-1", 0), `{"index":{"_id":"acme~p-1"}}` + "\n" +
				`{"document_id":"p-1","tenant":"acme"}` + "\n",
		},
		"with all that is declared": {
			priced, `{"index":{"_id":"acme~p-1","version":7,"version_type":"external"}}` + "\n" +
				`{"currency":"EUR","document_id":"p-1","price":"9.99","status":"listed","tenant":"acme","version":7}` +
				"\n",
		},
		"deleted": {productEvent(t, "product.deleted", "e1", "p-1", 0), `{"delete":{"_id":"acme~p-1"}}` + "\n"},
		"deleted, with its version": {
			productEvent(t, "product.deleted", "e1", "p-1", 8),
			`{"delete":{"_id":"acme~p-1","version":8,"version_type":"external"}}` + "\n",
		},
	}, func(t *testing.T, test row) {
		got, requests := batched(t, catalog.Bulk, bulkOf(map[string]int{"p-1": 201}), test.event)
		require.Equal(t, []string{delivery.Delivered}, got)
		require.Equal(t, []posted{{test.event.CalleeKey(), "application/x-ndjson", test.want}}, requests)
	})
}

func TestEachItemOfABulkDecidesForItsOwnEvent(t *testing.T) {
	t.Parallel()
	const newer = "superseded " + delivery.NotNewer
	statuses, events, wants := map[string]int{}, []handler.Event{}, []string{}
	for i, item := range []struct {
		status, version int
		event           string
		want            string
	}{
		{200, 3, "updated", delivery.Delivered},
		{201, 3, "updated", delivery.Delivered},
		{400, 3, "updated", "callee_refused_400 for good"},
		{429, 3, "updated", "callee_busy_429"},
		{503, 3, "updated", "callee_failed_503"},
		{409, 3, "updated", newer},
		{409, 0, "updated", "callee_refused_409 for good"},
		{401, 3, "updated", "callee_unauthorized_401"},
		{99, 3, "updated", "callee_unclear_99"},
		// it is not there
		{404, 3, "updated", "callee_refused_404 for good"},
		{404, 3, "deleted", delivery.Delivered},
		{409, 3, "deleted", newer},
		{200, 3, "deleted", delivery.Delivered},
	} {
		document := fmt.Sprint("p-", i)
		statuses[document], wants = item.status, append(wants, item.want)
		events = append(events, productEvent(t, "product."+item.event, fmt.Sprint("e", i), document, item.version))
	}
	got, requests := batched(t, catalog.Bulk, bulkOf(statuses), events...)
	require.Equal(t, wants, got)
	require.Len(t, requests, 1)
	require.Regexp(t, "^batch-[0-9a-f]{32}$", requests[0].key)
}

func TestTheAnswerToABatchDecidesForAllOfItsEventsUnlessItHasItems(t *testing.T) {
	t.Parallel()
	const unclear = "callee_answer_unclear"
	type row struct {
		form   catalog.Form
		answer func(http.ResponseWriter, []string)
		// want is what becomes of the event of the first line, and of the second.
		want, second string
	}
	filetest.Each(t, map[string]row{
		"lines, and nothing is said": {catalog.NDJSON, status(204, ""), delivery.Delivered, delivery.Delivered},
		"lines, and a word is said":  {catalog.NDJSON, status(200, "Ok."), delivery.Delivered, delivery.Delivered},
		"an object that has no items": {
			catalog.NDJSON, status(200, `{"rows":2}`), delivery.Delivered, delivery.Delivered,
		},
		"items, one of them refused": {
			catalog.NDJSON, items(200, 422), delivery.Delivered, "callee_refused_422 for good",
		},
		"items, one of them for later": {catalog.NDJSON, items(202, 503), delivery.Delivered, "callee_failed_503"},
		"items of another number":      {catalog.NDJSON, items(200), unclear, unclear},
		"items that are no items":      {catalog.NDJSON, status(200, `{"items":[1,2]}`), unclear, unclear},
		"an answer beyond every measure": {
			catalog.NDJSON, status(200, strings.Repeat("x", 1<<20)), "callee_answer_too_long",
			"callee_answer_too_long",
		},
		"it failed":              {catalog.Bulk, status(503, ""), "callee_failed_503", "callee_failed_503"},
		"it has no time":         {catalog.Bulk, status(429, ""), "callee_busy_429", "callee_busy_429"},
		"there is no such index": {catalog.Bulk, status(404, ""), "callee_refused_404", "callee_refused_404"},
		"it redirects":           {catalog.Bulk, status(308, ""), "callee_redirects_308", "callee_redirects_308"},
		"it is no answer of a bulk": {
			catalog.Bulk, status(200, "<html>"), unclear, unclear,
		},
		"it lacks an item": {catalog.Bulk, status(200, `{"items":[{"index":{"status":200}}]}`), unclear, unclear},
		"an item is of two actions": {
			catalog.Bulk, status(200, `{"items":[{"index":{"status":200},"create":{"status":200}},`+
				`{"index":{"status":200}}]}`), unclear, unclear,
		},
		"an item is of another action": {
			catalog.Bulk, status(200, `{"items":[{"delete":{"status":200}},{"delete":{"status":200}}]}`),
			unclear, unclear,
		},
		"an item is of another document": {
			catalog.Bulk, status(200, `{"items":[{"index":{"_id":"p-9","status":200}},{"index":{"_id":"p-9",`+
				`"status":200}}]}`), unclear, unclear,
		},
		"its connection breaks in the end": {catalog.Bulk, func(w http.ResponseWriter, _ []string) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"items":[`)
		}, "callee_unreachable", "callee_unreachable"},
	}, func(t *testing.T, test row) {
		got, requests := batched(t, test.form, test.answer, changed(t, "e1", "p-1", 1), changed(t, "e2", "p-2", 1))
		require.Len(t, requests, 1, "it is not sent again by itself")
		// the attempts come in any order
		if strings.Index(requests[0].body, `"p-1"`) > strings.Index(requests[0].body, `"p-2"`) {
			slices.Reverse(got)
		}
		require.Equal(t, []string{test.want, test.second}, got)
	})
}

func items(statuses ...int) func(http.ResponseWriter, []string) {
	return func(w http.ResponseWriter, _ []string) {
		all := filetest.Map(statuses, func(s int) string { return fmt.Sprintf(`{"status":%d}`, s) })
		_, _ = io.WriteString(w, `{"items":[`+strings.Join(all, ",")+`]}`)
	}
}

// A line that the target cannot take would else take the others of its batch with it, and again
// after each wait.
func TestALineThatIsRefusedDoesNotTakeTheOthersWithIt(t *testing.T) {
	t.Parallel()
	for _, form := range []catalog.Form{catalog.Bulk, catalog.NDJSON} {
		for _, refusal := range []int{400, 413, 422} {
			t.Run(fmt.Sprint(form, " ", refusal), func(t *testing.T) {
				t.Parallel()
				var events []handler.Event
				statuses := map[string]int{}
				for i := range 7 {
					document := fmt.Sprint("p-", i)
					events, statuses[document] = append(events, changed(t, fmt.Sprint("e", i), document, 1)), 200
				}
				answer := bulkOf(statuses)
				if form == catalog.NDJSON {
					answer = status(204, "")
				}
				got, requests := batched(t, form, func(w http.ResponseWriter, lines []string) {
					if strings.Contains(strings.Join(lines, ""), `"p-3"`) {
						w.WriteHeader(refusal)
						return
					}
					answer(w, lines)
				}, events...)
				for i, what := range got {
					want := delivery.Delivered
					if i == 3 {
						want = fmt.Sprint("callee_refused_", refusal, " for good")
					}
					require.Equal(t, want, what)
				}
				require.LessOrEqual(t, len(requests), 2*3+1, "halves, down to one of seven")
			})
		}
	}
}

func TestAnEventThatCannotBeWrittenIsNotInTheBatch(t *testing.T) {
	t.Parallel()
	nobody := changed(t, "e2", "p-2", 1)
	nobody.OrderingKey = contract.UnknownOrderingKey
	bad := changed(t, "e3", "p-3", 1)
	bad.Body = contract.Body{}
	got, requests := batched(t, catalog.Bulk, bulkOf(map[string]int{"p-1": 200}), changed(t, "e1", "p-1", 1),
		nobody, bad)
	require.Equal(t, []string{delivery.Delivered, "document_missing for good", "body_expected for good"}, got)
	require.Len(t, requests, 1)
	require.Equal(t, handler.CalleeKey("documents", "acme", "e1"), requests[0].key)
}
