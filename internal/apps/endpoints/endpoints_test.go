package endpoints_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog/catalogtest"
	"billhook/internal/apps/endpoints"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
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
	news    = "endpoint-events"
)

var ada = audit.Change{Who: audit.Author{Proof: audit.ThisMachine, Name: "ada"}, Why: "a partner"}

type sent struct {
	to   endpoints.Address
	id   string
	body string
}

type posting struct {
	status int
	err    error
	checks error
	sent   []sent
	during func() // is called while a request is under way
}

func (p *posting) Post(_ context.Context, to endpoints.Address, id string, body []byte) (int, error) {
	p.sent = append(p.sent, sent{to, id, string(body)})
	if p.during != nil {
		p.during()
	}
	return p.status, p.err
}

func (p *posting) Check(context.Context, string) error { return p.checks }

func (p *posting) answers(status int) {
	p.status, p.err = status, retry.HTTPStatus(status)
}

type town struct {
	*endpoints.Editor
	posting posting
	faults  *storetest.Faults
	counter *storetest.Counter
	deliver *handler.Leased
	now     time.Time
	ids     int
}

func open(t *testing.T) *town {
	t.Helper()
	db := storetest.Open(t)
	w := &town{now: noon, counter: &storetest.Counter{Store: db}}
	w.faults = &storetest.Faults{Store: w.counter}
	w.posting.answers(204)
	clock := func() time.Time { return w.now }
	next := func() string { w.ids++; return fmt.Sprint("id-", w.ids) }
	w.Editor = &endpoints.Editor{
		Store: w.faults, Poster: &w.posting, OldSecretFor: overlap, Now: clock, NewID: next,
		NewSecret: func() string { return "whsec_" + next() },
	}
	registry := handler.NewRegistry()
	endpoints.Register(registry, endpoints.Deliverer{
		Store: w.faults, Poster: &w.posting, DisableAfter: days, Notices: []string{news}, Now: clock,
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

func (w *town) told(t require.TestingT, e handler.Event) (handler.Effect, error) {
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

func (w *town) add(t require.TestingT, asked endpoints.AddEndpoint) endpoints.Secret {
	if asked.URL == "" {
		asked.URL = "https://partner.example/hooks"
	}
	return filetest.Must(w.register(asked))(t)
}

// list has ada look at a list.
func (w *town) list(t require.TestingT, of endpoints.ListEndpoints) []endpoints.Endpoint {
	of.Page = console.Page{Limit: store.MaxPage}
	return filetest.Must(w.List(context.Background(), ada.Who, of))(t).Items
}

// register has ada add an endpoint.
func (w *town) register(asked endpoints.AddEndpoint) (endpoints.Secret, error) {
	asked.Why = ada.Why
	return w.Add(context.Background(), ada.Who, asked)
}

// of is a change of an endpoint with ada's reason.
func of(id string) (in endpoints.ChangeEndpoint) {
	in.ID, in.Why = id, ada.Why
	return in
}

func (w *town) get(t require.TestingT, id string) endpoints.Endpoint {
	return filetest.Must(w.Get(context.Background(), id))(t)
}

func TestAnEndpointGetsTheTypeTheTimeAndTheSubjectAlone(t *testing.T) {
	t.Parallel()
	w := open(t)
	added := w.add(t, endpoints.AddEndpoint{ID: "partner-1"})
	reads, commits := w.counter.Gets.Load(), w.counter.Commits.Load()
	effect := filetest.Must(w.told(t, event(t, "evt-1", "partner-1", "subscription.renewed")))(t)
	require.Equal(t, handler.Effect{Result: endpoints.Delivered}, effect)
	require.Equal(t, []sent{{
		endpoints.Address{ID: "partner-1", URL: "https://partner.example/hooks", Secrets: []string{added.Secret}},
		event(t, "evt-1", "partner-1", "subscription.renewed").CalleeKey(),
		`{"type":"subscription.renewed","timestamp":"2026-03-02T11:59:58Z","data":{"id":"sub-7"}}`,
	}}, w.posting.sent)
	require.Equal(t, []int64{1, 0}, []int64{w.counter.Gets.Load() - reads, w.counter.Commits.Load() - commits},
		"it reads one document")
}

func TestAnEventThatIsNotForTheEndpointIsNotSent(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		asked  endpoints.AddEndpoint
		event  string
		tenant string
		want   string
	}{
		"a type that it does not want": {
			endpoints.AddEndpoint{Events: []string{"invoice.*", "subscription.#"}},
			"order.paid", "default",
			endpoints.Filtered,
		},
		"a type that it wants": {
			endpoints.AddEndpoint{Events: []string{"invoice.*", "subscription.#"}},
			"subscription.a.b", "default",
			endpoints.Delivered,
		},
		"a type that is longer": {
			endpoints.AddEndpoint{Events: []string{"invoice.*"}}, "invoice.line.added", "default", endpoints.Filtered,
		},
		"an endpoint of another tenant": {
			endpoints.AddEndpoint{Tenant: "other"}, "a", "default", endpoints.EndpointUnknown,
		},
		"an event of another tenant": {endpoints.AddEndpoint{}, "a", "other", endpoints.EndpointUnknown},
		"an endpoint that there never was": {
			endpoints.AddEndpoint{ID: "q"}, "a", "default", endpoints.EndpointUnknown,
		},
	} {
		w := open(t)
		if test.asked.ID == "" {
			test.asked.ID = "p"
		}
		w.add(t, test.asked)
		e := event(t, "evt-1", "p", test.event)
		e.Tenant = test.tenant
		effect, err := w.told(t, e)
		require.NoError(t, err, sentence)
		require.Equal(t, handler.Effect{Result: test.want}, effect, sentence)
		require.Equal(t, test.want == endpoints.Delivered, len(w.posting.sent) == 1, sentence)
	}
}

func (w *town) meanwhile(do func()) {
	w.posting.during = func() {
		w.posting.during = nil
		do()
	}
}

func TestAnEndpointEnabledDuringAFailedRequestStaysEnabledAndIsDisabledOnce(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p"})
	w.posting.answers(503)
	e := event(t, "evt-1", "p", "a")
	require.Error(t, filetest.ErrorOf(w.told(t, e)))
	w.now = noon.Add(days)
	w.meanwhile(func() {
		require.NoError(t, filetest.ErrorOf(w.Enable(t.Context(), ada.Who, of("p"))))
	})
	require.EqualError(t, filetest.ErrorOf(w.told(t, e)), "callee_failed_503")
	require.Equal(t, endpoints.Enabled, w.get(t, "p").State)
	require.Equal(t, noon.Add(days), w.get(t, "p").FailingSince)

	// Of two that fail at the same time, one gives the endpoint up, and the other finds that.
	w.posting.answers(410)
	w.posting.sent = nil
	w.meanwhile(func() {
		require.Len(t, filetest.Must(w.told(t, event(t, "evt-2", "p", "a")))(t).Emit, 1)
	})
	effect := filetest.Must(w.told(t, e))(t)
	require.Empty(t, effect.Emit)
	require.Equal(t, endpoints.EndpointDisabled, effect.Result)
	require.Len(t, w.posting.sent, 2)
}

func TestASuccessEndsAFailureBeforeItsEventIsDone(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p"})
	w.posting.answers(503)
	e := event(t, "evt-1", "p", "a")
	require.Error(t, filetest.ErrorOf(w.told(t, e)))
	w.posting.answers(200)
	w.faults.FailBefore(1)
	_, err := w.told(t, e)
	require.Equal(t, retry.EveryMessage, retry.Decide(err).Scope)
	w.meanwhile(func() {
		require.NoError(t, filetest.ErrorOf(w.Rotate(t.Context(), ada.Who, of("p"))))
	})
	require.NoError(t, filetest.ErrorOf(w.told(t, e)))
	require.Zero(t, w.get(t, "p").FailingSince)
	require.NotZero(t, w.get(t, "p").OldSecretUntil, "and the rotation stands")
}

func TestASuccessLeavesAFailureThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p"})
	fails := func(id string) {
		w.now = w.now.Add(time.Minute)
		w.posting.answers(503)
		require.Error(t, filetest.ErrorOf(w.told(t, event(t, id, "p", "a"))))
		w.posting.answers(200)
	}
	fails("evt-1")
	w.meanwhile(func() {
		require.NoError(t, filetest.ErrorOf(w.Enable(t.Context(), ada.Who, of("p"))))
		fails("evt-2")
	})
	require.NoError(t, filetest.ErrorOf(w.told(t, event(t, "evt-3", "p", "a"))))
	require.Equal(t, noon.Add(2*time.Minute), w.get(t, "p").FailingSince)
}

func TestAnEndpointThatCannotBeReadIsToldNothing(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p"})
	storetest.Edit(t, w.faults, endpoints.Key("p"), func(f map[string]any) { f["state"] = "halted" })
	_, err := w.told(t, event(t, "evt-1", "p", "a"))
	require.Equal(t, "endpoint_unreadable", retry.Decide(err).Reason)
	require.Empty(t, w.posting.sent)
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
		w.posting.sent[0].body)
	w.posting.answers(410)
	got = filetest.Must(w.Test(t.Context(), "p"))(t)
	require.Equal(t, 410, got.Status)
	require.NotEmpty(t, got.Reason)
	require.False(t, got.Delivered)
	require.Equal(t, before, w.get(t, "p"))
	require.ErrorIs(t, filetest.ErrorOf(w.Test(t.Context(), "q")), endpoints.ErrUnknown)
}

func TestANewSecretIsOneOfStandardWebhooks(t *testing.T) {
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
	require.ErrorIs(t, err, endpoints.ErrExists, "so whoever has not heard the answer knows")
}

func TestAnInvalidEndpointIsRefused(t *testing.T) {
	t.Parallel()
	w := open(t)
	for sentence, asked := range map[string]endpoints.AddEndpoint{
		"an odd id": {ID: "a~b"}, "an odd tenant": {Tenant: "a/b"},
		"a pattern that is none": {Events: []string{"a", "b..c"}},
		"too many patterns":      {Events: slices.Repeat([]string{"a"}, 51)},
		"a URL that is too long": {URL: "https://a.example/" + strings.Repeat("x", 2048)},
	} {
		require.ErrorIs(t, filetest.ErrorOf(w.register(asked)), audit.ErrInvalid, sentence)
	}
	w.posting.checks = fmt.Errorf("%w: not there", audit.ErrInvalid)
	_, err := w.register(endpoints.AddEndpoint{URL: "https://a.example"})
	require.ErrorIs(t, err, audit.ErrInvalid, "where requests may not go, nothing is registered")
	require.Empty(t, w.list(t, endpoints.ListEndpoints{}))
}

func TestAListBeginsWithTheNewestOrWithThatWhichFailedLast(t *testing.T) {
	t.Parallel()
	w := open(t)
	for i := range 5 {
		w.now = noon.Add(time.Duration(i) * time.Second)
		w.add(t, endpoints.AddEndpoint{ID: fmt.Sprint("p", i)})
	}
	w.posting.answers(503)
	for _, id := range []string{"p4", "p0"} {
		w.now = w.now.Add(time.Minute)
		require.Error(t, filetest.ErrorOf(w.told(t, event(t, "evt-"+id, id, "a"))))
	}
	for state, want := range map[string][]string{"": {"p4", "p3", "p2", "p1", "p0"}, "failing": {"p0", "p4"}} {
		page := w.list(t, endpoints.ListEndpoints{State: state})
		require.Equal(t, want, filetest.Map(page, func(e endpoints.Endpoint) string { return e.ID }))
	}
}

func TestDeliveriesShowHowManyAttemptsSucceededAndHowLongTheyTook(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.add(t, endpoints.AddEndpoint{ID: "p"})
	begun := noon.Add(-time.Hour)
	attempt := func(ms int, outcome retry.Outcome, reason string) dedupe.Attempt {
		return dedupe.Attempt{
			Begun: begun, Ended: begun.Add(time.Duration(ms) * time.Millisecond), Outcome: outcome, Reason: reason,
		}
	}
	for i, r := range []dedupe.Record{
		{Status: dedupe.Completed, Result: endpoints.Delivered, Tries: dedupe.Tries{Log: []dedupe.Attempt{
			attempt(900, retry.Retry, "callee_failed_503"), attempt(40, retry.Processed, ""),
		}}},
		{
			Status: dedupe.Completed, Result: endpoints.Delivered,
			Tries: dedupe.Tries{Log: []dedupe.Attempt{attempt(20, retry.Processed, "")}},
		},
		{
			Status: dedupe.Completed, Result: endpoints.Filtered,
			Tries: dedupe.Tries{Log: []dedupe.Attempt{attempt(1, retry.Processed, "")}},
		},
		{Status: dedupe.Processing, Tries: dedupe.Tries{Log: []dedupe.Attempt{{Begun: begun}}}},
		{Status: dedupe.Completed, Identity: dedupe.Identity{Tenant: "other"}, Result: endpoints.EndpointUnknown},
		{Status: dedupe.Completed, Identity: dedupe.Identity{EventType: "order.paid"}, Result: "credited"},
		{Status: dedupe.Completed, Identity: dedupe.Identity{OrderingKey: "q"}, Result: endpoints.Delivered},
	} {
		r.Queue, r.EventID, r.CreatedAt, r.Attempts = "one-queue", fmt.Sprint("e", i),
			noon.Add(time.Duration(i)*time.Second), int64(len(r.Log))
		r.Tenant, r.EventType, r.OrderingKey = cmp.Or(r.Tenant, "default"), cmp.Or(r.EventType, "webhook_delivery"),
			cmp.Or(r.OrderingKey, "p")
		storetest.Put(t, w.Store, store.Create(dedupe.Key(r.Queue, r.Tenant, r.EventID), r.Fields()))
	}
	show := func(id string) (endpoints.Deliveries, error) {
		o, _ := console.NewCatalog(w.Operations()).Find("endpoints deliveries")
		answer, err := o.Call(t.Context(), ada.Who, console.Input{Path: map[string]string{"id": id}})
		found, _ := answer.(endpoints.Deliveries)
		return found, err
	}
	found := filetest.Must(show("p"))(t)
	require.Equal(t, []string{
		"2 of 3 attempts succeeded (66 %). An attempt took 40 ms in the median, 900 ms at most.",
		"The others failed with: callee_failed_503 1.",
	}, found.Notes())
	require.Equal(t, endpoints.Sent{
		EventID: "e0", Queue: "one-queue", At: noon, Status: dedupe.Completed, Result: endpoints.Delivered,
		Attempts: 2, Failure: "callee_failed_503", Milliseconds: 40,
	}, found.Items[3])
	require.Len(t, found.Items, 4)
	require.ErrorIs(t, filetest.ErrorOf(show("nobody")), endpoints.ErrUnknown)
}

type expected struct {
	there         bool
	state         endpoints.State
	reason        string
	failing       time.Time
	secret, older string
	until         time.Time
	audit         []string
}

// It is never given up while a success stands behind its last failure, nor before its days are over.
func TestEveryHistoryOfAnEndpointAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	w := open(t)
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		id := fmt.Sprint("p", runs)
		w.faults.Down(false)
		w.now = noon
		added := w.add(t, endpoints.AddEndpoint{ID: id})
		m := expected{
			there: true, state: endpoints.Enabled, secret: added.Secret, audit: []string{"local:ada add a partner"},
		}
		tell := func(t *rapid.T, status int) {
			w.posting.answers(status)
			if status == 0 {
				w.posting.status, w.posting.err = 0, retry.Down("callee_unreachable", nil)
			}
			requests := len(w.posting.sent)
			effect, err := w.told(t, event(t, fmt.Sprint("evt-", w.ids), id, "a"))
			w.ids++
			switch {
			case !m.there:
				require.Equal(t, endpoints.EndpointUnknown, effect.Result)
			case m.state == endpoints.Disabled:
				require.Equal(t, endpoints.EndpointDisabled, effect.Result)
			default:
				secrets := []string{m.secret}
				if w.now.Before(m.until) {
					secrets = append(secrets, m.older)
				}
				require.Equal(t, secrets, w.posting.sent[requests].to.Secrets)
				requests++
				switch {
				case status == 200:
					require.NoError(t, err)
					m.failing = time.Time{}
				case status == 410, !m.failing.IsZero() && w.now.Sub(m.failing) >= days:
					require.NoError(t, err)
					m.state, m.reason = endpoints.Disabled, endpoints.Failing
					if status == 410 {
						m.reason = endpoints.Gone
					}
					require.Equal(t, endpoints.EndpointDisabled, effect.Result)
					require.Equal(t, []string{news}, []string{effect.Emit[0].To})
					_, message, err := shipped.Contracts.Compose(effect.Emit[0].Body,
						contract.Stamp{ID: "n-1", OrderingKey: effect.Emit[0].OrderingKey, At: w.now})
					require.NoError(t, err, "the news are as the catalog declares them")
					since := ""
					if !m.failing.IsZero() {
						since = `,"failing_since":"` + m.failing.Format(time.RFC3339) + `"`
					}
					require.Contains(t, string(message.Data), `"type":"endpoint.disabled"`)
					require.Contains(t, string(message.Data),
						`"data":{"endpoint_id":"`+id+`","reason":"`+m.reason+`"`+since+`}`)
					m.audit = append(m.audit, "billhook disable "+m.reason)
				default:
					require.Error(t, err)
					if m.failing.IsZero() {
						m.failing = w.now
					}
				}
			}
			require.Len(t, w.posting.sent, requests)
		}
		// change is a person's, which m follows, and says whether that changed anything.
		change := func(name string, do func(context.Context, audit.Author, endpoints.ChangeEndpoint) (
			endpoints.Endpoint, error), follow func() bool,
		) {
			_, err := do(context.Background(), ada.Who, of(id))
			if !m.there {
				require.ErrorIs(t, err, endpoints.ErrUnknown)
				return
			}
			require.NoError(t, err)
			if follow() {
				m.audit = append(m.audit, "local:ada "+name+" a partner")
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"the endpoint answers": func(t *rapid.T) {
				tell(t, rapid.SampledFrom([]int{200, 200, 503, 404, 0, 410}).Draw(t, "status"))
			},
			"it is not called": func(t *rapid.T) {
				w.posting.status, w.posting.err = 0, retry.Busy("callee_resting", nil)
				_, err := w.told(t, event(t, "evt-busy", id, "a"))
				require.Equal(t, m.there && m.state == endpoints.Enabled, err != nil)
			},
			"time passes": func(t *rapid.T) {
				w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Minute, 12 * time.Hour, days - time.Hour, days}).
					Draw(t, "wait"))
			},
			"the store is down": func(t *rapid.T) {
				w.faults.Down(true)
				_, err := w.told(t, event(t, "evt-down", id, "a"))
				w.faults.Down(false)
				require.Equal(t, retry.EveryMessage, retry.Decide(err).Scope, "it is no failure of the endpoint")
			},
			"a person enables it": func(*rapid.T) {
				change("enable", w.Enable, func() bool {
					before := m.state == endpoints.Enabled && m.failing.IsZero()
					m.state, m.reason, m.failing = endpoints.Enabled, "", time.Time{}
					return !before
				})
			},
			"a person disables it": func(*rapid.T) {
				change("disable", w.Disable, func() bool {
					if m.state == endpoints.Disabled {
						return false
					}
					m.state, m.reason = endpoints.Disabled, endpoints.ByHand
					return true
				})
			},
			"a person rotates its secret": func(*rapid.T) {
				var rotated endpoints.Secret
				change("rotate", func(ctx context.Context, by audit.Author, in endpoints.ChangeEndpoint) (
					_ endpoints.Endpoint, err error,
				) {
					rotated, err = w.Rotate(ctx, by, in)
					return rotated.Endpoint, err
				}, func() bool {
					m.secret, m.older, m.until = rotated.Secret, m.secret, w.now.Add(overlap)
					return true
				})
			},
			"a person removes it": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
					t.Skip("else little is left to look at")
				}
				change("remove", w.Remove, func() bool {
					m = expected{audit: m.audit}
					return true
				})
			},
			"": func(t *rapid.T) {
				e, err := w.Get(context.Background(), id)
				if !m.there {
					require.ErrorIs(t, err, endpoints.ErrUnknown)
				} else {
					require.NoError(t, err)
					require.Equal(t, expected{
						there: true, state: e.State, reason: e.Reason, failing: e.FailingSince, secret: m.secret,
						older: m.older, until: e.OldSecretUntil, audit: m.audit,
					}, m)
				}
				of := audit.Subject{Kind: endpoints.Kind, ID: id}
				changes := filetest.Must(of.All(context.Background(), w.faults))(t)
				require.ElementsMatch(t, m.audit, filetest.Map(changes, func(c audit.Entry) string {
					return c.Who + " " + c.Action + " " + c.Why
				}))
				for in, on := range map[endpoints.ListEndpoints]bool{
					{}: m.there, {Tenant: "default"}: m.there, {Tenant: "other"}: false,
					{State: "disabled"}: m.there && m.state == endpoints.Disabled, {State: "failing"}: m.there &&
						!m.failing.IsZero(),
				} {
					ids := filetest.Map(w.list(t, in), func(e endpoints.Endpoint) string { return e.ID })
					require.Equal(t, on, slices.Contains(ids, id), in)
				}
			},
		})
	})
}
