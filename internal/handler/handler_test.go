package handler_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/handler"
)

func nothing(context.Context, handler.Event) (handler.Effect, error) { return handler.Effect{}, nil }

func outside(context.Context, handler.Event) (string, error) { return "done", nil }

func TestALeasedHandlerReconcilesOrIsSafeToRepeat(t *testing.T) {
	t.Parallel()
	r := handler.NewRegistry()
	r.Leased("safe", handler.Leased{Do: outside, SafeToRepeat: true})
	r.Leased("asks", handler.Leased{Do: outside, Reconcile: func(context.Context, handler.Event) (string, bool, error) { return "", false, nil }})
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
