package endpoints_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/apps/endpoints"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

const (
	days    = 5 * 24 * time.Hour
	overlap = 24 * time.Hour
	notices = "endpoint-events"
)

var ada = audit.Change{Who: audit.Author{Proof: audit.ThisMachine, Name: "ada"}, Why: "a partner"}

type sent struct {
	to   endpoints.Address
	id   string
	body string
}

type poster struct {
	status int
	err    error
	checks error
	sent   []sent
	during func() // if set, it is called during a request
}

func (p *poster) Post(_ context.Context, to endpoints.Address, id string, body []byte) (int, error) {
	p.sent = append(p.sent, sent{to, id, string(body)})
	if p.during != nil {
		p.during()
	}
	return p.status, p.err
}

func (p *poster) Check(context.Context, string) error { return p.checks }

func (p *poster) answers(status int) {
	p.status, p.err = status, retry.HTTPStatus(status)
}

type world struct {
	*endpoints.Editor
	poster  poster
	faults  *storetest.Faults
	counter *storetest.Counter
	deliver *handler.Leased
	now     time.Time
	ids     int
}

func open(t *testing.T) *world {
	t.Helper()
	db := storetest.Open(t)
	w := &world{now: noon, counter: &storetest.Counter{Store: db}}
	w.faults = &storetest.Faults{Store: w.counter}
	w.poster.answers(204)
	clock := func() time.Time { return w.now }
	next := func() string { w.ids++; return fmt.Sprint("id-", w.ids) }
	w.Editor = &endpoints.Editor{
		Store: w.faults, Poster: &w.poster, OldSecretFor: overlap, Now: clock, NewID: next,
		NewSecret: func() string { return "whsec_" + next() },
	}
	registry := handler.NewRegistry()
	endpoints.Register(registry, endpoints.Deliverer{
		Store: w.faults, Poster: &w.poster, DisableAfter: days, Notices: []string{notices}, Now: clock,
	})
	h, ok := registry.Lookup(endpoints.Handler)
	require.True(t, ok)
	w.deliver = h.Leased
	return w
}

var shipped = catalogtest.Shipped()

func event(t require.TestingT, id, endpoint, eventType string) handler.Event {
	body := filetest.Must(shipped.Contracts.Held(contract.Of(&contract.Event{
		ID: id, Type: "webhook_delivery", Timestamp: "2026-03-02T11:59:58Z", Version: 1,
		Data: map[string]string{"endpoint_id": endpoint, "event_type": eventType, "subject_id": "sub-7"},
	})))(t)
	return handler.Event{
		Queue: "q", Tenant: "default", ID: id, Type: "webhook_delivery", CorrelationID: "c-1",
		Attempt: 1, Body: body,
	}
}

// send calls the handler, and commits its effect, until there is no conflict.
func (w *world) send(t require.TestingT, e handler.Event) (handler.Effect, error) {
	for e.Try = 0; ; e.Try++ {
		effect, err := w.deliver.Do(context.Background(), e)
		if err != nil || len(effect.Writes) == 0 {
			return effect, err
		}
		_, err = w.faults.Commit(context.Background(), effect.Writes)
		if !errors.Is(err, store.ErrStale) {
			require.NoError(t, err)
			return effect, nil
		}
	}
}

func (w *world) add(t require.TestingT, in endpoints.AddEndpoint) endpoints.Secret {
	if in.URL == "" {
		in.URL = "https://partner.example/hooks"
	}
	return filetest.Must(w.register(in))(t)
}

// list returns the ids of a list.
func (w *world) list(t require.TestingT, of endpoints.ListEndpoints) []string {
	of.Limit = store.MaxPage
	page := filetest.Must(w.List(context.Background(), ada.Who, of))(t)
	return filetest.Map(page.Items, func(e endpoints.Endpoint) string { return e.ID })
}

func (w *world) register(in endpoints.AddEndpoint) (endpoints.Secret, error) {
	in.Why = ada.Why
	return w.Add(context.Background(), ada.Who, in)
}

func of(id string) (in endpoints.ChangeEndpoint) {
	in.ID, in.Why = id, ada.Why
	return in
}

func (w *world) get(t require.TestingT, id string) endpoints.Endpoint {
	return filetest.Must(w.Get(context.Background(), id))(t)
}

// fails delivers an event that the endpoint answers with 503.
func (w *world) fails(t *testing.T, id, endpoint string) handler.Event {
	t.Helper()
	w.poster.answers(503)
	e := event(t, id, endpoint, "a")
	require.Error(t, filetest.ErrorOf(w.send(t, e)))
	return e
}

