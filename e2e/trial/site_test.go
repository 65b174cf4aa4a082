package main

import (
	"bytes"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASmallSaleIsSoldOut(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and starts the services")
	}
	t.Parallel()
	var out bytes.Buffer
	err := try(t.Context(), &out, "flashsale", "-orders", "60", "-pieces", "5", "-kills-every", "0")
	require.NoError(t, err, out.String())
	require.Contains(t, out.String(), "confirmed 5, cancelled out_of_stock 55; stock: 0 available, 0 reserved, 5 sold")
}

func TestASaleThatWentWrongIsNoticed(t *testing.T) {
	t.Parallel()
	good := func() outcome {
		told := counts{"notification.email.order_confirmed": 2, "notification.email.order_cancelled": 8}
		return outcome{confirmed: 2, cancelled: counts{"out_of_stock": 8}, open: counts{}, sold: 2, told: told, wanted: maps.Clone(told)}
	}
	judge := func(o outcome) error {
		return failure(t, func(r *run) { o.judge(r, sale{orders: 10, pieces: 2}) })
	}
	require.NoError(t, judge(good()))
	for name, change := range map[string]func(*outcome){
		"one confirmed too many":        func(o *outcome) { o.confirmed = 3 },
		"one cancelled too few":         func(o *outcome) { o.cancelled["out_of_stock"] = 7 },
		"one cancelled for no reason":   func(o *outcome) { o.cancelled = counts{"out_of_stock": 7, "": 1} },
		"one that waits for a payment":  func(o *outcome) { o.open["PaymentInitiated"] = 1 },
		"one that is lost":              func(o *outcome) { o.lost = 1 },
		"one that passed a state twice": func(o *outcome) { o.doubled = 1 },
		"a piece that is left":          func(o *outcome) { o.available = 1 },
		"a piece that stays reserved":   func(o *outcome) { o.reserved = 1 },
		"a piece sold twice":            func(o *outcome) { o.sold = 3 },
		"a buyer who was not told":      func(o *outcome) { o.told["notification.email.order_cancelled"] = 7 },
		"a buyer who was told twice":    func(o *outcome) { o.toldTwice = 1 },
		"a dead letter":                 func(o *outcome) { o.letters = 1 },
	} {
		o := good()
		change(&o)
		require.Error(t, judge(o), name)
	}
}

func TestASoakThatWentWrongIsNoticed(t *testing.T) {
	t.Parallel()
	for _, wrong := range []reckoning{{lost: 1}, {doubled: 1}, {outOfOrder: 1}, {wrongBalances: 1}, {missing: 1}} {
		require.Error(t, failure(t, wrong.judge), "%+v", wrong)
	}
	require.NoError(t, failure(t, reckoning{credited: 3, letters: 1}.judge))
}
