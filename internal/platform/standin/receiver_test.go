package standin_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/filetest"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
)

const (
	receiverSecret = "a-secret-of-more-than-24-bytes"
	otherSecret    = "another-secret-of-enough-bytes"
	webhookPath    = "/v1/webhooks/payment"
)

func newReceiver(t testing.TB) *standin.Receiver {
	t.Helper()
	return filetest.Must(standin.NewReceiver(standin.ServiceConfig{
		Secrets: []string{otherSecret, receiverSecret}, Tolerance: 5 * time.Minute, Now: func() time.Time {
			return start
		},
	}))(t)
}

func notice(id string) string {
	return `{"event_id":"` + id +
		`","action":"renewal","subscription_id":"sub-1","created_at":"2026-11-20T09:00:00Z","payload":{}}`
}

func signed(t testing.TB, method, path, body string, at time.Time) *http.Request {
	t.Helper()
	signer := filetest.Must(signature.NewSigner(signature.Generic, receiverSecret))(t)
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for name, value := range signer.Sign("", []byte(body), at) {
		request.Header.Set(name, value)
	}
	return request
}

func post(t testing.TB, r http.Handler, id, body string) (status int, answer string, cut bool) {
	t.Helper()
	request := signed(t, http.MethodPost, webhookPath, body, start)
	request.Header.Set("Idempotency-Key", id)
	return serveOnce(r, request)
}

func serveOnce(r http.Handler, request *http.Request) (status int, answer string, cut bool) {
	recorder := httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // net/http compares in the same way
				panic(p)
			}
			status, answer, cut = 0, "", true
		}
	}()
	r.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String(), false
}

func outcomes(r *standin.Receiver) []string {
	return filetest.Map(r.Deliveries(), func(of standin.Delivery) string {
		return of.EventID + " " + of.Outcome
	})
}

// Against a simple model: modes are used up in order, a key is applied once, and a key with another body is
// another event, which is refused.
func TestTheReceiverAgreesWithItsModel(t *testing.T) {
	t.Parallel()
	type order struct {
		mode standin.Mode
		of   string
	}
	modes := map[standin.Mode]string{
		standin.Fail: standin.Failed, standin.Refuse: standin.Refused, standin.Hang: standin.Hung,
		standin.Forget: standin.Forgotten,
	}
	drawID := func(rt *rapid.T) string { return fmt.Sprintf("evt-%d", rapid.IntRange(0, 2).Draw(rt, "id")) }
	rapid.Check(t, func(rt *rapid.T) {
		r := newReceiver(t)
		r.Close() // or a hanging request would last until the end
		var orders []order
		var delivered []string
		bodies := map[string]string{} // of what was applied
		rt.Repeat(map[string]func(*rapid.T){
			"instruct": func(rt *rapid.T) {
				one := order{
					rapid.SampledFrom(slices.Sorted(maps.Keys(modes))).Draw(rt, "mode"),
					rapid.SampledFrom([]string{"", "", "evt-1"}).Draw(rt, "of"),
				}
				times := rapid.IntRange(1, 3).Draw(rt, "times")
				require.NoError(rt, r.Behave(one.of, one.mode, times))
				orders = append(orders, slices.Repeat([]order{one}, times)...)
			},
			"take back": func(rt *rapid.T) {
				of := rapid.SampledFrom([]string{"", "evt-1"}).Draw(rt, "of")
				require.NoError(rt, r.Behave(of, standin.Normal, 0))
				orders = slices.DeleteFunc(orders, func(o order) bool { return of == "" || o.of == of })
			},
			"post": func(rt *rapid.T) {
				id, mode := drawID(rt), standin.Normal
				if i := slices.IndexFunc(orders, func(o order) bool { return o.of == "" || o.of == id }); i >= 0 {
					mode = orders[i].mode
					orders = slices.Delete(orders, i, i+1)
				}
				body := strings.Replace(notice(id), "sub-1",
					rapid.SampledFrom([]string{"sub-1", "sub-1", "sub-2"}).Draw(rt, "subscription"), 1)
				want, before := standin.Applied, bodies[id]
				switch {
				case mode != standin.Normal && mode != standin.Forget:
					want = modes[mode]
				case before != "" && before != body:
					want = standin.Refused
				case mode == standin.Forget:
					want, bodies[id] = standin.Forgotten, body
				case before != "":
					want = standin.Duplicate
				default:
					bodies[id] = body
				}
				status, answer, cut := post(t, r, id, body)
				require.Equal(rt, want == standin.Hung || want == standin.Forgotten, cut)
				require.Equal(rt, map[string]int{
					standin.Applied: 200, standin.Duplicate: 200, standin.Failed: 503, standin.Refused: 422,
				}[want], status)
				require.Equal(rt, want == standin.Duplicate, strings.Contains(answer, `"duplicate":true`))
				delivered = append(delivered, id+" "+want)
			},
			"ask": func(rt *rapid.T) {
				id := drawID(rt)
				status, _, _ := serveOnce(r, signed(t, http.MethodGet, webhookPath+"/"+id, "", start))
				require.Equal(rt, map[bool]int{true: 200, false: 404}[bodies[id] != ""], status)
			},
			"": func(rt *rapid.T) {
				for i := range 3 {
					id := fmt.Sprint("evt-", i)
					require.Equal(rt, bodies[id] != "", r.Applied(id) == 1)
				}
				require.Equal(rt, delivered, outcomes(r))
			},
		})
	})
}

