package standin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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
	r, err := standin.NewReceiver(standin.ReceiverConfig{
		Secrets: []string{otherSecret, receiverSecret}, Tolerance: 5 * time.Minute, Now: func() time.Time { return start },
	})
	require.NoError(t, err)
	return r
}

func notice(id string) string {
	return `{"event_id":"` + id + `","action":"renewal","subscription_id":"sub-1","created_at":"2026-11-20T09:00:00Z","payload":{}}`
}

// signed returns a request as the sender makes it.
func signed(t testing.TB, method, path, body string, at time.Time) *http.Request {
	t.Helper()
	signer, err := signature.NewSigner(signature.Generic, receiverSecret)
	require.NoError(t, err)
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for name, value := range signer.Sign("", []byte(body), at) {
		request.Header.Set(name, value)
	}
	return request
}

// post delivers an event. cut reports whether the connection ended without an answer.
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

func outcomes(r *standin.Receiver) (all []string) {
	for _, d := range r.Deliveries() {
		all = append(all, d.EventID+" "+d.Outcome)
	}
	return all
}

func TestTheReceiverAppliesAKeyOnce(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	status, answer, _ := post(t, r, "evt-1", notice("evt-1"))
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"duplicate":false}`, answer)
	for range 2 {
		status, answer, _ = post(t, r, "evt-1", notice("evt-1"))
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `{"duplicate":true}`, answer)
	}
	status, _, _ = post(t, r, "evt-1", strings.Replace(notice("evt-1"), "sub-1", "sub-2", 1))
	require.Equal(t, http.StatusUnprocessableEntity, status, "the same key with another body is another event")
	_, _, _ = post(t, r, "evt-2", notice("evt-2"))
	require.Equal(t, []string{"evt-1 applied", "evt-1 duplicate", "evt-1 duplicate", "evt-1 refused", "evt-2 applied"}, outcomes(r))
	require.Equal(t, []int{1, 1, 0}, []int{r.Applied("evt-1"), r.Applied("evt-2"), r.Applied("evt-3")})
	require.Equal(t, standin.Delivery{
		Path: "/v1/webhooks/payment", Key: "evt-1", EventID: "evt-1", Action: "renewal", SubscriptionID: "sub-1", At: start, Outcome: standin.Applied,
	}, r.Deliveries()[0])
}

func TestAHangEndsWithItsSenderOrWithTheReceiver(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	require.NoError(t, r.Tell(standin.Hang, 3))
	hang := func(ctx context.Context) <-chan bool {
		request := signed(t, http.MethodPost, webhookPath, notice("evt"), start).WithContext(ctx)
		request.Header.Set("Idempotency-Key", "evt")
		ended := make(chan bool)
		go func() {
			_, _, cut := serveOnce(r, request)
			ended <- cut
		}()
		return ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	first, second := hang(ctx), hang(t.Context())
	select {
	case <-first:
		t.Fatal("answered while its sender waits")
	case <-second:
		t.Fatal("answered while its sender waits")
	default:
	}
	cancel()
	require.True(t, <-first)
	r.Close()
	r.Close()
	require.True(t, <-second)
	require.True(t, <-hang(t.Context()), "closed, nothing hangs any more")
	require.Equal(t, []string{"evt hung", "evt hung", "evt hung"}, outcomes(r))
	require.Zero(t, r.Applied("evt"))
}

func TestTheReceiverTellsWhetherAnEventWasApplied(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	ask := func() int {
		status, _, _ := serveOnce(r, signed(t, http.MethodGet, webhookPath+"/evt", "", start))
		return status
	}
	require.Equal(t, http.StatusNotFound, ask())
	require.NoError(t, r.Tell(standin.Fail, 1))
	require.Equal(t, http.StatusNotFound, ask(), "a question is no delivery")
	_, _, _ = post(t, r, "evt", notice("evt"))
	require.Equal(t, http.StatusNotFound, ask(), "a failure applies nothing")
	require.NoError(t, r.Tell(standin.Forget, 1))
	_, _, _ = post(t, r, "evt", notice("evt"))
	require.Equal(t, http.StatusOK, ask())
	unsigned := httptest.NewRequestWithContext(t.Context(), http.MethodGet, webhookPath+"/evt", nil)
	status, _, _ := serveOnce(r, unsigned)
	require.Equal(t, http.StatusUnauthorized, status)
}

func TestTheReceiverAcceptsOnlySignedCompleteRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body   string
		at     time.Duration // offset from now
		change func(*http.Request)
		want   int
	}{
		"at the edges, old":        {notice("evt"), -5 * time.Minute, nil, 200},
		"too old":                  {notice("evt"), -5*time.Minute - time.Second, nil, 401},
		"too new":                  {notice("evt"), 5*time.Minute + time.Second, nil, 401},
		"no signature":             {notice("evt"), 0, func(r *http.Request) { r.Header.Del("X-Webhook-Signature") }, 401},
		"another body than signed": {notice("evt"), 0, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(notice("evu"))) }, 401},
		"a key that is not its id": {notice("evt"), 0, func(r *http.Request) { r.Header.Set("Idempotency-Key", "evu") }, 422},
		"no key":                   {notice("evt"), 0, func(r *http.Request) { r.Header.Del("Idempotency-Key") }, 422},
		"two keys":                 {notice("evt"), 0, func(r *http.Request) { r.Header.Add("Idempotency-Key", "evt") }, 422},
		"no JSON":                  {"evt", 0, nil, 400},
		"one name twice":           {`{"key":"evt","event_id":"evt","key":"evt","event_id":"evt"}`, 0, nil, 400},
		"no action":                {`{"key":"evt","event_id":"evt","subscription_id":"sub-1"}`, 0, nil, 422},
		"no subscription":          {`{"key":"evt","event_id":"evt","action":"renewal"}`, 0, nil, 422},
		"an id that is none":       {notice("../evt"), 0, func(r *http.Request) { r.Header.Set("Idempotency-Key", "../evt") }, 422},
		"too large":                {`{"event_id":"` + strings.Repeat("e", 256<<10) + `"}`, 0, nil, 413},
		"cut short":                {notice("evt"), 0, func(r *http.Request) { r.Body = io.NopCloser(&cutShort{}) }, 400},
		"another method":           {notice("evt"), 0, func(r *http.Request) { r.Method = http.MethodPut }, 405},
		"another path":             {notice("evt"), 0, func(r *http.Request) { r.URL.Path = "/v1/webhooks" }, 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t)
			require.NoError(t, r.Tell(standin.Double, 1))
			request := signed(t, http.MethodPost, webhookPath, test.body, start.Add(test.at))
			request.Header.Set("Idempotency-Key", "evt")
			if test.change != nil {
				test.change(request)
			}
			status, answer, _ := serveOnce(r, request)
			require.Equal(t, test.want, status)
			require.NotContains(t, answer, "evt")
			if test.want == http.StatusOK {
				require.Equal(t, []string{"evt applied"}, outcomes(r))
				return
			}
			require.Empty(t, r.Deliveries())
		})
	}
}

type cutShort struct{}

func (*cutShort) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestModesAndDeliveriesHaveRoutesForPeople(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	tell := func(body string) int {
		status, _, _ := serveOnce(r, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tell", strings.NewReader(body)))
		return status
	}
	list := func() string {
		status, answer, _ := serveOnce(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/deliveries", nil))
		require.Equal(t, http.StatusOK, status)
		return answer
	}
	require.JSONEq(t, `{"items":[]}`, list())
	for body, want := range map[string]int{
		``: 400, `[]`: 400, `{"mode":1}`: 400, `{"mode":"fail","times":1,"when":2}`: 400, `{"mode":"fail","times":1} {}`: 400,
		`{"mode":"` + strings.Repeat("x", 2000) + `"}`: 400,
		`{"mode":"fail"}`: 422, `{"mode":"fail","times":-1}`: 422, `{"mode":"fail","times":1000001}`: 422,
		`{"mode":"","times":1}`: 422, `{"mode":"explode","times":1}`: 422,
		`{"mode":"fail","times":1}`: 204,
	} {
		require.Equal(t, want, tell(body), body)
	}
	_, _, _ = post(t, r, "evt", notice("evt"))
	_, _, _ = post(t, r, "evt", notice("evt"))
	require.JSONEq(t, `{"items":[
		{"path":"/v1/webhooks/payment","key":"evt","event_id":"evt","action":"renewal","subscription_id":"sub-1","at":"2026-11-20T09:00:00Z","outcome":"failed"},
		{"path":"/v1/webhooks/payment","key":"evt","event_id":"evt","action":"renewal","subscription_id":"sub-1","at":"2026-11-20T09:00:00Z","outcome":"applied"}]}`, list())
}

func TestAReceiverRequiresSecretsAndATolerance(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]standin.ReceiverConfig{
		"no secret":      {Tolerance: time.Minute},
		"a short secret": {Secrets: []string{"short"}, Tolerance: time.Minute},
		"no window":      {Secrets: []string{receiverSecret}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := standin.NewReceiver(config)
			require.Error(t, err)
		})
	}
	_, err := standin.NewReceiver(standin.ReceiverConfig{Secrets: []string{receiverSecret}, Tolerance: time.Minute})
	require.NoError(t, err, "the clock may be the machine's")
}

// Over a real connection: a forgotten answer is a cut connection, not an empty answer.
func TestAForgottenAnswerIsACutConnection(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	require.NoError(t, r.Tell(standin.Forget, 1))
	server := httptest.NewServer(r)
	defer server.Close()
	request := signed(t, http.MethodPost, webhookPath, notice("evt"), start)
	outgoing, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+webhookPath, bytes.NewBufferString(notice("evt")))
	require.NoError(t, err)
	outgoing.Header = request.Header
	outgoing.Header["idempotency-key"] = []string{"evt"}
	response, err := server.Client().Do(outgoing)
	if err == nil {
		_ = response.Body.Close()
	}
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 1, r.Applied("evt"))
}

// Against a simple model: modes are used up in order, and a key is applied once unless the mode
// is Double.
func TestTheReceiverAgreesWithItsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := newReceiver(t)
		r.Close() // or a hanging request would last until the end
		var told []standin.Mode
		applied, count := map[string]int{}, 0
		rt.Repeat(map[string]func(*rapid.T){
			"tell": func(rt *rapid.T) {
				mode := rapid.SampledFrom([]standin.Mode{standin.Fail, standin.Refuse, standin.Hang, standin.Forget, standin.Double}).Draw(rt, "mode")
				times := rapid.IntRange(1, 3).Draw(rt, "times")
				require.NoError(rt, r.Tell(mode, times))
				for range times {
					told = append(told, mode)
				}
			},
			"post": func(rt *rapid.T) {
				id := fmt.Sprintf("evt-%d", rapid.IntRange(0, 2).Draw(rt, "id"))
				mode := standin.Mode("")
				if len(told) > 0 {
					mode, told = told[0], told[1:]
				}
				status, _, cut := post(t, r, id, notice(id))
				count++
				switch mode {
				case standin.Fail:
					require.Equal(rt, 503, status)
				case standin.Refuse:
					require.Equal(rt, 422, status)
				case standin.Hang:
					require.True(rt, cut)
				case standin.Double:
					applied[id]++
					require.Equal(rt, 200, status)
				default:
					applied[id] = max(applied[id], 1)
					require.Equal(rt, mode == standin.Forget, cut)
				}
			},
			"": func(rt *rapid.T) {
				for i := range 3 {
					id := fmt.Sprintf("evt-%d", i)
					require.Equal(rt, applied[id], r.Applied(id))
				}
				require.Len(rt, r.Deliveries(), count)
			},
		})
	})
}

func FuzzReceiver(f *testing.F) {
	f.Add("/tell", []byte(`{"mode":"fail","times":1}`), "")
	f.Add(webhookPath, []byte(notice("evt")), "evt")
	f.Add(webhookPath, []byte(`{"event_id":"e","action":"","subscription_id":null}`), "e")
	f.Add("/tell", []byte(`{"mode":"hang","times":1000000000000000000000}`), "\n")
	f.Fuzz(func(t *testing.T, path string, body []byte, key string) {
		r := newReceiver(t)
		r.Close()
		request := signed(t, http.MethodPost, webhookPath, string(body), start)
		request.URL.Path = path
		request.Header["Idempotency-Key"] = []string{key}
		status, _, cut := serveOnce(r, request)
		require.False(t, cut)
		if status != http.StatusOK || path != webhookPath {
			require.Empty(t, r.Deliveries())
			return
		}
		// Another JSON reader must find the same id in each accepted body.
		given := map[string]any{}
		require.NoError(t, json.Unmarshal(body, &given))
		require.Equal(t, key, given["event_id"])
		require.Equal(t, 1, r.Applied(key))
	})
}
