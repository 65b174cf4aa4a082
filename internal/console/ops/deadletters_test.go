package ops_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
)

// bury keeps a dead letter of an event, of the n-th minute of the half hour before now.
func (r *rig) bury(t *testing.T, n int, reason string, data []byte) {
	t.Helper()
	kept := at.Add(time.Duration(n-30) * time.Minute)
	_, err := deadletter.Keep(t.Context(), r.store, queues.Queues[0], contract.Message{Data: data, Attributes: map[string]string{
		"event_id": fmt.Sprint("e", n), "event_type": "order.paid", "ordering_key": "u1", "dead_letter_reason": reason,
		"dead_letter_status": "422", "source_message_id": fmt.Sprint(100 + n), "delivery_attempts": "1",
		"dead_lettered_at": kept.Format(time.RFC3339),
	}}, fmt.Sprint(900+n), kept)
	require.NoError(t, err)
}

// post sends a question and returns the answer.
func (r *rig) post(t *testing.T, path string, question any, who string) *httptest.ResponseRecorder {
	t.Helper()
	body, isText := question.(string)
	if !isText {
		encoded, err := json.Marshal(question)
		require.NoError(t, err)
		body = string(encoded)
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader([]byte(body)))
	request.RemoteAddr, request.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	request.Header.Set("X-Operator", who)
	recorder := httptest.NewRecorder()
	r.router.ServeHTTP(recorder, request)
	return recorder
}

func TestDeadLettersAreListedPreviewedAndShown(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.bury(t, 1, "unknown_product", []byte(`{"eventId":"e1"}`))
	r.bury(t, 2, "unknown_product", []byte(`{"eventId":"e2"}`))
	r.bury(t, 3, "body_malformed", []byte{0xff, 0xfe})
	var page ops.DeadLetters
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters?queue=q:orders&reason=unknown_product&limit=1", nil, &page).Code)
	require.Len(t, page.Items, 1)
	require.NotEmpty(t, page.Next)
	first := page.Items[0].ID
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters?queue=orders&reason=unknown_product&page="+page.Next, nil, &page).Code)
	require.Len(t, page.Items, 1)
	require.NotEqual(t, first, page.Items[0].ID)
	require.Empty(t, page.Next)

	var preview deadletter.Preview
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters/preview?queue=orders", nil, &preview).Code)
	require.Equal(t, map[string]int{"unknown_product": 2, "body_malformed": 1}, preview.ByReason)
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters/preview?queue=orders&since="+at.Add(-28*time.Minute).Format(time.RFC3339), nil, &preview).Code)
	require.Equal(t, 2, preview.Total)

	var letter ops.Letter
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters/"+first, nil, &letter).Code)
	require.Empty(t, letter.Data)
	require.NotZero(t, letter.Size)
	require.Equal(t, "unknown_product", letter.Attributes["dead_letter_reason"])
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters?queue=orders&reason=body_malformed", nil, &page).Code)
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters/"+page.Items[0].ID, nil, &letter).Code)
	require.EqualValues(t, 2, letter.Size)
	require.Empty(t, letter.Base64)
}

func TestAQuestionAboutDeadLettersThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	r := open(t)
	for path, want := range map[string]int{
		"/v1/ops/dead-letters?state=all": http.StatusBadRequest,
		"/v1/ops/dead-letters/preview":   http.StatusNotFound,
		"/v1/ops/dead-letters/preview?queue=orders&items=" + strings.Repeat("a,", 100) + "a": http.StatusUnprocessableEntity,
		"/v1/ops/dead-letters/reasons?queue=nobody":                                          http.StatusNotFound,
		"/v1/ops/dead-letters/reasons?item=x":                                                http.StatusBadRequest,
		"/v1/ops/dead-letters?queue=nobody":                                                  http.StatusNotFound,
		"/v1/ops/dead-letters?queue=orders&since=yesterday":                                  http.StatusBadRequest,
		"/v1/ops/dead-letters?queue=orders&state=mended":                                     http.StatusBadRequest,
		"/v1/ops/dead-letters?queue=orders&limit=0":                                          http.StatusBadRequest,
		"/v1/ops/dead-letters?queue=orders&limit=101":                                        http.StatusBadRequest,
		"/v1/ops/dead-letters?queue=orders&reasn=a":                                          http.StatusBadRequest,
		"/v1/ops/dead-letters?queue=orders&page=a%2Fb":                                       http.StatusBadRequest,
		"/v1/ops/operations?page=a%2Fb":                                                      http.StatusBadRequest,
		"/v1/ops/dead-letters/nothing":                                                       http.StatusNotFound,
		"/v1/ops/operations/nothing":                                                         http.StatusNotFound,
	} {
		require.Equal(t, want, r.ask(t, path, nil, nil).Code, path)
	}
	for question, want := range map[string]int{
		"nonsense":                                   http.StatusBadRequest,
		`{"queue":"orders","edit":{"a":1}}`:          http.StatusBadRequest,
		`{"queue":"nobody","expect":1,"why":"x"}`:    http.StatusNotFound,
		`{"queue":"orders","expect":1,"why":"x"}`:    http.StatusConflict,
		`{"queue":"orders","expect":0,"why":"none"}`: http.StatusUnprocessableEntity,
	} {
		require.Equal(t, want, r.post(t, "/v1/ops/dead-letters/discard", question, "ilse").Code, question)
	}
	require.Equal(t, http.StatusNotFound, r.post(t, "/v1/ops/operations/nothing/run", "{}", "ilse").Code)
	require.Equal(t, http.StatusNotFound, r.post(t, "/v1/ops/operations/nothing/approve", `{"why":"checked"}`, "ilse").Code)
}

