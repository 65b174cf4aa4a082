package handler_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

func nothing(context.Context, handler.Event) (handler.Effect, error) { return handler.Effect{}, nil }

func outside(context.Context, handler.Event) (handler.Effect, error) {
	return handler.Effect{Result: "done"}, nil
}

func TestALeasedHandlerReconcilesOrIsSafeToRepeat(t *testing.T) {
	t.Parallel()
	r := handler.NewRegistry()
	r.Leased("safe", handler.Leased{Do: outside, SafeToRepeat: true})
	r.Leased("asks", handler.Leased{Do: outside, Reconcile: func(context.Context, handler.Event) (handler.Effect, bool, error) {
		return handler.Effect{}, false, nil
	}})
	for _, name := range []string{"safe", "asks"} {
		h, ok := r.Lookup(name)
		require.True(t, ok)
		require.NotNil(t, h.Leased)
		require.Nil(t, h.Tx)
	}
}

func TestAHandlerIsFoundByItsName(t *testing.T) {
	t.Parallel()
	r := handler.NewRegistry()
	r.Tx("points.credit", nothing)
	h, ok := r.Lookup("points.credit")
	require.True(t, ok)
	require.NotNil(t, h.Tx)
	for _, name := range []string{"points.reverse", "Points.Credit", ""} {
		_, ok = r.Lookup(name)
		require.False(t, ok, name)
	}
}

func TestAMistakeInRegisteringPanicsAtTheStart(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(*handler.Registry){
		"a name that is empty": func(r *handler.Registry) { r.Tx("", nothing) },
		"no handler":           func(r *handler.Registry) { r.Tx("a", nil) },
		"a name twice":         func(r *handler.Registry) { r.Tx("a", nothing); r.Tx("a", nothing) },
		"a name twice, of two kinds": func(r *handler.Registry) {
			r.Tx("a", nothing)
			r.Leased("a", handler.Leased{Do: outside, SafeToRepeat: true})
		},
		"a leased handler that does nothing": func(r *handler.Registry) { r.Leased("a", handler.Leased{SafeToRepeat: true}) },
		"a leased handler that can neither reconcile nor be repeated": func(r *handler.Registry) {
			r.Leased("a", handler.Leased{Do: outside})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Panics(t, func() { register(handler.NewRegistry()) })
		})
	}
}