// The model tries a receiver that is closed, where nothing hangs.
func TestAHangEndsWithItsSender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t)
		require.NoError(t, r.Behave("", standin.Hang, 1))
		sending, leave := context.WithCancel(t.Context())
		request := signed(t, http.MethodPost, webhookPath, notice("evt"), start).WithContext(sending)
		request.Header.Set("Idempotency-Key", "evt")
		ended := make(chan bool, 1)
		go func() {
			_, _, cut := serveOnce(r, request)
			ended <- cut
		}()
		synctest.Wait()
		require.Empty(t, ended, "answered while its sender waits")
		leave()
		require.True(t, <-ended)
		require.Equal(t, []string{"evt hung"}, outcomes(r))
	})
}

func TestTheReceiverAcceptsOnlySignedCompleteRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body   string
		at     time.Duration // offset from now
		change func(*http.Request)
		want   int
	}{
		"whole":        {notice("evt"), 0, nil, 200},
		"too old":      {notice("evt"), -5*time.Minute - time.Second, nil, 401},
		"no signature": {notice("evt"), 0, func(r *http.Request) { r.Header.Del("X-Webhook-Signature") }, 401},
		"another body than signed": {
			notice("evt"), 0, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(notice("evu"))) }, 401,
		},
		"a key that is not its id": {
			notice("evt"), 0, func(r *http.Request) { r.Header.Set("Idempotency-Key", "evu") }, 422,
		},
		"no key":         {notice("evt"), 0, func(r *http.Request) { r.Header.Del("Idempotency-Key") }, 422},
		"two keys":       {notice("evt"), 0, func(r *http.Request) { r.Header.Add("Idempotency-Key", "evt") }, 422},
		"no JSON":        {"evt", 0, nil, 400},
		"one name twice": {`{"key":"evt","event_id":"evt","key":"evt","event_id":"evt"}`, 0, nil, 400},
		"no action":      {`{"key":"evt","event_id":"evt","subscription_id":"sub-1"}`, 0, nil, 422},
		"no subscription": {
			`{"key":"evt","event_id":"evt","action":"renewal"}`, 0, nil, 422,
		},
		"an id that is none": {
			notice("../evt"), 0, func(r *http.Request) { r.Header.Set("Idempotency-Key", "../evt") }, 422,
		},
		"too large":      {`{"event_id":"` + strings.Repeat("e", 256<<10) + `"}`, 0, nil, 413},
		"cut short":      {notice("evt"), 0, func(r *http.Request) { r.Body = io.NopCloser(&cutShort{}) }, 400},
		"another method": {notice("evt"), 0, func(r *http.Request) { r.Method = http.MethodPut }, 405},
		"another path":   {notice("evt"), 0, func(r *http.Request) { r.URL.Path = "/v1/webhooks" }, 404},
	} {
		r := newReceiver(t)
		request := signed(t, http.MethodPost, webhookPath, test.body, start.Add(test.at))
		request.Header.Set("Idempotency-Key", "evt")
		if test.change != nil {
			test.change(request)
		}
		status, answer, _ := serveOnce(r, request)
		require.Equal(t, test.want, status, name)
		require.NotContains(t, answer, "evt", name)
		require.Equal(t, test.want == http.StatusOK, len(r.Deliveries()) == 1, name)
	}
	status, _, _ := serveOnce(newReceiver(t), httptest.NewRequestWithContext(t.Context(), http.MethodGet,
		webhookPath+"/evt", nil))
	require.Equal(t, http.StatusUnauthorized, status, "a question is signed too")
	for name, config := range map[string]standin.ServiceConfig{
		"no secret":      {Tolerance: time.Minute},
		"a short secret": {Secrets: []string{"short"}, Tolerance: time.Minute},
		"no window":      {Secrets: []string{receiverSecret}},
	} {
		require.Error(t, filetest.ErrorOf(standin.NewReceiver(config)), name)
	}
	_,
		err := standin.NewReceiver(standin.ServiceConfig{Secrets: []string{receiverSecret}, Tolerance: time.Minute})
	require.NoError(t, err, "the clock may be the machine's")
}