func TestDeadLettersAreFoundByEveryNameTheyHave(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.bury(t, 1, "unknown_product", []byte(`{}`))
	for _, name := range []string{"orders", "q:orders", "orders-dlq", "orders.exchange"} {
		var page ops.DeadLetters
		require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters?queue="+name, nil, &page).Code, name)
		require.Len(t, page.Items, 1, name)
	}
}

func TestTheOpenDeadLettersOfAllQueuesAreListedAndCountedByReason(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, inStore(dead("orders", "d1", "r", time.Minute)), inStore(dead("refunds", "d2", "r", 2*time.Minute)),
		inStore(dead("refunds", "d3", "s", 3*time.Minute)), inStore(dead("refunds", "d4", "r", 4*time.Minute)))
	var page ops.DeadLetters
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters?limit=3", nil, &page).Code)
	require.Equal(t, []string{"d1", "d2", "d3"}, ids(page.Items))
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters?limit=3&page="+page.Next, nil, &page).Code)
	require.Equal(t, []string{"d4"}, ids(page.Items))
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters?reason=s", nil, &page).Code)
	require.Equal(t, []string{"d3"}, ids(page.Items))
	var reasons ops.List[deadletter.Reason]
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters/reasons", nil, &reasons).Code)
	var counted []string
	for _, one := range reasons.Items {
		counted = append(counted, fmt.Sprint(one.Queue, " ", one.Reason, " ", one.Count))
	}
	require.Equal(t, []string{"refunds r 2", "orders r 1", "refunds s 1"}, counted)
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters/reasons?queue=q:orders&key=u1", nil, &reasons).Code)
	require.Len(t, reasons.Items, 1)
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters/reasons?since=90s", nil, &reasons).Code)
	require.Len(t, reasons.Items, 1)
}

func ids(items []deadletter.Item) (all []string) {
	for _, i := range items {
		all = append(all, i.ID)
	}
	return all
}

func TestAnOperationOfSomeDeadLettersNamesThem(t *testing.T) {
	t.Parallel()
	r := open(t)
	for n := range 4 {
		r.commit(t, inStore(dead("orders", fmt.Sprint("d", n), "r", time.Minute)))
	}
	var preview deadletter.Preview
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters/preview?queue=orders&items=d0,d2,d9", nil, &preview).Code)
	require.Equal(t, 2, preview.Total)
	created := r.post(t, "/v1/ops/dead-letters/discard", `{"queue":"orders","items":["d0","d2"],"expect":2,"why":"tests"}`, "ilse")
	require.Equal(t, http.StatusCreated, created.Code, created.Body)
	var op deadletter.Operation
	require.NoError(t, json.Unmarshal(created.Body.Bytes(), &op))
	require.Equal(t, http.StatusOK, r.post(t, "/v1/ops/operations/"+op.ID+"/run", "{}", "ilse").Code)
	var page ops.DeadLetters
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/dead-letters?queue=orders", nil, &page).Code)
	require.Equal(t, []string{"d3", "d1"}, ids(page.Items))
}

func TestADiscardIsBegunRunAndAudited(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.bury(t, 1, "unknown_product", []byte(`{}`))
	created := r.post(t, "/v1/ops/dead-letters/discard", map[string]any{"queue": "q:orders", "expect": 1, "why": "a test order"}, "ilse")
	require.Equal(t, http.StatusCreated, created.Code, created.Body)
	var op deadletter.Operation
	require.NoError(t, json.Unmarshal(created.Body.Bytes(), &op))
	require.Equal(t, "orders", op.Filter.Queue)
	ran := r.post(t, "/v1/ops/operations/"+op.ID+"/run", "{}", "ilse")
	require.Equal(t, http.StatusOK, ran.Code, ran.Body)
	var all ops.List[deadletter.Operation]
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/operations?progress=finished", nil, &all).Code)
	require.Len(t, all.Items, 1)
	require.Contains(t, all.Items[0].Who, "ilse")
	require.Equal(t, "a test order", all.Items[0].Why)
	require.EqualValues(t, 1, all.Items[0].Done)
}