func TestATestRequestChangesNothing(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p", Events: []string{"invoice.*"}})
	require.NoError(t, filetest.ErrorOf(w.Disable(t.Context(), ada.Who, of("p"))))
	before := w.get(t, "p")
	got := filetest.Must(w.Test(t.Context(), "p"))(t)
	require.Equal(t, endpoints.Tested{ID: "p", WebhookID: got.WebhookID, Delivered: true, Status: 204}, got)
	require.JSONEq(t, `{"type":"endpoint.test","timestamp":"2026-03-02T12:00:00Z","data":{"id":"p"}}`,
		w.poster.sent[0].body)
	w.poster.answers(410)
	got = filetest.Must(w.Test(t.Context(), "p"))(t)
	require.Equal(t, 410, got.Status)
	require.NotEmpty(t, got.Reason)
	require.False(t, got.Delivered)
	require.Equal(t, before, w.get(t, "p"))
	require.ErrorIs(t, filetest.ErrorOf(w.Test(t.Context(), "q")), endpoints.ErrUnknown)
}

func TestANewSecretHasTheFormOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	first, second := endpoints.NewSecret(), endpoints.NewSecret()
	require.NotEqual(t, first, second)
	encoded, ok := strings.CutPrefix(first, "whsec_")
	require.True(t, ok)
	require.Len(t, filetest.Must(base64.StdEncoding.DecodeString(encoded))(t), 32)
}

func TestANewEndpointHasDefaultsAndItsSecretIsShownOnce(t *testing.T) {
	t.Parallel()
	w := open(t)
	added := w.add(t, endpoints.AddEndpoint{})
	require.Equal(t, endpoints.Endpoint{
		ID: "ep_id-1", Tenant: "default", URL: "https://partner.example/hooks", Events: []string{"#"},
		State: endpoints.Enabled, CreatedAt: noon, ChangedAt: noon, Version: added.Version,
	}, added.Endpoint)
	require.Equal(t, "whsec_id-2", added.Secret)
	require.Equal(t, added.Endpoint, w.get(t, "ep_id-1"))
	_, err := w.register(endpoints.AddEndpoint{ID: "ep_id-1", URL: "https://other.example"})
	require.ErrorIs(t, err, endpoints.ErrExists)
	require.Equal(t, added.Endpoint, w.get(t, "ep_id-1"))

	lost := endpoints.AddEndpoint{ID: "lost", URL: "https://other.example"}
	w.faults.FailAfter(1)
	require.ErrorIs(t, filetest.ErrorOf(w.register(lost)), storetest.ErrFault)
	_, err = w.register(lost)
	require.ErrorIs(t, err, endpoints.ErrExists, "after a lost answer, another call shows that it exists")
}

func TestAnInvalidEndpointIsRefused(t *testing.T) {
	t.Parallel()
	w := open(t)
	for sentence, in := range map[string]endpoints.AddEndpoint{
		"an invalid id": {ID: "a~b"}, "an invalid tenant": {Tenant: "a/b"},
		"an invalid pattern":     {Events: []string{"a", "b..c"}},
		"too many patterns":      {Events: slices.Repeat([]string{"a"}, 51)},
		"a URL that is too long": {URL: "https://a.example/" + strings.Repeat("x", 2048)},
	} {
		require.ErrorIs(t, filetest.ErrorOf(w.register(in)), audit.ErrInvalid, sentence)
	}
	w.poster.checks = fmt.Errorf("%w: not there", audit.ErrInvalid)
	_, err := w.register(endpoints.AddEndpoint{URL: "https://a.example"})
	require.ErrorIs(t, err, audit.ErrInvalid, "an address that requests may not go to is not registered")
	require.Empty(t, w.list(t, endpoints.ListEndpoints{}))
}

func TestAListBeginsWithTheNewestOrTheLastFailedEndpoint(t *testing.T) {
	t.Parallel()
	w := open(t)
	for i := range 5 {
		w.now = noon.Add(time.Duration(i) * time.Second)
		w.add(t, endpoints.AddEndpoint{ID: fmt.Sprint("p", i)})
	}
	for _, id := range []string{"p4", "p0"} {
		w.now = w.now.Add(time.Minute)
		w.fails(t, "evt-"+id, id)
	}
	for state, want := range map[string][]string{"": {"p4", "p3", "p2", "p1", "p0"}, "failing": {"p0", "p4"}} {
		require.Equal(t, want, w.list(t, endpoints.ListEndpoints{State: state}))
	}
}