func TestTheCatalogListsJustWhatAHandlerEmitsTo(t *testing.T) {
	t.Parallel()
	r := handler.NewRegistry()
	r.Tx("plans.change", nothing, "news", "mails")
	r.Leased("mails.send", handler.Leased{Do: outside, SafeToRepeat: true})
	for name, test := range map[string]struct {
		handler string
		listed  []string
		want    string
	}{
		"what it emits to, in any order": {"plans.change", []string{"mails", "news"}, ""},
		"one too few":                    {"plans.change", []string{"news"}, `queue plans: event type upgrade: plans.change emits to ["mails" "news"], and the catalog lists ["news"]`},
		"one too many":                   {"plans.change", []string{"news", "mails", "ads"}, `queue plans: event type upgrade: plans.change emits to ["mails" "news"], and the catalog lists ["ads" "mails" "news"]`},
		"a leased handler emits nothing": {"mails.send", []string{"news"}, `queue plans: event type upgrade: mails.send emits to [], and the catalog lists ["news"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := r.Check(&catalog.Catalog{Queues: []catalog.Queue{
				{ID: "plans", Enabled: true, Handlers: map[string]catalog.Handler{"upgrade": {Name: test.handler, Emits: test.listed}}},
				{ID: "asleep", Handlers: map[string]catalog.Handler{"upgrade": {Name: "plans.change"}}},
			}})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}

func TestEveryHandlerThatIsMissingIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	r := handler.NewRegistry()
	r.Tx("points.credit", nothing)
	queues := &catalog.Catalog{Queues: []catalog.Queue{
		{ID: "paid", Enabled: true, Handlers: map[string]catalog.Handler{"order.paid": {Name: "points.credit"}, "order.lost": {Name: "points.lose"}}},
		{ID: "sent", Enabled: true, Handlers: map[string]catalog.Handler{"mail": {Name: "mail.send"}}},
		{ID: "asleep", Handlers: map[string]catalog.Handler{"mail": {Name: "mail.dream"}}},
	}}
	err := r.Check(queues)
	require.ErrorContains(t, err, `queue paid: event type order.lost: no handler is registered as "points.lose"`)
	require.ErrorContains(t, err, `queue sent: event type mail: no handler is registered as "mail.send"`)
	require.NotContains(t, err.Error(), "mail.dream")
	r.Tx("points.lose", nothing)
	r.Tx("mail.send", nothing)
	require.NoError(t, r.Check(queues))
}

func TestATypedHandlerGetsItsBodyAndNoOther(t *testing.T) {
	t.Parallel()
	said := func(_ context.Context, _ handler.Event, body *contract.Envelope) (handler.Effect, error) {
		return handler.Effect{Result: body.ID}, nil
	}
	leased := handler.LeasedOf[*contract.Envelope]{
		Do: said,
		Reconcile: func(ctx context.Context, event handler.Event, body *contract.Envelope) (handler.Effect, bool, error) {
			effect, err := said(ctx, event, body)
			return effect, true, err
		},
	}.Leased()
	ask := func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		effect, done, err := leased.Reconcile(ctx, event)
		require.Equal(t, err == nil, done)
		return effect, err
	}
	for name, call := range map[string]handler.Tx{"a Tx": handler.Typed(said), "a Leased": leased.Do, "a Leased that is asked": ask} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			effect, err := call(t.Context(), handler.Event{Body: contract.Of(&contract.Envelope{ID: "e1"})})
			require.NoError(t, err)
			require.Equal(t, "e1", effect.Result)
			for _, other := range []contract.Body{{}, contract.Of(&contract.PayNow{})} {
				_, err = call(t.Context(), handler.Event{Body: other})
				require.Equal(t, retry.Verdict{Class: retry.Rejected, Reason: "unexpected_body", Counts: true}, retry.Decide(err))
			}
		})
	}
}

func TestAQueueWhoseMessagesItsHandlerDoesNotTakeIsRefused(t *testing.T) {
	t.Parallel()
	shipped, err := catalog.Load("")
	require.NoError(t, err)
	r := handler.NewRegistry()
	r.Tx("any", nothing)
	handler.RegisterTx(r, "orders", func(context.Context, handler.Event, *contract.PayNow) (handler.Effect, error) {
		return handler.Effect{}, nil
	})
	handler.RegisterLeased(r, "mails", handler.LeasedOf[*contract.Envelope]{SafeToRepeat: true, Do: func(context.Context, handler.Event, *contract.Envelope) (handler.Effect, error) {
		return handler.Effect{}, nil
	}})
	for name, test := range map[string]struct{ handler, contract, want string }{
		"its own contract":         {"orders", contract.PayNowV1, ""},
		"another":                  {"orders", contract.EnvelopeV1, "queue q: event type t: orders: format envelope.v1 is taken as *contract.Envelope, and not as *contract.PayNow"},
		"its own, under a lease":   {"mails", contract.EnvelopeV1, ""},
		"another, under a lease":   {"mails", contract.PayNowV1, "queue q: event type t: mails: format paynow.v1 is taken as *contract.PayNow, and not as *contract.Envelope"},
		"whatever it is: any will": {"any", contract.PayNowV1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := r.Check(&catalog.Catalog{Contracts: shipped.Contracts, Queues: []catalog.Queue{{
				ID: "q", Enabled: true, Contract: test.contract, Handlers: map[string]catalog.Handler{"t": {Name: test.handler}},
			}}})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}

// The id alone, and what joins the three, says nothing.
func TestACalleeKeyIsOfOneQueueTenantAndEventAlone(t *testing.T) {
	t.Parallel()
	keys := map[string][3]string{}
	for _, of := range [][3]string{
		{"a", "b", "c"}, {"a", "b", "d"}, {"a", "d", "c"}, {"d", "b", "c"}, {"b", "a", "c"}, {"a b", "", "c"}, {"a", "b c", ""}, {`a" "b`, "", "c"},
	} {
		key := handler.Event{Queue: of[0], Tenant: of[1], ID: of[2]}.CalleeKey()
		require.Equal(t, key, handler.CalleeKey(of[0], of[1], of[2]))
		require.True(t, pii.ID.Valid(key))
		require.NotContains(t, keys, key, "%q is that of %q", of, keys[key])
		keys[key] = of
	}
	// It is kept by callees: a release that derives it otherwise would move money twice.
	require.Equal(t, "8a579226-9aa0-56fd-95bf-ab25793bc9b5", handler.CalleeKey("sub-payment-initiation", "default", "renewal-1"))
}