// TestAnOperationOfTwoPeopleIsApprovedByAnIdentityThatHasSeenIt: the API, with a token, an identity, and one whose
// address begins with the word token.
func TestAnOperationOfTwoPeopleIsApprovedByAnIdentityThatHasSeenIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, ops.Access{Tokens: []string{token}, Identifier: identities{}})
	r.fourEyes = true
	r.over(r.store)
	r.bury(t, 1, "unknown_product", []byte(`{"payment_id":"p1","amount":1250}`))
	send := func(by, method, path, body string, into any) *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		request.RemoteAddr = far
		if by == "token" {
			request.Header.Set("Authorization", "Bearer "+token)
			request.Header.Set("X-Operator", "ada@example.org")
		} else {
			request.Header.Set("X-Test-Identity", by)
		}
		answer := httptest.NewRecorder()
		r.router.ServeHTTP(answer, request)
		if into != nil {
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), into), answer.Body.String())
		}
		return answer
	}
	refused := func(by, path, body string, status int, code string) {
		t.Helper()
		answer := send(by, http.MethodPost, path, body, nil)
		require.Equal(t, status, answer.Code, answer.Body)
		require.Contains(t, answer.Body.String(), `"code":"`+code+`"`)
	}
	const replay = `{"queue":"orders","expect":1,"why":"the product is set"}`
	refused("token", "/v1/ops/dead-letters/replay", replay, http.StatusForbidden, "identity_needed")
	refused("token", "/v1/ops/dead-letters/complete", replay, http.StatusForbidden, "identity_needed")
	answer := send("token", http.MethodPost, "/api/v1/events/dead-letter/e1/retry", "", nil)
	require.Equal(t, http.StatusForbidden, answer.Code, "as any other way")

	var first ops.Preview
	send("ada", http.MethodGet, "/v1/ops/dead-letters/preview?queue=orders", "", &first)
	var op deadletter.Operation
	require.Equal(t, http.StatusCreated, send("ada", http.MethodPost, "/v1/ops/dead-letters/replay", replay, &op).Code)
	require.Equal(t, []any{deadletter.Waiting, "ada@example.org"}, []any{op.Progress, op.Who})
	path := "/v1/ops/operations/" + op.ID

	var second ops.Preview
	require.Equal(t, http.StatusOK, send("token-desk", http.MethodGet, path+"/preview", "", &second).Code)
	require.Equal(t, first, second, "the second person sees what the first has seen")
	require.Equal(t, 1, second.Total)
	require.JSONEq(t, `{"payment_id":"p1","amount":1250}`, string(second.Items[0].Trial.Calls[0].Body))
	require.Equal(t, "e1", second.Items[0].EventID)

	refused("token", path+"/approve", `{"why":"checked","expect":1}`, http.StatusForbidden, "identity_needed")
	refused("ada", path+"/approve", `{"why":"checked","expect":1}`, http.StatusUnprocessableEntity, "second_person_needed")
	refused("token-desk", path+"/approve", `{"why":" ","expect":1}`, http.StatusUnprocessableEntity, "refused")
	refused("token-desk", path+"/approve", `{"why":"checked"}`, http.StatusConflict, "changed")
	require.Equal(t, http.StatusOK, send("token-desk", http.MethodPost, path+"/approve", `{"why":"checked","expect":1}`, &op).Code)
	require.Equal(t, []any{deadletter.Running, "token-desk@shop.example", "checked"}, []any{op.Progress, op.ApprovedBy, op.ApprovedWhy})

	// Months take the same two.
	const month, why = "/v1/ops/journal/periods/2026-02", `{"why":"the books are done"}`
	require.Equal(t, http.StatusOK, send("token", http.MethodPost, month+"/close", why, nil).Code)
	refused("token", month+"/reopen", why, http.StatusForbidden, "identity_needed")
	require.Equal(t, http.StatusOK, send("ada", http.MethodPost, month+"/reopen", why, nil).Code)
	refused("ada", month+"/reopen", why, http.StatusUnprocessableEntity, "second_person_needed")
	refused("token", month+"/reopen", why, http.StatusForbidden, "identity_needed")
	answer = send("token-desk", http.MethodPost, month+"/reopen", why, nil)
	require.Equal(t, http.StatusOK, answer.Code)
	require.Contains(t, answer.Body.String(), `"state":"open"`)
}
