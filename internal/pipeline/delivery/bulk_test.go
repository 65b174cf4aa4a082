package delivery_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
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

// changed is an event of a changed product; version 0 means none.
func changed(t testing.TB, id, document string, version int) handler.Event {
	t.Helper()
	return withData(t, "product.updated", id, document, fmt.Sprintf(`"version":%d`, version))
}

func withData(t testing.TB, eventType, id, document, members string) handler.Event {
	t.Helper()
	message := fmt.Sprintf(`{"id":%q,"type":%q,"timestamp":"2026-11-20T08:59:58Z","version":1,`+
		`"data":{"document_id":%q,%s}}`, id, eventType, document, members)
	body := filetest.Must(shipped.Decode(contract.MessageV1, []byte(message)))(t)
	return handler.Event{
		Queue: "documents", Tenant: "acme", ID: id, Type: eventType, OrderingKey: document, Attempt: 1, Body: body,
	}
}

type posted struct{ key, contentType, body string }

// batched posts the events as one batch, and returns the outcome of each and the requests. A terminal
// outcome ends with "for good".
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
		key, contentType := r.Header.Get("Idempotency-Key"), r.Header.Get("Content-Type")
		requests = append(requests, posted{key, contentType, string(body)})
		answer(w, strings.Split(strings.TrimSuffix(string(body), "\n"), "\n"))
	}).Batch(catalog.Post{Target: "service", Path: "/products/_bulk", Form: form},
		func(id string) (catalog.Queue, bool) {
			return catalog.Queue{ID: id, Batch: catalog.Batch{Size: len(events), Wait: time.Second}}, true
		}, never)
	require.True(t, post.SafeToRepeat)
	got = make([]string, len(events))
	var attempts sync.WaitGroup
	for i, event := range events {
		attempts.Go(func() {
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
		})
	}
	attempts.Wait()
	return got, requests
}

// never is a timer that never fires.
func never(time.Duration) (<-chan time.Time, func() bool) { return nil, func() bool { return true } }

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