type cutShort struct{}

func (*cutShort) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestModesAndDeliveriesHaveRoutesForPeople(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	instruct := func(body string) int {
		status, _, _ := serveOnce(r, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tell",
			strings.NewReader(body)))
		return status
	}
	list := func() string {
		status, answer, _ := serveOnce(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"/deliveries", nil))
		require.Equal(t, http.StatusOK, status)
		return answer
	}
	require.JSONEq(t, `{"items":[]}`, list())
	for body, want := range map[string]int{
		``: 400, `[]`: 400, `{"mode":1}`: 400, `{"mode":"fail","times":1,"when":2}`: 400,
		`{"mode":"fail","times":1} {}`:                 400,
		`{"mode":"` + strings.Repeat("x", 2000) + `"}`: 400,
		`{"mode":"fail"}`:                              422, `{"mode":"fail","times":-1}`: 422,
		`{"mode":"fail","times":1000001}`: 422,
		`{"mode":"","times":1}`:           422, `{"mode":"explode","times":1}`: 422,
		`{"mode":"fail","times":1}`: 204,
	} {
		require.Equal(t, want, instruct(body), body)
	}
	_, _, _ = post(t, r, "evt", notice("evt"))
	_, _, _ = post(t, r, "evt", notice("evt"))
	require.JSONEq(t, `{"items":[
		{"path":"/v1/webhooks/payment","key":"evt","event_id":"evt","action":"renewal","subscription_id":"sub-1","at":"2026-11-20T09:00:00Z","outcome":"failed"},
		{"path":"/v1/webhooks/payment","key":"evt","event_id":"evt","action":"renewal","subscription_id":"sub-1","at":"2026-11-20T09:00:00Z","outcome":"applied"}]}`, list())
}

const (
	partnerSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	nextSecret    = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

func hook(t *testing.T, r *standin.Receiver, secret, id, body string, at time.Time) int {
	t.Helper()
	signer := filetest.Must(signature.NewSigner(signature.Standard, secret))(t)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, standin.PartnerPath,
		strings.NewReader(body))
	for name, value := range signer.Sign(id, []byte(body), at) {
		request.Header.Set(name, value)
	}
	status, _, _ := serveOnce(r, request)
	return status
}

