package main

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/emulator"
)

func TestASmallSaleIsSoldOutAndASmallSoakLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts the services")
	}
	t.Parallel()
	if _, err := emulator.Find(t.Context()); errors.Is(err, emulator.ErrNotInstalled) && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip(err)
	}
	for says, arguments := range map[string]string{
		"OrderCancelled 55, OrderConfirmed 5, ": "flashsale -orders 60 -pieces 5 -kills-every 0",
		"credited ":                             "soak -seed 1 -events 60 -customers 5 -kills 0",
	} {
		t.Run(arguments, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := try(t.Context(), &out, strings.Fields(arguments)...)
			require.NoError(t, err, out.String())
			require.Contains(t, out.String(), says)
		})
	}
}

func TestASaleThatWentWrongIsNoticed(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	m := &market{site: &site{catalog: c}, sale: sale{orders: 10, pieces: 2}}
	good := m.wanted(2, 8)
	maps.Copy(good, counts{"OrderConfirmed": 2, "OrderCancelled": 8, "sold": 2})
	require.NoError(t, failure(t, func(r *run) { m.judge(r, good) }))
	for name, change := range map[string]counts{
		"one confirmed too many": {"OrderConfirmed": 1}, "one cancelled too few": {"OrderCancelled": -1}, "one for no reason": {"cancelled without a reason": 1},
		"one that waits": {"PaymentInitiated": 1}, "one lost": {"lost": 1}, "one that passed a state twice": {"passed a state twice": 1}, "a piece left": {"available": 1},
		"a piece reserved": {"reserved": 1}, "a piece sold twice": {"sold": 1}, "a buyer notified twice": {"notified twice": 1}, "a dead letter": {"dead letters": 1},
		"a buyer who was not notified": {"notification.email.order_cancelled": -1},
	} {
		found := maps.Clone(good)
		for what, n := range change {
			found.add(what, n)
		}
		require.Error(t, failure(t, func(r *run) { m.judge(r, found) }), name)
	}
}

func TestASoakThatWentWrongIsNoticed(t *testing.T) {
	t.Parallel()
	require.Error(t, failure(t, func(r *run) { judgeSoak(r, counts{"lost": 1}) }))
}