func TestBulkHasAnActionForEachEventAndTheDocumentsThatAreNotDeleted(t *testing.T) {
	t.Parallel()
	const indexed = `{"index":{"_id":"acme~p-1","version":7,"version_type":"external"}}` + "\n"
	priced := `"version":7,"price":"9.99","currency":"EUR","status":"listed"`
	type row struct {
		event handler.Event
		want  string
	}
	filetest.Each(t, map[string]row{
		"with its version": {
			changed(t, "e1", "p-1", 7), indexed + `{"document_id":"p-1","tenant":"acme","version":7}` + "\n",
		},
		"without one": {
			changed(t, "e1", "p-1", 0),
			`{"index":{"_id":"acme~p-1"}}` + "\n" + `{"document_id":"p-1","tenant":"acme"}` + "\n",
		},
		"with all declared members": {
			withData(t, "product.created", "e1", "p-1", priced), indexed +
				`{"currency":"EUR","document_id":"p-1","price":"9.99","status":"listed","tenant":"acme","version":7}` +
				"\n",
		},
		"deleted": {
			withData(t, "product.deleted", "e1", "p-1", `"version":0`), `{"delete":{"_id":"acme~p-1"}}` + "\n",
		},
		"deleted, with its version": {
			withData(t, "product.deleted", "e1", "p-1", `"version":8`),
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
		{404, 3, "updated", "callee_refused_404 for good"},
		{404, 3, "deleted", delivery.Delivered},
		{409, 3, "deleted", newer},
		{200, 3, "deleted", delivery.Delivered},
	} {
		document := fmt.Sprint("p-", i)
		statuses[document], wants = item.status, append(wants, item.want)
		events = append(events, withData(t, "product."+item.event, fmt.Sprint("e", i), document,
			fmt.Sprintf(`"version":%d`, item.version)))
	}
	got, requests := batched(t, catalog.Bulk, bulkOf(statuses), events...)
	require.Equal(t, wants, got)
	require.Len(t, requests, 1)
	require.Regexp(t, "^batch-[0-9a-f]{32}$", requests[0].key)
}

func TestAnswerToABatchDecidesForAllItsEventsUnlessItHasItems(t *testing.T) {
	t.Parallel()
	const unclear, ok = "callee_answer_unclear", delivery.Delivered
	type row struct {
		form   catalog.Form
		answer func(http.ResponseWriter, []string)
		want   []string // the outcomes of the first line and of the second, or one of both
	}
	oneOf := func(actions ...string) func(http.ResponseWriter, []string) {
		return status(200, `{"items":[{`+strings.Join(actions, "},{")+`}]}`)
	}
	const index, remove, other = `"index":{"status":200}`, `"delete":{"status":200}`,
		`"index":{"_id":"p-9","status":200}`
	filetest.Each(t, map[string]row{
		"lines, and no text":      {catalog.NDJSON, status(204, ""), []string{ok}},
		"lines, and a text":       {catalog.NDJSON, status(200, "Ok."), []string{ok}},
		"an object without items": {catalog.NDJSON, status(200, `{"rows":2}`), []string{ok}},
		"items, one refused":      {catalog.NDJSON, items(200, 422), []string{ok, "callee_refused_422 for good"}},
		"items, one failed":       {catalog.NDJSON, items(202, 503), []string{ok, "callee_failed_503"}},
		"too few items":           {catalog.NDJSON, items(200), []string{unclear}},
		"items that are numbers":  {catalog.NDJSON, status(200, `{"items":[1,2]}`), []string{unclear}},
		"too long an answer": {
			catalog.NDJSON, status(200, strings.Repeat("x", 1<<20)), []string{"callee_answer_too_long"},
		},
		"it failed":              {catalog.Bulk, status(503, ""), []string{"callee_failed_503"}},
		"it is busy":             {catalog.Bulk, status(429, ""), []string{"callee_busy_429"}},
		"there is no such index": {catalog.Bulk, status(404, ""), []string{"callee_refused_404"}},
		"it redirects":           {catalog.Bulk, status(308, ""), []string{"callee_redirects_308"}},
		"it is no answer of a bulk": {
			catalog.Bulk, status(200, "<html>"), []string{unclear},
		},
		"it lacks an item":       {catalog.Bulk, oneOf(index), []string{unclear}},
		"an item of two actions": {catalog.Bulk, oneOf(index+`,"create":{"status":200}`, index), []string{unclear}},
		"items of another action": {
			catalog.Bulk, oneOf(remove, remove), []string{unclear},
		},
		"items of another document": {
			catalog.Bulk, oneOf(other, other), []string{unclear},
		},
		"its connection breaks at the end": {catalog.Bulk, func(w http.ResponseWriter, _ []string) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"items":[`)
		}, []string{"callee_unreachable"}},
	}, func(t *testing.T, test row) {
		got, requests := batched(t, test.form, test.answer, changed(t, "e1", "p-1", 1), changed(t, "e2", "p-2", 1))
		require.Len(t, requests, 1, "it is not sent again by itself")
		// the attempts come in any order
		if strings.Index(requests[0].body, `"p-1"`) > strings.Index(requests[0].body, `"p-2"`) {
			slices.Reverse(got)
		}
		require.Equal(t, []string{test.want[0], test.want[len(test.want)-1]}, got)
	})
}

func items(statuses ...int) func(http.ResponseWriter, []string) {
	return func(w http.ResponseWriter, _ []string) {
		all := filetest.Map(statuses, func(s int) string { return fmt.Sprintf(`{"status":%d}`, s) })
		_, _ = io.WriteString(w, `{"items":[`+strings.Join(all, ",")+`]}`)
	}
}

func TestRefusedLineOfABatchDoesNotFailTheOthers(t *testing.T) {
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
				want := slices.Repeat([]string{delivery.Delivered}, 7)
				want[3] = fmt.Sprint("callee_refused_", refusal, " for good")
				require.Equal(t, want, got)
				require.LessOrEqual(t, len(requests), 2*3+1, "halves, down to one of seven")
			})
		}
	}
}

func TestEventWithoutADocumentIsNotInTheBatch(t *testing.T) {
	t.Parallel()
	nobody := changed(t, "e2", "p-2", 1)
	nobody.OrderingKey = contract.UnknownOrderingKey
	bad := changed(t, "e3", "p-3", 1)
	bad.Body = contract.Body{}
	answer := bulkOf(map[string]int{"p-1": 200})
	got, requests := batched(t, catalog.Bulk, answer, changed(t, "e1", "p-1", 1), nobody, bad)
	require.Equal(t, []string{delivery.Delivered, "document_missing for good", "body_expected for good"}, got)
	require.Len(t, requests, 1)
	require.Equal(t, handler.CalleeKey("documents", "acme", "e1"), requests[0].key)
}