func TestTheThirdPartyAcceptsTheSecretOfItsEndpointAlone(t *testing.T) {
	t.Parallel()
	const body = `{"type":"invoice.paid","timestamp":"2026-03-01T12:00:00Z","data":{"id":"inv-1"}}`
	r := newReceiver(t)
	require.Equal(t, http.StatusUnauthorized, hook(t, r, partnerSecret, "evt-1", body, start),
		"it knows no secret yet")
	require.Error(t, r.Trust("no secret"))
	require.NoError(t, r.Trust(nextSecret))
	require.NoError(t, r.Trust(partnerSecret), "in place of the one before")
	for _, step := range []struct {
		sentence, secret, body string
		at                     time.Time
		want                   int
	}{
		{"of another secret", nextSecret, body, start, http.StatusUnauthorized},
		{"stale", partnerSecret, body, start.Add(-6 * time.Minute), http.StatusUnauthorized},
		{"without a type", partnerSecret, `{"data":{}}`, start, http.StatusBadRequest},
		{"valid", partnerSecret, body, start, http.StatusOK},
		{"again", partnerSecret, body, start, http.StatusOK},
	} {
		require.Equal(t, step.want, hook(t, r, step.secret, "evt-1", step.body, step.at), step.sentence)
	}
	require.Equal(t, 1, r.Applied("evt-1"))
	require.Equal(t, []string{"evt-1 applied", "evt-1 duplicate"}, outcomes(r))
}

// bulk is a request to the index, a row of testdata/bulk.yaml.
type bulk struct {
	What, Type, Item string
	Lines            []string
	Cut              bool
	Status           int
}

func (b bulk) sent(t *testing.T, r *standin.Receiver) (status int, answer string) {
	t.Helper()
	body := strings.Join(append(b.Lines, ""), "\n")
	if b.Cut {
		body = strings.TrimSuffix(body, "\n")
	}
	request := signed(t, http.MethodPost, "/products/_bulk", body, start)
	request.Header.Set("Content-Type", cmp.Or(b.Type, "application/x-ndjson"))
	status, answer, _ = serveOnce(r, request)
	return status, answer
}

func TestTheIndexTakesActionsAndDocumentsAlone(t *testing.T) {
	t.Parallel()
	indexing := func() *standin.Receiver {
		return filetest.Must(standin.NewReceiver(standin.ServiceConfig{
			Secrets: []string{receiverSecret}, Tolerance: 5 * time.Minute, Now: func() time.Time { return start },
			Posts: []catalog.Post{{Path: "/products/_bulk", Form: catalog.Bulk}},
		}))(t)
	}
	all := filetest.YAML[struct{ Taken, Steps []bulk }](t, "testdata", "bulk.yaml")
	for _, b := range all.Taken {
		r := indexing()
		status, _ := b.sent(t, r)
		require.Equal(t, b.Status, status, b.What)
		require.Equal(t, b.Status == http.StatusOK, len(r.Deliveries()) == 1, b.What)
	}
	r := indexing()
	for _, b := range all.Steps {
		status, answer := b.sent(t, r)
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `{"items":[`+b.Item+`]}`, answer, b.Lines)
	}
	require.Equal(t, 2, r.Applied("a~p-1"))
	for mode, status := range map[standin.Mode]int{
		standin.Fail: 503, standin.Refuse: 400, standin.Hang: 0, standin.Forget: 0,
	} {
		r.Close()
		require.NoError(t, r.Behave("a~p-1", mode, 1))
		_, answer := all.Steps[0].sent(t, r)
		require.Equal(t, status != 0, strings.Contains(answer, fmt.Sprintf(`"status":%d`, status)), mode)
	}
}

func newGateway(t *testing.T) *standin.Gateway {
	t.Helper()
	g, err := standin.NewGateway(standin.ServiceConfig{
		Secrets: []string{receiverSecret}, Tolerance: time.Minute, Now: func() time.Time { return start },
	})
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

func payment(id, subscription string) string {
	return `{"event_id":"` + id + `","action":"renewal","subscription_id":"` + subscription +
		`","payload":{"subscription_id":"` + subscription + `","amount":"9.99","currency":"EUR"}}`
}

func refund(id, payment string) string {
	return `{"event_id":"` + id + `","action":"refund","payment_id":"` + payment + `"}`
}

// order sends an order, and returns the status of the answer and its member status; 0: cut off.
func order(t *testing.T, g http.Handler, path, id, body string) (status int, says string) {
	t.Helper()
	request := signed(t, http.MethodPost, path, body, start)
	request.Header.Set("Idempotency-Key", id)
	status, answer, _ := serveOnce(g, request)
	return status, saysOf(answer)
}

func saysOf(answer string) string {
	var said struct {
		PaymentID string `json:"payment_id"`
		Status    string `json:"status"`
	}
	if json.Unmarshal([]byte(answer), &said) != nil || said.PaymentID == "" {
		return ""
	}
	return said.Status
}

func askAbout(t *testing.T, g http.Handler, path, id, _ string) (status int, says string) {
	t.Helper()
	status, answer, _ := serveOnce(g, signed(t, http.MethodGet, path+"/"+id, "", start))
	return status, saysOf(answer)
}

func TestTheGatewayCarriesOutAKeyOnceAndRefusesAnotherOrderUnderIt(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	body := payment("key-1", "sub-1")
	for range 3 {
		status, says := order(t, g, standin.PaymentsPath, "key-1", body)
		require.Equal(t, []any{http.StatusOK, "succeeded"}, []any{status, says})
	}
	for was, is := range map[string]string{
		`"subscription_id":"sub-1"`: `"subscription_id":"sub-2"`, "9.99": "1.00", "EUR": "USD",
		"renewal": "upgrade", `"action"`: `"tenant":"acme","action"`,
	} {
		status, says := order(t, g, standin.PaymentsPath, "key-1", strings.Replace(body, was, is, 1))
		require.Equal(t, []any{http.StatusUnprocessableEntity, ""}, []any{status, says}, is)
	}
	require.Equal(t, 1, g.CarriedOut("key-1"))
	require.Len(t, g.Orders(), 1)
	_, answer, _ := serveOnce(g, signed(t, http.MethodGet, standin.PaymentsPath+"/key-1", "", start))
	require.JSONEq(t, `{"payment_id":"`+g.Orders()[0].PaymentID+`","subscription_id":"sub-1","amount":"9.99",`+
		`"currency":"EUR","status":"succeeded"}`, answer)
	status, _ := askAbout(t, g, standin.RefundsPath, "key-1", "")
	require.Equal(t, http.StatusNotFound, status, "refunds are another service")

	for _, id := range []string{"r-1", "r-2", "r-1"} {
		status, _ = order(t, g, standin.RefundsPath, id, refund(id, "pay-1"))
		require.Equal(t, http.StatusOK, status)
	}
	require.Equal(t, 2, g.Refunded("pay-1"), "it protects nobody from asking under two keys")
}

// Each step is an order, and what its answer says; without a body, it asks what became of one. A status of 0
// is a cut connection.
func TestTheGatewayBehavesAsItsModeSays(t *testing.T) {
	t.Parallel()
	type step struct {
		path, id, body string
		status         int
		says           string
		carried        int // so far
	}
	pay := func(id, subscription string, status int, says string, carried int) step {
		return step{standin.PaymentsPath, id, payment(id, subscription), status, says, carried}
	}
	back := func(id, of string, status int, says string, carried int) step {
		return step{standin.RefundsPath, id, refund(id, of), status, says, carried}
	}
	ask := func(status int, says string, carried int) step {
		return step{standin.PaymentsPath, "e", "", status, says, carried}
	}
	for name, test := range map[string]struct {
		act   standin.Mode
		of    string
		steps []step
	}{
		"to decline": {
			standin.Decline, "",
			[]step{pay("e", "s", 200, "declined", 0), ask(200, "declined", 0), pay("e", "s", 200, "declined", 0)},
		},
		"to fail": {
			standin.Fail, "", []step{pay("e", "s", 503, "", 0), ask(404, "", 0), pay("e", "s", 200, "succeeded", 1)},
		},
		"to refuse": {
			standin.Refuse, "", []step{pay("e", "s", 422, "", 0), ask(404, "", 0), pay("e", "s", 200, "succeeded", 1)},
		},
		"to lose its answer": {
			standin.Lose, "",
			[]step{pay("e", "s", 0, "", 1), ask(200, "succeeded", 1), pay("e", "s", 200, "succeeded", 1)},
		},
		"to forget": {
			standin.Forget, "",
			[]step{pay("e", "s", 200, "succeeded", 1), ask(404, "", 1), pay("e", "s", 200, "succeeded", 2)},
		},
		"to hang": {
			standin.Hang, "", []step{pay("e", "s", 0, "", 0), ask(404, "", 0), pay("e", "s", 200, "succeeded", 1)},
		},
		"of one payment": {
			standin.Fail, "p-2", []step{
				back("r-1", "p-1", 200, "succeeded", 1), back("r-2", "p-2", 503, "", 0),
				back("r-2", "p-2", 200, "succeeded", 1),
			},
		},
		"of one subscription": {
			standin.Decline, "s-3",
			[]step{pay("e-3", "s-3", 200, "declined", 0), pay("e-4", "s-3", 200, "succeeded", 1)},
		},
	} {
		g := newGateway(t)
		g.Close() // or a hanging request would last until the end
		require.NoError(t, g.Behave(test.of, test.act, 1))
		for _, step := range test.steps {
			tried := order
			if step.body == "" {
				tried = askAbout
			}
			status, says := tried(t, g, step.path, step.id, step.body)
			require.Equal(t, []any{step.status, step.says, step.carried},
				[]any{status, says, g.CarriedOut(step.id)}, name)
		}
	}
}

// What else is wrong with an order is tried for the receiver, which reads a post in the same way.
func TestTheGatewayTakesNoOrderThatItCannotTrust(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	status, _, _ := serveOnce(g, signed(t, http.MethodPost, standin.PaymentsPath, payment("evt-1", "s"),
		start.Add(-2*time.Minute)))
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = order(t, g, standin.RefundsPath, "r-1", `{"event_id":"r-1","action":"refund"}`)
	require.Equal(t, http.StatusUnprocessableEntity, status, "a refund of nothing")
	require.Empty(t, g.Orders())
}

func TestTheGatewayIsInstructedAndLookedAtOverHTTP(t *testing.T) {
	t.Parallel()
	before := newGateway(t).Before(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	asked := func(method, path, body string) (status int, answer string) {
		request := filetest.Must(http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))(t)
		status, answer, _ = serveOnce(before, request)
		return status, answer
	}
	status, _ := asked(http.MethodPost, "/gateway/tell", `{"mode":"fail","times":1}`)
	require.Equal(t, http.StatusNoContent, status)
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusOK} {
		status, _ := order(t, before, standin.PaymentsPath, "evt-1", payment("evt-1", "sub-1"))
		require.Equal(t, want, status)
	}
	_, answer := asked(http.MethodGet, "/gateway/orders", "")
	require.Contains(t, answer, `"event_id":"evt-1"`)
	status, _ = asked(http.MethodPost, "/v1/payment-processing", "{}")
	require.Equal(t, http.StatusTeapot, status, "what is not the gateway's is another's")
}
